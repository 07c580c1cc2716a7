"""What the console does to a lake: it says so before, shows the same as a command and as a request, and does it."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import ShownLake, field
from tests.support.browsers import Visit

pytestmark = pytest.mark.console
PLAIN = {"type": "struct", "schema-id": 0, "fields": [field(1, "id", "long")]}


@pytest.fixture
def name(lake: ShownLake, request: pytest.FixtureRequest) -> str:
    """A table of this test with two snapshots, of two rows and of one."""
    made = request.node.name
    lake.ask("POST", "/v1/namespaces/sales/tables", {"name": made, "schema": PLAIN})
    for rows in ([{"id": 1}, {"id": 2}], [{"id": 3}]):
        lake.ask("POST", f"/v1/namespaces/sales/tables/{made}/rows", rows)
        lake.ask("POST", f"/v1/namespaces/sales/tables/{made}/rows/flush")
        metadata(lake, made)
    return made


def begin(page: Page, lake: ShownLake, name: str, act: str) -> None:
    page.goto(f"{lake.uri}/ui/w/duckicelake/tables/sales.{name}")
    page.get_by_text("Change", exact=True).click()
    page.get_by_role("button", name=act).click()


def metadata(lake: ShownLake, name: str) -> dict[str, object]:
    found: dict[str, object] = lake.ask("GET", f"/v1/namespaces/sales/tables/{name}")["metadata"]
    return found


def test_comment_is_edited_and_shown(lake: ShownLake, window: Visit, name: str) -> None:
    page = window.page
    begin(page, lake, name, "Edit the comment")
    page.get_by_role("dialog").get_by_label("Comment").fill("it's new")
    page.get_by_text("The same by command").click()
    command = page.get_by_label("the command", exact=True)
    expect(command).to_have_text(f"duckicelake comment sales.{name} 'it'\\''s new' --uri {lake.uri}")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("p.comment")).to_have_text("it's new")


def test_restore_says_what_it_would_do_and_does_it(lake: ShownLake, window: Visit, name: str) -> None:
    page = window.page
    begin(page, lake, name, "Restore a snapshot")
    expect(page.get_by_text("0 rows would come back, 1 would go")).to_be_visible()
    page.get_by_role("button", name="Restore").click()
    expect(page.locator(".figures")).to_contain_text("Rows2")


def test_expiry_says_how_many_snapshots_would_go(lake: ShownLake, window: Visit, name: str) -> None:
    page = window.page
    begin(page, lake, name, "Expire snapshots")
    snapshots = len(metadata(lake, name)["snapshots"])  # type: ignore[arg-type]
    expect(page.get_by_text(f"0 snapshots would go, {snapshots} stay.")).to_be_visible()
    page.get_by_label("Older than, in days").fill("0")
    expect(page.get_by_text(re.compile("[1-9] snapshots? would go, 1 stay."))).to_be_visible()
    page.get_by_role("button", name="Expire").click()
    expect(page.locator(".figures")).to_contain_text("Snapshots1")


def test_tag_is_made_for_a_snapshot(lake: ShownLake, window: Visit, name: str) -> None:
    page = window.page
    begin(page, lake, name, "Make a branch or tag")
    page.get_by_role("textbox", name="Name").fill("main")
    expect(page.get_by_text("There is a branch or tag of this name.")).to_be_visible()
    page.get_by_role("textbox", name="Name").fill("end of year")
    page.get_by_role("button", name="Make it").click()
    page.get_by_role("link", name="Snapshots").click()
    expect(page.get_by_role("row", name="end of year")).to_contain_text("tag")
    assert "end of year" in json.dumps(metadata(lake, name)["refs"])


def test_table_is_renamed(lake: ShownLake, window: Visit, name: str) -> None:
    page = window.page
    begin(page, lake, name, "Rename")
    page.get_by_label("New name, with its namespace").fill(f"sales.eu.{name}~.2")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("heading", name=f"{name}.2")).to_be_visible()
    assert lake.ask("GET", f"/v1/namespaces/sales%1Feu/tables/{name}.2")


def test_table_is_dropped_and_brought_back(lake: ShownLake, window: Visit, name: str) -> None:
    page = window.page
    begin(page, lake, name, "Drop")
    drop = page.get_by_role("dialog").get_by_role("button", name="Drop")
    expect(drop).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill(name)
    drop.click()
    row = page.get_by_role("row", name=f"sales.{name}")
    row.get_by_role("button", name="Bring back").click()
    page.get_by_role("dialog").get_by_label("Name").fill("again")
    page.get_by_role("dialog").get_by_role("button", name="Bring back").click()
    expect(row).to_have_count(0)
    assert len(metadata(lake, "again")["snapshots"]) == 2  # type: ignore[arg-type]


def test_refusal_is_shown_where_the_act_is(lake: ShownLake, window: Visit, name: str) -> None:
    page = window.page
    begin(page, lake, name, "Rename")
    page.get_by_label("New name, with its namespace").fill("nowhere.orders")
    page.get_by_role("button", name="Rename").click()
    expect(page.get_by_role("alert")).to_contain_text("nowhere")
    window.complaints.clear()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
