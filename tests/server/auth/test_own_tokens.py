"""Tokens that principals make for themselves: no more and no longer than what made them, and shown once."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from duckicelake.catalog.context import page
from duckicelake.catalog.context.caller import Principal, build_grants, filter_scopes, format_scope, parse_scope
from duckicelake.catalog.context.privileges import Privilege, Rights
from duckicelake.catalog.own_secrets import SecretLifetimes
from duckicelake.cli.main import app
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.oidc import OidcProvider, OidcVerifier
from tests.conftest import new_lake, services_of
from tests.server.auth.test_oidc import AUDIENCE, Issuer, issuing
from tests.server.routes.test_idempotency import uuid7
from tests.support.logins import SECRET, Clock, Server, bearing, login, token
from tests.support.servers import running

OWN = "/management/v1/me/tokens"
ROOT = OAuthClient("root-of-settings", SECRET, ("*",))
REGISTERED = OAuthClient("registered", SECRET, ("ns:sales:r",))
HOUR = 3600


class Site:
    """A server, who administers it, and an issuer of its users."""

    def __init__(self, http: httpx.Client, issuer: Issuer) -> None:
        self.http, self.issuer = http, issuer
        self.admin = bearing(token(http, ROOT.client_id))
        self._count = 0

    def register(self, *scopes: str, kind: str = "service", **others: str) -> str:
        """Register a principal with a name of its own."""
        self._count += 1
        name = f"{kind}-{self._count}"
        body = {"name": name, "kind": kind, "scopes": scopes or ["ns:sales:rw", "ns:hr:r"], **others}
        answer = self.http.post("/management/v1/principals", json=body, headers=self.admin)
        assert answer.status_code == 200, answer.text
        return name

    def give(self, name: str, kind: str = "token", **others: Any) -> tuple[str, str]:
        """Have the administrator make a secret; its id and text."""
        path = f"/management/v1/principals/{name}/secrets"
        answer = self.http.post(path, json={"kind": kind, **others}, headers=self.admin)
        assert answer.status_code == 200, answer.text
        return answer.json()["secret-id"], answer.json()["secret"]

    def ask(self, shown: str, method: str, path: str = "", body: Any = None, **headers: str) -> httpx.Response:
        return self.http.request(method, OWN + path, json=body, headers=bearing(shown) | headers)

    def make(self, shown: str, **body: Any) -> dict[str, Any]:
        answer = self.ask(shown, "POST", "", body)
        assert answer.status_code == 200, answer.text
        made: dict[str, Any] = answer.json()
        return made

    def scopes(self, shown: str) -> list[str] | None:
        """The scopes of who shows a token; None if it isn't valid."""
        answer = self.http.get("/v1/whoami", headers=bearing(shown))
        return None if answer.status_code == 401 else answer.json()["scopes"]

    def await_scopes(self, shown: str, expected: list[str] | None) -> None:
        """Wait until a token that was shown before has scopes, or is invalid, which takes a second at most."""
        since = time.monotonic()
        while self.scopes(shown) != expected:
            assert time.monotonic() - since < 1.5
            time.sleep(0.02)

    def user(self, subject: str) -> str:
        """A token of the issuer's, for one of its users."""
        now = int(time.time())
        return self.issuer.token(sub=subject, scope="analysts", iat=now, nbf=now, exp=now + HOUR)

    def lists(self, shown: str) -> set[str]:
        return {secret["secret-id"] for secret in self.ask(shown, "GET").json()["secrets"]}


