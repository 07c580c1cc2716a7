"""Agents: the SDK's own client, over stdio to `duckicelake mcp`, and over HTTP."""

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import duckdb
import httpx
import pytest
import uvicorn
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from duckicelake.catalog.context.services import Services
from duckicelake.lake.side_tables.audit import AuditEntry, AuditFilter, read_entries
from duckicelake.mcp.protocol import AgentServer
from duckicelake.mcp.transport import MCP_PATH, HttpAccess, build_app
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from duckicelake.rest.connection import Connection
from duckicelake.server.app import create_app
from tests.support.servers import PromptServer, Serve, in_a_thread

QUERIES = QueryLimits(processes=2, memory_bytes=128 * 1024**2, disk_bytes=0, seconds=60.0, rows=1_000_000)
COMMAND = (sys.executable, "-m", "duckicelake.cli.main", "mcp")


@pytest.fixture(autouse=True)
def limits(services: Services) -> Iterator[None]:
    service._limits[services.database] = QUERIES
    yield
    del service._limits[services.database]
    service.end_processes()


@pytest.fixture
def lake(ducklake: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    ducklake.execute("CREATE SCHEMA zoo")
    ducklake.execute(
        "CREATE TABLE zoo.birds AS SELECT i AS id, 'bird' || i AS name, i::DECIMAL(9, 2) AS mass, "
        "DATE '2026-01-01' + (i % 4)::INTEGER AS day FROM range(4000) r(i)"
    )
    ducklake.execute("COMMENT ON TABLE zoo.birds IS 'All birds.'")
    ducklake.execute("COMMENT ON COLUMN zoo.birds.mass IS 'Weight in grams.'")
    return ducklake


@pytest.fixture
def uri(services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection) -> str:
    return str(serve(create_app(services)).base_url).rstrip("/")


def name_agent(name: str) -> types.Implementation:
    return types.Implementation(name=name, version="1.0")


@asynccontextmanager
async def talk(uri: str, *options: str, agent: str = "test-agent") -> AsyncIterator[ClientSession]:
    """A session over stdio with `duckicelake mcp`."""
    command, *arguments = COMMAND
    server = StdioServerParameters(command=command, args=[*arguments, "--uri", uri, *options])
    async with stdio_client(server) as (read, write), ClientSession(read, write, client_info=name_agent(agent)) as one:
        await one.initialize()
        yield one


@asynccontextmanager
async def talk_http(
    url: str, token: str | None = None, agent: str = "test-agent", auth: httpx.Auth | None = None
) -> AsyncIterator[ClientSession]:
    """A session over streamable HTTP. auth: logs in when it is challenged."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=60, auth=auth) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write, client_info=name_agent(agent)) as session,
    ):
        await session.initialize()
        yield session


@contextmanager
def serving_agents(
    uri: str, *, has_login: bool = False, has_changes: bool = False, issuers: Sequence[str] = ()
) -> Iterator[str]:
    """Serve agents over HTTP, in a thread; the URL."""
    agents = AgentServer(Connection(uri), "0", scan_bytes=10**9, has_changes=has_changes)
    app = build_app(agents, HttpAccess(has_login=has_login, issuers=issuers))
    with in_a_thread(PromptServer(uvicorn.Config(app, log_level="error"))) as (host, port):
        yield f"http://{host}:{port}{MCP_PATH}"


@pytest.fixture
def trail(services: Services) -> Callable[[], list[AuditEntry]]:
    """The calls of agents in the audit trail."""

    def read() -> list[AuditEntry]:
        with services.database.reading() as cursor:
            return [one for one in read_entries(cursor, AuditFilter(), 1000) if one.operation.startswith("mcp:")]

    return read
