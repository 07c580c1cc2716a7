"""The pages of grants and policies: what is granted and by which way, why one may, what is hidden of a table."""

import json
import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from duckicelake.postgres.embedded import EmbeddedPostgres
from scripts.backends_job.minio import Minio
from tests.console.test_administration import MANAGEMENT, GovernedServer, act, dialog_of, governed, read_command
from tests.support.browsers import Visit, visit
from tests.support.guarded_lake import serve_guarded

__all__ = ["governed"]
pytestmark = pytest.mark.console
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "phone", "type": "string", "required": False}]}
ORDERS = "table:sales.orders%2E2026"


@pytest.fixture(scope="module")
def sales(governed: GovernedServer) -> GovernedServer:
    """Grants are on, ana is in staff, staff in analysts; the table sales has a dot in its name."""
    governed.ask("POST", "/v1/namespaces", {"namespace": ["sales"]})
    governed.ask("POST", "/v1/namespaces/sales/tables", {"name": "orders.2026", "schema": SCHEMA})
    governed.ask("POST", f"{MANAGEMENT}/principals", {"name": "root", "kind": "service"})
    for container, member in (("staff", "ana"), ("analysts", "staff"), ("admin", "root")):
        governed.ask("POST", f"{MANAGEMENT}/principals/{container}/members", {"member": member})
    document = {"warehouses": [{"name": "duckicelake", "grants-on": True}]}
    governed.ask("POST", f"{MANAGEMENT}/governance", {"document": document})
    return governed


@pytest.fixture
def window(browser: Browser) -> Iterator[Visit]:
    made = visit(browser, color_scheme="light")
    yield made
    made.context.close()
    assert made.complaints == []


def test_privileges_are_granted_shown_as_inherited_and_revoked(sales: GovernedServer, window: Visit) -> None:
    page = sales.open(window, "grants")
    page.get_by_role("button", name="Grant", exact=True).click()
    dialog = dialog_of(page)
    dialog.get_by_label("To whom").fill("analysts")
    dialog.get_by_label("On", exact=True).fill("namespace:sales")
    dialog.get_by_role("checkbox", name="insert").check()
    assert read_command(page) == "duckicelake grant analysts select,insert namespace:sales"
    act(page, "Grant")
    expect(page.get_by_role("row", name=re.compile("analysts"))).to_contain_text("insertselect")

    page.get_by_label("Of whom").fill("ana")
    page.get_by_label("On what").fill(ORDERS)
    page.get_by_role("button", name="Show").click()
    row = page.get_by_role("row", name=re.compile("analysts"))
    expect(row).to_contain_text("by staff → analysts")
    expect(row).to_contain_text("from above")
    row.get_by_role("button", name="Revoke").click()
    dialog.get_by_role("checkbox", name="select").uncheck()
    sales.run_shown(page)
    page.keyboard.press("Escape")
    page.reload()
    expect(row).not_to_contain_text("insert")
    expect(row).to_contain_text("select")


def test_why_shows_the_way_of_a_grant_and_what_is_missing(sales: GovernedServer, window: Visit) -> None:
    given = {"principal": "analysts", "privileges": ["select"], "object": {"kind": "namespace", "namespace": ["sales"]}}
    sales.ask("POST", f"{MANAGEMENT}/grants", {"grant": [given]})
    page = sales.open(window, "why")
    page.get_by_label("Who").fill("ana")
    page.get_by_label("On", exact=True).fill(ORDERS)
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text(f"ana may select on {ORDERS}")).to_be_visible()
    chain = page.get_by_role("region", name="What decides")
    expect(chain.get_by_role("link")).to_have_text(["ana", "staff", "analysts", "sales", "sales.orders.2026"])
    sales.run_shown(page)
    shown = page.get_by_role("region", name="The same by command and by HTTP").get_by_text("curl").inner_text()
    token = {"DUCKICELAKE_CLIENT_TOKEN": sales.tokens["root"]}
    answer = subprocess.run(["bash", "-c", shown], env={**os.environ, **token}, capture_output=True, check=True).stdout
    assert json.loads(answer)["is-allowed"] is True
    page.get_by_label("May", exact=True).select_option("drop")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text(f"ana may not drop on {ORDERS}")).to_be_visible()
    expect(chain).to_contain_text("No grant gives it")


