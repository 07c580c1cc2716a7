"""A server that is slow, fails, is cut off, answers nonsense or is new: pages say so, and go on when it is over."""

import time
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.console.conftest import ShownLake
from tests.support.browsers import Visit, visit

pytestmark = pytest.mark.console
API = "**/v1/**"
ORDERS = "ui/w/duckicelake/tables/sales.orders"


def test_slow_server_is_waited_for(lake: ShownLake, window: Visit) -> None:
    page = window.page

    def delay(route: Route) -> None:
        time.sleep(0.5)
        route.continue_()

    page.route(API, delay)
    page.goto(f"{lake.uri}/{ORDERS}")
    expect(page.get_by_role("status", name="Loading").first).to_be_visible()
    expect(page.get_by_role("group", name="Columns")).to_be_visible()
    page.unroute_all(behavior="ignoreErrors")


@pytest.fixture
def upgraded(lake: ShownLake, browser: Browser) -> Iterator[Page]:
    """A page of a server that was replaced since: the files of its pages are gone until it is loaded again."""
    window, loaded, is_old = visit(browser), list[str](), False

    def serve(route: Route) -> None:
        if route.request.resource_type == "document":
            loaded.append(route.request.url)
        is_gone = is_old and len(loaded) == 1 and "/chunk-" in route.request.url
        route.fulfill(status=404, body="") if is_gone else route.continue_()

    window.page.route("**/ui/**", serve)
    window.page.goto(f"{lake.uri}/{ORDERS}")
    expect(window.page.get_by_role("group", name="Columns")).to_be_visible()
    window.page.wait_for_load_state("networkidle")
    is_old = True
    yield window.page
    window.context.close()


def test_part_of_a_page_of_an_older_server_offers_the_new_one(upgraded: Page) -> None:
    upgraded.get_by_role("link", name="Files", exact=True).click()
    expect(upgraded.get_by_role("alert")).to_contain_text("new version")
    upgraded.get_by_role("button", name="Load it").click()
    expect(upgraded.get_by_role("region", name="What a filter reads")).to_be_visible()


def test_page_of_an_older_server_is_loaded_anew(upgraded: Page) -> None:
    upgraded.get_by_role("navigation", name="Pages").get_by_role("link", name="SQL").click()
    expect(upgraded.get_by_role("heading", name="SQL")).to_be_visible()


@pytest.mark.parametrize("path", ["nothing", "v1/nothing", "ui/nothing", "a/b/c"])
def test_unknown_address_is_a_page_for_browsers_and_json_for_others(lake: ShownLake, window: Visit, path: str) -> None:
    page = window.page
    answer = page.goto(f"{lake.uri}/{path}")
    assert answer is not None
    assert (answer.status, answer.headers["vary"]) == (404, "Accept")
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    page.get_by_role("link", name="Home").click()
    expect(page.get_by_text("Postgres and the object store answer.")).to_be_visible()
    assert httpx.get(f"{lake.uri}/{path}").json()["error"]["type"] == "NotFoundException"
    window.complaints[:] = [text for text in window.complaints if "404" not in text]


GONE = "w/duckicelake"
WAYS_ON = {
    "namespace": (f"{GONE}/tables?in=sales.eu.gone", "All of sales.eu", "eu"),
    "namespace below none": (f"{GONE}/tables?in=gone.gone", "All namespaces", "Tables"),
    "table": (f"{GONE}/tables/sales.gone?page=files", "All of sales", "sales"),
    "view": (f"{GONE}/views/sales.gone", "All of sales", "sales"),
    "policies": (f"{GONE}/policies?on=table:sales.gone", "All of sales", "sales"),
    "grants": (f"{GONE}/grants?on=view:sales.gone", "All of sales", "sales"),
    "principal": (f"{GONE}/people/gone", "All principals", "People"),
    "why": (f"{GONE}/why?principal=gone&action=select&on=table:sales.orders", "All principals", "People"),
    "in no warehouse": ("w/gone/tables", "To the first warehouse", "duckicelake"),
}


@pytest.mark.parametrize("name", WAYS_ON)
def test_what_is_not_there_leads_to_the_nearest_page_that_is(lake: ShownLake, window: Visit, name: str) -> None:
    page = window.page
    path, link, heading = WAYS_ON[name]
    page.goto(f"{lake.uri}/ui/{path}")
    expect(page.get_by_role("alert")).to_have_count(1)
    expect(page.get_by_role("alert")).to_contain_text("Not found")
    for act in ("Query", "Lineage"):
        expect(page.get_by_role("main").get_by_role("link", name=act, exact=True)).to_have_count(0)
    page.get_by_role("alert").get_by_role("link", name=link).click()
    expect(page.get_by_role("heading", name=heading, exact=True, level=1)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    window.complaints[:] = [text for text in window.complaints if "404" not in text]


def test_lineage_of_what_is_not_there_leads_to_what_has_one(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/lineage?node=sales.gone")
    expect(page.get_by_role("alert")).to_contain_text("Not found")
    expect(page.get_by_role("group", name="Zoom")).to_be_hidden()
    page.get_by_role("button", name="Tables and views that have one").click()
    expect(page.get_by_role("heading", name="Choose a table or view")).to_be_visible()
    window.complaints[:] = [text for text in window.complaints if "404" not in text]
