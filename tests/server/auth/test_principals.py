"""Principals that are registered at run time: they log in, and what is revoked ends on all workers within a second."""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jwt
import psycopg
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.principals import PrincipalRegistration, check_new
from duckicelake.errors import InvalidRequestError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.database import Database
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.oidc import OidcProvider, OidcVerifier
from tests.conftest import services_of
from tests.server.auth.test_oauth import ACCESS_TOKEN, EXCHANGE, claims, exchange
from tests.server.auth.test_oidc import AUDIENCE, Issuer, issuing
from tests.server.routes.test_idempotency import uuid7
from tests.support.logins import KEYS, SECRET, Clock, Server, bearing, login, token
from tests.support.servers import running

ROOT = OAuthClient("root-of-settings", SECRET, ("*",))
READER = OAuthClient("reader", SECRET, ("ns:sales:r",))
REVOKED_SECONDS = 1.0
MANAGEMENT = "/management/v1"


@dataclass
class Site:
    """Two workers of one lake, and the headers of who administers them. other: the database of the second."""

    workers: tuple[httpx.Client, httpx.Client]
    admin: dict[str, str]
    issuer: Issuer
    other: Database

    @property
    def http(self) -> httpx.Client:
        return self.workers[0]

    def manage(
        self, method: str, path: str, body: Any = None, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Any:
        answer = self.http.request(method, MANAGEMENT + path, json=body, headers={**self.admin, **(headers or {})})
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def register(self, name: str, *scopes: str, kind: str = "service", **others: str) -> None:
        body = {"name": name, "kind": kind, "scopes": scopes or ["ns:sales:rw"], **others}
        self.manage("POST", "/principals", body)

    def make_secret(
        self, name: str, kind: str = "client-secret", others: Mapping[str, int] | None = None
    ) -> tuple[str, str]:
        """The id of a new secret, and the secret."""
        made = self.manage("POST", f"/principals/{name}/secrets", {"kind": kind, **(others or {})})
        return made["secret-id"], made["secret"]

    def statuses(self, text: str) -> list[int]:
        return [worker.get("/v1/config", headers=bearing(text)).status_code for worker in self.workers]

    def await_refusal(self, text: str, since: float) -> None:
        """Ask both workers until both refuse, which must be so within a second, and stay so."""
        while self.statuses(text) != [401, 401]:
            assert time.monotonic() - since < REVOKED_SECONDS + 0.5, "a request takes a moment, too"
            time.sleep(0.02)
        assert self.statuses(text) == [401, 401]


@pytest.fixture
def site(database: Database, database_url: str, warehouse: Path) -> Iterator[Site]:
    with issuing() as issuer, closing(open_lake_database(database_url, pool_size=2)) as other:
        servers = Server(Clock(time.time())), Server(Clock(time.time()))
        mapping = {"analysts": ("ns:sales:r",)}
        provider = OidcProvider(issuer.uri, AUDIENCE, time.time, f"{issuer.uri}/keys", scopes=mapping)
        apps = [
            server.app(
                services_of(of, warehouse),
                server.authentication(ROOT, READER, provider=OidcVerifier(provider), database=of),
            )
            for server, of in zip(servers, (database, other), strict=True)
        ]
        with running(apps[0]) as first, running(apps[1]) as second:
            workers = httpx.Client(base_url=first, timeout=30), httpx.Client(base_url=second, timeout=30)
            yield Site(workers, bearing(token(workers[0], ROOT.client_id)), issuer, other)
            for worker in workers:
                worker.close()


def test_client_logs_in_with_any_of_its_secrets_and_gets_its_scopes(site: Site) -> None:
    site.register("etl", "ns:sales:rw", "ns:hr:r")
    (_, first), (_, second) = site.make_secret("etl"), site.make_secret("etl")
    for secret in (first, second):
        answer = login(site.http, "etl", secret)
        assert answer.status_code == 200, answer.text
        assert answer.json()["scope"] == "ns:sales:rw ns:hr:r"
        assert site.statuses(answer.json()["access_token"]) == [200, 200]
    narrow = token(site.http, "etl", first, scope="ns:hr:r")
    assert claims(narrow)["scope"] == "ns:hr:r"
    assert login(site.http, "etl", first, scope="*").status_code == 400
    listed = site.manage("GET", "/principals/etl/secrets")["secrets"]
    assert [made["secret"] for made in listed] == [None, None]
    assert listed[0]["last-used"] is not None


def test_wrong_logins_are_refused_alike(site: Site) -> None:
    site.register("etl")
    site.register("other")
    _, secret = site.make_secret("etl")
    _, text = site.make_secret("etl", "token")
    wrong = [
        ("etl", secret[:-1] + ("A" if secret[-1] != "A" else "B")),
        ("other", secret),
        ("etl", text),
        ("etl", ""),
        ("nothing", secret),
        (ROOT.client_id, secret),
        ("etl", SECRET),
        ("ETL", secret),
    ]
    answers = [login(site.http, client, shown) for client, shown in wrong if shown]
    assert {(answer.status_code, answer.text) for answer in answers} == {
        (401, '{"error":"invalid_client","error_description":"No client has this id and secret"}')
    }
    assert site.statuses(secret) == [401, 401], "a client secret is no token"


def test_token_is_shown_as_it_is_and_can_be_exchanged(site: Site) -> None:
    site.register("ann", kind="user")
    _, text = site.make_secret("ann", "token")
    assert site.statuses(text) == [200, 200]
    renewed = exchange(site.http, bearing(text), text)
    assert renewed.status_code == 200, renewed.text
    assert site.statuses(renewed.json()["access_token"]) == [200, 200]
    assert site.statuses(text + "A") == [401, 401]
    assert site.statuses(text.lower()) == [401, 401]


ENDS: dict[str, Callable[[Site, str], object]] = {
    "secret revoked": lambda site, secret_id: site.manage("DELETE", f"/principals/etl/secrets/{secret_id}", status=204),
    "principal disabled": lambda site, _: site.manage("POST", "/principals/etl", {"is-disabled": True}),
    "principal dropped": lambda site, _: site.manage("DELETE", "/principals/etl", status=204),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["client-secret", "token"])
def test_what_is_revoked_ends_within_a_second_on_all_workers(site: Site, kind: str, end: str) -> None:
    site.register("etl")
    secret_id, text = site.make_secret("etl", kind)
    bearer = token(site.http, "etl", text) if kind == "client-secret" else text
    exchanged = exchange(site.http, bearing(bearer), bearer).json()["access_token"]
    for _ in range(3):
        assert site.statuses(bearer) == [200, 200]
        assert site.statuses(exchanged) == [200, 200]
    ENDS[end](site, secret_id)
    since = time.monotonic()
    site.await_refusal(bearer, since)
    site.await_refusal(exchanged, since)
    if kind == "client-secret":
        assert login(site.http, "etl", text).status_code == 401


def test_principal_that_is_enabled_again_is_let_in_again_and_one_of_the_same_name_is_not(site: Site) -> None:
    site.register("etl")
    _, text = site.make_secret("etl", "token")
    site.manage("POST", "/principals/etl", {"is-disabled": True})
    site.await_refusal(text, time.monotonic())
    site.manage("POST", "/principals/etl", {"is-disabled": False})
    assert site.statuses(text) == [200, 200]
    site.manage("DELETE", "/principals/etl", status=204)
    site.register("etl", "*")
    site.await_refusal(text, time.monotonic())


def test_lost_scopes_are_lost_within_a_second(site: Site) -> None:
    site.register("etl", "*")
    _, text = site.make_secret("etl", "token")
    jwt_text = token(site.http, "etl", site.make_secret("etl")[1])
    for bearer in (text, jwt_text):
        assert site.http.get(f"{MANAGEMENT}/principals", headers=bearing(bearer)).status_code == 200
    site.manage("POST", "/principals/etl", {"scopes": ["ns:sales:r"]})
    time.sleep(REVOKED_SECONDS)
    for bearer in (text, jwt_text):
        for worker in site.workers:
            assert worker.get(f"{MANAGEMENT}/principals", headers=bearing(bearer)).status_code == 403


def test_secret_ends_when_it_says_and_takes_its_tokens_with_it(site: Site) -> None:
    site.register("etl")
    _, text = site.make_secret("etl", others={"expires-in": 1})
    bearer = token(site.http, "etl", text)
    time.sleep(1.1)
    assert login(site.http, "etl", text).status_code == 401
    site.http.get("/v1/config", headers=bearing(bearer))
    _, long_lived = site.make_secret("etl", "token", others={"expires-in": 1})
    time.sleep(1.1)
    assert site.statuses(long_lived) == [401, 401]


def test_rotation_lets_the_old_secret_work_for_a_while(site: Site) -> None:
    site.register("etl")
    (_, old), (_, kept) = site.make_secret("etl"), site.make_secret("etl", "token")
    _, new = site.make_secret("etl", others={"end-others-in": 1})
    assert login(site.http, "etl", old).status_code == 200
    time.sleep(1.1)
    assert login(site.http, "etl", old).status_code == 401
    assert login(site.http, "etl", new).status_code == 200
    assert site.statuses(kept) == [200, 200], "tokens are of another kind"


def test_client_of_the_settings_can_be_disabled_and_one_named_like_it_gets_nothing(site: Site) -> None:
    reader = token(site.http, "reader")
    assert site.statuses(reader) == [200, 200]
    site.register("reader", "*")
    refused = site.manage("POST", "/principals/reader/secrets", {"kind": "token"}, 409)
    assert "client of the server's settings" in refused["error"]["message"]
    site.manage("POST", "/principals/reader", {"is-disabled": True})
    site.await_refusal(reader, time.monotonic())


def test_secrets_that_were_made_before_the_settings_had_the_name_are_refused(site: Site, database: Database) -> None:
    """As after a restart: the client `reader` is of the settings now."""
    site.register("late", "*")
    _, secret = site.make_secret("late")
    _, text = site.make_secret("late", "token")
    bearer = token(site.http, "late", secret)
    with database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_principal SET name = 'reader' WHERE name = 'late'")
    assert login(site.http, "reader", secret).status_code == 401
    site.await_refusal(text, time.monotonic())
    site.await_refusal(bearer, time.monotonic())


def test_forged_tokens_are_refused(site: Site) -> None:
    site.register("etl")
    secret_id, secret = site.make_secret("etl")
    good = claims(token(site.http, "etl", secret))
    key = {"kid": KEYS[0].kid}
    forged = [
        jwt.encode(good, "x" * 32, "HS256", key),
        jwt.encode(good, "", "none", key),
        jwt.encode(good | {"sid": "00000000-0000-4000-8000-000000000000"}, KEYS[0].secret, "HS256", key),
        jwt.encode(good | {"sid": "not a uuid"}, KEYS[0].secret, "HS256", key),
        jwt.encode({**good, "sid": None}, KEYS[0].secret, "HS256", key),
        jwt.encode(good | {"exp": 1}, KEYS[0].secret, "HS256", key),
        "dlk_pat_" + "A" * 43,
        secret,
        secret_id,
    ]
    for text in forged:
        assert site.statuses(text) == [401, 401], text
    assert site.statuses(jwt.encode(good, KEYS[0].secret, "HS256", key)) == [200, 200]
    wider = jwt.encode(good | {"scope": "* ns:sales:rw"}, KEYS[0].secret, "HS256", key)
    assert site.http.get(f"{MANAGEMENT}/principals", headers=bearing(wider)).status_code == 403


def test_no_answer_but_the_first_shows_a_secret(site: Site, database_url: str) -> None:
    site.register("etl")
    site.register("mallory", "*")
    mallory = bearing(site.make_secret("mallory", "token")[1])
    key, path, body = uuid7(), f"{MANAGEMENT}/principals/etl/secrets", {"kind": "token"}
    headers = {"Idempotency-Key": key}
    first = site.http.post(path, json=body, headers=site.admin | headers)
    assert first.headers["cache-control"] == "no-store"
    again = site.workers[1].post(path, json=body, headers=site.admin | headers)
    assert again.status_code == 200
    assert again.json() == first.json() | {"secret": None}
    assert len(site.manage("GET", "/principals/etl/secrets")["secrets"]) == 1
    stolen = site.http.post(path, json=body, headers=mallory | headers)
    assert stolen.status_code == 422
    other = site.http.post(path, json={"kind": "client-secret"}, headers=site.admin | headers)
    assert other.status_code == 422
    secret = first.json()["secret"]
    with psycopg.connect(database_url) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'duckicelake%'"
        ).fetchall()
        for (table,) in tables:
            rows = connection.execute(f"SELECT t::text FROM {table} t").fetchall()
            assert secret not in str(rows), table


