"""Logins and tokens over real HTTP, as Iceberg's clients and those who attack them send them."""

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidSettingsError
from duckicelake.server.auth.oauth import TokenRequest
from duckicelake.server.auth.oauth_clients import OAuthClient, OAuthClients, parse_clients
from duckicelake.server.auth.throttle import MAX_FAILURE_ENTRIES, MAX_WAIT_SECONDS, LoginThrottle
from duckicelake.server.auth.tokens import TokenKey, parse_keys
from tests.support.logins import KEYS, NOW, SECRET, Clock, Server, bearing, login, no_lake, token
from tests.support.waits import wait_until

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
HASHED = "$argon2id$v=19$m=64,t=1,p=1$tCWg+ggiUfZashJqvHMLcw$Z5/pGQdzSWWnPj54M+zIUoPrkw+w97HTTje+gsHx4UY"
"""Of SECRET, with little memory in one pass: each server hashes as much once."""
HASHED_BY_DEFAULT = "$argon2id$v=19$m=65536,t=3,p=4$7eUsy7IWnteU1rRfUjZwpg$GboGi1/wr9IhrfFCNlz5im2YoouyjwL/Vdto9BDJ9iA"
"""What `hash_secret` made of SECRET once: the names of tests must be the same in each run."""
READER = OAuthClient("reader", SECRET, ("ns:sales:r", "ns:hr.pay:rw"))
HASHING = OAuthClient("hashing", HASHED, ("ns:sales:rw",))
ROOT = OAuthClient("root", SECRET, ("*",))
Serve = Callable[[FastAPI], httpx.Client]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def nothing() -> Iterator[Services]:
    with no_lake() as services:
        yield services


@pytest.fixture
def http(server: Server, nothing: Services, serve: Serve) -> httpx.Client:
    return serve(server.app(nothing, server.authentication(READER, HASHING, ROOT)))


def basic(client_id: str, secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()}


def exchange(http: httpx.Client, headers: dict[str, str], subject: str, **form: str) -> httpx.Response:
    fields = {"grant_type": EXCHANGE, "subject_token": subject, "subject_token_type": ACCESS_TOKEN, "scope": "catalog"}
    return http.post("/v1/oauth/tokens", data=fields | form, headers=headers)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) == {"error", "error_description"}
    assert re.fullmatch(r"[ !#-\[\]-~]+", body["error_description"])
    assert answer.headers["cache-control"] == "no-store"
    return answer.status_code, body["error"]


def whoami(http: httpx.Client, text: str) -> int:
    return http.get("/v1/config", headers=bearing(text)).status_code


def claims(text: str) -> dict[str, Any]:
    read: dict[str, Any] = jwt.decode(text, options={"verify_signature": False})
    return read


def test_client_gets_a_token_that_says_all_there_is_to_say(http: httpx.Client) -> None:
    answer = login(http, "reader")
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    body = answer.json()
    text = body.pop("access_token")
    assert body == {
        "token_type": "bearer",
        "expires_in": 3600,
        "issued_token_type": ACCESS_TOKEN,
        "scope": "ns:sales:r ns:hr.pay:rw",
    }
    assert jwt.get_unverified_header(text) == {"alg": "HS256", "kid": "new", "typ": "JWT"}
    said = claims(text)
    assert len(said.pop("jti")) == 16
    assert said == {
        "iss": "duckicelake",
        "sub": "reader",
        "scope": "ns:sales:r ns:hr.pay:rw",
        "iat": NOW,
        "exp": NOW + 3600,
        "auth_time": NOW,
    }
    assert whoami(http, text) == 200


def test_two_tokens_are_never_the_same(http: httpx.Client) -> None:
    assert token(http, "reader") != token(http, "reader")


@pytest.mark.parametrize("client_id", ["reader", "hashing"])
@pytest.mark.parametrize("encode", [str, quote])
def test_basic_header_takes_the_secret_as_it_is_and_percent_encoded(
    http: httpx.Client, client_id: str, encode: Callable[[str], str]
) -> None:
    form = {"grant_type": "client_credentials"}
    headers = basic(client_id, encode(SECRET))
    assert http.post("/v1/oauth/tokens", data=form, headers=headers).status_code == 200
    agreeing = form | {"client_id": client_id, "client_secret": encode(SECRET)}
    assert http.post("/v1/oauth/tokens", data=agreeing, headers=headers).status_code == 200
    for other in ({"client_id": "root"}, {"client_secret": "another"}):
        assert refusal(http.post("/v1/oauth/tokens", data=form | other, headers=headers)) == (400, "invalid_request")


