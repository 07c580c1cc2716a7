"""The pages of operation: the audit trail as it grows, jobs and upkeep, what doctor finds, and the API."""

import re
import uuid

import pytest
from playwright.sync_api import expect

from duckicelake.settings.model import Settings
from tests.console.conftest import ShownLake
from tests.support.browsers import Visit

pytestmark = pytest.mark.console


def test_audit_shows_new_entries_as_they_come_with_their_details(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/audit")
    rows = page.get_by_role("group", name="Audit trail").get_by_role("row")
    expect(rows.nth(1)).to_be_visible()
    lake.ask("POST", "/v1/namespaces", {"namespace": ["as-it-comes"]})
    expect(rows.nth(1)).to_contain_text("Create namespace")
    expect(rows.nth(1)).to_contain_text("as-it-comes")
    rows.nth(1).get_by_role("button").click()
    expect(page.get_by_role("dialog")).to_contain_text("anonymous")
    page.get_by_role("button", name="Close").click()


def test_audit_is_filtered_and_the_address_says_how(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/audit")
    page.get_by_label("Operation").fill("create_table")
    page.get_by_label("On", exact=True).fill("labs")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(r"operation=create_table&resource=labs$"))
    expect(page.get_by_role("status").filter(has_text="3 entries")).to_be_visible()
    page.get_by_label("Result").select_option("ForbiddenException")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No such entries")).to_be_visible()


def test_job_that_runs_is_listed_and_what_waits_for_upkeep(lake: ShownLake, window: Visit) -> None:
    job = {"id": str(uuid.uuid4()), "kind": "compact", "engine": "spark", "parameters": {"target": 5}}
    lake.ask("POST", "/pipeline/v1/namespaces/sales/tables/orders/jobs", job)
    lake.ask("POST", "/v1/namespaces/sales/tables/orders/rows", [{"id": 900}])
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/upkeep?result=running")
    row = page.get_by_role("group", name="Jobs").get_by_role("row", name=re.compile("Compact"))
    expect(row).to_contain_text("sales.orders")
    row.get_by_role("button", name="Details").click()
    expect(page.get_by_role("dialog").locator(".fact", has_text="Target")).to_contain_text("5")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Count them").click()
    expect(page).to_have_url(re.compile(r"result=running&show=tables$"))
    expect(page.get_by_role("group", name="Tables").get_by_role("row", name=re.compile("sales.orders"))).to_be_visible()
    for result in ("Unchanged", "Skipped", "Failed"):
        page.get_by_role("button", name=result).click()
        expect(page).to_have_url(re.compile(f"result={result.lower()}"))
        expect(page.get_by_text("No such jobs")).to_be_visible()
    plan = page.get_by_role("group", name="Due now or next")
    due = plan.get_by_role("row", name=re.compile("sales.orders.*Statistics"))
    expect(due).to_contain_text("no snapshot has statistics of distinct values yet")


def test_job_of_the_plan_is_put_into_the_queue(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/upkeep")
    due = page.get_by_role("group", name="Due now or next").get_by_role(
        "row", name=re.compile("sales.orders.*Remove orphans")
    )
    due.get_by_role("button", name="Do it").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("The same by command and by HTTP").click()
    command = f"duckicelake upkeep run sales.orders --no-wait --only remove-orphans --uri {lake.uri}"
    expect(dialog.get_by_label("the command", exact=True)).to_have_text(command)
    dialog.get_by_role("button", name="Put it into the queue").dblclick()
    task = page.get_by_role("group", name="Queue").get_by_role("row", name=re.compile("sales.orders"))
    expect(task).to_have_count(1)
    expect(task).to_contain_text("queued")
    task.get_by_role("button", name="Details").click()
    expect(dialog.locator(".fact", has_text="Asked for by")).to_contain_text("anonymous")
    dialog.get_by_role("button", name="Close").click()


def test_refresh_is_asked_for_without_an_estimate_that_it_has_not(lake: ShownLake, window: Visit) -> None:
    """A refresh and a followed Delta table read what their source has, so the plan knows no files of theirs."""
    view = {"name": "seen", "query": "SELECT count(*) AS n FROM orders", "refresh-every": 3600}
    lake.ask("POST", "/v1/namespaces/sales/materialized-views", view)
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/upkeep")
    plan, dialog = page.get_by_role("group", name="Due now or next"), page.get_by_role("dialog")
    for name, count in (("sales.seen.*Refresh", 0), ("sales.orders.*Remove orphans", 1)):
        plan.get_by_role("row", name=re.compile(name)).get_by_role("button", name="Do it").click()
        expect(dialog.get_by_role("button", name="Put it into the queue")).to_be_visible()
        expect(dialog.get_by_text("would be read")).to_have_count(count)
        dialog.get_by_role("button", name=re.compile("Cancel|Close")).first.click()
    lake.ask("DELETE", "/v1/namespaces/sales/materialized-views/seen")


def test_what_a_lake_does_by_itself_is_shown_and_changed(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/upkeep")
    shown = page.get_by_role("region", name="What the lake does by itself")
    shown.get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_label("Flush").set_checked(True)
    page.get_by_role("dialog").get_by_label("Sort").set_checked(True)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(shown).to_contain_text("Sort")
    given = lake.ask("GET", "/pipeline/v1/policies")["policies"]["maintenance.automatic"]
    assert {"flush", "sort"} <= set(given.split(","))


def test_settings_say_where_they_came_from_and_hide_secrets(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/settings")
    rows = page.get_by_role("group", name="Settings").get_by_role("row")
    expect(page.get_by_text(f"{len(Settings.model_fields)} settings")).to_be_visible()
    page.get_by_role("button", name="Not at the default").click()
    expect(rows).to_have_count(3)
    expect(rows.filter(has_text="oauth_keys")).to_contain_text("setDUCKICELAKE_OAUTH_KEYSunset")
    page.get_by_label("Part of a name or meaning").fill("LISTEN on")
    expect(page).to_have_url(re.compile(r"find=LISTEN\+on&show=set$"))
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("8282--port8181")


def test_doctor_says_what_is_in_order(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/doctor")
    expect(page.get_by_text("Postgres version")).to_be_visible()
    page.get_by_role("button", name="Examine again").click()
    expect(page.get_by_text("Examined just now")).to_be_visible()


def test_doctor_shows_each_check_as_it_goes_and_can_be_stopped(lake: ShownLake, window: Visit) -> None:
    page = window.page
    checks = page.get_by_role("list", name="Checks").get_by_role("listitem")
    with lake.services.database.transaction() as cursor:
        cursor.execute("LOCK TABLE ducklake_table_stats")
        page.goto(f"{lake.uri}/ui/w/duckicelake/doctor")
        expect(checks.last).to_contain_text("running…")
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("status").filter(has_text="Stopped after")).to_be_visible()
        expect(checks.last).to_contain_text("stopped")
    page.get_by_role("button", name="Examine again").click()
    expect(page.get_by_text("Examined just now")).to_be_visible()
    expect(checks.last).to_contain_text("warehouse")


def test_route_is_found_described_and_tried(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/api")
    page.get_by_label("Part of a route").fill("namespaces/{namespace}/tables")
    page.get_by_role("link", name="GET /v1/namespaces/{namespace}/tables", exact=True).click()
    tried = page.get_by_role("region", name="Try it")
    expect(tried.get_by_role("button", name="Ask")).to_be_disabled()
    tried.get_by_label("namespace", exact=True).fill("sales")
    tried.get_by_role("button", name="Ask").click()
    expect(tried.get_by_label("the answer", exact=True)).to_contain_text('"name": "orders"')
    page.get_by_label("Part of a route").fill("transactions/commit")
    page.get_by_role("link", name="POST /v1/transactions/commit").click()
    expect(page.get_by_role("region", name="Body")).to_contain_text("table-changes")
    expect(page.get_by_role("region", name="Try it")).to_have_count(0)
