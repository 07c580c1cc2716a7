"""Tokens of a real OpenID Connect provider: a web server with keys of its own, which come and go."""

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fastapi import FastAPI
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidSettingsError
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.oidc import OidcProvider, OidcVerifier, parse_scope_mapping
from tests.server.auth.test_oauth import ACCESS_TOKEN, claims, exchange, refusal
from tests.support.logins import NOW, SECRET, Server, bearing, no_lake, token
from tests.support.waits import wait_until

AUDIENCE = "lake"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
MAPPING = {"analysts": ("ns:sales:r", "ns:hr:r"), "admins": ("*",)}
KEYS: dict[str, PrivateKeyTypes] = {
    "rsa": rsa.generate_private_key(65537, 2048),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "later": ec.generate_private_key(ec.SECP256R1()),
    "p384": ec.generate_private_key(ec.SECP384R1()),
}
Serve = Callable[[FastAPI], httpx.Client]


def published(kid: str) -> Any:
    key: Any = KEYS[kid]
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    return algorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": kid, "use": "sig"}


@dataclass
class Issuer:
    """A provider: `published` are the keys that it shows, `asked` what was asked of it."""

    uri: str
    keys: list[Any] = field(default_factory=lambda: [published("rsa"), published("ec")])
    asked: list[str] = field(default_factory=list)
    says: str | None = None
    fails: bool = False

    def token(self, kid: str | None = "rsa", algorithm: str = "RS256", key: Any = None, **changed: Any) -> str:
        said = {
            "iss": self.uri,
            "aud": AUDIENCE,
            "sub": "ann",
            "exp": NOW + 600,
            "iat": NOW,
            "scope": "openid analysts",
        }
        said = {name: value for name, value in (said | changed).items() if value is not None}
        signing: Any = key or KEYS[kid or "rsa"]
        return jwt.encode(said, signing, algorithm, None if kid is None else {"kid": kid})

    def answer(self, path: str) -> tuple[int, Any]:
        self.asked.append(path)
        if self.fails:
            return 500, {}
        if path == "/.well-known/openid-configuration":
            return 200, {"issuer": self.says or self.uri, "jwks_uri": f"{self.uri}/keys"}
        return (200, {"keys": self.keys}) if path == "/keys" else (404, {})


@contextmanager
def issuing() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = made.answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made = Issuer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        server.shutdown()
        thread.join()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as running:
        yield running


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def nothing() -> Iterator[Services]:
    with no_lake() as services:
        yield services


Start = Callable[..., httpx.Client]


@pytest.fixture
def start(server: Server, issuer: Issuer, nothing: Services, serve: Serve) -> Start:
    """Serve with the issuer trusted, in the way that is said."""

    def started(**settings: Any) -> httpx.Client:
        provider = OidcProvider(issuer.uri, AUDIENCE, server.clock, **({"scopes": MAPPING} | settings))
        return serve(
            server.app(
                nothing, server.authentication(OAuthClient("etl", SECRET, ("*",)), provider=OidcVerifier(provider))
            )
        )

    return started


@pytest.fixture
def http(start: Start) -> httpx.Client:
    return start()


def ask(http: httpx.Client, text: str) -> int:
    return http.get("/v1/config", headers=bearing(text)).status_code


def granted(http: httpx.Client, text: str) -> str:
    """The scopes that the token is worth, as an exchange tells them."""
    answer = exchange(http, bearing(text), text)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["scope"])


@pytest.mark.parametrize(("kid", "algorithm"), [("rsa", "RS256"), ("ec", "ES256")])
def test_token_of_the_issuer_counts_and_its_keys_are_fetched_once(
    http: httpx.Client, issuer: Issuer, kid: str, algorithm: str
) -> None:
    assert issuer.asked == [], "nothing is asked before a token needs it"
    for number in range(5):
        assert ask(http, issuer.token(kid, algorithm, jti=str(number))) == 200
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