def test_repeated_creations_make_one(site: Site) -> None:
    key = {"Idempotency-Key": uuid7()}
    made = [site.manage("POST", "/principals", {"name": "etl", "kind": "service"}, headers=key) for _ in range(2)]
    assert made[0] == made[1]
    site.manage("POST", "/principals", {"name": "etl", "kind": "service"}, 409)
    site.manage("POST", "/principals", {"name": "g", "kind": "group"})
    key = {"Idempotency-Key": uuid7()}
    for _ in range(2):
        site.manage("POST", "/principals/g/members", {"member": "etl"}, 204, headers=key)
    assert site.manage("GET", "/principals/g/members")["members"] == ["etl"]


def test_principals_that_can_not_be_are_refused(site: Site, subtests: pytest.Subtests) -> None:
    for body, says in [
        ({"name": "a:b", "kind": "service"}, "without ':'"),
        ({"name": " a", "kind": "group"}, "without spaces at its ends"),
        ({"name": "a\nb", "kind": "group"}, "printable"),
        ({"name": "e\u0301", "kind": "user"}, "NFC"),
        ({"name": "\u200breader", "kind": "user"}, "printable"),
        ({"name": "é", "kind": "service"}, "expected ASCII"),
        ({"name": "a|b", "kind": "service"}, "expected ASCII"),
        ({"name": "x" * 129, "kind": "user"}, "up to 128"),
        ({"name": "x", "kind": "user", "scopes": ["all"]}, "is not a scope"),
        ({"name": "x", "kind": "role", "scopes": ["*"]}, "has no scopes"),
        ({"name": "x", "kind": "user", "issuer": "https://a"}, "belong together"),
        ({"name": "x", "kind": "role", "issuer": "https://a", "subject": "s"}, "has no subject"),
        ({"name": "x", "kind": "user", "issuer": "corp", "subject": "s"}, "such as https://id.example, or http://127"),
        ({"name": "x", "kind": "group", "issuer": "id.example", "subject": "s"}, "Invalid issuer 'id.example'"),
        ({"name": "x", "kind": "service", "issuer": "https://a?b", "subject": "s"}, "Invalid issuer 'https://a?b'"),
        ({"name": "x", "kind": "robot"}, "kind"),
        ({"name": "x", "kind": "user", "admin": True}, "admin"),
    ]:
        with subtests.test(f"{body}"):
            assert says in site.manage("POST", "/principals", body, 400)["error"]["message"]


