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