def test_own_tokens_count_beside_them(http: httpx.Client, issuer: Issuer) -> None:
    issuer.fails = True
    assert ask(http, token(http, "etl")) == 200
    assert issuer.asked == []


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"aud": "another"}, 401),
        ({"aud": ["another", AUDIENCE]}, 200),
        ({"aud": None}, 401),
        ({"iss": "http://127.0.0.1:1"}, 401),
        ({"exp": NOW - 29}, 200),
        ({"exp": NOW - 31}, 401),
        ({"exp": None}, 401),
        ({"exp": "soon"}, 401),
        ({"nbf": NOW + 29}, 200),
        ({"nbf": NOW + 31}, 401),
        ({"iat": NOW + 31}, 401),
        ({"iat": None}, 200),
        ({"sub": None}, 401),
        ({"sub": ""}, 401),
        ({"sub": "a\0b"}, 401),
        ({"sub": "x" * 257}, 401),
        ({"sub": "etl"}, 401),
        ({"kid": None}, 401),
        ({"kid": "later", "algorithm": "ES256"}, 401),
        ({"kid": "ec", "key": KEYS["later"], "algorithm": "ES256"}, 401),
        ({"kid": "rsa", "key": "s" * 64, "algorithm": "HS256"}, 401),
        ({"algorithm": "RS384"}, 401),
        ({"algorithm": "PS256"}, 401),
    ],
)
def test_token_is_checked_in_every_way(
    http: httpx.Client, issuer: Issuer, changed: dict[str, Any], status: int
) -> None:
    assert ask(http, issuer.token(**changed)) == status


def test_public_key_as_a_shared_secret_is_refused(http: httpx.Client, issuer: Issuer) -> None:
    real = issuer.token()
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa"}').rstrip(b"=").decode()
    signed = f"{header}.{real.split('.')[1]}"
    key: Any = KEYS["rsa"]
    for form, encoding in ((PublicFormat.SubjectPublicKeyInfo, Encoding.PEM), (PublicFormat.PKCS1, Encoding.DER)):
        secret = key.public_key().public_bytes(encoding, form)
        signature = base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), "sha256")).rstrip(b"=").decode()
        assert ask(http, f"{signed}.{signature}") == 401
    assert ask(http, issuer.token(key="n" * 32, kid="new", algorithm="HS256")) == 401


def test_keys_of_other_kinds_are_left_out(http: httpx.Client, issuer: Issuer) -> None:
    issuer.keys = [
        published("p384"),
        published("rsa") | {"use": "enc"},
        {"kty": "oct", "k": "eA", "kid": "o"},
        {"kty": "RSA", "n": "damaged"},
        published("ec"),
    ]
    assert ask(http, issuer.token("ec", "ES256")) == 200
    assert ask(http, issuer.token("rsa")) == 401
    assert ask(http, issuer.token("p384", "ES384")) == 401
    assert ask(http, issuer.token(None, "ES256", KEYS["ec"])) == 200, "the only key needs no name"


def test_new_key_is_fetched_when_a_token_names_it_but_not_at_every_guess(
    http: httpx.Client, issuer: Issuer, server: Server
) -> None:
    assert ask(http, issuer.token()) == 200
    issuer.keys.append(published("later"))
    assert ask(http, issuer.token("later", "ES256")) == 401
    server.clock.now += 11
    assert ask(http, issuer.token("later", "ES256")) == 200
    asked = len(issuer.asked)
    server.clock.now += 11
    for number in range(20):
        assert ask(http, issuer.token("rsa", jti="guess", key=KEYS["rsa"], sub=str(number)) + "x") == 401
        assert ask(http, jwt.encode({"iss": issuer.uri}, KEYS["ec"], "ES256", {"kid": f"k{number}"})) == 401  # type: ignore[arg-type]
    assert len(issuer.asked) <= asked + 1


def test_key_that_is_withdrawn_counts_for_minutes_at_most(http: httpx.Client, issuer: Issuer, server: Server) -> None:
    assert ask(http, issuer.token(exp=NOW + 9000)) == 200
    issuer.keys = [published("ec")]
    server.clock.now += 301
    assert ask(http, issuer.token(exp=NOW + 9000)) == 401


def test_issuer_that_is_down_stops_only_what_needs_it(http: httpx.Client, issuer: Issuer, server: Server) -> None:
    issuer.fails = True
    answer = http.get("/v1/config", headers=bearing(issuer.token()))
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "ServiceUnavailableException")
    assert "retry-after" in answer.headers
    assert refusal(exchange(http, bearing(issuer.token()), issuer.token())) == (503, "temporarily_unavailable")
    assert ask(http, token(http, "etl")) == 200
    issuer.fails = False
    server.clock.now += 11
    assert ask(http, issuer.token()) == 200
    issuer.fails = True
    server.clock.now += 1000
    assert ask(http, issuer.token(exp=NOW + 9000)) == 200, "known keys stay good for a while"
    server.clock.now += 3000
    assert ask(http, issuer.token(exp=NOW + 9000)) == 503


def test_document_of_another_issuer_is_not_believed(http: httpx.Client, issuer: Issuer) -> None:
    issuer.says = "https://elsewhere"
    assert ask(http, issuer.token()) == 503


