"""Tables with more than fits a page: what is listed comes by pages, and live."""

import re
from typing import Any

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
    pages: list[Any] = []
    before = ""
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
    assert all(url.endswith("?snapshots=brief") for url in loads)


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


def test_newer_changes_come_before_the_pages_that_are_shown(lake: ShownLake, window: Visit) -> None:
    """Of a history of several pages, only what has come since is asked for."""
    lake.ask("POST", "/v1/namespaces", {"namespace": ["busy"]})
    for number in range(55):
        lake.ask("POST", "/v1/namespaces/busy/properties", {"updates": {"step": str(number)}})
    write_all_changes(lake.services)
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/history")
    page.get_by_role("button", name="Older changes").click()
    listed = page.locator(".changes > li")
    expect(listed.nth(55)).to_be_visible()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    before, shown = len(window.asked), listed.count()
    lake.ask("POST", "/v1/namespaces", {"namespace": ["busy", "newest"]})
    write_all_changes(lake.services)
    expect(listed.first).to_contain_text("busy.newest")
    assert listed.count() == shown + 1
    histories = [url for url in window.asked[before:] if "/v1/history" in url]
    assert histories
    assert not [url for url in histories if "before=" in url]


def test_audit_trail_comes_by_pages_to_its_first_entry(lake: ShownLake, window: Visit) -> None:
    with lake.services.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO duckicelake_audit (principal, address, request_id, operation, resource, result) "
            "SELECT 'ana', '10.0.0.1', 'r' || i, 'long_ago', 'sales.t' || i, 'ok' FROM generate_series(1, 450) i"
        )
    page = window.page
    page.goto(f"{lake.uri}/ui/w/duckicelake/audit?operation=long_ago")
    rows = page.get_by_role("group", name="Audit trail")
    expect(rows.get_by_role("row").nth(1)).to_contain_text("sales.t450")
    expect(page.get_by_text("200 entries so far")).to_be_visible()
    for count in ("400 entries so far", "450 entries"):
        rows.evaluate("box => box.scrollTo(0, box.scrollHeight)")
        expect(page.get_by_text(count, exact=True)).to_be_visible()
    rows.evaluate("box => box.scrollTo(0, box.scrollHeight)")
    expect(rows.get_by_role("row").last).to_contain_text("sales.t1")


def test_no_page_has_all_of_the_lake_examined_by_itself(lake: ShownLake, window: Visit) -> None:
    """That takes minutes where there are very many files: Home leads to the doctor, who looks for them where asked."""
    page = window.page
    page.goto(f"{lake.uri}/ui")
    link = page.get_by_role("link", name="Examine the catalog")
    expect(link).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert not [url for url in window.asked if "/v1/doctor" in url]
    link.click()
    expect(page.get_by_text("Postgres version")).to_be_visible()
    page.get_by_label("Look for every data file, too").check()
    expect(page.get_by_text("Examined just now")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert [url.partition("?")[2] for url in window.asked if "/v1/doctor" in url] == ["files=false", "files=true"]
