"""`duckicelake mcp`: serve a lake to agents by the Model Context Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake import __version__
from duckicelake.cli.catalog.connection import add_catalog_command
from duckicelake.cli.console.command import DATA

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake

DEFAULT_SCAN_BYTES: Final = 1_000_000_000
app: Final = typer.Typer()


def serve_agents(
    lake: Lake,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP, each request by its own token.")] = False,
    host: Annotated[str, typer.Option(help="Address to serve HTTP on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to serve HTTP on.")] = 8182,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A Host to accept, as lake.example.com; may be repeated.")
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="An Origin to accept, as https://chat.example.com; may be repeated."),
    ] = None,
    read_write: Annotated[
        bool, typer.Option("--read-write", help="Also let agents create tables and branches, and append to branches.")
    ] = False,
    max_scan_bytes: Annotated[
        int, typer.Option(min=0, help="Bytes that a query may read without being confirmed.")
    ] = DEFAULT_SCAN_BYTES,
) -> None:
    """Serve the lake to agents, such as Claude or Cursor, by the Model Context Protocol.

    Agents have the rights of the token or credential, and every call is in the catalog's audit trail.
    """
    from duckicelake.errors import BadInputError, MissingRequirementError
    from duckicelake.rest.login import list_issuers

    try:
        from duckicelake.mcp.protocol import AgentServer
        from duckicelake.mcp.transport import LOOPBACK_HOSTS, HttpAccess, serve_http, serve_stdio
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise MissingRequirementError("agents need the MCP SDK: pip install 'duckicelake[mcp]'") from error
    connection = lake.client.connection
    has_secret = connection.credential is not None or connection.token is not None
    if http and has_secret:
        raise BadInputError(
            "--http serves callers by their own tokens: leave --credential, --token and the profile's secret out"
        )
    if http and host not in LOOPBACK_HOSTS and not allow_host:
        raise BadInputError(f"--host {host} is not this machine's own: name what clients call it by, with --allow-host")
    agents = AgentServer(connection, __version__, scan_bytes=max_scan_bytes, has_changes=read_write)
    if not http:
        serve_stdio(agents)
        return
    access = HttpAccess(allow_host or (), allow_origin or (), _requires_login(lake), list_issuers(connection.uri))
    typer.echo(f"Serving agents at http://{host}:{port}/mcp, for {connection.uri}", err=True)
    serve_http(agents, access, host, port)


def _requires_login(lake: Lake) -> bool:
    """Return whether the catalog refuses requests without a token. Raises CatalogUnreachableError."""
    from duckicelake.errors import BadCredentialsError

    try:
        lake.client.config()
    except BadCredentialsError:
        return True
    return False


EXAMPLES: Final = (
    "duckicelake mcp --uri https://lake.example.com --profile work",
    "duckicelake mcp --read-write",
    "duckicelake mcp --http --port 8182 --uri http://localhost:8181",
)
add_catalog_command(app, serve_agents, *EXAMPLES, name="mcp", panel=DATA)
