"""Every dialog for everybody: axe finds nothing, nothing is cut off on a narrow screen, and keys alone are enough."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import ShownLake
from tests.console.dialogs import DIALOGS
from tests.console.test_access import AXE, find_violations
from tests.support.browsers import visit

pytestmark = pytest.mark.console
TABS = 40
"""More than any dialog has fields, so the focus has gone around."""
MODAL = sorted(DIALOGS.keys() - {"sql result"})
SHOWN = {"name": "shown", "query": "SELECT region, count(*) AS n FROM orders GROUP BY region", "refresh-every": 3600}
WIDE = """[...document.querySelectorAll('html, dialog')]
  .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.tagName)"""
FOCUSED = "document.activeElement === document.body || document.activeElement.closest('dialog') !== null"


@pytest.fixture(scope="module")
def filled(lake: ShownLake) -> ShownLake:
    """The lake with a materialized view."""
    lake.ask("POST", "/v1/namespaces/sales/materialized-views", SHOWN)
    return lake


def open_dialog(page: Page, lake: ShownLake, name: str) -> None:
    path, act = DIALOGS[name]
    page.goto(f"{lake.uri}/ui/{path}")
    page.wait_for_load_state("networkidle")
    act(page)
    expect(page.get_by_role("dialog")).to_be_visible()
    page.wait_for_load_state("networkidle")


@pytest.mark.skipif(not AXE.exists(), reason="axe comes with the libraries that scripts/ui/build fetches")
@pytest.mark.parametrize("name", MODAL)
def test_dialog_is_for_everybody(filled: ShownLake, browser: Browser, name: str) -> None:
    window = visit(browser, color_scheme="dark", reduced_motion="reduce")
    page = window.page
    page.set_viewport_size({"width": 360, "height": 740})
    open_dialog(page, filled, name)
    page.get_by_role("dialog").locator("details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    assert find_violations(page) == []
    assert page.evaluate(WIDE) == []
    page.emulate_media(color_scheme="light")
    assert find_violations(page) == []
    for _ in range(TABS):
        page.keyboard.press("Tab")
        assert page.evaluate(FOCUSED)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert window.complaints == []
    window.context.close()
