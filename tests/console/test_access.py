"""Every page for everybody: axe finds nothing wrong in either colours, and nothing is cut off on a narrow screen."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.console.conftest import ShownLake
from tests.support.browsers import visit

pytestmark = pytest.mark.console
AXE = Path(__file__).parents[2] / "build/ui/node_modules/axe-core/axe.min.js"
ORDERS = "w/duckicelake/tables/sales.orders"
PAGES = {
    "home": "",
    "tables": "w/duckicelake/tables",
    "namespace": "w/duckicelake/tables?in=sales",
    "schema": ORDERS,
    "data": f"{ORDERS}?page=data",
    "snapshots": f"{ORDERS}?page=snapshots",
    "files": f"{ORDERS}?page=files&where=id > 50",
    "properties": f"{ORDERS}?page=properties",
    "history": f"{ORDERS}?page=history",
    "sql": "w/duckicelake/sql?q=FROM sales.orders",
    "all history": "w/duckicelake/history?kind=append",
    "lineage": "w/duckicelake/lineage?node=sales.orders",
    "dropped": "w/duckicelake/dropped",
    "warehouses": "w/duckicelake/warehouses",
    "warehouse": "w/duckicelake/warehouses/duckicelake",
    "people": "w/duckicelake/people",
    "principal": "w/duckicelake/people/admin",
    "issuers": "w/duckicelake/issuers",
    "grants": "w/duckicelake/grants",
    "grants of an object": "w/duckicelake/grants?principal=admin&on=table:sales.orders",
    "why": "w/duckicelake/why?principal=admin&action=select&on=table:sales.orders",
    "policies": "w/duckicelake/policies?on=table:sales.orders",
    "audit": "w/duckicelake/audit",
    "upkeep": "w/duckicelake/upkeep",
    "doctor": "w/duckicelake/doctor",
    "settings": "w/duckicelake/settings?show=set",
    "api": "w/duckicelake/api?route=POST /v1/namespaces/{namespace}/tables/{table}",
    "you": "w/duckicelake/you",
    "no such page": "w/duckicelake/nothing",
}


def open_page(page: Page, lake: ShownLake, path: str) -> None:
    page.goto(f"{lake.uri}/ui/{path}" if path else f"{lake.uri}/ui")
    page.locator("h1").first.wait_for()
    page.wait_for_load_state("networkidle")


def find_violations(page: Page) -> list[str]:
    page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate("axe.run().then(done => done.violations)")
    return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]


@pytest.mark.skipif(not AXE.exists(), reason="axe comes with the libraries that scripts/ui/build fetches")
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(lake: ShownLake, browser: Browser, name: str, colours: str) -> None:
    window = visit(browser, color_scheme=colours, reduced_motion="reduce")
    open_page(window.page, lake, PAGES[name])
    assert find_violations(window.page) == []
    window.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_on_a_narrow_screen(lake: ShownLake, browser: Browser, name: str) -> None:
    window = visit(browser)
    window.page.set_viewport_size({"width": 360, "height": 740})
    open_page(window.page, lake, PAGES[name])
    wide = "[...document.querySelectorAll('html, .page')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
    assert window.page.evaluate(wide) == 0
    window.context.close()
