"""`duckicelake login`, `logout`, `whoami`, `status`, `open`: the server at the other end, and who one is for it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from duckicelake import __version__
from duckicelake.cli.console.command import JsonOption
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake

LOGIN_EXAMPLES: Final = (
    "duckicelake login --profile work",
    "duckicelake login --uri https://lake.example.com --issuer https://login.example.com --client-id duckicelake",
)
LOGOUT_EXAMPLES: Final = ("duckicelake logout", "duckicelake logout --profile work")
WHOAMI_EXAMPLES: Final = ("duckicelake whoami", "duckicelake whoami --profile work --json")
STATUS_EXAMPLES: Final = ("duckicelake status", "duckicelake status --uri https://lake.example.com --json")
OPEN_EXAMPLES: Final = ("duckicelake open", "duckicelake open --profile work")
_PINGS: Final = 5
_SERIES: Final = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What a server says of itself.

    Attributes:
        latency_ms: the fastest of a few requests.
        readiness: ready, or what the server waits for.
        login: ok, refused, or not required; principal: None unless it is ok.
        warehouse: None for the first.
        server_version: None where the login is refused, or the server doesn't say so.
        versions_fit: None where a version isn't known.

    """

    uri: str
    latency_ms: float
    readiness: str
    login: Literal["ok", "refused", "not required"]
    principal: str | None
    warehouse: str | None
    server_version: str | None
    client_version: str
    versions_fit: bool | None

    @property
    def is_well(self) -> bool:
        return self.readiness == "ready" and self.login != "refused"


def login(
    lake: Lake,
    issuer: Annotated[
        str | None,
        typer.Option(
            help="URL of the OpenID Connect issuer (default: the profile's oidc-issuer, else what the server names)."
        ),
    ] = None,
    client_id: Annotated[
        str | None, typer.Option(help="The issuer's name of this client (default: the profile's oidc-client-id).")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the issuer's page.")] = True,
) -> None:
    """Log in as a person with the issuer that the server trusts: confirm a code in the browser.

    The tokens are kept in the keyring or in a file that you alone may read, and renewed until `duckicelake logout`.
    Commands use them for this URI where no credential and no token is given.
    """
    import webbrowser

    from duckicelake.errors import BadInputError
    from duckicelake.rest.login import DEFAULT_SCOPE, LoginKeeper, await_login, begin_login, find_issuer

    connection = lake.client.connection
    url = issuer or connection.oidc_issuer or find_issuer(connection.uri)
    client = client_id or connection.oidc_client_id
    if url is None:
        raise BadInputError(
            f"{connection.uri} names no issuer to log in with: give --issuer and --client-id, or a profile with "
            "oidc-issuer and oidc-client-id; a client of the server logs in by --credential"
        )
    if client is None:
        raise BadInputError(
            f"Nothing says what {url} calls this client: give --client-id, or a profile with oidc-client-id"
        )
    waiting = begin_login(url, client, connection.oidc_scope or DEFAULT_SCOPE)
    typer.echo(f"Open {waiting.complete_url or waiting.url} and confirm the code {waiting.user_code}", err=True)
    if browser:
        webbrowser.open(waiting.complete_url or waiting.url)
    place = LoginKeeper(connection.uri).keep(await_login(waiting))
    typer.echo(f"logged in to {connection.uri.rstrip('/')}; the tokens are in {place}")


def logout(lake: Lake) -> None:
    """Forget the tokens that `duckicelake login` kept for this URI."""
    from duckicelake.rest.login import LoginKeeper

    uri = lake.client.connection.uri.rstrip("/")
    was_logged_in = LoginKeeper(uri).forget()
    typer.echo(f"logged out of {uri}" if was_logged_in else f"there was no login to {uri}")


def whoami(lake: Lake, as_json: JsonOption = False) -> None:
    """Print who you are for the server: principal, groups, roles, scopes, and what you may do in the warehouse."""
    found = lake.whoami()
    if as_json:
        print_json(found)
        return
    facts = (
        ("principal", found.principal),
        ("login", "yes" if found.is_authenticated else "the server requires none"),
        ("administrator", "yes" if found.is_admin else "no"),
        ("groups", ", ".join(found.groups)),
        ("roles", ", ".join(found.roles)),
        ("scopes", " ".join(found.scopes)),
        ("grants", "on" if found.are_grants_on else "off: scopes alone decide"),
        ("may, in all of the warehouse", ", ".join(found.actions)),
    )
    for name, value in facts:
        if value:
            typer.echo(f"{name}: {value}")


def status(lake: Lake, as_json: JsonOption = False) -> None:
    """Say whether the server answers, how fast, whether it is ready, and whether the login is accepted.

    It exits with 1 if the server isn't ready, with 4 if it doesn't answer, with 5 if the login is refused.
    """
    found = _examine(lake)
    if as_json:
        print_json(found)
    else:
        who = f", as {found.principal}" if found.principal else ""
        facts = (
            ("server", f"{found.uri}, answers in {found.latency_ms:.1f} ms"),
            ("readiness", found.readiness),
            ("login", f"{found.login}{who}"),
            ("warehouse", found.warehouse or "the first"),
            ("versions", f"server {found.server_version or 'unknown'}, client {found.client_version}"),
        )
        for name, value in facts:
            typer.echo(f"{name:9}  {value}")
        if found.versions_fit is False:
            typer.echo(f"the versions don't fit: pip install 'duckicelake=={found.server_version}' here", err=True)
    if found.login == "refused":
        raise typer.Exit(5)
    if not found.is_well:
        raise typer.Exit(1)


def _examine(lake: Lake) -> ServerStatus:
    from duckicelake.errors import BadCredentialsError, CatalogUnreachableError

    connection = lake.client.connection
    lake.client.ping("/healthz")
    latency_ms = min(_measure(lake) for _ in range(_PINGS))
    readiness = lake.client.ping("/readyz")
    login: Literal["ok", "refused", "not required"] = "not required"
    principal, server_version = None, None
    try:
        caller = lake.whoami()
        server_version = caller.server_version
        if caller.is_authenticated:
            login, principal = "ok", caller.principal
    except BadCredentialsError:
        login = "refused"
    except CatalogUnreachableError as error:
        readiness = readiness or str(error)
    client_version = __version__
    return ServerStatus(
        connection.uri.rstrip("/"),
        latency_ms,
        readiness or "ready",
        login,
        principal,
        connection.warehouse,
        server_version,
        client_version,
        compare_versions(server_version, client_version),
    )


def compare_versions(server: str | None, client: str) -> bool | None:
    """Return whether two versions have the same first two numbers; None if one isn't known."""
    series = [_SERIES.match(version or "") for version in (server, client)]
    known = {found.group() for found in series if found is not None}
    return None if None in series else len(known) == 1


def _measure(lake: Lake) -> float:
    begun = time.perf_counter()
    lake.client.ping("/healthz")
    return (time.perf_counter() - begun) * 1000


def open_page(lake: Lake) -> None:
    """Open the server's page in the browser; print its address where there is no browser."""
    import webbrowser

    url = f"{lake.client.connection.uri.rstrip('/')}/"
    lake.client.ping("/healthz")
    if not webbrowser.open(url):
        typer.echo(url)
