"""Ways to sign in to the console that are registered at run time, as a browser takes them."""

import base64
import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.issuers import IssuerRules, change_issuer, load_issuer, rotate_issuers
from duckicelake.errors import UnavailableError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.database import Database
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.oidc import OidcProvider, OidcVerifier, WebClient
from tests.conftest import services_of
from tests.support.logins import SECRET, Clock, Server, bearing, token
from tests.support.servers import running
from tests.support.waits import wait_until
from tests.support.web_issuer import AUDIENCE, CLIENT_ID, WebIssuer, issue_to_browsers

MANAGEMENT = "/management/v1"
ROOT = OAuthClient("root", SECRET, ("*",))
LOGINS = "/v1/oauth/logins"
SECRET_KEYS = SecretKeys.parse(f"new:{'n' * 32},old:{'o' * 32}")


@dataclass(frozen=True, slots=True)
class SignIn:
    """Two servers on one lake, and issuers: one of the settings, with a client there, and two others."""

    workers: tuple[httpx.Client, httpx.Client]
    own: WebIssuer
    corp: WebIssuer
    partner: WebIssuer
    root: dict[str, str]
    clock: Clock
    database: Database
    warehouse: Path

    def manage(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.workers[0].request(method, f"{MANAGEMENT}{path}", json=body, headers=self.root)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def list_logins(self, worker: int = 0) -> dict[str, Any]:
        return {login["issuer"]: login for login in self.workers[worker].get(LOGINS).json()["logins"]}

    def await_logins(self, *issuers: WebIssuer) -> None:
        """Wait until both servers know these ways to sign in; that must be so within some seconds."""
        uris = {issuer.uri for issuer in (self.own, *issuers)}
        wait_until(lambda: all(set(self.list_logins(worker)) == uris for worker in (0, 1)), 20)

    def finish(self, issuer: WebIssuer, worker: int = 0, **changed: str) -> httpx.Response:
        """Sign in as a browser does, up to the answer with the token."""
        login, verifier = self.list_logins(worker)[issuer.uri], "v" * 43
        redirect_uri = "https://lake.example/ui/login"
        issuer.redirect_uris.add(redirect_uri)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        asked = {
            "response_type": "code",
            "client_id": login["client-id"],
            "redirect_uri": redirect_uri,
            "scope": login["scope"],
            "state": "state",
            "nonce": "nonce",
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        sent = dict(parse_qsl(urlsplit(issuer.log_in(login["parameters"] | asked)).query))
        form = {
            "grant_type": "authorization_code",
            "issuer": issuer.uri,
            "code": sent["code"],
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
            "nonce": "nonce",
        }
        return self.workers[worker].post(LOGINS, data=form | changed)

    def refuse(self, answer: httpx.Response, status: int, text: str) -> None:
        assert answer.status_code == status, answer.text
        assert text in answer.json()["error_description"]


@pytest.fixture
def site(database: Database, database_url: str, warehouse: Path) -> Iterator[SignIn]:
    clock = Clock(time.time())
    with ExitStack() as stack:
        own, corp, partner = (stack.enter_context(issue_to_browsers(clock)) for _ in range(3))
        other = open_lake_database(database_url, pool_size=2)
        stack.callback(other.close)
        workers = []
        for of in (database, other):
            server = Server(clock)
            provider = OidcVerifier(OidcProvider(own.uri, AUDIENCE, clock, scopes={"people": ("ns:sales:r",)}))
            login = server.authentication(ROOT, provider=provider, database=of)
            object.__setattr__(login, "web_clients", (WebClient(own.uri, CLIENT_ID, "openid"),))
            object.__setattr__(login, "secret_keys", SECRET_KEYS)
            uri = stack.enter_context(running(server.app(services_of(of, warehouse), login)))
            workers.append(stack.enter_context(httpx.Client(base_url=uri, timeout=30)))
        root = bearing(token(workers[0], ROOT.client_id))
        yield SignIn((workers[0], workers[1]), own, corp, partner, root, clock, database, warehouse)


def describe(issuer: WebIssuer, name: str = "corp", **others: Any) -> dict[str, Any]:
    web = {"web-client-id": CLIENT_ID, "web-scopes": ["openid", "email"], "label": "Corp SSO"}
    return {"name": name, "url": issuer.uri, "audience": AUDIENCE, "scopes": ["ns:sales:r"], **web, **others}


def test_registered_issuers_are_ways_to_sign_in_on_all_servers_until_they_are_disabled(site: SignIn) -> None:
    assert set(site.list_logins()) == {site.own.uri}
    body = describe(site.corp) | {"web-parameters": ["prompt=login", "audience=a=b"]}
    made = site.manage("POST", "/issuers", body)
    assert (made["label"], made["has-web-secret"], made["leeway"], made["is-disabled"]) == (
        "Corp SSO",
        False,
        30,
        False,
    )
    site.manage("POST", "/issuers", describe(site.partner, "partner", label=""))
    site.await_logins(site.corp, site.partner)
    listed = site.list_logins(1)[site.corp.uri]
    assert (listed["label"], listed["scope"]) == ("Corp SSO", "openid email")
    assert listed["parameters"] == {"prompt": "login", "audience": "a=b"}
    for worker, issuer in enumerate((site.corp, site.partner)):
        answer = site.finish(issuer, worker)
        assert answer.status_code == 200, answer.text
        text = answer.json()["access_token"]
        said = site.workers[worker].get("/v1/whoami", headers=bearing(text)).json()
        assert said["principal"] == f"{('corp', 'partner')[worker]}:ann"
        assert not [form for form in issuer.forms if "client_secret" in form]
    corp = site.finish(site.corp).json()["access_token"]
    site.manage("POST", "/issuers/corp", body | {"is-disabled": True})
    site.await_logins(site.partner)
    wait_until(lambda: all(http.get("/v1/whoami", headers=bearing(corp)).status_code == 401 for http in site.workers))
    refused = site.workers[0].get("/v1/whoami", headers=bearing(corp)).json()["error"]
    assert "issuer corp is disabled" in refused["message"]
    metadata = site.workers[0].get("/.well-known/oauth-protected-resource").json()
    assert set(metadata["authorization_servers"]) == {site.own.uri, site.partner.uri}
    form = {"grant_type": "refresh_token", "refresh_token": "r", "issuer": site.corp.uri}
    site.refuse(site.workers[0].post(LOGINS, data=form), 400, "GET /v1/oauth/logins lists")
    site.manage("POST", "/issuers/corp", body)
    site.await_logins(site.corp, site.partner)
    assert site.finish(site.corp).status_code == 200


def test_change_of_the_client_counts_at_once(site: SignIn) -> None:
    site.manage("POST", "/issuers", describe(site.corp, **{"web-client-id": "former"}))
    site.await_logins(site.corp)
    site.manage("POST", "/issuers/corp", describe(site.corp))
    wait_until(lambda: all(site.list_logins(worker)[site.corp.uri]["client-id"] == CLIENT_ID for worker in (0, 1)))
    for worker in (0, 1):
        assert site.finish(site.corp, worker).status_code == 200
    site.manage("POST", "/issuers/corp", describe(site.corp) | {"web-client-id": None})
    site.await_logins()


@pytest.mark.parametrize("takes_basic", [False, True])
def test_secret_of_a_client_reaches_the_issuer_and_no_one_else(site: SignIn, *, takes_basic: bool) -> None:
    services, rules = services_of(site.database, site.warehouse), IssuerRules(keys=SECRET_KEYS)

    def change(label: str, secret: str | None) -> None:
        """Change the secret, and wait until the first server knows it; failed logins delay the next one."""
        change_issuer(services, replace(load_issuer(services, "corp"), label=label), rules, secret)
        wait_until(lambda: site.list_logins()[site.corp.uri]["label"] == label, 20)
        site.clock.now += 60

    site.corp.client_secret, site.corp.takes_basic = "s3cret: %/", takes_basic
    made = site.manage("POST", "/issuers", describe(site.corp))
    site.await_logins(site.corp)
    site.refuse(site.finish(site.corp), 400, "The client's secret is another")
    change("with a secret", "s3cret: %/")
    answer = site.finish(site.corp)
    assert answer.status_code == 200, answer.text
    shown = site.manage("GET", "/issuers/corp")
    assert shown == made | {"has-web-secret": True, "label": "with a secret"}
    assert "s3cret" not in f"{shown} {site.list_logins()} {site.manage('GET', '/governance')} {answer.json()}"
    change("as before", None)
    assert site.finish(site.corp).status_code == 200
    with site.database.transaction() as cursor:
        assert rotate_issuers(cursor, SecretKeys.parse(f"later:{'l' * 32},new:{'n' * 32}")) == 1
    change("by another key", None)
    site.refuse(site.finish(site.corp), 503, "encrypted with key later")
    change("public", "")
    site.refuse(site.finish(site.corp), 400, "The client's secret is another")


def test_sealed_secret_is_of_its_issuer_and_client_alone(site: SignIn) -> None:
    services, rules = services_of(site.database, site.warehouse), IssuerRules(keys=SECRET_KEYS)
    site.manage("POST", "/issuers", describe(site.corp))
    change_issuer(services, load_issuer(services, "corp"), rules, "secret")
    with site.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_issuer SET url = 'https://evil.example'")
        with pytest.raises(UnavailableError, match="can't be decrypted"):
            rotate_issuers(cursor, SECRET_KEYS)
    body = describe(site.corp, **{"web-secret": "secret"})
    site.manage("POST", "/issuers/corp", body, 400)  # this server has no keys for secrets of the API


def test_issuer_that_is_down_is_shown_with_the_reason_and_holds_up_no_other(site: SignIn) -> None:
    site.corp.fails = True
    site.manage("POST", "/issuers", describe(site.corp))
    site.manage("POST", "/issuers", describe(site.partner, "partner"))
    site.await_logins(site.corp, site.partner)
    listed = site.list_logins()
    assert "answers 500" in listed[site.corp.uri]["problem"]
    assert listed[site.partner.uri]["problem"] == ""
    assert site.finish(site.partner).status_code == 200


def test_ways_to_sign_in_that_can_not_be_are_refused(site: SignIn) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"web-scopes": ["email"]}, "openid must be one of them"),
        ({"web-scopes": ["openid", "a b"]}, "one scope of the issuer in each"),
        ({"web-parameters": ["redirect_uri=https://evil.example"]}, "none of client_id"),
        ({"web-parameters": ["prompt"]}, "expected name=value"),
        ({"web-client-id": "a b"}, "without spaces"),
        ({"url": "http://id.example"}, "must start with https://"),
        ({"label": "a\nb"}, "printable"),
        ({"label": "x" * 61}, "60 printable"),
        ({"leeway": 601}, "leeway"),
        ({"web-client-id": None, "web-secret": "x"}, "give web-client-id, too"),
        ({"web-secret": "x"}, "DUCKICELAKE_SECRET_KEYS"),
    ]
    for changed, says in refused:
        answer = site.manage("POST", "/issuers", describe(site.corp) | changed, 400)
        assert says in answer["error"]["message"]


def test_leeway_of_an_issuer_is_how_far_its_clock_may_be_off(site: SignIn) -> None:
    site.manage("POST", "/issuers", describe(site.corp, leeway=300))
    now = time.time()
    early, late = (site.corp.token(iat=now + off, exp=now + off + 3600) for off in (200, 400))
    ended = site.corp.token(iat=now - 3600, exp=now - 200)
    http = site.workers[0]
    wait_until(lambda: http.get("/v1/whoami", headers=bearing(early)).status_code == 200, 20)
    assert http.get("/v1/whoami", headers=bearing(ended)).status_code == 200
    refused = http.get("/v1/whoami", headers=bearing(late))
    assert refused.status_code == 401
    assert "the clocks of its issuer and this server differ" in refused.json()["error"]["message"]