def test_stale_bearer_beside_a_secret_counts_nothing(http: httpx.Client) -> None:
    form = {"grant_type": "client_credentials", "client_id": "reader", "client_secret": SECRET}
    assert http.post("/v1/oauth/tokens", data=form, headers=bearing("a.b.c")).status_code == 200


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("", "ns:sales:r ns:hr.pay:rw"),
        ("catalog", "ns:sales:r ns:hr.pay:rw"),
        ("PRINCIPAL_ROLE:ALL", "ns:sales:r ns:hr.pay:rw"),
        ("sign", "ns:sales:r ns:hr.pay:rw"),
        ("catalog ns:sales:r", "ns:sales:r ns:hr.pay:rw"),
        ("ns:sales:r", "ns:sales:r"),
        ("ns:sales.eu:r ns:hr.pay:w", "ns:sales.eu:r ns:hr.pay:w"),
    ],
)
def test_scope_may_ask_for_less(http: httpx.Client, asked: str, given: str) -> None:
    answer = login(http, "reader", scope=asked).json()
    assert (answer["scope"], claims(answer["access_token"])["scope"]) == (given, given)


@pytest.mark.parametrize(
    "asked",
    ["*", "ns:sales:rw", "ns:sales2:r", "ns:hr:r", "ns:sales:r ns:hr:r", "openid", "ns:sales:R", "ns::r", "ns:sä:r"],
)
def test_scope_that_the_client_lacks_is_invalid(http: httpx.Client, asked: str) -> None:
    assert refusal(login(http, "reader", scope=asked)) == (400, "invalid_scope")


@pytest.mark.parametrize(
    ("client_id", "secret"),
    [
        ("reader", "wrong"),
        ("hashing", "wrong"),
        ("hashing", HASHED),
        ("nobody", SECRET),
        ("nobody", ""),
        ("READER", SECRET),
    ],
)
def test_wrong_secret_and_unknown_client_get_one_answer(http: httpx.Client, client_id: str, secret: str) -> None:
    answer = http.post("/v1/oauth/tokens", data={"grant_type": "client_credentials"}, headers=basic(client_id, secret))
    assert refusal(answer) == (401, "invalid_client")
    assert answer.json()["error_description"] == "No client has this id and secret"
    assert answer.headers["www-authenticate"] == 'Basic realm="duckicelake"'


def test_refusals_take_one_hash_whoever_is_named() -> None:
    hashing = OAuthClient("hashing", HASHED_BY_DEFAULT, ("ns:sales:rw",))
    clients = OAuthClients([READER, hashing])
    assert clients.authenticate("hashing", SECRET) == hashing
    took = {}
    for client_id in ("reader", "hashing", "nobody"):
        started = time.process_time()
        for _ in range(3):
            assert clients.authenticate(client_id, "wrong") is None
        took[client_id] = time.process_time() - started
    assert min(took.values()) > max(took.values()) / 3
    started = time.process_time()
    assert clients.authenticate("hashing", SECRET) == hashing
    assert time.process_time() - started < min(took.values()) / 10, "a secret that was right is not hashed again"


def test_wrong_request_is_refused_in_oauths_words(http: httpx.Client, subtests: pytest.Subtests) -> None:
    for body, error in [
        ("", "invalid_request"),
        ("scope=catalog", "invalid_request"),
        ("grant_type=password&username=a&password=b", "unsupported_grant_type"),
        ("grant_type=client_credentials&grant_type=client_credentials", "invalid_request"),
        ("grant_type=client_credentials&client_secret=a&client_secret=b", "invalid_request"),
        ("grant_type", "invalid_request"),
        ("grant_type=%ff", "invalid_request"),
        ("grant_type=client_credentials&" + "&".join(f"x{number}=1" for number in range(30)), "invalid_request"),
        ("grant_type=client_credentials&scope=" + "x" * 70_000, "invalid_request"),
        (f"grant_type={EXCHANGE}&client_id=reader&client_secret={quote(SECRET)}", "invalid_request"),
        (f"grant_type={EXCHANGE}&client_id=reader&client_secret={quote(SECRET)}&subject_token=x", "invalid_request"),
        (
            f"grant_type={EXCHANGE}&client_id=root&client_secret={quote(SECRET)}&subject_token_type={ACCESS_TOKEN}",
            "invalid_request",
        ),
        (f"grant_type={EXCHANGE}&requested_token_type=saml", "invalid_request"),
    ]:
        with subtests.test(body):
            headers = {"Content-Type": "application/x-www-form-urlencoded"}
            assert refusal(http.post("/v1/oauth/tokens", content=body, headers=headers)) == (400, error)


