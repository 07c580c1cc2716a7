"""What happened to a table's rows, and which files were loaded into it, as a page shows both."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.console.conftest import ShownLake
from tests.server.routes.test_idempotency import uuid7
from tests.support.browsers import Visit

pytestmark = pytest.mark.console
ROWS = "/v1/namespaces/sales/tables/followed/rows"


@pytest.fixture(scope="module")
def followed(lake: ShownLake) -> str:
    """A table with three rows, of which one was replaced."""
    fields = [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "city", "type": "string", "required": False},
    ]
    schema = {"type": "struct", "schema-id": 0, "identifier-field-ids": [1], "fields": fields}
    lake.ask("POST", "/v1/namespaces/sales/tables", {"name": "followed", "schema": schema})
    lake.ask("POST", ROWS, [{"id": number, "city": "Porto"} for number in range(3)])
    lake.ask("POST", f"{ROWS}?mode=upsert&key=id", [{"id": 1, "city": "Braga"}])
    return f"{lake.uri}/ui/w/duckicelake/tables/sales.followed"


def test_changes_since_the_beginning_are_listed_and_saved(followed: str, window: Visit, tmp_path: Path) -> None:
    page = window.page
    page.goto(f"{followed}?page=changes&from=beginning")
    rows = page.get_by_role("group", name="Rows that changed").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("insert")
    expect(rows.nth(1)).to_contain_text("Porto")
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON lines").click()
    download.value.save_as(tmp_path / "changes.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "changes.jsonl").read_text().splitlines()]
    assert [(line["_change_type"], line["id"]) for line in lines[:3]] == [("INSERT", number) for number in range(3)]


def test_followed_changes_come_by_themselves(lake: ShownLake, followed: str, window: Visit) -> None:
    page = window.page
    page.goto(f"{followed}?page=changes")
    rows = page.get_by_role("group", name="Rows that changed").get_by_role("row")
    expect(rows.last).to_contain_text("Braga")
    shown = rows.count()
    page.get_by_role("button", name="Follow").click()
    lake.ask("POST", ROWS, [{"id": 77, "city": "Faro"}])
    expect(page.get_by_text("Faro")).to_be_visible(timeout=30_000)
    expect(rows).to_have_count(shown + 1)


def test_columns_that_identify_a_row_are_asked_for(followed: str, window: Visit) -> None:
    """By the page and by its commands, and kept in the address."""
    page = window.page
    page.goto(f"{followed}?page=changes&from=beginning")
    field = page.get_by_label("A row is the same by")
    field.fill("id")
    with page.expect_request(lambda request: "key=id" in request.url):
        field.press("Enter")
    expect(page).to_have_url(re.compile("from=beginning&key=id"))
    expect(page.get_by_label("the command", exact=True)).to_contain_text("--key id")
    expect(page.get_by_label("the request", exact=True)).to_contain_text("key=id")
    page.reload()
    expect(field).to_have_value("id")
    field.fill("nothing")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("no column 'nothing'")
    window.complaints.clear()


def test_changes_that_have_no_beginning_say_so(followed: str, window: Visit) -> None:
    window.page.goto(f"{followed}?page=changes&from=nowhere")
    expect(window.page.get_by_role("alert")).to_contain_text("nowhere")
    window.complaints.clear()


def test_loaded_and_failed_files_are_listed(lake: ShownLake, followed: str, window: Visit) -> None:
    path = "/pipeline/v1/namespaces/sales/tables/followed/file-batches"
    run = uuid7()
    lake.ask("POST", path, {"run-id": run, "files": [{"name": "/in/bad.csv", "size": 1200, "version": "1"}]})
    lake.ask("POST", f"{path}/{run}", {"error": "bad.csv has no header"})
    page = window.page
    page.goto(f"{followed}?page=loads")
    row = page.get_by_role("group", name="Loaded files").get_by_role("row").nth(1)
    expect(row).to_contain_text("/in/bad.csv")
    expect(row).to_contain_text("bad.csv has no header")
    page.get_by_role("button", name="Loaded", exact=True).click()
    expect(page.get_by_text("None is loaded")).to_be_visible()
    expect(page.get_by_text("there is no table followed_quarantine")).to_be_visible()