def test_issuer_of_the_settings_may_be_no_url() -> None:
    new = PrincipalRegistration("ann", "user", "corp", "00u1")
    check_new(new, "corp")
    with pytest.raises(InvalidRequestError, match="or other, the issuer of the settings"):
        check_new(new, "other")


def test_the_role_admin_administers_with_the_scope_grants_until_it_is_left(site: Site) -> None:
    site.register("ann", "grants", kind="user")
    site.register("staff", "grants", kind="group")
    site.register("bounded", "ns:sales:*")
    tokens = {name: bearing(site.make_secret(name, "token")[1]) for name in ("ann", "bounded")}

    def asks(name: str) -> list[int]:
        time.sleep(REVOKED_SECONDS)
        return [worker.get(f"{MANAGEMENT}/principals", headers=tokens[name]).status_code for worker in site.workers]

    assert asks("ann") == [403, 403]
    site.manage("POST", "/principals/staff/members", {"member": "ann"}, 204)
    site.manage("POST", "/principals/admin/members", {"member": "staff"}, 204)
    site.manage("POST", "/principals/admin/members", {"member": "bounded"}, 204)
    assert asks("ann") == [200, 200]
    assert asks("bounded") == [403, 403], "its scopes are an upper bound"
    assert site.http.get("/v1/namespaces/sales", headers=tokens["ann"]).status_code == 403, "grants are off"
    site.manage("DELETE", "/principals/staff/members/ann", status=204)
    assert asks("ann") == [403, 403]
    for method, body in (("DELETE", None), ("POST", {"is-disabled": True})):
        site.manage(method, "/principals/admin", body, 409)