@pytest.mark.parametrize("body", ["grant_type=client_credentials", "grant_type=client_credentials&client_secret=a"])
def test_request_of_no_one_is_invalid_client(http: httpx.Client, body: str) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=UTF-8"}
    assert refusal(http.post("/v1/oauth/tokens", content=body, headers=headers)) == (401, "invalid_client")


@pytest.mark.parametrize("content_type", ["application/json", "multipart/form-data; boundary=x", ""])
def test_body_that_is_no_form_is_refused(http: httpx.Client, content_type: str) -> None:
    answer = http.post("/v1/oauth/tokens", content=b"{}", headers={"Content-Type": content_type})
    assert refusal(answer) == (400, "invalid_request")


@pytest.mark.parametrize(
    "header", ["Basic", "Basic !!!", "Basic " + base64.b64encode(b"no colon").decode(), "Basic /w=="]
)
def test_damaged_basic_header_is_refused(http: httpx.Client, header: str) -> None:
    answer = http.post("/v1/oauth/tokens", data={"grant_type": "client_credentials"}, headers={"Authorization": header})
    assert refusal(answer) == (400, "invalid_request")


def test_token_renews_itself_while_it_holds_and_until_the_login_is_a_day_old(
    http: httpx.Client, server: Server
) -> None:
    text = token(http, "reader")
    for _ in range(27):
        server.clock.now += 3200
        answer = exchange(http, bearing(text), text)
        if answer.status_code != 200:
            break
        text = answer.json()["access_token"]
        assert answer.json()["issued_token_type"] == ACCESS_TOKEN
        assert claims(text)["exp"] <= NOW + 24 * 3600
    assert server.clock.now >= NOW + 24 * 3600
    assert refusal(answer) == (401, "invalid_client")


def test_expired_token_is_renewed_with_the_secret_as_java_does(http: httpx.Client, server: Server) -> None:
    text = token(http, "reader", scope="ns:sales:r")
    server.clock.now += 7200
    assert refusal(exchange(http, bearing(text), text)) == (401, "invalid_client")
    answer = exchange(http, basic("reader", SECRET), text)
    assert answer.json()["scope"] == "ns:sales:r"
    assert claims(answer.json()["access_token"])["auth_time"] == NOW + 7200
    assert refusal(exchange(http, basic("root", SECRET), text)) == (400, "invalid_request")
    assert refusal(exchange(http, basic("reader", "wrong"), text)) == (401, "invalid_client")


def test_exchange_never_gives_more_than_the_subject_has(http: httpx.Client) -> None:
    small, great = token(http, "reader", scope="ns:sales:r"), token(http, "root")
    assert refusal(exchange(http, bearing(great), small, scope="ns:hr.pay:r")) == (400, "invalid_scope")
    assert refusal(exchange(http, bearing(great), small, scope="*")) == (400, "invalid_scope")
    answer = exchange(http, bearing(great), small, actor_token=great, actor_token_type=ACCESS_TOKEN).json()
    said = claims(answer["access_token"])
    assert (said["sub"], said["scope"], said["act"]) == ("reader", "ns:sales:r", {"sub": "root"})


@pytest.mark.parametrize("kind", ["", "urn:ietf:params:oauth:token-type:saml2"])
def test_exchange_needs_types_that_are_known(http: httpx.Client, kind: str) -> None:
    text = token(http, "reader")
    assert refusal(exchange(http, bearing(text), text, subject_token_type=kind)) == (400, "invalid_request")
    with_actor = exchange(http, bearing(text), text, actor_token=text, actor_token_type=kind)
    assert refusal(with_actor) == (400, "invalid_request")


