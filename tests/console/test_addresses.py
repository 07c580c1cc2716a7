"""What a page shows is in its address: another window that opens it shows the same."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.conftest import ShownLake
from tests.console.pages import ORDERS
from tests.support.browsers import Visit

pytestmark = pytest.mark.console
Find = Callable[[Page], Locator]


@dataclass(frozen=True, slots=True)
class State:
    """A choice on a page, and what the address says of it."""

    path: str
    control: Find
    chosen: str
    words: str


def search_box(name: str) -> Find:
    return lambda page: page.get_by_role("searchbox", name=name)


def choice(name: str) -> Find:
    return lambda page: page.get_by_label(name)


STATES = {
    "tables": State("w/duckicelake/tables?in=sales", search_box("Part of a name"), "ord", "in=sales&find=ord"),
    "columns": State(ORDERS, search_box("Part of a name or comment"), "amount", "find=amount"),
    "principals": State("w/duckicelake/people?kind=role", search_box("Part of a name"), "adm", "kind=role&find=adm"),
    "routes": State("w/duckicelake/api", search_box("Part of a route"), "undrop", "find=undrop"),
    "growth": State(f"{ORDERS}?page=snapshots", choice("What grows"), "total-files-size", "grows=total-files-size"),
    "rows of a query": State("w/duckicelake/sql?q=FROM sales.orders", choice("at most"), "10000", "limit=10000"),
}


@pytest.mark.parametrize("name", STATES)
def test_state_of_a_page_is_in_its_address(lake: ShownLake, window: Visit, name: str) -> None:
    """Typed by keys, of which none is lost while the address follows."""
    page = window.page
    state = STATES[name]
    page.goto(f"{lake.uri}/ui/{state.path}")
    control = state.control(page)
    if control.get_attribute("type") == "search":
        control.press_sequentially(state.chosen, delay=120)
    else:
        control.select_option(state.chosen)
    expect(page).to_have_url(re.compile(re.escape(state.words)))
    other = window.context.new_page()
    other.goto(page.url)
    expect(state.control(other)).to_have_value(state.chosen)
    expect(control).to_have_value(state.chosen)


def test_state_of_the_loads_and_of_a_chart_is_in_the_address(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/{ORDERS}?page=loads")
    page.get_by_role("group", name="State").get_by_role("button", name="Failed").click()
    expect(page).to_have_url(re.compile("page=loads&state=failed"))
    page.reload()
    expect(page.get_by_text("None is failed")).to_be_visible()
    page.goto(f"{lake.uri}/ui/w/duckicelake/sql?q=SELECT region, id FROM sales.orders&show=chart")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_label("Along").select_option("id")
    expect(page).to_have_url(re.compile("show=chart&along=id"))


def test_what_was_looked_for_is_left_with_the_page(lake: ShownLake, window: Visit) -> None:
    """A text that was typed a moment before goes into no other page's address."""
    page = window.page
    page.goto(f"{lake.uri}/ui/{ORDERS}")
    page.get_by_role("searchbox", name="Part of a name or comment").press_sequentially("amount")
    page.get_by_role("link", name="Home").click()
    expect(page.get_by_text("Postgres and the object store answer.")).to_be_visible()
    page.wait_for_timeout(600)
    assert page.url == f"{lake.uri}/ui/w/duckicelake"
