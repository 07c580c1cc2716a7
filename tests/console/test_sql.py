"""The SQL editor: runs what is typed, shows rows and a chart, and keeps the query in the address."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import ShownLake
from tests.support.browsers import Visit

pytestmark = pytest.mark.console


def write(page: Page, text: str) -> None:
    page.get_by_label("SQL", exact=True).click()
    page.keyboard.press("Control+a")
    page.keyboard.type(text)


def test_query_is_typed_run_by_its_key_and_drawn(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/sql?q=SELECT 1")
    write(page, "SELECT region, sum(amount) AS total FROM sales.orders GROUP BY ALL ORDER BY region")
    page.keyboard.press("Control+Enter")
    rows = page.get_by_role("group", name="Rows")
    expect(rows.get_by_role("row").nth(1)).to_have_text("north1580.00")
    expect(rows.get_by_role("row").nth(2)).to_have_text("south1620.00")
    expect(rows.get_by_role("columnheader", name="total")).to_contain_text("decimal(38, 2)")
    page.get_by_role("button", name="Chart", exact=True).click()
    expect(page.get_by_role("img", name="total by region. north: 1580; south: 1620")).to_be_visible()
    page.reload()
    expect(page.get_by_label("SQL", exact=True)).to_contain_text("GROUP BY ALL")


def test_columns_of_a_named_table_are_completed(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/sql")
    write(page, "FROM sales.orders SELECT sales.orders.amo")
    expect(page.get_by_role("option", name="amount")).to_be_visible()


def test_query_is_saved_and_chosen_again(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/sql?q=SELECT 42")
    page.get_by_label("Name to save it under").fill("answer")
    page.get_by_role("button", name="Save in this browser").click()
    write(page, "SELECT 1")
    page.get_by_label("Saved queries").select_option("answer")
    expect(page.get_by_label("SQL", exact=True)).to_have_text("SELECT 42")


def test_what_is_wrong_with_a_query_is_said(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/sql?q=DROP TABLE sales.orders")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("SELECT")
    window.complaints.clear()


def test_table_that_a_query_fills_says_so_and_how_fresh_it_is(lake: ShownLake, window: Visit) -> None:
    body = {"name": "by_city", "query": "SELECT count(*) AS n FROM orders"}
    lake.ask("POST", "/v1/namespaces/sales/materialized-views", body)
    window.page.goto(f"{lake.uri}/ui/w/duckicelake/tables/sales.by_city")
    freshness = window.page.get_by_role("region", name="Materialized view")
    expect(freshness).to_contain_text("materialized view Fresh as of")
    expect(freshness).to_contain_text("sales.orders at snapshot")
    expect(freshness).to_contain_text(body["query"])
    window.page.goto(f"{lake.uri}/ui/w/duckicelake/tables/sales.orders")
    expect(window.page.locator(".figures")).to_contain_text("Rows80")
    expect(freshness).to_have_count(0)


def make(page: Page, what: str) -> Locator:
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("summary", has_text="Make").click()
    page.get_by_role("button", name=what).click()
    return page.get_by_role("dialog")


def test_result_is_saved_as_a_table_after_a_dry_run(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/sql?q=SELECT region, count(*) AS n FROM sales.orders GROUP BY ALL")
    dialog = make(page, "A table of the result")
    dialog.get_by_label("Name, with its namespace").fill("sales.saved")
    expect(dialog.get_by_label("What will change")).to_contain_text("a table: region VARCHAR, n BIGINT")
    expect(dialog).to_contain_text("It reads sales.orders")
    dialog.get_by_text("The same by command and by HTTP").click()
    expect(dialog.get_by_label("the command", exact=True)).to_contain_text("--save-as sales.saved")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="saved")).to_be_visible()
    expect(page.locator(".figures")).to_contain_text("Rows2")
    page.goto(f"{lake.uri}/ui/w/duckicelake/sql?q=SELECT 1 AS a")
    dialog = make(page, "A table of the result")
    dialog.get_by_label("Name, with its namespace").fill("sales.orders")
    expect(dialog.get_by_role("alert")).to_contain_text("already exists")
    window.complaints.clear()


def test_materialized_view_is_made_refreshed_paused_and_dropped(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/sql?q=SELECT count(*) AS n FROM sales.orders")
    dialog = make(page, "A materialized view")
    dialog.get_by_label("Name, with its namespace").fill("sales.counted")
    dialog.get_by_label("Refresh by the clock").select_option("every hour")
    expect(dialog.get_by_label("What will change")).to_contain_text("a materialized view: n BIGINT")
    dialog.get_by_role("button", name="Create").click()
    freshness = page.get_by_role("region", name="Materialized view")
    expect(freshness).to_contain_text("every hour")
    lake.ask("POST", "/v1/namespaces/sales/tables/orders/rows", [{"id": 900}])

    def act(name: str) -> None:
        expect(page.get_by_role("dialog")).to_have_count(0)
        freshness.locator("summary").click()
        freshness.get_by_role("button", name=name).click()

    act("Refresh now")
    page.get_by_role("dialog").get_by_role("button", name="Refresh").click()
    expect(freshness).to_contain_text("only rows were appended")
    act("Pause refreshes")
    expect(page.get_by_label("What will change")).to_contain_text("every hour")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(freshness).to_contain_text("on request alone")
    act("Set the schedule")
    page.get_by_label("Refresh when a source has changed").check()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(freshness).to_contain_text("when a source has changed")
    act("Drop the view")
    page.get_by_label("to be sure").fill("counted")
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    expect(page.get_by_role("heading", name="Dropped")).to_be_visible()