def test_whoami_names_groups_roles_and_scopes(site: Site) -> None:
    site.register("eve", "ns:sales.eu:rw", "grants")
    for name, kind in (("staff", "group"), ("readers", "role")):
        site.manage("POST", "/principals", {"name": name, "kind": kind})
    site.manage("POST", "/principals/staff/members", {"member": "eve"}, 204)
    site.manage("POST", "/principals/readers/members", {"member": "staff"}, 204)
    _, secret = site.make_secret("eve")
    caller = site.http.get("/v1/whoami", headers=bearing(token(site.http, "eve", secret))).json()
    assert (caller["principal"], caller["groups"], caller["roles"]) == ("eve", ["staff"], ["readers"])
    assert (set(caller["scopes"]), caller["is-admin"]) == ({"ns:sales.eu:rw", "grants"}, False)
    assert site.http.get("/v1/whoami").status_code == 401
    assert site.http.get("/v1/whoami", headers=site.admin).json()["is-admin"]


def test_groups_are_named_by_any_printable_text(site: Site) -> None:
    name = "/Data & analysts é"
    site.manage("POST", "/principals", {"name": name, "kind": "group"})
    site.register("etl")
    path = f"/principals/{quote(name, safe='')}"
    site.manage("POST", f"{path}/members", {"member": "etl"}, 204)
    assert site.manage("GET", f"{path}/members")["members"] == ["etl"]
    site.manage("DELETE", path, status=204)
    site.manage("GET", path, status=404)


