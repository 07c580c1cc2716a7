"""The console in a real browser: from the first page to the rows of a table."""

import re

from playwright.sync_api import expect

from tests.console.conftest import ShownLake
from tests.support.browsers import Visit


def test_user_goes_from_the_address_of_the_server_to_the_rows_of_a_table(lake: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(lake.uri)
    expect(page).to_have_url(f"{lake.uri}/ui/w/duckicelake")
    expect(page.get_by_text("Postgres and the object store answer.")).to_be_visible()
    expect(page.get_by_label("the Python for PyIceberg", exact=True)).to_contain_text(f'uri="{lake.uri}"')
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Tables").click()
    page.get_by_role("region", name="Namespaces").get_by_role("link", name="sales").click()
    page.get_by_role("region", name="Tables and views").get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    expect(page.locator(".figures")).to_contain_text("Rows80")
    columns = page.get_by_role("group", name="Columns")
    expect(columns.get_by_role("row", name=re.compile("^id key"))).to_contain_text("not null")
    expect(columns.get_by_role("row", name=re.compile("^amount"))).to_contain_text("In euro")
    page.get_by_role("link", name="Data").click()
    rows = page.get_by_role("group", name="Rows")
    expect(rows.get_by_role("row").nth(1)).to_contain_text("Porto")
    expect(page).to_have_title("orders · Data · duckicelake")
    assert {re.sub(r"(//[^/]+).*", r"\1", url) for url in window.asked} == {lake.uri}
