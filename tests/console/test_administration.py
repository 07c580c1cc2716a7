"""The pages of administration: warehouses, and people with their memberships, secrets and issuers.

What a dialog shows as a command is run, too, and does what its button does.
"""

import re
import shlex
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.storage_profiles import ProfileRules
from duckicelake.catalog.warehouses import WarehouseWiring
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.telemetry.logs import make_logger
from tests.conftest import new_lake, services_of
from tests.console.conftest import HOSTILE
from tests.support.browsers import Visit, visit
from tests.support.commands import invoke
from tests.support.logins import SECRET, Clock, Server, bearing, token
from tests.support.servers import running

pytestmark = pytest.mark.console
MANAGEMENT = "/management/v1"


@dataclass(frozen=True, slots=True)
class GovernedServer:
    """A server with logins and several warehouses: root may administer it, ana is granted something."""

    uri: str
    tokens: dict[str, str]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        headers = bearing(self.tokens["root"])
        answer = httpx.request(method, f"{self.uri}{path}", json=body, headers=headers, timeout=60)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def open(self, window: Visit, path: str, who: str = "root") -> Page:
        window.context.add_init_script(f"sessionStorage.setItem('duckicelake.token', '{self.tokens[who]}')")
        window.page.goto(f"{self.uri}/ui/w/duckicelake/{path}")
        return window.page

    def run_shown(self, page: Page) -> None:
        """Run the command that the dialog shows, as root."""
        name, *words = shlex.split(show_command(page))
        assert name == "duckicelake"
        done = invoke(*words, DUCKICELAKE_CLIENT_TOKEN=self.tokens["root"])
        assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def governed(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GovernedServer]:
    folder, roots = tmp_path_factory.mktemp("governed"), tmp_path_factory.mktemp("warehouses")
    server = Server(Clock(time.time()))
    with new_lake(postgres, folder) as url, closing(open_lake_database(url, pool_size=6)) as database:
        login = server.authentication(OAuthClient("root", SECRET, ("*",)), database=database)
        wiring = WarehouseWiring(roots=(str(roots),), profiles=ProfileRules(SecretKeys.parse("k:" + "s" * 32)))
        log = make_logger(server.log, "json")
        app = create_app(services_of(database, folder), log=log, authentication=login, wiring=wiring)
        with running(app) as uri, httpx.Client(base_url=uri) as http, closing(app.warehouses):
            made = GovernedServer(uri, {"root": token(http, "root")})
            for name, kind in (("ana", "user"), ("staff", "group"), ("analysts", "role"), (HOSTILE, "role")):
                made.ask("POST", f"{MANAGEMENT}/principals", {"name": name, "kind": kind, "description": HOSTILE})
            shown = made.ask("POST", f"{MANAGEMENT}/principals/ana/secrets", {"kind": "token"})
            made.tokens["ana"] = shown["secret"]
            yield made


@pytest.fixture
def window(browser: Browser) -> Iterator[Visit]:
    made = visit(browser, color_scheme="light")
    yield made
    made.context.close()
    assert made.complaints == []


def dialog_of(page: Page) -> Locator:
    return page.get_by_role("dialog")


def show_command(page: Page) -> str:
    shown = page.get_by_label("the command", exact=True)
    if not shown.is_visible():
        page.get_by_text("The same by command").click()
    return shown.inner_text()


def read_command(page: Page) -> str:
    """Read what the dialog shows as a command, without the server's address."""
    return re.sub(r" --uri \S+", "", show_command(page))


def act(page: Page, verb: str) -> None:
    dialog_of(page).get_by_role("button", name=verb, exact=True).click()
    expect(dialog_of(page)).to_have_count(0)


