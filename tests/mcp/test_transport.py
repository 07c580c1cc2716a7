"""Agents over HTTP have the rights of their own tokens; pages of browsers are kept out; clients come and go."""

import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import duckdb
import httpx
import pytest
from mcp.client.auth import TokenStorage
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from duckicelake.catalog.context.services import Services
from duckicelake.lake.side_tables.audit import AuditEntry
from duckicelake.mcp import routes
from duckicelake.mcp.transport import MAX_BODY_BYTES, MCP_PATH
from duckicelake.rest.login import list_issuers
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.oidc import OidcProvider, OidcVerifier
from duckicelake.server.middleware.quotas import Quota
from tests.mcp.conftest import COMMAND, serving_agents, talk, talk_http
from tests.rest.test_login import issuing
from tests.server.auth.test_oidc import AUDIENCE
from tests.support.logins import SECRET, Server, token
from tests.support.servers import Serve

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    },
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_objects", "arguments": {}}}
HEADERS = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def guarded(services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection) -> httpx.Client:
    """A catalog with a login: ann may read zoo, bob nothing of it."""
    lake.execute("CREATE SCHEMA own")
    server = Server()
    clients = [OAuthClient("ann", SECRET, ("ns:zoo:r",)), OAuthClient("bob", SECRET, ("ns:own:rw",))]
    return serve(server.app(services, server.authentication(*clients)))


@pytest.fixture
def gate(guarded: httpx.Client) -> Iterator[str]:
    with serving_agents(str(guarded.base_url).rstrip("/"), has_login=True) as url:
        yield url


@pytest.fixture
def agents(uri: str) -> Iterator[str]:
    with serving_agents(uri) as url:
        yield url


def test_each_of_two_agents_has_the_rights_of_its_own_token(
    guarded: httpx.Client, gate: str, trail: Callable[[], list[AuditEntry]]
) -> None:
    seen: dict[str, Any] = {}

    async def use(who: str) -> None:
        async with talk_http(gate, token(guarded, who), agent=f"{who}s-agent") as session:
            for _ in range(5):
                answer = await session.call_tool("describe", {"name": "zoo.birds"})
                seen.setdefault(who, []).append(answer.structuredContent)

    async def use_both() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(use, "ann")
            group.start_soon(use, "bob")

    anyio.run(use_both)
    assert {answer["name"] for answer in seen["ann"]} == {"zoo.birds"}
    assert {answer["error"]["code"] for answer in seen["bob"]} == {"not_allowed"}
    found = {(one.principal, one.client["engine"], one.result) for one in trail()}
    assert found == {("ann", "anns-agent/1.0", "ok"), ("bob", "bobs-agent/1.0", "not_allowed")}


def test_request_without_a_valid_token_is_refused_before_a_session_begins(gate: str) -> None:
    for headers in ({}, {"Authorization": "Bearer x.y.z"}, {"Authorization": "Basic YTpi"}):
        answer = httpx.post(gate, json=HELLO, headers={**HEADERS, **headers})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert "mcp-session-id" not in answer.headers


