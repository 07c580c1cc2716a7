"""Tables with more than fits a page: what is listed comes by pages, and live."""

import re

import pytest
from playwright.sync_api import expect

from duckicelake.changelog.writer import write_all_changes
from tests.console.conftest import ShownLake, field
from tests.support.browsers import Visit

pytestmark = pytest.mark.console
PLAIN = {"type": "struct", "schema-id": 0, "fields": [field(1, "id", "long", doc="Number of the parcel")]}
TABLE = "/v1/namespaces/sales/tables/parcels"


@pytest.fixture(scope="module")
def parcels(lake: ShownLake) -> ShownLake:
    """A table with three snapshots."""
    lake.ask("POST", "/v1/namespaces/sales/tables", {"name": "parcels", "schema": PLAIN})
    for number in range(3):
        lake.ask("POST", f"{TABLE}/rows", [{"id": number}] * (number + 1))
        lake.ask("POST", f"{TABLE}/rows/flush")
        lake.ask("GET", TABLE)
    return lake


def test_snapshots_come_by_pages_newest_first(parcels: ShownLake) -> None:
    pages, before = [], ""
    while len(pages) < 10:
        page = parcels.ask("GET", f"{TABLE}/snapshots?limit=2{before}")
        pages.append(page)
        if page.get("next-before") is None:
            break
        before = f"&before={page['next-before']}"
    listed = [snapshot["snapshot-id"] for page in pages for snapshot in page["snapshots"]]
    known = parcels.ask("GET", TABLE)["metadata"]["snapshots"]
    assert listed == [snapshot["snapshot-id"] for snapshot in reversed(known)]
    assert {page["total"] for page in pages} == {len(known)}


def test_page_of_a_table_loads_named_snapshots_alone_and_draws_its_growth(parcels: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{parcels.uri}/ui/w/duckicelake/tables/sales.parcels?page=snapshots")
    growth = page.get_by_role("region", name="Growth")
    expect(growth.get_by_role("img")).to_have_accessible_name(re.compile("^Rows after each of"))
    growth.get_by_label("What grows").select_option("Bytes")
    expect(growth.get_by_role("img")).to_have_accessible_name(re.compile("^Bytes after each of"))
    loads = [url for url in window.asked if url.partition("?")[0].endswith("/tables/parcels") and "/v1/" in url]
    assert loads
    assert all(url.endswith("?snapshots=refs") for url in loads)


def test_history_follows_the_changes_by_itself(parcels: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{parcels.uri}/ui/w/duckicelake/history")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="labs.live")).to_have_count(0)
    parcels.ask("POST", "/v1/namespaces/labs/tables", {"name": "live", "schema": PLAIN})
    write_all_changes(parcels.services)
    expect(page.get_by_role("link", name="labs.live")).to_be_visible()
    time = page.locator("time").first
    expect(time).to_contain_text("UTC")
    expect(time).to_contain_text("(")


def test_palette_finds_by_a_column_and_a_comment(parcels: ShownLake, window: Visit) -> None:
    page = window.page
    page.goto(f"{parcels.uri}/ui")
    page.get_by_role("heading").first.wait_for()
    page.keyboard.press("/")
    page.get_by_role("combobox").fill("parcel")
    expect(page.get_by_role("option", name="sales.parcels")).to_be_visible()
    page.get_by_role("combobox").fill("number of the parcel")
    page.get_by_role("option", name="sales.parcels").click()
    expect(page.get_by_role("heading", name="parcels")).to_be_visible()