def test_keys_may_be_named_without_discovery(start: Start, issuer: Issuer) -> None:
    http = start(jwks_url=f"{issuer.uri}/keys")
    assert ask(http, issuer.token()) == 200
    assert issuer.asked == ["/keys"]


@pytest.mark.parametrize(
    ("settings", "said", "scopes"),
    [
        ({}, {"scope": "openid analysts"}, "ns:sales:r ns:hr:r"),
        ({}, {"scope": ["analysts", "admins", 5]}, "ns:sales:r ns:hr:r *"),
        ({}, {"scope": "* ns:sales:rw"}, ""),
        ({}, {"scope": None}, ""),
        ({}, {"scope": {"analysts": 1}}, ""),
        ({"scope_claim": "groups"}, {"groups": ["admins"]}, "*"),
        ({"scope_claim": "realm_access.roles"}, {"realm_access": {"roles": ["analysts"]}}, "ns:sales:r ns:hr:r"),
        ({"scope_claim": "https://lake.example/roles"}, {"https://lake.example/roles": ["admins"]}, "*"),
        ({"scopes": {}}, {"scope": "openid ns:sales:rw ns:x profile"}, "ns:sales:rw"),
    ],
)
def test_claims_are_worth_what_the_settings_say(
    start: Start, issuer: Issuer, settings: dict[str, Any], said: dict[str, Any], scopes: str
) -> None:
    assert granted(start(**settings), issuer.token(**said)) == scopes


def test_name_is_that_of_the_claim(start: Start, issuer: Issuer, server: Server) -> None:
    http = start(name_claim="email")
    assert ask(http, issuer.token(email="ann@example.org")) == 200
    assert ask(http, issuer.token()) == 401
    wait_until(lambda: "\n" in server.log.getvalue())
    lines = [json.loads(line) for line in server.log.getvalue().splitlines()]
    assert lines[0]["principal"] == "ann@example.org"


def test_exchanged_token_ends_with_the_one_it_was_got_for(http: httpx.Client, issuer: Issuer, server: Server) -> None:
    theirs, ours = issuer.token(), token(http, "etl")
    answer = exchange(
        http, bearing(ours), theirs, subject_token_type=ID_TOKEN, actor_token=ours, actor_token_type=ACCESS_TOKEN
    ).json()
    said = claims(answer["access_token"])
    assert (said["iss"], said["sub"], said["act"], said["idp"]) == ("duckicelake", "ann", {"sub": "etl"}, issuer.uri)
    assert (answer["expires_in"], answer["scope"]) == (600, "ns:sales:r ns:hr:r")
    assert ask(http, answer["access_token"]) == 200
    server.clock.now += 400
    renewed = exchange(http, bearing(answer["access_token"]), answer["access_token"]).json()
    assert renewed["expires_in"] == 200
    server.clock.now += 201
    assert ask(http, renewed["access_token"]) == 401


def test_mapping_is_read_and_what_is_wrong_in_it_is_said() -> None:
    assert parse_scope_mapping("analysts=ns:sales:r ns:hr:r, cn=admins=*,") == {
        "analysts": ("ns:sales:r", "ns:hr:r"),
        "cn=admins": ("*",),
    }
    for text, says in (
        ("analysts", "not claimvalue=scope"),
        ("a=", "not claimvalue=scope"),
        ("a=read", "is not a scope"),
    ):
        with pytest.raises(InvalidSettingsError, match=says):
            parse_scope_mapping(text)


def test_issuer_can_not_have_the_servers_own_name() -> None:
    with pytest.raises(InvalidSettingsError, match="can't be duckicelake"):
        OidcProvider("duckicelake", AUDIENCE, lambda: NOW)


def test_exchanges_that_wait_for_the_issuer_leave_threads_to_others(http: httpx.Client, issuer: Issuer) -> None:
    answer, asked, leave = issuer.answer, threading.Event(), threading.Event()

    def wait(path: str) -> tuple[int, Any]:
        asked.set()
        leave.wait(120)
        return answer(path)

    issuer.answer = wait  # type: ignore[method-assign]
    foreign = issuer.token()
    with ThreadPoolExecutor(60) as pool:
        waiting = [pool.submit(exchange, http, bearing(foreign), foreign) for _ in range(60)]
        try:
            assert asked.wait(60)
            time.sleep(0.3)
            token(http, "etl")
        finally:
            leave.set()
        assert not [each for each in waiting if each.result().status_code not in {200, 429}]