def test_users_of_an_issuer_of_the_table_log_in_and_end_with_it(site: Site) -> None:
    with issuing() as corp:
        body = {
            "name": "corp",
            "url": corp.uri,
            "audience": AUDIENCE,
            "jwks-url": f"{corp.uri}/keys",
            "group-claim": "groups",
            "scopes": ["ns:sales:r"],
        }
        now = time.time()
        text = corp.token(iat=now, exp=now + 600, groups=["staff", "unknown", 7], scope="*")
        assert site.statuses(text) == [401, 401]
        site.manage("POST", "/issuers", body)
        time.sleep(REVOKED_SECONDS)
        assert site.statuses(text) == [200, 200]
        renewed = exchange(site.http, bearing(text), text).json()
        assert renewed["scope"] == "ns:sales:r", "the issuer has no scope claim, so * in it counts for nothing"
        ours = renewed["access_token"]
        assert claims(ours)["groups"] == ["staff", "unknown"]
        site.register("staff", "grants", kind="group")
        site.manage("POST", "/principals/admin/members", {"member": "staff"}, 204)
        site.manage("POST", "/issuers/corp", body | {"scopes": ["grants"]})
        time.sleep(REVOKED_SECONDS)
        assert site.http.get(f"{MANAGEMENT}/server", headers=bearing(text)).status_code == 200
        site.manage("DELETE", "/issuers/corp", status=204)
        since = time.monotonic()
        site.await_refusal(text, since)
        site.await_refusal(ours, since)


