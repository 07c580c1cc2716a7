"""Every page on a slow server jumps little; without a network, or left, pages go on as they should."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from playwright.sync_api import TimeoutError as BrowserTimeout

from tests.console.conftest import ShownLake
from tests.console.pages import PAGES
from tests.support.browsers import visit

pytestmark = pytest.mark.console
ROUTER = (Path(__file__).parents[2] / "console/src/router.tsx").read_text()
API = re.compile(r"^http://[^/]+/(?:v1|management/v1|pipeline/v1|sql/v1|lineage/v1|readyz|openapi\.json)\b")
AT_ONCE = {"Retry-After": "0"}
REFUSED = '{"error": {"message": "The token has expired", "type": "NotAuthorizedException", "code": 401}}'
BROKEN = '{"error": {"message": "It broke", "type": "InternalServerError", "code": 500}}'
SHIFT = 0.1
"""What is called good of a page's cumulative layout shift."""
SHIFTS = """
window.shifts = [];
new PerformanceObserver(list => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) {
    window.shifts.push([one.value, one.sources.map(source => source.node?.outerHTML?.slice(0, 80) ?? '')]);
  }
}).observe({type: 'layout-shift', buffered: true});
"""
SLOW = """
const ask = fetch;
window.fetch = async (...asked) => {
  await new Promise(resolve => setTimeout(resolve, 500));
  return ask(...asked);
};
"""


def address_of(lake: ShownLake, name: str) -> str:
    return f"{lake.uri}/ui/{PAGES[name]}".removesuffix("/")


def answer(status: int, body: str = "", **headers: str) -> Callable[[Route], None]:
    return lambda route: route.fulfill(status=status, body=body, headers={**AT_ONCE, **headers})


FAULTS: dict[str, Callable[[Route], None]] = {
    "403": answer(403, BROKEN.replace("500", "403")),
    "429": answer(429, BROKEN.replace("500", "429")),
    "500": answer(500, BROKEN),
    "503 of a proxy": answer(503, "<html>upstream</html>"),
    "cut off": lambda route: route.abort("connectionreset"),
    "cut body": answer(200, '{"entries": [{"id"'),
    "empty": answer(200, ""),
    "login page of a proxy": answer(200, "<html>Log in</html>"),
    "list": answer(200, "[]"),
    "another object": answer(200, "{}"),
}
ASKING = sorted(PAGES.keys() - {"no such page"})
"""A page that isn't there asks nothing."""
TRY_AGAIN = """() => {
  const found = [...document.querySelectorAll('button')].filter(one => one.textContent === 'Try again');
  const now = performance.now();
  for (const one of found.filter(one => !(now - one.dataset.tried < 2000))) {
    one.dataset.tried = now;
    one.click();
  }
  return found.length === 0 && !document.querySelector('[aria-label=Loading]');
}"""
"""Clicks whatever is to be tried again, every 2 s; whether nothing is left to try, or to wait for."""


def test_every_page_is_here() -> None:
    """Each address of the router, and each page of a table."""
    found = {re.sub(r"\$\w+", "x", path) for path in re.findall(r'path: "([^"]+)"', ROUTER)} - {"/", "/w/x"}
    shown = [re.sub(r"\?.*", "", path).removeprefix("w/duckicelake") for path in PAGES.values()]
    for path in found:
        assert any(re.fullmatch(path.replace("x", "[^/]+"), one) for one in shown), path
    (tabs,) = re.findall(r"TABLE_PAGES = \[([^\]]+)\]", ROUTER)
    for tab in re.findall(r'"(\w+)"', tabs):
        assert tab == "schema" or any(f"page={tab}" in path for path in PAGES.values()), tab


def ask(page: Page, name: str) -> None:
    """Do what a person does to see the page's content: a query must be run, all others come by themselves."""
    if name == "sql":
        page.get_by_role("button", name="Run", exact=True).click()


def wait_until_whole(page: Page, fault: str) -> None:
    try:
        page.wait_for_function(TRY_AGAIN, polling=300)
    except BrowserTimeout:
        pytest.fail(f"After {fault} the page shows: {page.locator('.page').inner_text()}")


