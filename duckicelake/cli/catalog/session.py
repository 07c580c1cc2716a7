"""`duckicelake whoami`, `status`, `open`: the server at the other end, and who one is for it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import typer

from duckicelake.cli.console.command import JsonOption
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from duckicelake.client.lake import Lake

WHOAMI_EXAMPLES: Final = ("duckicelake whoami", "duckicelake whoami --profile work --json")
STATUS_EXAMPLES: Final = ("duckicelake status", "duckicelake status --uri https://lake.example.com --json")
OPEN_EXAMPLES: Final = ("duckicelake open", "duckicelake open --profile work")
_PINGS: Final = 5


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What a server says of itself.

    Attributes:
        latency_ms: the fastest of a few requests.
        readiness: ready, or what the server waits for.
        login: ok, refused, or not required; principal: None unless it is ok.
        warehouse: None for the first.

    """

    uri: str
    latency_ms: float
    readiness: str
    login: Literal["ok", "refused", "not required"]
    principal: str | None
    warehouse: str | None

    @property
    def is_well(self) -> bool:
        return self.readiness == "ready" and self.login != "refused"


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
        )
        for name, value in facts:
            typer.echo(f"{name:9}  {value}")
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
    principal = None
    try:
        caller = lake.whoami()
        if caller.is_authenticated:
            login, principal = "ok", caller.principal
    except BadCredentialsError:
        login = "refused"
    except CatalogUnreachableError as error:
        readiness = readiness or str(error)
    return ServerStatus(
        connection.uri.rstrip("/"), latency_ms, readiness or "ready", login, principal, connection.warehouse
    )


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
