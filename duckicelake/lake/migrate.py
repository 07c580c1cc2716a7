"""Our side tables, triggers and indexes: `migrations/NNNN_name.sql`, each applied once and in order."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from psycopg import Cursor

from duckicelake.errors import UnsupportedCatalog
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


@cache
def known_migrations() -> tuple[Migration, ...]:
    """All migrations of this version of duckicelake, in order."""
    found = [entry for entry in files("duckicelake.lake").joinpath("migrations").iterdir() if entry.name[:4].isdigit()]
    return tuple(
        Migration(int(entry.name[:4]), entry.name, entry.read_text(encoding="utf-8"))
        for entry in sorted(found, key=lambda entry: entry.name)
    )


def applied_migrations(cursor: Cursor[Row]) -> frozenset[int]:
    """Numbers of the migrations that the catalog has seen; empty where duckicelake has never been."""
    row = cursor.execute(queries("migrate").exists).fetchone()
    if row is None or not row[0]:
        return frozenset()
    return frozenset(number for (number,) in cursor.execute(queries("migrate").applied))


def is_up_to_date(cursor: Cursor[Row]) -> bool:
    """Whether the catalog has seen all migrations of this version."""
    return {migration.number for migration in known_migrations()} <= applied_migrations(cursor)


def migrate(cursor: Cursor[Row]) -> None:
    """Apply what is missing; the caller holds our advisory lock. UnsupportedCatalog if a newer version was here."""
    cursor.execute(queries("migrate").create_table)
    applied = applied_migrations(cursor)
    unknown = applied - {migration.number for migration in known_migrations()}
    if unknown:
        raise UnsupportedCatalog(
            f"a newer duckicelake has migrated the catalog (migration {max(unknown)}); run that version or a later one"
        )
    for migration in known_migrations():
        if migration.number not in applied:
            cursor.execute(migration.sql)
            cursor.execute(queries("migrate").record, {"number": migration.number, "name": migration.name})