@pytest.fixture(scope="module")
def site(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    with (
        new_lake(postgres, warehouse) as url,
        closing(open_lake_database(url, pool_size=4)) as database,
        issuing() as issuer,
    ):
        server = Server(Clock(time.time()))
        provider = OidcProvider(
            issuer.uri, AUDIENCE, time.time, f"{issuer.uri}/keys", scopes={"analysts": ("ns:sales:r",)}
        )
        logins = server.authentication(ROOT, REGISTERED, provider=OidcVerifier(provider), database=database)
        with (
            running(server.app(services_of(database, warehouse), logins)) as uri,
            httpx.Client(base_url=uri, timeout=30) as http,
        ):
            yield Site(http, issuer)


def test_token_may_what_its_maker_may_and_is_shown_once(site: Site) -> None:
    _, shown = site.give(site.register())
    made = site.make(shown, description="laptop")
    assert site.scopes(made["secret"]) == ["ns:sales:rw", "ns:hr:r"]
    days = datetime.fromisoformat(made["expires"]) - datetime.fromisoformat(made["created"])
    assert abs(days - SecretLifetimes().usual) < timedelta(minutes=1)
    (listed,) = (one for one in site.ask(shown, "GET").json()["secrets"] if one["secret-id"] == made["secret-id"])
    assert listed.get("secret") is None
    assert listed["description"] == "laptop"


def test_repeated_request_makes_one_token_and_does_not_show_it_again(site: Site) -> None:
    _, shown = site.give(site.register())
    key = {"Idempotency-Key": uuid7()}
    first, again = (site.ask(shown, "POST", "", {}, **key) for _ in range(2))
    assert first.headers["cache-control"] == "no-store"
    assert again.json()["secret-id"] == first.json()["secret-id"]
    assert again.json().get("secret") is None


@pytest.mark.parametrize(
    ("own", "asked", "allowed"),
    [
        (["ns:sales:rw"], ["ns:sales:r"], True),
        (["ns:sales:rw"], ["ns:sales.eu:rw"], True),
        (["*"], ["grants"], True),
        (["*"], ["wh:north:*"], True),
        (["wh:north:ns:eu:rw"], ["wh:north:ns:eu:r"], True),
        (["grants"], ["grants:ns:sales:r"], True),
        (["grants:ns:sales:*"], ["grants:ns:sales:r"], True),
        (["ns:sales:r"], ["grants:ns:sales:r"], True),
        (["ns:sales:r"], ["ns:sales:rw"], False),
        (["ns:sales:r"], ["ns:hr:r"], False),
        (["ns:sales:r"], ["*"], False),
        (["ns:sales:r"], ["grants"], False),
        (["ns:eu:r"], ["wh:north:ns:eu:r"], False),
        (["wh:north:ns:eu:r"], ["ns:eu:r"], False),
        (["grants"], ["ns:sales:r"], False),
        (["grants:ns:sales:r"], ["grants"], False),
        (["grants:ns:sales:r"], ["grants:ns:hr:r"], False),
        (["grants:ns:sales:r"], ["ns:sales:r"], False),
        (["grants:wh:north:*"], ["grants"], False),
    ],
)
@pytest.mark.parametrize("by", ["principal", "token"])
def test_token_gets_no_scope_that_its_maker_lacks(
    site: Site, own: list[str], asked: list[str], allowed: bool, by: str
) -> None:
    """The maker is limited by its registration, or by the token that it shows."""
    _, shown = site.give(site.register(*own)) if by == "principal" else site.give(site.register("*"), scopes=own)
    answer = site.ask(shown, "POST", "", {"scopes": asked})
    assert answer.status_code == (200 if allowed else 400), answer.text
    if not allowed:
        assert asked[0] in answer.json()["error"]["message"]


def test_narrow_login_makes_narrow_tokens(site: Site) -> None:
    """A session that asked for less has less to give, even where its secret has more."""
    name = site.register()
    _, secret = site.give(name, "client-secret")
    narrow = login(site.http, name, secret, scope="ns:hr:r").json()["access_token"]
    assert site.ask(narrow, "POST", "", {"scopes": ["ns:sales:r"]}).status_code == 400
    assert site.scopes(site.make(narrow)["secret"]) == ["ns:hr:r"]


def test_token_loses_what_its_principal_loses(site: Site) -> None:
    name = site.register()
    _, shown = site.give(name)
    made = site.make(shown, scopes=["ns:hr:r"])["secret"]
    assert site.scopes(made) == ["ns:hr:r"]
    site.http.post(f"/management/v1/principals/{name}", json={"scopes": ["ns:sales:r"]}, headers=site.admin)
    site.await_scopes(made, [])


@pytest.mark.parametrize("through", ["token", "login"])
def test_token_does_not_outlive_what_made_it(site: Site, through: str) -> None:
    name = site.register()
    kind = "token" if through == "token" else "client-secret"
    _, text = site.give(name, kind, **{"expires-in": HOUR})
    shown = text if through == "token" else token(site.http, name, text)
    assert site.ask(shown, "POST", "", {"expires-in": HOUR + 60}).status_code == 400
    ends = [datetime.fromisoformat(site.make(shown, **body)["expires"]) for body in ({}, {"expires-in": 60})]
    assert ends[1] < ends[0] <= datetime.now(ends[0].tzinfo) + timedelta(seconds=HOUR)


def test_more_than_the_longest_is_refused(site: Site) -> None:
    _, shown = site.give(site.register())
    longest = int(SecretLifetimes().longest.total_seconds())
    assert site.ask(shown, "POST", "", {"expires-in": longest + 1}).status_code == 400
    assert site.ask(shown, "POST", "", {"expires-in": longest}).status_code == 200


def test_revocation_ends_what_was_made_with_it_in_turn(site: Site) -> None:
    _, shown = site.give(site.register())
    first = site.make(shown)
    second = site.make(token_of(first))
    third = site.make(token_of(second))
    other = site.make(shown)
    assert third["made-by"] == [*second["made-by"], second["secret-id"]]
    assert site.ask(shown, "DELETE", f"/{first['secret-id']}").status_code == 204
    for one in (first, second, third):
        site.await_scopes(token_of(one), None)
    assert site.scopes(token_of(other)) is not None
    assert site.scopes(shown) is not None


def test_rotated_token_ends_and_its_successor_is_no_more(site: Site) -> None:
    _, shown = site.give(site.register())
    old = site.make(shown, scopes=["ns:hr:r"], description="ci")
    new = site.ask(token_of(old), "POST", f"/{old['secret-id']}/rotate", {}).json()
    assert (new["scopes"], new["description"]) == (["ns:hr:r"], "ci")
    assert datetime.fromisoformat(new["expires"]) <= datetime.fromisoformat(old["expires"]), "it rotated itself"
    site.await_scopes(token_of(old), None)
    assert site.scopes(token_of(new)) == ["ns:hr:r"]
    assert old["secret-id"] not in site.lists(shown)
    assert site.ask(shown, "POST", f"/{old['secret-id']}/rotate", {}).status_code == 409
    kept = site.ask(shown, "POST", f"/{new['secret-id']}/rotate", {"end-old-in": HOUR}).json()
    assert site.scopes(token_of(new)) == site.scopes(token_of(kept)) == ["ns:hr:r"]


def test_login_sees_and_changes_only_what_may_no_more_than_itself(site: Site) -> None:
    name, stranger = site.register(), site.give(site.register())[1]
    whole_id, whole = site.give(name)
    narrow, peer = (site.make(whole, scopes=["ns:hr:r"]) for _ in range(2))
    assert site.lists(whole) == {whole_id, narrow["secret-id"], peer["secret-id"]}
    assert site.lists(token_of(narrow)) == {narrow["secret-id"], peer["secret-id"]}
    for shown, secret_id in ((token_of(narrow), whole_id), (stranger, whole_id), (stranger, narrow["secret-id"])):
        assert site.ask(shown, "DELETE", f"/{secret_id}").status_code == 404
        assert site.ask(shown, "POST", f"/{secret_id}/rotate", {}).status_code == 404
    assert site.scopes(whole) is not None
    assert site.ask(token_of(narrow), "DELETE", f"/{narrow['secret-id']}").status_code == 204


def test_narrowed_admin_does_not_administer(site: Site) -> None:
    name = site.register("grants")
    site.http.post("/management/v1/principals/admin/members", json={"member": name}, headers=site.admin)
    _, shown = site.give(name)
    narrow = token_of(site.make(shown, scopes=["grants:ns:sales:r"]))
    statuses = [site.http.get("/management/v1/principals", headers=bearing(one)).status_code for one in (shown, narrow)]
    assert statuses == [200, 403]


def test_client_secret_of_a_service_logs_in_with_its_scopes_alone(site: Site) -> None:
    name = site.register()
    made = site.make(site.give(name)[1], kind="client-secret", scopes=["ns:hr:r"])
    assert login(site.http, name, made["secret"]).json()["scope"] == "ns:hr:r"
    assert login(site.http, name, made["secret"], scope="ns:sales:r").status_code == 400


def test_user_of_an_issuer_makes_tokens_and_no_client_secrets(site: Site) -> None:
    name = site.register("ns:sales:r", kind="user", issuer=site.issuer.uri, subject="ann")
    shown = site.user("ann")
    made = site.make(shown, **{"expires-in": 30 * 86_400})
    assert site.http.get("/v1/whoami", headers=bearing(token_of(made))).json()["principal"] == name
    assert site.ask(shown, "POST", "", {"kind": "client-secret"}).status_code == 400


def test_who_is_not_registered_makes_none(site: Site) -> None:
    shown = site.user("stranger")
    for answer in (site.ask(shown, "POST", "", {}), site.ask(shown, "GET")):
        assert answer.status_code == 403
        assert "duckicelake principal create" in answer.json()["error"]["message"]


def test_client_of_the_settings_makes_none_although_it_is_registered(site: Site) -> None:
    body = {"name": REGISTERED.client_id, "kind": "service", "scopes": ["ns:sales:r"]}
    site.http.post("/management/v1/principals", json=body, headers=site.admin)
    answer = site.ask(token(site.http, REGISTERED.client_id), "POST", "", {})
    assert answer.status_code == 409
    assert "settings" in answer.json()["error"]["message"]


def test_too_many_are_refused_and_those_that_ended_make_room(site: Site) -> None:
    _, shown = site.give(site.register())
    last = site.make(shown)
    for _ in range(120):  # each ends the one before
        last = site.ask(shown, "POST", f"/{last['secret-id']}/rotate", {}).json()
        assert "secret" in last, last
    made = [site.ask(shown, "POST", "", {}).status_code for _ in range(99)]
    assert made == [200] * 98 + [409]


@pytest.mark.parametrize(
    "body",
    [
        {"expires-in": 0},
        {"expires-in": "soon"},
        {"scopes": []},
        {"scopes": ["all"]},
        {"kind": "password"},
        {"end-others-in": 0},
        [],
    ],
)
def test_invalid_requests_are_refused(site: Site, body: Any) -> None:
    _, shown = site.give(site.register())
    assert site.ask(shown, "POST", "", body).status_code == 400


@pytest.mark.parametrize("scope", ["grants", "grants:ns:sales:r", "grants:wh:north:*", "grants:wh:north:ns:eu.x:rw"])
def test_scopes_of_grants_are_written_as_they_are_read(scope: str) -> None:
    assert format_scope(parse_scope(scope)) == scope


@pytest.mark.parametrize("scope", ["grants:ns:sales:r", "grants:ns:sales:*", "grants:wh:north:*"])
def test_scope_of_grants_gives_nothing_where_they_are_off(scope: str) -> None:
    of = Principal("etl", build_grants([scope])).in_warehouse("north" if "north" in scope else "")
    assert not of.may_administer()
    assert not of.list_namespaces(of.grants[0].capability)
    assert not of.sees(("sales",))
    assert not of.is_in_scope(of.grants[0].capability, of.grants[0].namespace)
    everything = Rights(everywhere=Privilege.OWNERSHIP)
    assert of.with_rights(everything).is_in_scope(of.grants[0].capability, of.grants[0].namespace)


def test_filter_keeps_scopes_of_grants_within_those_that_are_held() -> None:
    held = Principal("", build_grants(["grants:ns:sales:rw"]))
    assert filter_scopes(held, ["grants:ns:sales.eu:r", "grants", "ns:sales:r"]) == ("grants:ns:sales.eu:r",)


def token_of(made: dict[str, Any]) -> str:
    text: str = made["secret"]
    return text


def test_commands_make_list_rotate_and_revoke(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command prints is what the server says, a list of several pages included."""
    monkeypatch.setattr(page, "DEFAULT_SIZE", 1)
    name = site.register()
    _, shown = site.give(name)
    file = tmp_path / "laptop.token"

    def run(*words: str, code: int = 0) -> str:
        uri = str(site.http.base_url).rstrip("/")
        result = CliRunner().invoke(app, ["token", *words, "--uri", uri, "--token", shown], env={"COLUMNS": "200"})
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    assert run("create", "--description", "laptop", "--scope", "ns:sales:r", "--secret-file", str(file)).endswith(
        f" is in {file}\n"
    )
    assert (file.stat().st_mode & 0o777, site.scopes(file.read_text().strip())) == (0o600, ["ns:sales:r"])
    assert site.scopes(run("create").strip()) == ["ns:sales:rw", "ns:hr:r"]
    listed = [json.loads(line) for line in run("list", "--json").splitlines()]
    answered = site.ask(shown, "GET").json()["secrets"]
    assert [one["secret-id"] for one in listed] == [one["secret-id"] for one in answered]
    assert all("secret" not in one for one in listed)
    (laptop,) = (one for one in listed if one["description"] == "laptop")
    assert f"{laptop['secret-id']} token" in run("list")
    rotated = json.loads(run("rotate", laptop["secret-id"], "--end-old-in", "0", "--expires-in", "600", "--json"))
    assert rotated["scopes"] == ["ns:sales:r"]
    site.await_scopes(file.read_text().strip(), None)
    assert site.scopes(rotated["secret"]) == ["ns:sales:r"]
    assert run("revoke", rotated["secret-id"]) == f"{rotated['secret-id']} is revoked\n"
    site.await_scopes(rotated["secret"], None)
    assert "no id of a secret or token: see duckicelake token list" in run("revoke", "../../principals/etl", code=2)
    assert "can't be made as a new file" in run("create", "--secret-file", str(file), code=2)
    assert "ns:hr:rw" in run("create", "--scope", "ns:hr:rw", code=2)