def test_whoever_has_grants_sees_their_own_alone(sales: GovernedServer, window: Visit) -> None:
    own = {"principal": "ana", "privileges": ["select"], "object": {"kind": "namespace", "namespace": ["sales"]}}
    sales.ask("POST", f"{MANAGEMENT}/grants", {"grant": [own]})
    page = sales.open(window, "grants", "ana")
    expect(page.get_by_role("row")).to_have_count(2)
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.get_by_role("link", name="Grants")).to_be_visible()
    expect(pages.get_by_role("link", name="Warehouses")).to_have_count(0)
    page.get_by_role("button", name="Grant", exact=True).click()
    dialog_of(page).get_by_label("To whom").fill("staff")
    dialog_of(page).get_by_label("On", exact=True).fill("warehouse")
    dialog_of(page).get_by_role("button", name="Grant", exact=True).click()
    expect(dialog_of(page).get_by_role("alert")).to_contain_text("Not allowed")
    window.complaints.clear()


def test_column_is_tagged_and_the_tag_taken_away(sales: GovernedServer, window: Visit) -> None:
    page = sales.open(window, f"policies?on={ORDERS.replace('%', '%25')}")
    page.get_by_role("button", name="Tag a column").click()
    dialog_of(page).get_by_label("Tag", exact=True).fill("pii")
    dialog_of(page).get_by_label("Column").fill("phone")
    assert read_command(page) == f"duckicelake policy tag pii {ORDERS} phone"
    act(page, "Tag it")
    page.get_by_role("button", name="Take away pii from phone").click()
    sales.run_shown(page)
    page.keyboard.press("Escape")
    page.reload()
    expect(page.get_by_text("No column is tagged")).to_be_visible()


def test_policy_that_local_files_would_betray_is_refused_in_the_dialog(sales: GovernedServer, window: Visit) -> None:
    page = sales.open(window, f"policies?on={ORDERS.replace('%', '%25')}")
    page.get_by_role("button", name="Add a policy").click()
    dialog = dialog_of(page)
    dialog.get_by_label("Name").fill("eu-rows")
    dialog.get_by_label("Rows that are shown").fill("phone = '1'")
    dialog.get_by_label("For", exact=True).fill("analysts")
    command = f"duckicelake policy add eu-rows {ORDERS} --where 'phone = '\\''1'\\''' --to analysts"
    assert read_command(page) == command
    dialog.get_by_role("button", name="Add").click()
    expect(dialog.get_by_role("alert")).to_contain_text("files are all in S3")
    window.complaints.clear()


def test_policies_are_added_seen_as_another_and_dropped(
    postgres: EmbeddedPostgres, minio: Minio, window: Visit
) -> None:
    with serve_guarded(postgres, minio) as lake:
        lake.done("POST", f"{MANAGEMENT}/principals/ann", {"scopes": ["ns:sales:*"]})
        server = GovernedServer(str(lake.http.base_url).rstrip("/"), lake.tokens)
        page = server.open(window, "policies?on=table:sales.eu.t")
        page.get_by_label("Who").fill("ann")
        page.get_by_role("region", name="What a principal sees of it").get_by_role("button", name="Show").click()
        expect(page.get_by_text("ann sees the rows where region = 'eu'")).to_be_visible()
        page.get_by_role("button", name="Add a policy").click()
        dialog = dialog_of(page)
        dialog.get_by_label("Name").fill("ids")
        dialog.get_by_label("What", exact=True).select_option("column")
        dialog.get_by_label("Column").fill("id")
        dialog.get_by_label("Mask", exact=True).select_option("sha-256-global")
        dialog.get_by_label("For", exact=True).fill("ann")
        server.run_shown(page)
        dialog.get_by_label("Name").fill("ids-again")
        act(page, "Add")
        expect(page.get_by_role("row", name=re.compile("ids-again"))).to_contain_text("sha-256-global")
        page.get_by_role("button", name="Drop ids-again").click()
        dialog.get_by_label("Type ids-again to be sure").fill("ids-again")
        server.run_shown(page)
        page.keyboard.press("Escape")
        page.reload()
        expect(page.get_by_text("ids", exact=True)).to_be_visible()
        expect(page.get_by_text("ids-again")).to_have_count(0)
    window.complaints.clear()