def test_exchange_of_no_one_is_invalid_client(http: httpx.Client) -> None:
    assert refusal(exchange(http, {}, token(http, "reader"))) == (401, "invalid_client")


def test_expired_token_is_401_and_never_419(http: httpx.Client, server: Server) -> None:
    text = token(http, "reader")
    server.clock.now += 3599
    assert whoami(http, text) == 200
    server.clock.now += 1
    answer = http.get("/v1/config", headers=bearing(text))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    error = {"code": 401, "type": "NotAuthorizedException", "message": "The token has expired; get a new one"}
    assert answer.json() == {"error": error}


@pytest.mark.parametrize("header", [None, "Bearer", "Basic cmVhZGVyOng=", "reader"])
def test_request_without_a_token_is_401_that_says_where_to_get_one(http: httpx.Client, header: str | None) -> None:
    answer = http.get("/v1/config", headers={} if header is None else {"Authorization": header})
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "NotAuthorizedException")
    assert answer.headers["www-authenticate"] == 'Bearer realm="duckicelake"'
    assert "/v1/oauth/tokens" in answer.json()["error"]["message"]


def made(secret: Any = KEYS[0].secret, algorithm: str = "HS256", kid: str | None = "new", **changed: Any) -> str:
    said = {
        "iss": "duckicelake",
        "sub": "root",
        "scope": "*",
        "iat": NOW,
        "exp": NOW + 3600,
        "auth_time": NOW,
        "jti": "x",
    } | changed
    said = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(said, secret, algorithm, None if kid is None else {"kid": kid})


RSA_KEY = rsa.generate_private_key(65537, 2048)
PUBLIC_PEM = RSA_KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
UNSIGNED = ".".join([*made().split(".")[:2], ""])
NONE = (
    base64.urlsafe_b64encode(b'{"alg":"none","kid":"new"}').rstrip(b"=").decode() + "." + UNSIGNED.split(".")[1] + "."
)
DEEP = ".".join(
    base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (b'{"alg":"HS256"}', b"[" * 30_000, b"x")
)


def test_the_forger_could_make_a_good_token_with_the_key(http: httpx.Client) -> None:
    assert whoami(http, made()) == 200
    assert whoami(http, made(KEYS[1].secret, kid="old")) == 200


def test_forged_token_is_refused(http: httpx.Client, subtests: pytest.Subtests) -> None:
    for name, forged in {
        "algorithm none": NONE,
        "no signature": UNSIGNED,
        "RS256": made(RSA_KEY, "RS256"),
        "HS512": made(algorithm="HS512", secret="n" * 64),
        "the other key's name": made(kid="old"),
        "no key's name": made(kid=None),
        "a name of nothing": made(kid="../../etc/passwd"),
        "another secret": made("x" * 32),
        "another issuer": made(iss="elsewhere"),
        "no issuer": made(iss=None),
        "no end": made(exp=None),
        "no subject": made(sub=None),
        "a client that is no more": made(sub="ghost"),
        "got for a token of an issuer that isn't trusted": made(idp="https://elsewhere"),
        "cut off": made()[:-2],
        "no base64": "a.b.c",
        "no JWT": "token",
        "deep": DEEP,
        "dots": "." * 2000,
    }.items():
        with subtests.test(name):
            answer = http.get("/v1/config", headers=bearing(forged))
            assert (answer.status_code, answer.json()["error"]["type"]) == (401, "NotAuthorizedException")
            assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
            assert refusal(exchange(http, bearing(token(http, "root")), forged)) == (400, "invalid_request")


def test_keys_rotate_without_ending_tokens(server: Server, nothing: Services, serve: Serve) -> None:
    older, newer = TokenKey("a", "a" * 32), TokenKey("b", "b" * 32)
    before = serve(server.app(nothing, server.authentication(ROOT, keys=(older,))))
    text = token(before, "root")
    both = serve(server.app(nothing, server.authentication(ROOT, keys=(newer, older))))
    assert whoami(both, text) == 200
    renewed = exchange(both, bearing(text), text).json()["access_token"]
    assert jwt.get_unverified_header(renewed)["kid"] == "b"
    after = serve(server.app(nothing, server.authentication(ROOT, keys=(newer,))))
    assert (whoami(after, text), whoami(after, renewed)) == (401, 200)