def test_warehouse_is_created_changed_renamed_and_dropped(governed: GovernedServer, window: Visit) -> None:
    page = governed.open(window, "warehouses")
    page.get_by_role("button", name="Create a warehouse").click()
    dialog_of(page).get_by_label("Name").fill("north")
    assert read_command(page) == "duckicelake warehouse create north"
    act(page, "Create")
    page.get_by_role("link", name="north").click()
    expect(page.get_by_text("warehouse_north")).to_be_visible()

    page.get_by_role("button", name="Change max-tables").click()
    dialog_of(page).get_by_label("Value").fill("12")
    governed.run_shown(page)
    act(page, "Save")
    expect(page.get_by_role("row", name="max-tables")).to_contain_text("12")
    assert governed.ask("GET", f"{MANAGEMENT}/warehouses/north/options")["options"]["max-tables"] == "12"

    page.get_by_text("Change", exact=True).first.click()
    page.get_by_role("button", name="Rename").click()
    dialog_of(page).get_by_label("New name").fill("northern")
    act(page, "Rename")
    expect(page.get_by_role("heading", name="northern")).to_be_visible()

    page.get_by_text("Change", exact=True).first.click()
    page.get_by_role("button", name="Drop", exact=True).click()
    expect(dialog_of(page).get_by_role("button", name="Drop")).to_be_disabled()
    dialog_of(page).get_by_label("Type northern to be sure").fill("northern")
    assert read_command(page) == "duckicelake warehouse drop northern"
    act(page, "Drop")
    expect(page.get_by_role("heading", name="Warehouses")).to_be_visible()
    expect(page.get_by_role("link", name="northern")).to_have_count(0)


def test_grants_are_turned_on_in_one_warehouse_by_button_and_off_by_command(
    governed: GovernedServer, window: Visit
) -> None:
    governed.ask("POST", f"{MANAGEMENT}/warehouses", {"name": "granted"})
    page = governed.open(window, "warehouses/granted")
    page.get_by_role("button", name="Turn grants on").click()
    act(page, "Turn them on")
    expect(page.get_by_text("Grants are on")).to_be_visible()
    page.get_by_role("button", name="Turn grants off").click()
    governed.run_shown(page)
    page.keyboard.press("Escape")
    page.reload()
    expect(page.get_by_text("Grants are off")).to_be_visible()
    governed.ask("DELETE", f"{MANAGEMENT}/warehouses/granted")


def test_refusal_of_the_server_is_shown_in_the_dialog(governed: GovernedServer, window: Visit) -> None:
    page = governed.open(window, "warehouses")
    page.get_by_role("button", name="Create a warehouse").click()
    dialog_of(page).get_by_label("Name").fill("Not A Name")
    dialog_of(page).get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("Not A Name")
    window.complaints.clear()


def test_secret_of_a_storage_profile_is_in_no_dialog(governed: GovernedServer, window: Visit) -> None:
    page = governed.open(window, "warehouses")
    page.get_by_role("button", name="Create a profile").click()
    dialog = dialog_of(page)
    dialog.get_by_label("Secret").fill("very secret")
    dialog.get_by_label("Name").fill("eu")
    dialog.get_by_label("Folder").fill("s3://bucket/lakes")
    dialog.get_by_label("Key id").fill("AKIA")
    command = "duckicelake storage-profile create eu s3://bucket/lakes --access-key-id AKIA < secret"
    assert read_command(page) == command
    expect(page.get_by_label("the request", exact=True)).to_contain_text('"secret-access-key":"SECRET"')
    assert "very secret" not in dialog.inner_text()


