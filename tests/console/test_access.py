"""Every page for everybody: axe finds nothing wrong in either colours, and nothing is cut off on a narrow screen."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.console.conftest import ShownLake
from tests.console.pages import PAGES
from tests.support.browsers import visit

pytestmark = pytest.mark.console
AXE = Path(__file__).parents[2] / "build/ui/node_modules/axe-core/axe.min.js"


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


TOO_CLOSE = """() => [...document.querySelectorAll('.card')].flatMap(card => {
  const edge = card.getBoundingClientRect().left;
  const texts = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(text);
    const { left, width } = range.getBoundingClientRect();
    const scrolled = text.parentElement.closest('.scroll, .grid, .hidden-text, svg');
    if (text.data.trim() && width > 0 && !scrolled && left - edge < 6) found.push(text.data.slice(0, 60));
  }
  return found;
})"""
"""Texts at the edge of their card, which has forgotten its padding."""


CUT = """[...document.querySelectorAll('.cards')].filter(one => one.scrollWidth > one.clientWidth + 1)
  .map(one => one.getAttribute('aria-label'))"""
"""Tables whose rows should be cards, and are wider than the screen."""


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_on_a_narrow_screen(lake: ShownLake, browser: Browser, name: str) -> None:
    """Nor does a text touch the edge of its card."""
    window = visit(browser)
    window.page.set_viewport_size({"width": 360, "height": 740})
    open_page(window.page, lake, PAGES[name])
    wide = "[...document.querySelectorAll('html, .page')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
    assert window.page.evaluate(wide) == 0
    assert window.page.evaluate(TOO_CLOSE) == []
    assert window.page.evaluate(CUT) == []
    window.context.close()