def test_token_is_worth_no_more_than_its_client_is_now(server: Server, nothing: Services, serve: Serve) -> None:
    before = serve(server.app(nothing, server.authentication(READER)))
    text = token(before, "reader")
    less = OAuthClient("reader", SECRET, ("ns:hr:r", "ns:sales:*"))
    after = serve(server.app(nothing, server.authentication(less)))
    assert exchange(after, bearing(text), text).json()["scope"] == "ns:sales:r"
    gone = serve(server.app(nothing, server.authentication(ROOT)))
    assert whoami(gone, text) == 401


def test_failed_logins_wait_twice_as_long_each_and_the_right_secret_waits_too(
    http: httpx.Client, server: Server
) -> None:
    for _ in range(5):
        assert login(http, "reader", "wrong").status_code == 401
    blocked = login(http, "reader")
    assert refusal(blocked) == (429, "temporarily_unavailable")
    assert blocked.headers["retry-after"] == "1"
    assert login(http, "root").status_code == 200, "others from there may"
    server.clock.now += 1
    assert login(http, "reader", "wrong").status_code == 401
    assert login(http, "reader").headers["retry-after"] == "2"
    server.clock.now += 2
    assert login(http, "reader").status_code == 200
    assert login(http, "reader", "wrong").status_code == 401
    assert login(http, "reader").status_code == 200, "a login that succeeds forgives"
    counted = http.get("/metrics", headers=bearing(token(http, "root"))).text
    for outcome, times in (("login", 4), ("refused", 7), ("throttled", 2)):
        assert f'duckicelake_logins_total{{outcome="{outcome}"}} {times}.0' in counted


def test_one_address_can_not_try_many_clients(server: Server, nothing: Services, serve: Serve) -> None:
    http = serve(server.app(nothing, server.authentication(ROOT)))
    for number in range(20):
        assert login(http, f"guess{number}", "wrong").status_code == 401
    assert login(http, "guess20", "wrong").status_code == 429
    server.clock.now += 1
    assert login(http, "root").status_code == 200


def test_client_whose_secret_is_known_gets_in_where_others_have_failed(
    server: Server, nothing: Services, serve: Serve
) -> None:
    http = serve(server.app(nothing, server.authentication(ROOT, READER, HASHING)))
    for number in range(20):
        assert login(http, f"guess{number}", "wrong").status_code == 401
    assert login(http, "root").status_code == 200
    assert login(http, "hashing").status_code == 429, "its secret would take a hash"
    answers = [login(http, client_id, "wrong") for client_id in ["reader"] * 5 + ["nobody"] * 5]
    assert {(answer.status_code, answer.headers["retry-after"], answer.text) for answer in answers} == {
        (429, "1", answers[0].text)
    }
    assert login(http, "reader").status_code == 429, "too many have been tried for it"
    assert login(http, "root").status_code == 200
    server.clock.now += 1
    assert login(http, "reader").status_code == 200


def test_throttle_keeps_little_of_names_however_long() -> None:
    throttle = LoginThrottle(Clock())
    for number in range(5):
        throttle.record_failure("c" * 60_000 + str(number), "a" * 60_000)
    assert throttle.wait("c" * 60_000, "a" * 60_000) == 1
    assert sum(len(part) for key in throttle._failures for part in key) < 1000


def test_what_a_login_shows_is_in_no_repr() -> None:
    assert (
        repr(TokenRequest({"client_secret": SECRET}, f"Basic {SECRET}", "10.0.0.1"))
        == "TokenRequest(address='10.0.0.1')"
    )


def test_throttle_remembers_a_bounded_number_and_for_a_bounded_time() -> None:
    clock = Clock(0.0)
    throttle = LoginThrottle(clock)
    for number in range(2 * MAX_FAILURE_ENTRIES):
        throttle.record_failure(f"client{number}", f"address{number}")
    assert len(throttle._failures) == MAX_FAILURE_ENTRIES
    for _ in range(40):
        throttle.record_failure("c", "a")
    assert throttle.wait("c", "a") == MAX_WAIT_SECONDS
    assert throttle.wait("c", "b") == 0
    clock.now += 3 * MAX_WAIT_SECONDS + 1
    assert throttle.wait("c", "a") == 0
    assert len(throttle._failures) == 0


