"""What a Postgres database holds where a lake is, or is to be made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from psycopg import Cursor, sql

from duckicelake.errors import StartupError, UnsupportedCatalog
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries

DEFAULT_SCHEMA: Final = "public"
"""The schema of whoever names none."""
_MOST_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class Contents:
    """The tables that the login's search_path reaches, and catalogs that it doesn't reach.

    schema: the schema that takes new tables; None where search_path names none that is there. lake: the schema of the
    DuckLake catalog that search_path reaches; None if it reaches none. elsewhere: the other schemas with a catalog.
    is_closed: whether the login may not use one of those. fragments: tables and functions in `schema` with names of a
    catalog's, where there is no catalog. others: the other tables in `schema`, without those of extensions.
    """

    schema: str | None
    lake: str | None
    elsewhere: Sequence[str]
    is_closed: bool
    fragments: Sequence[str]
    others: Sequence[str]

    @property
    def named(self) -> str:
        """What the database holds, in a few words."""
        if not self.others:
            return "it is empty"
        return f"it holds {_listed(self.others, 'other table')}"

    @property
    def is_chosen(self) -> bool:
        """Whether somebody chose the schema for a lake."""
        return self.schema not in (None, DEFAULT_SCHEMA)


def read_contents(cursor: Cursor[Row]) -> Contents:
    """Look at the database; nothing is locked or changed."""
    (row,) = cursor.execute(queries("format").contents, {"tables": list(TABLES)}).fetchall()
    return Contents(*row)


def check_whole(cursor: Cursor[Row], contents: Contents) -> None:
    """Raise UnsupportedCatalog if the catalog lacks tables of DuckLake's."""
    missing = missing_tables(cursor, contents)
    if missing:
        raise UnsupportedCatalog(
            f"the DuckLake catalog in schema {contents.lake} lacks {_listed(missing, 'table')}: "
            "restore them from a backup"
        )


def missing_tables(cursor: Cursor[Row], contents: Contents) -> list[str]:
    """Return the names of DuckLake's tables that the catalog lacks."""
    rows = cursor.execute(queries("format").tables, {"schema": contents.lake}).fetchall()
    return sorted(set(TABLES) - {name for (name,) in rows})


def check_reached(contents: Contents) -> None:
    """Raise StartupError unless the login reaches a DuckLake catalog."""
    if contents.lake is not None:
        return
    _check_readable(contents)
    _check_elsewhere(contents)
    raise StartupError(
        f"the database has no DuckLake catalog{_in_schema(contents)}; {contents.named}: "
        "make a lake with `duckicelake init` or `duckicelake serve --create`, or correct DUCKICELAKE_DATABASE_URL"
    )


def check_free(contents: Contents) -> None:
    """Raise StartupError if a lake that is made here would hide, or run into, what is there."""
    if contents.schema is None:
        raise StartupError(
            "the search_path of the database's login names no schema that is there: "
            "create the schema, or correct DUCKICELAKE_DATABASE_URL"
        )
    _check_readable(contents)
    if not contents.is_chosen:
        _check_elsewhere(contents)


def _check_readable(contents: Contents) -> None:
    if contents.fragments:
        raise UnsupportedCatalog(
            f"schema {contents.schema} has {_listed(contents.fragments, 'object')} of a DuckLake catalog, "
            "but no whole catalog: restore it from a backup, drop what is left of it, or name another database"
        )


def _check_elsewhere(contents: Contents) -> None:
    if not contents.elsewhere:
        return
    name = contents.elsewhere[0]
    if contents.is_closed:
        raise UnsupportedCatalog(
            f"the DuckLake catalog in schema {name} is closed to the database's login: "
            "let a superuser run what `duckicelake grants` prints for it"
        )
    raise UnsupportedCatalog(
        f"the database has no DuckLake catalog{_in_schema(contents)}, but one in schema {', '.join(contents.elsewhere)}"
        f": to serve that, add options={schema_option(name)} to the query of DUCKICELAKE_DATABASE_URL; "
        "for another lake, make a database, or a schema that you name in this way"
    )


def schema_option(schema: str) -> str:
    """The value of `options` in a Postgres URL that makes a schema the login's own."""
    name = sql.Identifier(schema).as_string(None) if _is_odd(schema) else schema
    escaped = name.replace("\\", "\\\\").replace(" ", "\\ ")  # libpq divides options at spaces
    return quote(f"-csearch_path={escaped}", safe="")


def _is_odd(schema: str) -> bool:
    return not (schema.isascii() and schema.isidentifier() and schema == schema.lower())


def _in_schema(contents: Contents) -> str:
    return f" in schema {contents.schema}" if contents.schema else ""


def _listed(names: Sequence[str], noun: str) -> str:
    """How many there are, and the first of them."""
    more = ", …" if len(names) > _MOST_NAMES else ""
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'} ({', '.join(names[:_MOST_NAMES])}{more})"


def _tables() -> tuple[str, ...]:
    """The names of a DuckLake 1.0 catalog's tables."""
    lines = queries("format").create_tables.splitlines()
    return tuple(line.split()[2] for line in lines if line.startswith("CREATE TABLE "))


TABLES: Final = _tables()
