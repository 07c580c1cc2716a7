"""Databases that take connections of another one's pool: of a lake in a schema, of an open transaction, of a lease."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock

from psycopg import Cursor

from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import WriteGate
from duckicelake.postgres.queries import Row
from duckicelake.postgres.session import build_schema_url, build_search_path


class SchemaDatabase(Database):
    """The database of another lake in a schema of its own: it takes connections of a pool, and sets their schema.

    `close` closes its side connections alone.
    """

    def __init__(self, database: Database, schema: str) -> None:
        vars(self).update(vars(database))
        self.url = build_schema_url(database.url, schema)
        self.gate = WriteGate()
        self._session = self._session.in_schema(schema)
        self.search_path = build_search_path(schema)
        self._precondition = None
        self._side_connections, self._afterwards = [], {}

    def close(self) -> None:
        self.close_side_connections()


class JoinedDatabase(Database):
    """A database whose transactions and reads are parts of one transaction that is open.

    What is to be done after the commit is done after that of the open transaction.
    """

    def __init__(self, database: Database, cursor: Cursor[Row]) -> None:
        vars(self).update(vars(database))
        self._cursor = cursor

    @contextmanager
    def transaction(self, *, pipelined: bool = False) -> Iterator[Cursor[Row]]:  # noqa: ARG002
        """Go on in the open transaction."""
        yield self._cursor

    @contextmanager
    def reading(self) -> Iterator[Cursor[Row]]:
        """Read in the open transaction."""
        yield self._cursor

    @contextmanager
    def statement(self, *, only_reads: bool = False) -> Iterator[Cursor[Row]]:  # noqa: ARG002
        """Run a statement in the open transaction."""
        yield self._cursor


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
