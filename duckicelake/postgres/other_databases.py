"""Databases beside that of the server, whose URLs are given while it runs: what a URL may say, and shared pools.

Whoever gives a URL must not reach the server's own network or use its own credentials. So a URL names hosts of TCP,
whose addresses are checked, and a login with its password. Files, sockets and services of libpq stay out of reach.
"""

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Final
from urllib.parse import quote, urlencode

from psycopg.conninfo import make_conninfo

from duckicelake.errors import InvalidRequestError, UnavailableError
from duckicelake.postgres.database import Database, SchemaDatabase
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


class LeasedDatabase(SchemaDatabase):
    """The database of a lake beside the server's own database; `close` gives its pool back."""

    def __init__(
        self, database: Database, schema: str, release: Callable[[], None], is_lost: Callable[[], bool]
    ) -> None:
        """Take connections of a shared pool. is_lost: whether the pool can't be used any more."""
        super().__init__(database, schema)
        self._release: Callable[[], None] | None = release
        self._is_lost = is_lost

    @property
    def is_lost(self) -> bool:
        """Whether Postgres went away or failed over since the lease, so that only a new lease can help."""
        return self._is_lost()

    def close(self) -> None:
        super().close()
        release, self._release = self._release, None
        if release is not None:
            release()


class _Pool:
    """The pool of a database, with how many lakes use it."""

    def __init__(self, build: Callable[[Callable[[], None]], Database]) -> None:
        self.leases = 0
        self.is_lost = False
        self.database = build(self._lose)

    def _lose(self) -> None:
        self.is_lost = True


class SharedPools:
    """Pools of other databases: one for all lakes of a database, while one of them is open."""

    def __init__(self, build: Callable[[str, Callable[[], None]], Database]) -> None:
        """Keep how a pool is made. build: gets a URL, and what to call once the pool is lost."""
        self._build = build
        self._pools: dict[str, _Pool] = {}
        self._lock = Lock()

    def lease(self, url: str, schema: str) -> LeasedDatabase:
        """Open the database of a lake. Raises UnavailableError if Postgres doesn't answer or refuses the login."""
        pool = self._take(url)
        try:
            if pool.leases == 1:
                pool.database.check()
            return LeasedDatabase(pool.database, schema, lambda: self._give_back(url, pool), lambda: pool.is_lost)
        except BaseException:
            self._give_back(url, pool)
            raise

    def cut_off(self) -> None:
        """Make every wait for these databases fail at once, for a process that must end."""
        with self._lock:
            pools = list(self._pools.values())
        for pool in pools:
            pool.database.cut_off()

    def count(self) -> int:
        """Return how many pools there are."""
        return len(self._pools)

    def _take(self, url: str) -> _Pool:
        with self._lock:
            pool = self._pools.get(url)
            if pool is None or pool.is_lost:
                pool = self._pools[url] = _Pool(partial(self._build, url))
            pool.leases += 1
            return pool

    def _give_back(self, url: str, pool: _Pool) -> None:
        with self._lock:
            pool.leases -= 1
            is_last = pool.leases == 0
            if is_last and self._pools.get(url) is pool:
                del self._pools[url]
        if is_last:
            pool.database.close()