def test_storage_profile_is_asked_for_what_its_store_has(governed: GovernedServer, window: Visit) -> None:
    page = governed.open(window, "warehouses")
    page.get_by_role("button", name="Create a profile").click()
    dialog = dialog_of(page)
    dialog.get_by_label("Name", exact=True).fill("paid")
    dialog.get_by_label("Folder").fill("s3://bucket/lakes")
    dialog.get_by_label("Key id").fill("AKIA")
    dialog.get_by_label("Secret").fill("very secret")
    dialog.locator("summary", has_text="Encryption and costs").click()
    dialog.get_by_label("Encryption of files").select_option("kms")
    dialog.get_by_label("ARN of the key").fill("arn:aws:kms:eu-west-1:1:key/2")
    dialog.get_by_label("Key of the bucket").select_option("no")
    dialog.get_by_label("The requester pays").check()
    command = read_command(page)
    assert "--sse kms --kms-key arn:aws:kms:eu-west-1:1:key/2 --requester-pays --no-bucket-key " in command
    request = page.get_by_label("the request", exact=True)
    expect(request).to_contain_text('"sse":"kms","kms-key":"arn:aws:kms:eu-west-1:1:key/2","requester-pays":true')
    expect(request).to_contain_text('"bucket-key":false')
    act(page, "Create")
    row = page.get_by_role("group", name="Profiles").get_by_role("row", name=re.compile("paid"))
    expect(row).to_contain_text("encrypted by kms")
    expect(row).to_contain_text("requester pays")
    page.get_by_role("button", name="Create a profile").click()
    dialog.get_by_label("Folder").fill("gs://bucket/lakes")
    expect(dialog.get_by_label("Service account")).to_be_visible()
    expect(dialog.get_by_label("Encryption of files")).to_have_count(0)
    dialog.get_by_label("Folder").fill("abfss://lake@account.dfs.core.windows.net/lakes")
    expect(dialog.get_by_label("Account, or tenant/client")).to_be_visible()


def test_service_account_gets_a_secret_that_is_shown_once_and_logs_in(governed: GovernedServer, window: Visit) -> None:
    page = governed.open(window, "people")
    page.get_by_role("button", name="Register").click()
    dialog_of(page).get_by_label("Name").fill("etl")
    dialog_of(page).get_by_label("Description").fill("it's new")
    assert read_command(page) == "duckicelake principal create etl --description 'it'\\''s new'"
    act(page, "Register")
    expect(page.get_by_role("heading", name="etl")).to_be_visible()
    page.get_by_role("button", name="Make one").click()
    dialog_of(page).get_by_label("What for").fill("nightly")
    dialog_of(page).get_by_role("button", name="Make it").click()
    credential = page.get_by_label("the credential", exact=True).inner_text()
    with httpx.Client(base_url=governed.uri) as http:
        assert token(http, "etl", credential.removeprefix("etl:"))
    page.get_by_role("button", name="I have it").click()
    row = page.get_by_role("row", name=re.compile("nightly"))
    expect(row).to_contain_text("in 3 months")
    assert credential not in page.content()

    row.get_by_role("button", name="Replace").click()
    dialog_of(page).get_by_role("button", name="Replace").click()
    expect(page.get_by_text("it is not shown again")).to_be_visible()
    page.get_by_role("button", name="I have it").click()
    expect(page.get_by_role("row", name=re.compile("nightly"))).to_have_count(2)
    page.get_by_role("row", name=re.compile("in 24 hours|in 1 day|tomorrow")).get_by_role(
        "button", name="Revoke"
    ).click()
    governed.run_shown(page)
    page.keyboard.press("Escape")
    page.reload()
    expect(page.get_by_role("row", name=re.compile("nightly"))).to_have_count(1)


def test_role_gets_members_and_passes_on_what_it_holds(governed: GovernedServer, window: Visit) -> None:
    page = governed.open(window, "people/analysts")
    page.get_by_role("button", name="Add a member").click()
    dialog_of(page).get_by_label("Member").fill("staff")
    assert read_command(page) == "duckicelake role members add analysts staff"
    act(page, "Add")
    page.get_by_role("link", name="staff").click()
    expect(page.get_by_role("link", name="analysts")).to_be_visible()
    page.get_by_role("button", name="Add a member").click()
    dialog_of(page).get_by_label("Member").fill("ana")
    governed.run_shown(page)
    page.keyboard.press("Escape")
    page.reload()
    page.get_by_role("button", name="Remove ana").click()
    act(page, "Remove")
    expect(page.get_by_text("It has no members")).to_be_visible()
    governed.ask("DELETE", f"{MANAGEMENT}/principals/analysts/members/staff")


