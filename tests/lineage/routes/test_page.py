"""The console's page of lineage in a real browser, against a real server with lineage that was really recorded."""

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from duckicelake.changelog.writer import write_all_changes
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lineage.graph.store import record_events
from duckicelake.postgres.database import Database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.conftest import new_lake, services_of
from tests.lineage.routes.shop import APPEND, EVIL, SQL, shop, tree
from tests.support.browsers import Visit, browser, visit  # noqa: F401 - browser is a fixture
from tests.support.client import SCHEMA
from tests.support.lineage_events import Json
from tests.support.logins import SECRET, Server
from tests.support.servers import running

APPEND_BOX = f"Job {APPEND.rpartition('.')[0]}"
"""What is seen of its name, and so what its box is called."""
MANY = 520
"""More tables than the page shows at a time."""


@dataclass(frozen=True, slots=True)
class Lake:
    """Two servers on one lake: uri asks no one who they are, guarded does."""

    uri: str
    guarded: str


@pytest.fixture(scope="module")
def lake(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with new_lake(postgres, warehouse) as url, closing(open_lake_database(url, pool_size=4)) as database:
        keep(database, *shop(), *tree(MANY))
        services, server = services_of(database, warehouse), Server()
        login = server.authentication(OAuthClient("ana", SECRET, ("ns:sales:r", "ns:marts:r")))
        with running(server.app(services, None)) as uri, running(server.app(services, login)) as guarded:
            create(uri)
            write_all_changes(services)
            yield Lake(uri, guarded)


@pytest.fixture
def window(browser: Browser) -> Iterator[Visit]:  # noqa: F811
    made = visit(browser)
    yield made
    made.context.close()


@pytest.fixture
def page(window: Visit) -> Page:
    return window.page


def keep(database: Database, *events: Json) -> None:
    with database.transaction() as cursor:
        record_events(cursor, events, origin="catalog")


def create(uri: str) -> None:
    """What has lineage, as a table that has a history, too."""
    httpx.post(f"{uri}/v1/namespaces", json={"namespace": ["sales"]}).raise_for_status()
    table = {"name": "orders", "schema": SCHEMA}
    httpx.post(f"{uri}/v1/namespaces/sales/tables", json=table).raise_for_status()


def box(page: Page, name: str) -> Locator:
    return page.locator(".box", has=page.get_by_role("button", name=name, exact=True))


def found(page: Page) -> Locator:
    return page.locator("#found").get_by_role("option")


def left(page: Page, name: str) -> float:
    place = box(page, name).bounding_box()
    assert place is not None
    return place["x"]


def open_at(page: Page, uri: str, query: str) -> None:
    page.goto(f"{uri}/ui/lineage?{query}")
    expect(page.locator(".box.center")).to_be_visible()


def test_graph_is_drawn_from_what_a_table_comes_from_to_what_is_made_of_it(lake: Lake, window: Visit) -> None:
    page = window.page
    open_at(page, lake.uri, "node=sales.euro")
    names = ["Outside the lake s3://landing orders", "Job ingest_orders", "Table sales orders", "View sales euro"]
    names += [
        "Job daily_revenue",
        "Table marts revenue",
        APPEND_BOX,
        "Table labs guess",
    ]
    places = [left(page, name) for name in names]
    assert places == sorted(places)
    assert len(set(places)) == len(places)
    expect(page.locator(".line.inferred")).to_have_count(2)
    expect(page).to_have_title("sales.euro · Lineage · duckicelake")
    assert window.complaints == []
    assert {re.sub(r"(//[^/]+).*", r"\1", url) for url in window.asked} == {lake.uri}


def test_click_makes_a_table_the_centre_and_back_goes_back(lake: Lake, page: Page) -> None:
    open_at(page, lake.uri, "node=sales.euro&depth=1")
    expect(box(page, "Job ingest_orders")).to_have_count(0)
    page.get_by_role("button", name="Table sales orders", exact=True).click()
    expect(box(page, "Table sales orders")).to_have_class(re.compile("center"))
    expect(box(page, "Job ingest_orders")).to_be_visible()
    assert page.url.endswith("node=sales.orders&depth=1")
    page.get_by_role("checkbox", name="Jobs").uncheck()
    expect(box(page, "Job ingest_orders")).to_have_count(0)
    page.go_back()
    expect(page.get_by_role("checkbox", name="Jobs")).to_be_checked()
    page.go_back()
    expect(box(page, "View sales euro")).to_have_class(re.compile("center"))


def test_edge_shows_the_runs_behind_it(lake: Lake, page: Page) -> None:
    open_at(page, lake.uri, "node=marts.revenue&depth=1")
    line = page.locator(".line", has_text="sales.euro → daily_revenue")
    line.locator(".hit").click(force=True)
    panel = page.locator("#panel")
    expect(panel.get_by_role("heading", name="daily_revenue")).to_be_visible()
    panel.locator(".run summary").click()
    expect(panel.locator(".run-sql")).to_have_text(SQL)
    expect(panel.locator(".run")).to_contain_text("Spark 4.0.1")
    page.reload()
    expect(panel.get_by_role("heading", name="daily_revenue")).to_be_visible()
    expect(line).to_have_class(re.compile("selected"))


def test_inferred_edge_says_so_and_how_sure_it_is(lake: Lake, page: Page) -> None:
    open_at(page, lake.uri, "node=labs.guess")
    page.get_by_role("button", name=APPEND_BOX, exact=True).click()
    expect(page.locator("#panel .guess")).to_contain_text("70 % sure")


def test_what_a_job_reads_and_writes_itself_is_marked(lake: Lake, page: Page) -> None:
    open_at(page, lake.uri, "node=sales.orders")
    page.get_by_role("button", name="Jobs read this and write it: show them").click()
    expect(page.get_by_role("heading", name="deduplicate")).to_be_visible()


def test_box_opens_to_its_columns_and_a_column_to_its_way(lake: Lake, page: Page) -> None:
    open_at(page, lake.uri, "node=sales.euro")
    euro = box(page, "View sales euro")
    euro.get_by_role("button", name="2 columns").click()
    expect(euro.get_by_role("button", name="2 columns")).to_be_focused()
    expect(page.locator(".line.of-column")).to_have_count(3)
    euro.get_by_role("button", name="euro double").click()
    expect(page.locator("li.on .column")).to_have_text(["amount", "currency", "euro", "revenue"])
    expect(page.locator(".line.of-column.on.direct")).to_have_count(2)
    assert "column=euro" in page.url
    expect(box(page, "Table labs guess")).to_have_count(0)


def test_history_of_a_table_is_reported_on_demand(lake: Lake, page: Page) -> None:
    open_at(page, lake.uri, "node=sales.orders")
    page.locator("#panel summary", has_text="History").click()
    expect(page.locator(".history li")).to_contain_text(["create table"])


def test_names_that_are_markup_stay_names(lake: Lake, window: Visit) -> None:
    page = window.page
    open_at(page, lake.uri, "node=sales.orders&columns=all")
    expect(page.get_by_role("button", name=f"Table labs {EVIL}", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Job <b>bold</b>", exact=True)).to_be_visible()
    page.get_by_role("button", name=f"Table labs {EVIL}", exact=True).click()
    expect(page.locator("#panel h2")).to_contain_text(EVIL)
    page.locator("#search").fill("img")
    expect(found(page)).to_contain_text([EVIL])
    assert page.locator("img, b, script:not([src])").count() == 0
    assert window.complaints == []


def test_table_is_found_by_a_part_of_its_name_with_keys_alone(lake: Lake, page: Page) -> None:
    page.goto(f"{lake.uri}/ui/lineage")
    expect(page.get_by_role("heading", name="Choose a table or view")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("marts.rev")
    expect(found(page)).to_have_text(["marts.revenueTable"])
    page.keyboard.press("Enter")
    expect(box(page, "Table marts revenue")).to_have_class(re.compile("center"))
    page.get_by_role("button", name="View sales euro", exact=True).focus()
    page.keyboard.press("Enter")
    expect(box(page, "View sales euro")).to_have_class(re.compile("center"))
    panel = page.locator("#panel")
    panel.get_by_role("button", name="sales.orders by its definition").press("Enter")
    expect(panel.get_by_role("heading", name="Definition of the view")).to_be_visible()
    expect(panel).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()


def test_controls_say_how_much_is_shown_and_the_address_keeps_it(lake: Lake, page: Page) -> None:
    open_at(page, lake.uri, "node=sales.euro")
    page.locator("[name=direction]").select_option("upstream")
    expect(box(page, "Table marts revenue")).to_have_count(0)
    page.get_by_role("checkbox", name="Jobs").uncheck()
    expect(page.locator(".box.job")).to_have_count(0)
    page.get_by_label("As of").fill("2020-01-01T00:00:07")
    expect(page.get_by_role("status")).to_contain_text("Nothing is known that sales.euro comes from as of")
    page.reload()
    expect(page.get_by_label("As of")).to_have_value("2020-01-01T00:00:07")
    expect(page.locator(".box")).to_have_count(1)
    assert {"direction=upstream", "jobs=hidden"} <= set(page.url.partition("?")[2].split("&"))


def test_what_cannot_be_shown_is_said_in_a_sentence(lake: Lake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/lineage?node=no.such")
    expect(page.get_by_role("alert")).to_contain_text("There is no lineage of no.such")
    window.context.set_offline(True)
    page.keyboard.press("/")
    expect(page.locator("#note")).to_have_text(re.compile("The server does not answer"))
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    window.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_contain_text("There is no lineage of no.such")


def test_five_hundred_tables_are_drawn_and_that_there_are_more_is_said(lake: Lake, page: Page) -> None:
    open_at(page, lake.uri, "node=many.table_number_0&jobs=hidden")
    expect(page.locator(".box.center")).to_be_in_viewport()
    expect(page.locator(".box")).to_have_count(500)
    expect(page.locator("#note")).to_contain_text("more than the 500 shown here")
    page.get_by_role("button", name="Fit").click()
    page.get_by_role("button", name="Table many table_number_1", exact=True).click()
    expect(box(page, "Table many table_number_1")).to_have_class(re.compile("center"))


def test_whoever_reads_is_asked_for_a_secret_and_sees_what_they_may(lake: Lake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.guarded}/ui/lineage?node=sales.euro")
    page.get_by_label("Client id").fill("ana")
    page.get_by_label("Client secret").fill("wrong")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert")).not_to_be_empty()
    page.get_by_label("Client secret").fill(SECRET)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(box(page, "Table marts revenue")).to_be_visible()
    expect(box(page, "Table labs guess")).to_have_count(0)
    assert SECRET not in page.content()
    page.reload()
    expect(box(page, "View sales euro")).to_be_visible()
    page.get_by_role("link", name="Home").click()
    page.go_back()
    expect(box(page, "View sales euro")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_all_of_a_small_graph_is_seen_at_first_and_names_of_jobs_are_whole_on_focus(lake: Lake, page: Page) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    open_at(page, lake.uri, "node=sales.euro")
    for shown in page.locator(".box").all():
        expect(shown).to_be_in_viewport(ratio=0.99)
    job = page.get_by_role("button", name=APPEND_BOX, exact=True)
    expect(job.locator(".whole")).to_be_hidden()
    page.keyboard.press("Tab")
    job.focus()
    expect(job.locator(".whole")).to_have_text(APPEND)
    expect(job.locator(".whole")).to_be_visible()


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_page_is_as_dark_as_its_reader_likes_it(
    lake: Lake,
    browser: Browser,  # noqa: F811
    tmp_path: Path,
    scheme: str,
    is_dark: bool,
) -> None:
    window = visit(browser, color_scheme=scheme)
    open_at(window.page, lake.uri, "node=sales.euro")
    for element in ("body", ".box", "#panel"):
        colour = window.page.locator(element).first.evaluate("e => getComputedStyle(e).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", colour)[:3])) < 3 * 128) == is_dark
    window.page.screenshot(path=tmp_path / "lineage.png")
    assert (tmp_path / "lineage.png").stat().st_size > 20_000
    window.context.close()
