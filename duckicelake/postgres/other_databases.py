"""Databases beside that of the server, whose URLs are given while it runs: what a URL may say.

Whoever gives a URL must not reach the server's own network or use its own credentials. So a URL names hosts of TCP,
whose addresses are checked, and a login with its password. Files, sockets and services of libpq stay out of reach.
"""

from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlencode

from psycopg.conninfo import make_conninfo

from duckicelake.errors import InvalidRequestError, UnavailableError
from duckicelake.postgres.embedded import parse_url

_REQUIRED: Final = ("host", "dbname", "user")
_KEYWORDS: Final = frozenset({*_REQUIRED, "port", "password", "sslmode", "sslrootcert", "channel_binding"})
_DEFAULT_PORT: Final = "5432"
_MAX_URL_CHARS: Final = 2048
_EXPECTED: Final = "expected postgresql://user:password@host:5432/database"
ResolveHost = Callable[[str, int], list[str]]
"""Returns the addresses of a host that may be connected to; raises RefusedAddressError, OSError."""


def parse_database_url(url: str) -> dict[str, str]:
    """Parse the URL of another database. Raises InvalidRequestError, which shows no password."""
    if len(url) > _MAX_URL_CHARS or not url.startswith(("postgresql://", "postgres://")):
        raise InvalidRequestError(f"Invalid database-url: {_EXPECTED}")
    try:
        given = {name: str(value) for name, value in parse_url(url).items() if value not in (None, "")}
    except Exception as error:
        raise InvalidRequestError(f"Invalid database-url: {_EXPECTED}") from error
    unknown = sorted(given.keys() - _KEYWORDS)
    if unknown:
        raise InvalidRequestError(f"Invalid database-url: {unknown[0]} can't be set; {_EXPECTED}")
    missing = [name for name in _REQUIRED if not given.get(name)]
    if missing:
        raise InvalidRequestError(f"Invalid database-url: it has no {missing[0]}; {_EXPECTED}")
    if given.get("sslrootcert", "system") != "system":
        raise InvalidRequestError("Invalid database-url: sslrootcert can be system only, not a file of the server")
    if any(host.startswith(("/", "@")) for host in given["host"].split(",")):
        raise InvalidRequestError("Invalid database-url: a socket of the server's machine is no host")
    _list_places(given)
    return given


def strip_password(url: str) -> str:
    """Return a URL of another database in one spelling, without its password. Raises InvalidRequestError."""
    return format_database_url({name: value for name, value in parse_database_url(url).items() if name != "password"})


def format_database_url(given: dict[str, str]) -> str:
    """Format libpq's keywords as a URL."""
    login = ":".join(quote(given[name], safe="") for name in ("user", "password") if name in given)
    hosts = ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in _list_places(given))
    rest = {name: given[name] for name in sorted(given.keys() - {*_REQUIRED, "password", "port"})}
    query = f"?{urlencode(rest)}" if rest else ""
    return f"postgresql://{login}@{hosts}/{quote(given['dbname'], safe='')}{query}"


def pin_addresses(url: str, resolve: ResolveHost) -> str:
    """Return the URL with the addresses of its hosts, so that nothing resolves them again, by other rules.

    Raises RefusedAddressError for an address that may not be connected to, UnavailableError for a host without one.
    """
    given = parse_database_url(url)
    hosts, addresses, ports = [], [], []
    for host, port in _list_places(given):
        try:
            found = resolve(host, port)
        except OSError as error:
            raise UnavailableError(f"The database's host {host} has no address: {error}") from error
        hosts += [host] * len(found)
        addresses += found
        ports += [str(port)] * len(found)
    return make_conninfo(**{**given, "host": ",".join(hosts), "hostaddr": ",".join(addresses), "port": ",".join(ports)})


def _list_places(given: dict[str, str]) -> list[tuple[str, int]]:
    """List the hosts and ports of a URL, of which there may be several. Raises InvalidRequestError."""
    hosts = given["host"].split(",")
    ports = [port or _DEFAULT_PORT for port in given.get("port", "").split(",")]
    ports = ports * len(hosts) if len(ports) == 1 else ports
    if len(ports) != len(hosts) or not all(port.isdigit() and 0 < int(port) < 65536 for port in ports) or "" in hosts:
        raise InvalidRequestError(f"Invalid database-url: its hosts and ports can't be; {_EXPECTED}")
    return [(host, int(port)) for host, port in zip(hosts, ports, strict=True)]
