"""Serve agents over standard input and output, or over streamable HTTP with the callers' own tokens."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

import anyio
import uvicorn
from anyio.to_thread import run_sync
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.errors import BadCredentialsError, PipelineError
from duckicelake.mcp.protocol import TOKEN_KEY, AgentServer

MCP_PATH: Final = "/mcp"
METADATA_PATH: Final = f"/.well-known/oauth-protected-resource{MCP_PATH}"
MAX_BODY_BYTES: Final = 2 << 20
MAX_SESSIONS: Final = 100
IDLE_SECONDS: Final = 900.0
_MAX_CONNECTIONS: Final = 200
_SHUTDOWN_SECONDS: Final = 5
_SESSION_HEADER: Final = "mcp-session-id"
_STRANGER: Final = "mcp-gate"
"""The name under which the gate asks the catalog whether a token is valid."""
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_log = logging.getLogger("duckicelake.mcp")


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """Which HTTP requests are served.

    Attributes:
        hosts: values of `Host` besides those of this machine, as `lake.example.com`.
        origins: values of `Origin`, which browsers send, as `https://chat.example.com`.
        has_login: the catalog requires a token, which each request must bring.
        issuers: whose tokens the catalog accepts, besides its own.

    """

    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    has_login: bool = False
    issuers: Sequence[str] = ()

    @property
    def security(self) -> TransportSecuritySettings:
        """What a request's Host and Origin may be. Without an Origin it is no browser's."""
        own = [f"{name}{port}" for name in _LOOPBACK for port in ("", ":*")]
        return TransportSecuritySettings(allowed_hosts=[*own, *self.hosts], allowed_origins=list(self.origins))


class BearerGate:
    """Let requests with a right Host, Origin and token through; the session is the token's own."""

    def __init__(self, app: ASGIApp, agents: AgentServer, access: HttpAccess) -> None:
        self._app = app
        self._agents = agents
        self._has_login = access.has_login
        self._issuers = tuple(access.issuers)
        self._security = TransportSecurityMiddleware(access.security)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        refusal = await self._refuse(request)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await refusal(scope, receive, send)

    async def _refuse(self, request: Request) -> Response | None:
        """Return the refusal of a request; None lets it through, with its token in the scope."""
        refusal = await self._security.validate_request(request)
        if refusal is not None:
            return refusal
        if request.url.path == METADATA_PATH and self._issuers:
            return JSONResponse(self._describe_resource(request))
        if request.url.path != MCP_PATH:
            return _build_refusal(404, f"Agents are served at {MCP_PATH}")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.strip():
            return await self._admit(request, token.strip())
        if self._has_login:
            return self._challenge(request, "This server needs the catalog's token: Authorization: Bearer <token>")
        return None

    def _describe_resource(self, request: Request) -> dict[str, object]:
        """Name the issuers at which clients log in (RFC 9728)."""
        return {
            "resource": _find_base(request) + MCP_PATH,
            "resource_name": "duckicelake",
            "authorization_servers": self._issuers,
            "bearer_methods_supported": ["header"],
        }

    def _challenge(self, request: Request, message: str) -> Response:
        """Refuse a request without a valid token; where there are issuers, say where they are named."""
        challenge = 'Bearer realm="duckicelake"'
        if self._issuers:
            challenge += f', resource_metadata="{_find_base(request)}{METADATA_PATH}"'
        return _build_refusal(401, message, {"WWW-Authenticate": challenge})

    async def _admit(self, request: Request, token: str) -> Response | None:
        """Bind the request to its token, which the catalog checks before a session begins."""
        request.scope[TOKEN_KEY] = token
        owner = sha256(token.encode()).hexdigest()
        request.scope["user"] = AuthenticatedUser(AccessToken(token=token, client_id=owner, scopes=[]))
        if _SESSION_HEADER in request.headers:
            return None
        try:
            await run_sync(partial(_check_token, self._agents, token))
        except BadCredentialsError:
            return self._challenge(request, "The catalog doesn't accept this token")
        except PipelineError as error:
            _log.warning("the catalog can't be asked about a token: %s", error)
            return _build_refusal(503, "The catalog can't be asked about the token now")
        return None


def _check_token(agents: AgentServer, token: str) -> None:
    agents.find_lake(token, _STRANGER).client.config()


def _find_base(request: Request) -> str:
    return str(request.base_url).rstrip("/")


def _build_refusal(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": message}}
    return JSONResponse(error, status, headers)


def build_app(agents: AgentServer, access: HttpAccess) -> ASGIApp:
    """Build the app that serves agents; its lifespan is that of the sessions."""
    manager = StreamableHTTPSessionManager(
        agents.server,
        json_response=True,
        session_idle_timeout=IDLE_SECONDS,
        max_request_body_size=MAX_BODY_BYTES,
        max_sessions=MAX_SESSIONS,
    )
    gate = BearerGate(manager.handle_request, agents, access)
    return Starlette(routes=[Mount("/", app=gate)], lifespan=lambda _: manager.run())


def serve_http(agents: AgentServer, access: HttpAccess, host: str, port: int) -> None:
    """Serve agents over HTTP until a signal comes."""
    uvicorn.run(
        build_app(agents, access),
        host=host,
        port=port,
        log_level="warning",
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        server_header=False,
    )


def serve_stdio(agents: AgentServer) -> None:
    """Serve one agent over standard input and output, until the input ends."""

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await agents.server.run(read, write, agents.server.create_initialization_options())

    anyio.run(serve)