def test_registered_user_of_an_issuer_has_its_own_scopes_and_can_be_disabled(site: Site) -> None:
    with issuing() as corp:
        site.manage(
            "POST",
            "/issuers",
            {"name": "corp", "url": corp.uri, "audience": AUDIENCE, "jwks-url": f"{corp.uri}/keys"},
        )
        site.register("ann@corp", "*", kind="user", issuer=corp.uri, subject="ann")
        now = time.time()
        ann, bob = (corp.token(iat=now, exp=now + 600, sub=name) for name in ("ann", "bob"))
        assert site.http.get(f"{MANAGEMENT}/server", headers=bearing(ann)).status_code == 200
        assert site.http.get(f"{MANAGEMENT}/server", headers=bearing(bob)).status_code == 403
        ours = exchange(site.http, bearing(ann), ann).json()["access_token"]
        site.manage("POST", "/principals/ann%40corp", {"is-disabled": True})
        since = time.monotonic()
        site.await_refusal(ann, since)
        site.await_refusal(ours, since)
        assert site.statuses(bob) == [200, 200]


def test_group_of_an_issuer_has_its_members_by_its_value_in_the_claim(site: Site) -> None:
    with issuing() as corp, issuing() as partner:
        for name, issuer in (("corp", corp), ("partner", partner)):
            body = {"name": name, "url": issuer.uri, "audience": AUDIENCE, "jwks-url": f"{issuer.uri}/keys"}
            site.manage("POST", "/issuers", body | {"group-claim": "groups"})
        site.register("analysts", "grants", kind="group", issuer=corp.uri, subject="dept:analytics")
        site.register("ann@corp", "grants", kind="user", issuer=corp.uri, subject="dept:analytics")
        site.manage("POST", "/principals", {"name": "x", "kind": "group", **named(corp)}, 409)
        site.manage("POST", "/principals/admin/members", {"member": "analysts"}, 204)
        time.sleep(REVOKED_SECONDS)
        now = time.time()
        members = [
            (corp, "dept:analytics", True),
            (corp, "analysts", False),
            (partner, "dept:analytics", False),
            (partner, "analysts", False),
        ]
        for issuer, group, is_member in members:
            text = issuer.token(iat=now, exp=now + 600, sub="bob", groups=[group, "unknown"])
            assert site.http.get(f"{MANAGEMENT}/server", headers=bearing(text)).status_code == (
                200 if is_member else 403
            )
            groups = site.http.get("/v1/whoami", headers=bearing(text)).json()["groups"]
            assert "unknown" in groups
            assert ("analysts" in groups) == is_member
            ours = exchange(site.http, bearing(text), text).json()["access_token"]
            assert site.http.get(f"{MANAGEMENT}/server", headers=bearing(ours)).status_code == (
                200 if is_member else 403
            )


def named(issuer: Issuer) -> dict[str, str]:
    return {"issuer": issuer.uri, "subject": "dept:analytics"}


def test_no_user_of_an_issuer_passes_for_another_principal(site: Site) -> None:
    """The settings' issuer calls its users what it likes."""
    now = time.time()

    def of_settings(subject: str) -> str:
        return site.issuer.token(iat=now, exp=now + 600, sub=subject, scope="analysts")

    site.register("etl", "*")
    site.make_secret("etl")
    site.register("robot", "*")
    site.register("zoe", "*", kind="user", issuer="https://elsewhere", subject="z")
    site.register("eve", "*", kind="user")
    site.manage("POST", "/issuers", {"name": "corp", "url": "https://corp.example", "audience": AUDIENCE})
    time.sleep(REVOKED_SECONDS)
    refused = ("reader", ROOT.client_id, "etl", "robot", "zoe", "corp:ann")
    assert {name: site.statuses(of_settings(name)) for name in refused} == {name: [401, 401] for name in refused}
    assert site.statuses(of_settings("ann")) == [200, 200]
    assert site.statuses(of_settings("admin")) == [200, 200], "the role is no principal that logs in"
    assert site.statuses(of_settings("eve")) == [200, 200]
    for name in ("ann", "admin", "eve"):
        headers = bearing(of_settings(name))
        assert site.http.get(f"{MANAGEMENT}/server", headers=headers).status_code == 403
    site.manage("POST", "/principals/eve", {"is-disabled": True})
    site.await_refusal(of_settings("eve"), time.monotonic())


