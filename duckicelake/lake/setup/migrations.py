"""Apply the migrations of the side tables once and in order, and repair edited ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from psycopg import Cursor

from duckicelake.errors import UnsupportedCatalogError
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "migrate")

_MIGRATIONS_FOLDER: Final = files("duckicelake.lake").joinpath("migrations")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """The SHA-256 of its text, in hexadecimal."""
        return sha256(self.sql.encode()).hexdigest()


@cache
def load_migrations() -> tuple[Migration, ...]:
    """Load all migrations of this version of duckicelake, in order."""
    found = [entry for entry in _MIGRATIONS_FOLDER.iterdir() if entry.name[:4].isdigit()]
    return tuple(
        Migration(int(entry.name[:4]), entry.name, entry.read_text(encoding="utf-8"))
        for entry in sorted(found, key=lambda entry: entry.name)
    )


@cache
def load_repairs() -> Mapping[int, str]:
    """Load the repairs of migrations that were edited after lakes had them, by number."""
    entries = _MIGRATIONS_FOLDER.joinpath("repairs").iterdir()
    return {int(entry.name[:4]): entry.read_text(encoding="utf-8") for entry in entries if entry.name.endswith(".sql")}


def load_expected_schema() -> list[str]:
    """Load what `read_schema` finds in a lake that has all migrations."""
    return _MIGRATIONS_FOLDER.joinpath("schema.txt").read_text(encoding="utf-8").splitlines()


def read_schema(cursor: Cursor[Row]) -> list[str]:
    """Read one line for each column, index, constraint, trigger, view and function of the side tables."""
    return [fact for (fact,) in cursor.execute(_SQL.schema).fetchall()]


def read_applied_migrations(cursor: Cursor[Row]) -> frozenset[int]:
    """Read the numbers of the catalog's applied migrations; empty where duckicelake has never been."""
    row = cursor.execute(_SQL.exists).fetchone()
    if row is None or not row[0]:
        return frozenset()
    return frozenset(number for (number,) in cursor.execute(_SQL.applied))


def is_up_to_date(cursor: Cursor[Row]) -> bool:
    """Return whether all migrations of this version are applied."""
    return {migration.number for migration in load_migrations()} <= read_applied_migrations(cursor)


def find_edited_migrations(cursor: Cursor[Row]) -> list[str]:
    """Return the names of migrations that were applied in another version than this one knows."""
    if not _has_digests(cursor):
        return []
    applied: dict[int, str] = dict(cursor.execute(_SQL.digests).fetchall())
    return [
        migration.name
        for migration in load_migrations()
        if applied.get(migration.number, migration.digest) != migration.digest
    ]


def apply_migrations(cursor: Cursor[Row]) -> None:
    """Apply what is missing, and repair a lake that has no digests; the caller holds our advisory lock.

    Raises UnsupportedCatalogError if a newer version was here.
    """
    cursor.execute(_SQL.create_table)
    applied = read_applied_migrations(cursor)
    unknown = applied - {migration.number for migration in load_migrations()}
    if unknown:
        raise UnsupportedCatalogError(
            f"a newer duckicelake has migrated the catalog (migration {max(unknown)}); run that version or a later one"
        )
    repairs = {} if _has_digests(cursor) else load_repairs()
    for migration in load_migrations():
        if migration.number not in applied:
            cursor.execute(migration.sql)
            cursor.execute(_SQL.record, {"number": migration.number, "name": migration.name})
        elif migration.number in repairs:  # before later ones, which may need what it makes
            cursor.execute(repairs[migration.number])
    _record_digests(cursor)


def _has_digests(cursor: Cursor[Row]) -> bool:
    return bool(cursor.execute(_SQL.have_digests).fetchall()[0][0])


def _record_digests(cursor: Cursor[Row]) -> None:
    migrations = load_migrations()
    parameters = {
        "numbers": [migration.number for migration in migrations],
        "digests": [migration.digest for migration in migrations],
    }
    cursor.execute(_SQL.record_digests, parameters)
