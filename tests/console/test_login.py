"""Login by redirect at a real OpenID Connect provider, and what attackers try with it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, expect

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.issuers import change_issuer, create_issuer, drop_issuer, load_issuer
from duckicelake.lake.side_tables.issuers import Issuer
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.oidc import OidcProvider, OidcVerifier, WebClient
from tests.console.conftest import ShownLake
from tests.support.browsers import Visit, visit
from tests.support.logins import NOW, SECRET
from tests.support.servers import running
from tests.support.waits import wait_until
from tests.support.web_issuer import AUDIENCE, CLIENT_ID, USER_SCOPE, WebIssuer, issue_to_browsers

pytestmark = pytest.mark.console
ORDERS = "ui/w/duckicelake/tables/sales.orders?page=files&where=id+%3E+50"

TOKEN = "sessionStorage.getItem('duckicelake.token')"
RENEWED = f"first => ![null, first].includes({TOKEN})"


@dataclass
class Guarded:
    """A server whose readers log in at an issuer."""

    uri: str
    issuer: WebIssuer
    lake: ShownLake

    def ends(self, seconds: int) -> None:
        self.lake.server.clock.now = NOW + seconds


@pytest.fixture(scope="module")
def served(lake: ShownLake) -> Iterator[Guarded]:
    with serve(lake) as guarded:
        yield guarded


@contextmanager
def serve(lake: ShownLake) -> Iterator[Guarded]:
    clock = lake.server.clock
    with issue_to_browsers(clock) as issuer:
        provider = OidcVerifier(OidcProvider(issuer.uri, AUDIENCE, clock, scopes={USER_SCOPE: ("ns:sales:r",)}))
        login = lake.server.authentication(OAuthClient("ana", SECRET, ("ns:sales:r",)), provider=provider)
        login = replace(login, web_clients=(WebClient(issuer.uri, CLIENT_ID, "openid offline_access"),))
        with running(lake.server.app(lake.services, login)) as uri:
            issuer.redirect_uris.add(f"{uri}/ui/login")
            yield Guarded(uri, issuer, lake)


@pytest.fixture
def guarded(served: Guarded) -> Guarded:
    served.ends(0)
    fresh = WebIssuer(served.issuer.uri)
    for name in ("lives", "gives_refresh", "refusal", "changed", "extra"):
        setattr(served.issuer, name, getattr(fresh, name))
    return served


@pytest.fixture
def reader(browser: Browser) -> Iterator[Visit]:
    made = visit(browser)
    yield made
    made.context.close()


def log_in(page: Page) -> None:
    page.get_by_role("button", name="Sign in with").click()


def expect_orders(page: Page, guarded: Guarded) -> None:
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    assert page.url == f"{guarded.uri}/{ORDERS}"


def test_reader_comes_back_to_their_page_and_no_secret_stays_in_an_address(guarded: Guarded, reader: Visit) -> None:
    page, lake = reader.page, guarded.lake
    logged = len(lake.server.log.getvalue())
    page.goto(f"{guarded.uri}/{ORDERS}")
    log_in(page)
    expect_orders(page, guarded)
    token = page.evaluate(TOKEN)
    form = guarded.issuer.forms[-1]
    for secret in (token, form["code"], form["code_verifier"]):
        assert secret not in page.url
        assert secret not in lake.server.log.getvalue()[logged:]
    assert not [url for url in reader.asked if token in url or form["code_verifier"] in url]
    assert page.evaluate("localStorage.length + document.cookie.length") == 0
    page.go_back()  # before the console: no page of the login is in between
    assert "code=" not in page.url


def test_expired_token_takes_the_pages_away_and_the_next_login_leads_back(guarded: Guarded, reader: Visit) -> None:
    page = reader.page
    page.goto(f"{guarded.uri}/{ORDERS}")
    log_in(page)
    expect_orders(page, guarded)
    page.wait_for_load_state("networkidle")
    guarded.ends(7200)
    page.get_by_role("link", name="Data", exact=True).dispatch_event("click")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_role("heading", name="orders")).to_have_count(0)
    log_in(page)
    expect(page).to_have_title("orders · Data · duckicelake")


def test_token_is_renewed_before_it_ends(guarded: Guarded, reader: Visit) -> None:
    page, issuer = reader.page, guarded.issuer
    issuer.gives_refresh, issuer.lives = True, 4
    page.goto(f"{guarded.uri}/{ORDERS}")
    log_in(page)
    expect_orders(page, guarded)
    first = page.evaluate(TOKEN)
    page.wait_for_function(RENEWED, arg=first)
    assert issuer.forms[-1]["grant_type"] == "refresh_token"
    issuer.refresh_tokens.clear()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_token_that_the_server_refuses_is_renewed_and_the_request_sent_again(guarded: Guarded, reader: Visit) -> None:
    page = reader.page
    guarded.issuer.gives_refresh = True
    page.goto(f"{guarded.uri}/{ORDERS}")
    log_in(page)
    expect_orders(page, guarded)
    page.wait_for_load_state("networkidle")
    guarded.ends(7200)
    page.get_by_role("link", name="Data", exact=True).dispatch_event("click")
    expect(page.get_by_role("group", name="Rows")).to_contain_text("Porto")


def test_reader_signs_out_here_and_at_the_issuer(guarded: Guarded, reader: Visit) -> None:
    page = reader.page
    page.goto(f"{guarded.uri}/{ORDERS}")
    log_in(page)
    expect_orders(page, guarded)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("You are still signed in at")).to_be_visible()
    assert page.evaluate(TOKEN) is None
    page.get_by_role("link", name="Sign out there, too").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert guarded.issuer.asked[-2:] != []
    ended = next(path for path in reversed(guarded.issuer.asked) if path.startswith("/end"))
    assert ended == f"/end?{urlencode({'client_id': CLIENT_ID, 'post_logout_redirect_uri': f'{guarded.uri}/ui'})}"


def test_tabs_share_the_login_and_sign_out_together(guarded: Guarded, reader: Visit) -> None:
    page, other = reader.page, reader.context.new_page()
    for tab in (page, other):
        tab.goto(f"{guarded.uri}/{ORDERS}")
        expect(tab.get_by_role("heading", name="Sign in")).to_be_visible()
    log_in(page)
    expect_orders(page, guarded)
    expect_orders(other, guarded)
    later = reader.context.new_page()
    later.goto(f"{guarded.uri}/{ORDERS}")
    expect_orders(later, guarded)
    later.get_by_role("button", name="Sign out").click()
    for tab in (page, other, later):
        expect(tab.get_by_role("heading", name="Sign in")).to_be_visible()
        assert tab.evaluate(TOKEN) is None


def test_tabs_of_a_renewed_login_get_the_new_token_and_only_one_renews(guarded: Guarded, reader: Visit) -> None:
    page, other = reader.page, reader.context.new_page()
    guarded.issuer.gives_refresh, guarded.issuer.lives = True, 8
    page.goto(f"{guarded.uri}/{ORDERS}")
    log_in(page)
    expect_orders(page, guarded)
    other.goto(f"{guarded.uri}/{ORDERS}")
    expect_orders(other, guarded)
    first = page.evaluate(TOKEN)
    for tab in (page, other):
        tab.wait_for_function(RENEWED, arg=first)
    tokens = {tab.evaluate(TOKEN) for tab in (page, other)}
    assert len(tokens) == 1
    assert "refresh" not in other.evaluate("JSON.stringify(sessionStorage)").replace('refreshToken\\":null', "")


@pytest.mark.parametrize(
    ("extra", "shown"),
    [
        ({"state": "of-another-login"}, "wasn't begun in this tab"),
        ({"iss": "http://issuer.example"}, "another issuer"),
        ({"iss": ""}, "another issuer"),
        ({"code": "injected"}, "The code is not of this login"),
    ],
)
def test_answer_of_another_login_is_refused(guarded: Guarded, reader: Visit, extra: dict[str, str], shown: str) -> None:
    page = reader.page
    guarded.issuer.extra = extra
    page.goto(f"{guarded.uri}/{ORDERS}")
    log_in(page)
    expect(page.get_by_role("alert")).to_contain_text(shown)
    assert page.evaluate(TOKEN) is None
    guarded.issuer.extra = {}
    log_in(page)
    expect(page.get_by_role("heading", name="orders")).to_be_visible()


def test_code_of_an_attacker_logs_no_one_in(guarded: Guarded, reader: Visit) -> None:
    page = reader.page
    asked = {"code": "theirs", "state": "theirs", "iss": guarded.issuer.uri}
    sent = len(guarded.issuer.forms)
    page.goto(f"{guarded.uri}/ui/login?{urlencode(asked)}")
    expect(page.get_by_role("alert")).to_contain_text("wasn't begun in this tab")
    assert len(guarded.issuer.forms) == sent
    assert "theirs" not in page.url


@pytest.mark.parametrize("claims", [{"nonce": "of another login"}, {"iss": "http://issuer.example"}, {"aud": "else"}])
def test_tokens_that_are_not_of_this_login_are_refused(guarded: Guarded, reader: Visit, claims: dict[str, str]) -> None:
    page = reader.page
    guarded.issuer.changed = claims
    page.goto(f"{guarded.uri}/{ORDERS}")
    log_in(page)
    expect(page.get_by_role("alert")).to_contain_text("id_token")
    assert page.evaluate(TOKEN) is None


def test_begun_login_leads_nowhere_else(guarded: Guarded, reader: Visit) -> None:
    page = reader.page
    page.goto(f"{guarded.uri}/{ORDERS}")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    for elsewhere in ("//evil.example/", "https://evil.example/", "/v1/config", "/uix"):
        page.evaluate(
            """page => sessionStorage.setItem("duckicelake.login", JSON.stringify(
                { state: "s", nonce: "n", verifier: "v", issuer: "i", page, begunAt: Date.now() }))""",
            elsewhere,
        )
        page.goto(f"{guarded.uri}/ui/login?state=s&code=c")
        expect(page.get_by_role("alert")).to_contain_text("wasn't begun in this tab")
        assert page.url.startswith(f"{guarded.uri}/ui/w/") or page.url == f"{guarded.uri}/ui"


def test_refusal_of_the_issuer_is_shown(guarded: Guarded, reader: Visit) -> None:
    page = reader.page
    guarded.issuer.refusal = "access_denied"
    guarded.issuer.extra = {"error_description": "<img src=x onerror=alert(1)> not for you"}
    page.goto(f"{guarded.uri}/{ORDERS}")
    log_in(page)
    expect(page.get_by_role("alert")).to_contain_text("<img src=x onerror=alert(1)> not for you")
    assert page.url == f"{guarded.uri}/{ORDERS}"


def test_secret_logs_in_where_an_issuer_is_offered_too(guarded: Guarded, reader: Visit) -> None:
    page = reader.page
    page.goto(f"{guarded.uri}/{ORDERS}")
    page.get_by_text(re.compile("secret or a token")).click()
    page.get_by_label("Client id").fill("ana")
    page.get_by_label("Client secret").fill(SECRET)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect_orders(page, guarded)


@pytest.fixture
def registered(lake: ShownLake) -> Iterator[tuple[Guarded, WebIssuer, Services]]:
    """A server whose issuers are registered: one to sign in at, and another one that is down."""
    clock = lake.server.clock
    clock.now = NOW
    services = lake.services
    with issue_to_browsers(clock) as issuer, issue_to_browsers(clock) as other:
        other.fails = True
        web = {"scopes": ("ns:sales:r",), "web_client_id": CLIENT_ID, "web_scopes": ("openid", "offline_access")}
        create_issuer(services, Issuer("corp", issuer.uri, AUDIENCE, label="<b>Corp</b> SSO", **web))  # type: ignore[arg-type]
        create_issuer(services, Issuer("other", other.uri, AUDIENCE, label="Other", **web))  # type: ignore[arg-type]
        login = lake.server.authentication(OAuthClient("ana", SECRET, ("*",)), database=services.database)
        with running(lake.server.app(services, login)) as uri:
            issuer.redirect_uris.add(f"{uri}/ui/login")
            yield Guarded(uri, issuer, lake), other, services
        for name in ("corp", "other"):
            drop_issuer(services, name)


def test_registered_issuer_is_signed_in_at_until_it_is_disabled(
    registered: tuple[Guarded, WebIssuer, Services], reader: Visit
) -> None:
    guarded, other, services = registered
    page = reader.page
    page.goto(f"{guarded.uri}/{ORDERS}")
    expect(page.get_by_role("button", name="Sign in with Other")).to_be_disabled()
    expect(page.get_by_text("answers 500")).to_be_visible()
    page.get_by_role("button", name="Sign in with <b>Corp</b> SSO").click()
    expect_orders(page, guarded)
    assert not [url for url in reader.asked if url.startswith(other.uri)]
    change_issuer(services, replace(load_issuer(services, "corp"), is_disabled=True))
    expect_refused(page)
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Corp"))).to_have_count(0)
    assert page.evaluate(TOKEN) is None


def expect_refused(page: Page) -> None:
    """Ask for other pages until the server refuses the token."""
    wait_until(lambda: page.get_by_role("heading", name="Sign in").is_visible() or ask_again(page))


def ask_again(page: Page) -> bool:
    page.reload()
    page.wait_for_load_state("networkidle")
    return False


def test_two_tabs_are_signed_in_at_two_issuers(registered: tuple[Guarded, WebIssuer, Services], reader: Visit) -> None:
    guarded, other, _ = registered
    other.fails = False
    other.redirect_uris.add(f"{guarded.uri}/ui/login")
    page, second = reader.page, reader.context.new_page()
    page.goto(f"{guarded.uri}/{ORDERS}")
    page.get_by_role("button", name=re.compile("Corp")).click()
    expect_orders(page, guarded)
    token = page.evaluate(TOKEN)
    second.goto(f"{guarded.uri}/{ORDERS}")
    expect_orders(second, guarded)
    second.get_by_role("button", name="Sign out").click()
    for tab in (page, second):
        expect(tab.get_by_role("heading", name="Sign in")).to_be_visible()
    second.get_by_role("button", name="Sign in with Other").click()
    expect_orders(second, guarded)
    expect_orders(page, guarded)
    assert page.evaluate(TOKEN) == second.evaluate(TOKEN) != token