class KeptTokens(TokenStorage):
    """Tokens of one client, in memory."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError(f"{client_info} is known to its issuer")


def test_client_logs_in_with_the_issuer_that_the_challenge_leads_to(
    services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection
) -> None:
    """The SDK's own client knows the URL of the agents' server alone."""
    kept = KeptTokens()

    async def use(url: str, issuer: str) -> Any:
        auth = ClientCredentialsOAuthProvider(url, kept, "cli", "secret", "client_secret_post", issuer=issuer)
        async with talk_http(url, auth=auth) as session:
            return (await session.call_tool("describe", {"name": "zoo.birds"})).structuredContent

    with issuing() as issuer:
        issuer.pending = 0
        server = Server()
        provider = OidcProvider(issuer.uri, AUDIENCE, server.clock, scopes={"admins": ("ns:zoo:r",)})
        http = serve(server.app(services, server.authentication(provider=OidcVerifier(provider))))
        catalog = str(http.base_url).rstrip("/")
        with serving_agents(catalog, has_login=True, issuers=list_issuers(catalog)) as url:
            refusal = httpx.post(url, json=HELLO, headers=HEADERS)
            metadata = url.replace(MCP_PATH, f"/.well-known/oauth-protected-resource{MCP_PATH}")
            assert refusal.headers["www-authenticate"].endswith(f', resource_metadata="{metadata}"')
            assert anyio.run(use, url, issuer.uri)["name"] == "zoo.birds"
        assert kept.tokens is not None
        assert issuer.seen[0]["resource"] == url


def test_session_is_served_to_the_token_that_began_it_alone(guarded: httpx.Client, gate: str) -> None:
    bearing = {who: {**HEADERS, "Authorization": f"Bearer {token(guarded, who)}"} for who in ("ann", "bob")}
    session = httpx.post(gate, json=HELLO, headers=bearing["ann"]).headers["mcp-session-id"]
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert httpx.post(gate, json=ready, headers={**bearing["ann"], "mcp-session-id": session}).status_code == 202
    assert httpx.post(gate, json=LIST, headers={**bearing["bob"], "mcp-session-id": session}).status_code == 404
    assert httpx.post(gate, json=LIST, headers={**bearing["ann"], "mcp-session-id": session}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example.com"}, 421),
        ({"Host": "127.0.0.1.evil.example.com"}, 421),
        ({"Origin": "https://evil.example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
    ],
)
def test_page_of_a_browser_is_kept_out(agents: str, headers: dict[str, str], status: int) -> None:
    """DNS rebinding: the page's own name leads to this machine, and Host has that name."""
    for method, path in (("POST", agents), ("GET", agents), ("POST", agents.removesuffix("/mcp"))):
        answer = httpx.request(method, path, json=HELLO, headers={**HEADERS, **headers})
        assert answer.status_code == status


def test_requests_that_are_too_large_or_go_elsewhere_are_refused(agents: str) -> None:
    typed = {**HEADERS, "Content-Type": "application/json"}
    large = httpx.post(agents, content=b" " * (MAX_BODY_BYTES + 1), headers=typed)
    assert large.status_code == 413
    assert httpx.post(f"{agents}/other", json=HELLO, headers=HEADERS).status_code == 404
    assert httpx.post(agents, json=LIST, headers={**HEADERS, "mcp-session-id": "guessed"}).status_code == 404
    assert httpx.post(agents, content=b"{", headers=typed).status_code == 400


def test_client_that_goes_away_ends_its_server_and_harms_no_other(
    uri: str, trail: Callable[[], list[AuditEntry]]
) -> None:
    slow = {"sql": "SELECT count(*) FROM range(100000000) a, range(100000) b", "timeout_seconds": 5}

    async def use() -> None:
        with serving_agents(uri) as url:
            async with talk_http(url, agent="stays") as other:
                with anyio.move_on_after(2):
                    async with talk(uri, agent="goes") as session:
                        await session.call_tool("run_query", slow)
                assert not (await other.call_tool("list_objects", {})).isError

    began = time.monotonic()
    anyio.run(use)
    assert time.monotonic() - began < 60
    assert ("stays/1.0", "ok") in {(one.client["engine"], one.result) for one in trail()}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--http", "--token", "secret"], "--http serves callers by their own tokens"),
        (["--http", "--credential", "a:b"], "--http serves callers by their own tokens"),
        (["--http", "--host", "0.0.0.0"], "--allow-host"),
        (["--http", "--uri", "http://127.0.0.1:1"], "doesn't answer"),
        (["--port", "0"], "--port"),
        (["--max-scan-bytes", "much"], "--max-scan-bytes"),
    ],
)
def test_wrong_options_are_one_clear_line(options: list[str], said: str) -> None:
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_audit_trail_takes_no_more_calls_than_agents_make(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_calls", Quota(10.0, lambda: 1000.0, burst=10.0))
    with httpx.Client(base_url=uri) as http:
        answers = [http.post(routes.CALLS_PATH, json={"tool": "describe"}) for _ in range(120)]
    statuses = [answer.status_code for answer in answers]
    taken = statuses.index(429)
    assert 100 <= taken <= 102
    assert set(statuses[:taken]) == {204}
    assert set(statuses[taken:]) == {429}
    assert answers[-1].headers["Retry-After"] == "1"
