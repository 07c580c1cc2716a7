"""Damage to a table, met while it is read: told once as what it is, and of which table."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from duckicelake.catalog.services import Services
from duckicelake.errors import AlreadyExists, DamagedTable, FileMissing, InvalidRequest
from duckicelake.lake import native

T = TypeVar("T")
_SIGNS = (DamagedTable, InvalidRequest, FileMissing, AlreadyExists)
"""What else than DamagedTable reading raises has no request to blame: it is damage, too."""


def undamaged(services: Services, table_id: int, read: Callable[[], T]) -> T:
    """What `read` gives, or DamagedTable naming the table.

    It reads again before that, and on while flushes come in between: what a flush or a cleanup took away isn't damage.
    """
    try:
        return read()
    except _SIGNS:
        since = _newest_snapshot(services)
    while True:
        try:
            with naming_damage(services, table_id):
                return read()
        except DamagedTable:
            before, since = since, _newest_snapshot(services)
            if not _was_flushed(services, table_id, before, since):
                raise


def _newest_snapshot(services: Services) -> int:
    with services.database.reading() as cursor:
        return native.newest_snapshot(cursor)


def _was_flushed(services: Services, table_id: int, after: int, upto: int) -> bool:
    with services.database.reading() as cursor:
        return any(change.kinds & native.TAKES_ROWS for change in native.changes(cursor, table_id, after, upto))


@contextmanager
def naming_damage(services: Services, table_id: int) -> Iterator[None]:
    """Turn signs of damage into a DamagedTable that names the table; nothing of a request may be judged inside."""
    try:
        yield
    except _SIGNS as error:
        with services.database.reading() as cursor:
            name = native.full_name(cursor, table_id)
        raise damaged(name, error) from error


def damaged(name: str, error: Exception) -> DamagedTable:
    return DamagedTable(f"Table {name} is damaged: {error}. `duckicelake doctor` says what to do")