def test_principal_is_edited_disabled_and_dropped(governed: GovernedServer, window: Visit) -> None:
    governed.ask("POST", f"{MANAGEMENT}/principals", {"name": "bob", "kind": "user"})
    page = governed.open(window, "people/bob")
    for choice, verb in (("Edit", "Save"), ("Disable", "Disable"), ("Enable", "Enable")):
        page.get_by_text("Change", exact=True).click()
        page.get_by_role("button", name=choice, exact=True).click()
        if choice == "Edit":
            dialog_of(page).get_by_label("Description").fill("he's new")
        act(page, verb)
        expect(page.locator(".tag.bad")).to_have_count(1 if choice == "Disable" else 0)
    assert governed.ask("GET", f"{MANAGEMENT}/principals/bob")["description"] == "he's new"
    page.get_by_text("Change", exact=True).click()
    page.get_by_role("button", name="Drop", exact=True).click()
    dialog_of(page).get_by_label("Type bob to be sure").fill("bob")
    act(page, "Drop")
    expect(page.get_by_role("group", name="Principals")).to_be_visible()
    expect(page.get_by_role("link", name="bob")).to_have_count(0)


def test_names_that_look_like_code_are_shown_as_they_are(governed: GovernedServer, window: Visit) -> None:
    page = governed.open(window, "people?kind=role")
    page.get_by_role("link", name=HOSTILE).click()
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()


def test_issuer_is_trusted_and_dropped(governed: GovernedServer, window: Visit) -> None:
    page = governed.open(window, "issuers")
    page.get_by_role("button", name="Trust an issuer").click()
    dialog = dialog_of(page)
    dialog.get_by_label("Name", exact=True).fill("corp")
    dialog.get_by_label("Audience").fill("lake")
    dialog.get_by_label("URL").fill("https://id.example.com")
    dialog.get_by_label("Claim of groups").fill("groups")
    command = "duckicelake issuer add corp https://id.example.com --audience lake --group-claim groups"
    assert read_command(page) == command
    act(page, "Trust it")
    expect(page.get_by_role("row", name="corp")).to_contain_text("groups: groups")
    page.get_by_role("button", name="Drop corp").click()
    governed.run_shown(page)
    page.keyboard.press("Escape")
    page.reload()
    expect(page.get_by_text("No issuers are trusted")).to_be_visible()


def test_whoever_is_registered_makes_a_token_of_their_own(governed: GovernedServer, window: Visit) -> None:
    page = governed.open(window, "you", "ana")
    page.get_by_role("button", name="Make one").click()
    dialog_of(page).get_by_label("What for").fill("laptop")
    dialog_of(page).get_by_role("button", name="Make it").click()
    made = page.get_by_label("the token", exact=True).inner_text()
    assert httpx.get(f"{governed.uri}/v1/whoami", headers=bearing(made)).json()["principal"] == "ana"
    page.get_by_role("button", name="I have it").click()
    row = page.get_by_role("row", name=re.compile("laptop"))
    row.get_by_role("button", name="Revoke").click()
    act(page, "Revoke")
    expect(row).to_have_count(0)


def test_whoever_may_not_administer_is_shown_no_links_and_refused_in_words(
    governed: GovernedServer, window: Visit
) -> None:
    page = governed.open(window, "people", "ana")
    expect(page.get_by_role("alert")).to_contain_text("The caller may not administer the server")
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link", name="People")).to_have_count(0)
    window.complaints.clear()


def test_ten_thousand_principals_come_in_pages_and_are_found(governed: GovernedServer, window: Visit) -> None:
    people = [{"name": f"u{number:05}", "kind": "user"} for number in range(10_000)]
    governed.ask("POST", f"{MANAGEMENT}/governance", {"document": {"principals": people}})
    page = governed.open(window, "people")
    expect(page.get_by_role("status").filter(has_text="entries so far")).to_be_visible()
    assert page.locator("tbody tr").count() < 100
    page.get_by_label("Part of a name").fill("u09999")
    page.get_by_role("link", name="u09999").click()
    expect(page.get_by_role("heading", name="u09999")).to_be_visible()