def test_throttle_takes_a_network_of_ipv6_for_one_address() -> None:
    throttle = LoginThrottle(Clock())
    for number in range(20):
        throttle.record_failure("c", f"2001:db8:1:2::{number}")
        throttle.record_failure("c", f"::ffff:10.0.0.{number}")
    assert throttle.wait("d", "2001:db8:1:2:ffff::1") == 1
    assert throttle.wait("d", "2001:db8:1:3::1") == 0
    assert throttle.wait("c", "10.0.0.1") == 0


def test_no_secret_and_no_token_is_ever_logged_or_shown(http: httpx.Client, server: Server) -> None:
    text = token(http, "reader")
    whoami(http, text)
    whoami(http, text + "x")
    answers = [
        login(http, "reader", "guessed-secret"),
        exchange(http, bearing(text), text + "x"),
        exchange(http, {}, text),
    ]
    wait_until(lambda: server.log.getvalue().count("\n") > len(answers))
    shown = server.log.getvalue() + "".join(answer.text for answer in answers) + repr(READER) + repr(KEYS)
    for secret in (SECRET, quote(SECRET), "guessed-secret", text, KEYS[0].secret, KEYS[1].secret, HASHED):
        assert secret not in shown
    named = [json.loads(line) for line in server.log.getvalue().splitlines()]
    assert [line.get("principal") for line in named[:2]] == ["reader", "reader"]


def test_server_that_asks_no_one_says_so_to_who_brings_a_credential(
    server: Server, nothing: Services, serve: Serve
) -> None:
    http = serve(server.app(nothing, None))
    assert refusal(login(http, "reader")) == (400, "invalid_request")
    assert "without a credential" in login(http, "reader").json()["error_description"]
    assert http.get("/v1/config", headers=bearing("anything")).status_code == 200


def test_clients_are_read_hashes_commas_and_all() -> None:
    assert parse_clients(f"a:x|*, b:{HASHED}|ns:s:r ns:t.u:*,c:p:w,d|ns:100%25:w,") == (
        OAuthClient("a", "x", ("*",)),
        OAuthClient("b", HASHED, ("ns:s:r", "ns:t.u:*")),
        OAuthClient("c", "p:w,d", ("ns:100%25:w",)),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no client"),
        (",", "names no client"),
        ("hunter2", "client 1 .* is not id:secret"),
        ("id:hunter2", "client 1 .* is not id:secret"),
        ("id:hunter2|", "client 1 .* is not id:secret"),
        ("id:|*", "client 1 .* is not id:secret"),
        (":hunter2|*", "client 1 .* an id that"),
        ("a:b|*,id hunter2:hunter2|*", "client 2 .* an id that"),
        ("a:b|*,a:hunter2|*", "client 2 .* has the id of an earlier one"),
        ("id:hunter2|ns:x:q", "client 1 .* has a scope that isn't one"),
        ("id:hun|ter2,hunter2|*", "client 1 .* has a scope that isn't one"),
        ("id:$argon2id$hunter2|*", "client 1 .* damaged argon2id hash"),
        (f"id:{HASHED[:-30]}|*", "client 1 .* damaged argon2id hash"),
        ("id:$argon2i$v=19$m=512,t=2,p=2$aHVudGVyMg$aHVudGVyMg|*", "client 1 .* damaged argon2id hash"),
    ],
)
def test_clients_that_are_wrong_are_named_by_number_and_no_secret_is_shown(text: str, says: str) -> None:
    with pytest.raises(InvalidSettingsError, match=says) as caught:
        parse_clients(text)
    assert "hun" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" , ", "holds no key"),
        ("hunter2", "key 1 .* is not kid:secret"),
        (f"a:{'x' * 32},b b:{'y' * 32}", "key 2 .* is not kid:secret"),
        (f"a:{'x' * 31}", "key 1 .* 31 bytes.* openssl rand"),
        (f"a:{'x' * 32},a:{'y' * 32}", "two keys of one name"),
    ],
)
def test_keys_that_are_wrong_are_named_by_number_and_no_secret_is_shown(text: str, says: str) -> None:
    with pytest.raises(InvalidSettingsError, match=says) as caught:
        parse_keys(text)
    assert "xxxx" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
