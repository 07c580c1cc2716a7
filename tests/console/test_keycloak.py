"""Login by redirect at Keycloak itself, as docs/how-to/sign-in.md has it set up, with the clocks as they are."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from duckicelake.catalog.issuers import create_issuer, drop_issuer
from duckicelake.lake.side_tables.issuers import Issuer
from duckicelake.server.auth.oauth_clients import OAuthClient
from scripts.engines_job.packages import EngineError, keycloak_home
from tests.console.conftest import ShownLake
from tests.support.browsers import Visit, visit
from tests.support.keycloak import AUDIENCE, CLIENT, PASSWORD, SESSION_SECONDS, USER, run_keycloak
from tests.support.logins import SECRET, Clock, Server
from tests.support.servers import running

pytestmark = [pytest.mark.console, pytest.mark.timeout(900)]
"""Keycloak builds itself at its first start, which takes minutes on a busy machine."""
ORDERS = "ui/w/duckicelake/tables/sales.orders"
REGISTERED: dict[str, Any] = {
    "subject_claim": "preferred_username",
    "group_claim": "groups",
    "scopes": ("ns:sales:r",),
    "web_client_id": CLIENT,
    "web_scopes": ("openid",),
}
TOKEN = "sessionStorage.getItem('duckicelake.token')"
RENEWED = f"first => ![null, first].includes({TOKEN})"

MAX_LOGIN_REQUESTS = 20
"""Each renewal is asked for after half of the time that is left, so the last ones must not become many."""


class RealClock(Clock):
    """The time of Keycloak and Chromium, which no test moves."""

    def __call__(self) -> float:
        return time.time()


@pytest.fixture(scope="module")
def uri(lake: ShownLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that trusts a realm of Keycloak."""
    server, folder = Server(RealClock()), tmp_path_factory.mktemp("keycloak")
    login = server.authentication(OAuthClient("ana", SECRET, ("*",)), database=lake.services.database)
    try:
        keycloak_home()
    except EngineError as error:
        pytest.skip(str(error))
    with running(server.app(lake.services, login)) as address, run_keycloak(folder, f"{address}/ui/login") as issuer:
        create_issuer(lake.services, Issuer("keycloak", issuer, AUDIENCE, label="Keycloak", **REGISTERED))
        yield address
        drop_issuer(lake.services, "keycloak")


@pytest.fixture
def reader(browser: Browser) -> Iterator[Visit]:
    made = visit(browser)
    yield made
    made.context.close()


def sign_in(page: Page, uri: str) -> None:
    page.goto(f"{uri}/{ORDERS}")
    page.get_by_role("button", name="Sign in with Keycloak").click()
    page.locator("#username").fill(USER)
    page.locator("#password").fill(PASSWORD)
    page.locator("#kc-login").click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()


def test_user_of_keycloak_comes_back_to_their_page_and_signs_out_there_too(uri: str, reader: Visit) -> None:
    page = reader.page
    sign_in(page, uri)
    assert page.url == f"{uri}/{ORDERS}"
    token = page.evaluate(TOKEN)
    assert not [url for url in reader.asked if token in url]
    page.get_by_role("link", name=USER).click()
    expect(page.get_by_role("heading", name="You")).to_be_visible()
    expect(page.locator(".facts").first).to_contain_text("analysts")

    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Sign in with Keycloak").click()  # who is signed in there isn't asked again
    expect(page.get_by_role("heading", name="You")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name=re.compile("^Sign out there")).click()
    page.locator("#kc-logout").click()
    page.goto(f"{uri}/{ORDERS}")
    page.get_by_role("button", name="Sign in with Keycloak").click()
    expect(page.locator("#password")).to_be_visible()


def test_token_is_renewed_until_the_session_of_keycloak_ends(uri: str, reader: Visit) -> None:
    page = reader.page
    sign_in(page, uri)
    page.wait_for_function(RENEWED, arg=page.evaluate(TOKEN), timeout=SESSION_SECONDS * 1000)
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=SESSION_SECONDS * 1000)
    expect(page.get_by_role("alert")).to_contain_text("expired")
    assert page.evaluate(TOKEN) is None
    assert len([url for url in reader.asked if url.endswith("/v1/oauth/logins")]) < MAX_LOGIN_REQUESTS
    page.get_by_role("button", name="Sign in with Keycloak").click()
    expect(page.locator("#password")).to_be_visible()