@pytest.mark.parametrize("name", ASKING)
def test_page_says_what_is_wrong_and_goes_on(lake: ShownLake, browser: Browser, name: str) -> None:
    """It is neither white nor waits for ever; once the fault is over, no word of it is left."""
    window = visit(browser)
    page, url = window.page, address_of(lake, name)
    for fault, act in FAULTS.items():
        page.route(API, act)
        page.goto(url)
        ask(page, name)
        expect(page.get_by_role("alert").first, fault).to_be_visible()
        expect(page.get_by_role("navigation", name="Pages"), fault).to_be_visible()
        page.unroute(API)
        ask(page, name)
        wait_until_whole(page, fault)
        expect(page.locator("h1").first, fault).to_be_visible()
        expect(page.get_by_role("alert"), fault).to_have_count(0)
        if fault == "another object":  # React says so of a page that its boundary has caught
            window.complaints[:] = [text for text in window.complaints if not text.startswith("TypeError")]
    assert [text for text in window.complaints if "Failed to load resource" not in text] == []
    window.context.close()


@pytest.mark.parametrize("name", ASKING)
def test_page_that_waits_says_so_and_can_be_left(lake: ShownLake, browser: Browser, name: str) -> None:
    """No answer comes: the frame is there, and leads to other pages."""
    window = visit(browser)
    page = window.page
    page.route(API, lambda _: None)
    page.goto(address_of(lake, name))
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages).to_be_visible()
    ask(page, name)
    waits = page.get_by_role("status", name="Loading").or_(page.locator("[aria-busy=true]"))
    expect(waits.or_(page.get_by_text("Examining: 0 checks so far")).first).to_be_visible()
    page.unroute(API)
    pages.get_by_role("link", name="Dropped").click()
    expect(page.get_by_role("heading", name="Dropped")).to_be_visible()
    expect(page.get_by_role("status", name="Loading")).to_have_count(0)
    assert window.complaints == []
    window.context.close()


@pytest.mark.parametrize("name", ASKING)
def test_page_whose_token_is_refused_gives_way_to_the_login(lake: ShownLake, browser: Browser, name: str) -> None:
    window = visit(browser)
    page = window.page
    page.goto(f"{lake.uri}/ui")
    page.evaluate("sessionStorage.setItem('duckicelake.token', 'ended')")
    page.route(API, answer(401, REFUSED))
    page.goto(address_of(lake, name))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("The token has expired")
    expect(page.get_by_role("navigation", name="Pages")).to_have_count(0)
    assert page.url.startswith(address_of(lake, name).partition("?")[0])
    window.context.close()


@pytest.mark.parametrize("name", sorted(PAGES.keys() - {"files"}))
def test_slow_page_does_not_jump(lake: ShownLake, browser: Browser, name: str) -> None:
    window = visit(browser)
    window.context.add_init_script(SLOW + SHIFTS)
    window.page.goto(address_of(lake, name))
    window.page.wait_for_load_state("networkidle")
    expect(window.page.get_by_role("status", name="Loading")).to_have_count(0)
    shifts = window.page.evaluate("window.shifts")
    assert sum(shift for shift, _ in shifts) <= SHIFT, shifts
    window.context.close()


def test_page_that_is_left_asks_no_further(lake: ShownLake, browser: Browser) -> None:
    window = visit(browser)
    page = window.page
    page.route("**/v1/history*", lambda _: None)
    page.goto(f"{lake.uri}/ui/w/duckicelake/history")
    expect(page.get_by_role("status", name="Loading")).to_be_visible()
    with page.expect_event("requestfailed") as left:
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Dropped").click()
    expect(page.get_by_role("heading", name="Dropped")).to_be_visible()
    assert "/v1/history" in left.value.url
    window.context.close()


def test_page_without_a_network_says_so_and_goes_on_by_itself(lake: ShownLake, browser: Browser) -> None:
    window = visit(browser)
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in=sales")
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    page.wait_for_load_state("networkidle")
    window.context.set_offline(True)
    expect(page.get_by_text("No network.")).to_be_visible()
    page.get_by_role("region", name="Namespaces").get_by_role("link", name="labs").click()
    expect(page.get_by_role("heading", name="labs")).to_be_visible()
    window.context.set_offline(False)
    expect(page.get_by_text("No network.")).to_have_count(0)
    expect(page.get_by_role("link", name="a.b/c~d")).to_be_visible()
    window.context.close()


def test_page_whose_file_is_not_here_waits_for_the_network(lake: ShownLake, browser: Browser) -> None:
    window = visit(browser)
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables/sales.orders")
    expect(page.get_by_role("group", name="Columns")).to_be_visible()
    page.wait_for_load_state("networkidle")
    window.context.set_offline(True)
    expect(page.get_by_text("No network.")).to_be_visible()
    page.get_by_role("navigation", name="About the table").get_by_role("link", name="Files").click()
    expect(page.get_by_role("status", name="Loading").first).to_be_visible()
    expect(page.get_by_text("could not be loaded")).to_have_count(0)
    window.context.set_offline(False)
    expect(page.get_by_role("region", name="What a filter reads")).to_be_visible()
    window.context.close()