def test_issuers_that_can_not_be_are_refused(site: Site) -> None:
    good = {"name": "corp", "url": "https://corp.example", "audience": AUDIENCE}
    for changed in ({"name": "Corp:x"}, {"url": "file:///etc/passwd"}, {"url": "https://a@b"}, {"scopes": ["all"]}):
        site.manage("POST", "/issuers", good | changed, 400)
    site.manage("POST", "/issuers", good | {"url": site.issuer.uri}, 409)
    site.manage("POST", "/issuers", good)
    site.manage("POST", "/issuers", good | {"name": "other"}, 409)
    site.manage("POST", "/issuers/corp", good | {"url": "https://moved.example"}, 400)
    site.manage("POST", "/issuers/corp", good | {"name": "other"}, 400)


def test_many_logins_and_revocations_at_once_end_in_refusal(site: Site) -> None:
    site.register("etl")
    made = [site.make_secret("etl", "token") for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:

        def use_and_revoke(secret: tuple[str, str]) -> None:
            secret_id, text = secret
            assert site.statuses(text) == [200, 200]
            site.manage("DELETE", f"/principals/etl/secrets/{secret_id}", status=204)
            site.await_refusal(text, time.monotonic())

        list(threads.map(use_and_revoke, made))


def test_without_postgres_a_known_token_ends_within_a_second(
    services: Services, database: Database, warehouse: Path
) -> None:
    server = Server(Clock(time.time()))
    app = server.app(services_of(database, warehouse), server.authentication(ROOT, database=database))
    with running(app) as uri, httpx.Client(base_url=uri, timeout=30) as http:
        admin = bearing(token(http, ROOT.client_id))
        body = {"name": "etl", "kind": "service", "scopes": ["*"]}
        assert http.post(f"{MANAGEMENT}/principals", json=body, headers=admin).status_code == 200
        made = http.post(f"{MANAGEMENT}/principals/etl/secrets", json={"kind": "token"}, headers=admin).json()
        known = bearing(made["secret"])
        assert http.get("/v1/config", headers=known).status_code == 200
        database.cut_off()
        time.sleep(REVOKED_SECONDS + 0.1)
        assert http.get("/v1/config", headers=known).status_code == 503
        assert http.get("/v1/config", headers=admin).status_code == 200, "the settings say all of it"


def test_known_tokens_do_not_wait_for_a_busy_pool_and_end_meanwhile(site: Site) -> None:
    site.register("etl")
    _, text = site.make_secret("etl", "token")
    assert site.statuses(text) == [200, 200]
    with ExitStack() as busy:
        for _ in range(2):
            busy.enter_context(site.other.transaction())
        begun = time.monotonic()
        while time.monotonic() - begun < 3:
            asked = time.monotonic()
            assert site.workers[1].get("/v1/config", headers=bearing(text)).status_code == 200
            assert time.monotonic() - asked < 1
            time.sleep(0.1)
        site.manage("POST", "/principals/etl", {"is-disabled": True})
        time.sleep(REVOKED_SECONDS + 0.5)
        with pytest.raises(httpx.TimeoutException):
            site.workers[1].get("/v1/config", headers=bearing(text), timeout=1)
    assert site.statuses(text) == [401, 401]


def test_form_asks_for_nothing_else(site: Site) -> None:
    """A token may be exchanged by its own principal's secret alone once it has expired."""
    site.register("etl")
    site.register("other")
    _, secret = site.make_secret("etl")
    _, others = site.make_secret("other")
    bearer = token(site.http, "etl", secret)
    old = jwt.encode(claims(bearer) | {"exp": 10}, KEYS[0].secret, "HS256", {"kid": KEYS[0].kid})
    form = {"grant_type": EXCHANGE, "subject_token": old, "subject_token_type": ACCESS_TOKEN}
    mine = site.http.post("/v1/oauth/tokens", data=form | {"client_id": "etl", "client_secret": secret})
    assert mine.status_code == 200, mine.text
    assert datetime.fromtimestamp(claims(mine.json()["access_token"])["exp"]).year > 2000
    theirs = site.http.post("/v1/oauth/tokens", data=form | {"client_id": "other", "client_secret": others})
    assert theirs.status_code == 400


REFUSED_NAMES = (".", "..", "a:b", " a", "a ", "", "a\nb", "a\u202eb", "e\u0301", "x" * 129)
NAMES = (
    "a/b", "a/members", "50%", "a%2Fb", "two words", "a?b#c", "...", "ünï-日本", "a+b&c=d", "a\\b", "a;b", "it's",
    '"quoted"', "a|b", "x@example.org", "*", "null", "a.b", "warehouse", "-v",
)  # fmt: skip
"""Names that paths, queries, SQL, shells or commands could take for something else."""


@pytest.mark.parametrize("kind", ["user", "group"])
def test_name_that_no_path_or_command_can_hold_is_refused(site: Site, kind: str, subtests: pytest.Subtests) -> None:
    for name in REFUSED_NAMES:
        with subtests.test(repr(name)):
            refused = site.manage("POST", "/principals", {"name": name, "kind": kind}, 400)
            assert "Invalid" in refused["error"]["message"]
    for asked in ("corp:00u1", "role:x:y", "a:b:c", "user:", "nothing"):
        query = f"principal={quote(asked, safe='')}&action=select&on=warehouse"
        message = site.manage("GET", f"/decision?{query}", status=404)["error"]["message"]
        kind_, _, rest = asked.partition(":")
        assert message == f"There is no {'role x:y' if kind_ == 'role' else 'principal ' + asked}", (asked, rest)


@pytest.mark.parametrize("kind", ["user", "group"])
def test_name_is_the_same_name_on_every_route(site: Site, kind: str, subtests: pytest.Subtests) -> None:
    for number, name in enumerate(NAMES):
        with subtests.test(name):
            body = {"name": name, "kind": kind}
            made = site.http.post(f"{MANAGEMENT}/principals", json=body, headers=site.admin)
            assert made.status_code == 200, made.text
            path = f"/principals/{quote(name, safe='')}"
            assert site.manage("GET", path)["name"] == name
            assert name in [one["name"] for one in site.manage("GET", f"/principals?kind={kind}")["principals"]]
            assert site.manage("POST", path, {"description": "x"})["description"] == "x"
            given = {"principal": name, "privileges": ["select"], "object": {"kind": "warehouse"}}
            assert site.manage("POST", "/grants", {"grant": [given]})["granted"] == 1
            listed = site.manage("GET", f"/grants?principal={quote(name, safe='')}")["grants"]
            assert [one["principal"] for one in listed] == [name]
            for asked in (name, f"{kind}:{name}"):
                query = f"principal={quote(asked, safe='')}&action=select&on=warehouse"
                assert "is-allowed" in site.manage("GET", f"/decision?{query}")
            if kind == "group":
                member = f"member-{kind}-{number}"
                site.register(member)
                site.manage("POST", f"{path}/members", {"member": member}, 204)
                assert site.manage("GET", f"{path}/members")["members"] == [member]
                site.manage("DELETE", f"{path}/members/{member}", status=204)
            else:
                site.manage("POST", "/principals", {"name": f"of-{kind}-{number}", "kind": "group"})
                site.manage("POST", f"/principals/of-{kind}-{number}/members", {"member": name}, 204)
                site.manage("DELETE", f"/principals/of-{kind}-{number}/members/{quote(name, safe='')}", status=204)
                secret = site.manage("POST", f"{path}/secrets", {"kind": "token"})
                who = site.http.get("/v1/whoami", headers=bearing(secret["secret"])).json()
                assert who["principal"] == name
                site.manage("DELETE", f"{path}/secrets/{secret['secret-id']}", status=204)
            site.manage("DELETE", path, status=204)
            site.manage("GET", path, status=404)
