"""Names that look like markup, addresses or code are shown as they are, and lead where they should."""

import pytest
from playwright.sync_api import expect

from tests.console.conftest import HOSTILE, ShownLake
from tests.support.browsers import Visit

pytestmark = pytest.mark.console


@pytest.mark.parametrize("name", [HOSTILE, "a.b/c~d", "javascript:alert(1)"])
def test_name_is_shown_and_led_to_as_it_is(lake: ShownLake, window: Visit, name: str) -> None:
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables?in=labs")
    page.get_by_role("region", name="Tables and views").get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    expect(page.get_by_role("group", name="Columns")).to_contain_text(HOSTILE)
    page.reload()
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    assert page.locator("img").count() == 0
    for tab in ("Data", "Snapshots", "Files", "Properties", "History"):
        page.get_by_role("navigation", name="About the table").get_by_role("link", name=tab).click()
        expect(page).to_have_title(f"{name} · {tab} · duckicelake")
    expect(page.get_by_text("Create table")).to_be_visible()
