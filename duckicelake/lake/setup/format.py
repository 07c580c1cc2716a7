"""Inspect a Postgres database, and create or adopt a DuckLake 1.0 catalog in it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import psycopg
from psycopg import Cursor, sql
from psycopg.errors import InsufficientPrivilege, LockNotAvailable

from duckicelake.errors import StartupError, UnavailableError, UnsupportedCatalogError
from duckicelake.lake.ducklake.database import open_lake_session
from duckicelake.lake.ducklake.snapshots import lock_writers, retry_transaction
from duckicelake.lake.formats import (
    KNOWN_FORMATS,
    SERVED_FORMAT_VERSIONS,
    get_format,
)
from duckicelake.lake.setup.migrations import apply_migrations, load_migrations
from duckicelake.postgres.database import Database
from duckicelake.postgres.failures import is_retryable
from duckicelake.postgres.queries import Row, load_queries
from duckicelake.postgres.session import disable_timeout

_SQL = load_queries("lake", "format")
_MIGRATE_SQL = load_queries("lake", "migrate")

DEFAULT_SCHEMA_NAME: Final = "public"
"""The schema of whoever names none."""
_MAX_NAMES_SHOWN: Final = 5
_MIGRATION_WAIT_SECONDS: Final = 120
_MIGRATION_PAUSE_SECONDS: Final = 2.0
"""Four times what `limit_waits` allows: readers wait for a fifth of the time."""
_IMPORT_TABLE: Final = "duckicelake_import"
"""Says how far `duckicelake import-lake` has come; exists until it is complete."""
_OLDER_FORMAT_VERSIONS = frozenset({"0.1", "0.2", "0.3", "0.3-dev1", "0.4", "0.4-dev1"})
"""Versions that DuckDB 1.5 migrates to 1.0."""


@dataclass(frozen=True, slots=True)
class DatabaseContents:
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
        return f"it holds {_format_names(self.others, 'other table')}"

    @property
    def is_chosen(self) -> bool:
        """Whether the schema was chosen for a lake."""
        return self.schema not in (None, DEFAULT_SCHEMA_NAME)


def read_contents(cursor: Cursor[Row]) -> DatabaseContents:
    """Look at the database; nothing is locked or changed."""
    later = {table for known in KNOWN_FORMATS.values() for table in known.extra_tables}
    (row,) = cursor.execute(_SQL.contents, {"tables": [*DUCKLAKE_TABLES, *later]}).fetchall()
    return DatabaseContents(*row)


def check_complete(cursor: Cursor[Row], contents: DatabaseContents) -> None:
    """Raise UnsupportedCatalogError if the catalog lacks tables of DuckLake's."""
    missing = find_missing_tables(cursor, contents)
    if missing:
        raise UnsupportedCatalogError(
            f"the DuckLake catalog in schema {contents.lake} lacks {_format_names(missing, 'table')}: "
            "restore them from a backup"
        )


def check_migrated(cursor: Cursor[Row], contents: DatabaseContents, options: dict[str, str]) -> None:
    """Raise UnsupportedCatalogError if the catalog lacks columns of its format: a migration was left halfway."""
    lake = get_format(options.get("version", ""))
    tables = sorted({table for table, _ in lake.own_columns})
    found = cursor.execute(_SQL.format_columns, {"schema": contents.lake, "tables": tables}).fetchall()
    missing = sorted(lake.own_columns - set(found))
    if missing:
        raise UnsupportedCatalogError(
            f"the DuckLake catalog in schema {contents.lake} has format {lake.version}, but lacks "
            f"{'.'.join(missing[0])}: a migration was left halfway; restore the catalog from a backup"
        )


def find_missing_tables(cursor: Cursor[Row], contents: DatabaseContents) -> list[str]:
    """Return the names of DuckLake's tables that the catalog lacks."""
    rows = cursor.execute(_SQL.tables, {"schema": contents.lake}).fetchall()
    return sorted(set(DUCKLAKE_TABLES) - {name for (name,) in rows})


def check_reachable(contents: DatabaseContents) -> None:
    """Raise StartupError unless the login reaches a DuckLake catalog."""
    if contents.lake is not None:
        return
    _check_readable(contents)
    _check_elsewhere(contents)
    raise StartupError(
        f"the database has no DuckLake catalog{_format_schema(contents)}; {contents.named}: "
        "make a lake with `duckicelake init` or `duckicelake serve --create`, or correct DUCKICELAKE_DATABASE_URL"
    )


def check_vacant(contents: DatabaseContents) -> None:
    """Raise StartupError if a lake that is made here would hide, or run into, what is there."""
    if contents.schema is None:
        raise StartupError(
            "the search_path of the database's login names no schema that is there: "
            "create the schema, or correct DUCKICELAKE_DATABASE_URL"
        )
    _check_readable(contents)
    if not contents.is_chosen:
        _check_elsewhere(contents)


def _check_readable(contents: DatabaseContents) -> None:
    if _IMPORT_TABLE in contents.fragments:
        raise UnsupportedCatalogError(
            f"an import into schema {contents.schema} isn't complete: run `duckicelake import-lake` again with its file"
        )
    if contents.fragments:
        raise UnsupportedCatalogError(
            f"schema {contents.schema} has {_format_names(contents.fragments, 'object')} of a DuckLake catalog, "
            "but no whole catalog: restore it from a backup, drop what is left of it, or name another database"
        )


def _check_elsewhere(contents: DatabaseContents) -> None:
    if not contents.elsewhere:
        return
    name = contents.elsewhere[0]
    if contents.is_closed:
        raise UnsupportedCatalogError(
            f"the DuckLake catalog in schema {name} is closed to the database's login: "
            "let a superuser run what `duckicelake grants` prints for it"
        )
    raise UnsupportedCatalogError(
        f"the database has no DuckLake catalog{_format_schema(contents)}, "
        f"but one in schema {', '.join(contents.elsewhere)}: to serve that, "
        f"add options={build_schema_option(name)} to the query of DUCKICELAKE_DATABASE_URL; "
        "for another lake, make a database, or a schema that you name in this way"
    )


def build_schema_option(schema: str) -> str:
    """Return the value of `options` in a Postgres URL that makes a schema the login's own."""
    name = sql.Identifier(schema).as_string(None) if _is_hidden_schema(schema) else schema
    escaped = name.replace("\\", "\\\\").replace(" ", "\\ ")  # libpq divides options at spaces
    return quote(f"-csearch_path={escaped}", safe="")


def _is_hidden_schema(schema: str) -> bool:
    return not (schema.isascii() and schema.isidentifier() and schema == schema.lower())


def _format_schema(contents: DatabaseContents) -> str:
    return f" in schema {contents.schema}" if contents.schema else ""


def _format_names(names: Sequence[str], noun: str) -> str:
    """Return how many names there are, and the first of them."""
    more = ", …" if len(names) > _MAX_NAMES_SHOWN else ""
    return f"{len(names)} {noun}{'' if len(names) == 1 else 's'} ({', '.join(names[:_MAX_NAMES_SHOWN])}{more})"


def _read_table_names() -> tuple[str, ...]:
    """Return the names of a DuckLake 1.0 catalog's tables."""
    lines = _SQL.create_tables.splitlines()
    return tuple(line.split()[2] for line in lines if line.startswith("CREATE TABLE "))


DUCKLAKE_TABLES: Final = _read_table_names()


def list_tables_of(cursor: Cursor[Row], table_id: int) -> list[tuple[str, str, Sequence[str]]]:
    """List DuckLake's own tables and the inlined deletes of one table: their schema, names and columns."""
    found = cursor.execute(_SQL.tables_of, {"table_id": table_id}).fetchall()
    return [(schema, name, columns) for schema, name, columns in found]


def prepare_catalog(database: Database, data_path: str, *, creates: bool = True) -> str:
    """Adopt the catalog and migrate it, or create it; return its DATA_PATH, which ends in "/".

    `data_path` is where DuckDB will keep the files of a new lake; an adopted one keeps its own. Any number of workers
    may call this at once. Raises UnsupportedCatalogError for a catalog that this server can't serve, StartupError if
    there is none and `creates` is False. From now on each transaction of `database` begins as `require_known` says.
    """
    try:
        path = _prepare_between_readers(database, data_path, creates=creates)
    except UnavailableError as error:
        denial = error.__cause__
        if not isinstance(denial, InsufficientPrivilege):
            raise
        raise UnsupportedCatalogError(
            f"the server's login lacks rights in Postgres ({denial.diag.message_primary}): "
            "let a superuser run what `duckicelake grants` prints for it"
        ) from error
    require_known(database)
    return path


def build_session_settings() -> dict[str, str]:
    """Return Postgres settings by which `duckicelake_require_known` sees what a session's server knows."""
    return {
        "duckicelake.formats": ",".join(SERVED_FORMAT_VERSIONS),
        "duckicelake.last_migration": str(load_migrations()[-1].number),
    }


def require_known(database: Database) -> None:
    """Begin each transaction with a check of the lake's format and migrations, which raises UnknownFormatError.

    The lake has all migrations of this version, and `database` has `session_settings`.
    """
    database.require(_SQL.require_known)


def read_options(cursor: Cursor[Row]) -> dict[str, str] | None:
    """Read catalog-wide options (version, encrypted, data_path, …); None where there is no DuckLake catalog."""
    row = cursor.execute(_SQL.exists).fetchone()
    if row is None or not row[0]:
        return None
    return dict(cursor.execute(_SQL.options).fetchall())


@dataclass(frozen=True, slots=True)
class StoredLake:
    """A lake as Postgres has it.

    Attributes:
        schema: the schema in Postgres.
        options: as of `read_options`.
        macros: full names of DuckDB's macros, which Iceberg clients have no place for.

    """

    schema: str = DEFAULT_SCHEMA_NAME
    options: Mapping[str, str] = field(default_factory=dict)
    macros: Sequence[str] = ()


def read_stored_lake(url: str) -> StoredLake:
    """Read the lake at a Postgres URL, whether or not a server has prepared it.

    Raises StartupError if the database has no lake, UnavailableError if Postgres doesn't answer.
    """
    try:
        with psycopg.connect(url, connect_timeout=5) as connection, connection.cursor() as cursor:
            open_lake_session().pin(connection)
            contents = read_contents(cursor)
            check_reachable(contents)
            return StoredLake(contents.lake or DEFAULT_SCHEMA_NAME, read_options(cursor) or {}, _read_macros(cursor))
    except psycopg.OperationalError as error:
        raise UnavailableError(f"Postgres does not answer: {error}") from error


def _read_macros(cursor: Cursor[Row]) -> list[str]:
    """Read the full names of macros; of a lake that no server has prepared, with the last levels of schemas."""
    ((has_macros, is_prepared),) = cursor.execute(_SQL.has_macros).fetchall()
    query = _SQL.macros if is_prepared else _SQL.unprepared_macros
    return [name for (name,) in cursor.execute(query).fetchall()] if has_macros else []


def check_supported(options: dict[str, str], versions: Sequence[str] = SERVED_FORMAT_VERSIONS) -> None:
    """Raise UnsupportedCatalogError unless the catalog is an unencrypted one of a served format."""
    version = options.get("version", "")
    if version not in versions:
        raise UnsupportedCatalogError(
            f"the catalog has DuckLake format {version!r}, this server serves {', '.join(versions)}: "
            + _advise_upgrade(version)
        )
    if not options.get("data_path"):
        raise UnsupportedCatalogError("ducklake_metadata has no row data_path: restore it from a backup")
    if options.get("encrypted") == "true":
        raise UnsupportedCatalogError(
            "the lake is encrypted: Iceberg readers can't read its files; use one that is not"
        )


def _advise_upgrade(version: str) -> str:
    """Return advice on getting from a format that isn't served to one that is."""
    if version in _OLDER_FORMAT_VERSIONS:
        return "back it up, then attach it once from DuckDB 1.5 with AUTOMATIC_MIGRATION TRUE, which migrates it to 1.0"
    if not version:
        return "ducklake_metadata has no row for its version; restore the catalog from a backup"
    if version in SERVED_FORMAT_VERSIONS:
        return "DuckLake can't migrate it back; copy its tables in DuckDB into a lake that Postgres has"
    return (
        "DuckLake can't migrate it back; run a duckicelake that serves this format, "
        "or restore the catalog from a backup of before the migration (docs/ducklake-versions.md)"
    )


def _prepare_between_readers(database: Database, data_path: str, *, creates: bool) -> str:
    """Prepare the catalog without keeping readers waiting.

    A migration that waits for a table in use has all who read it later wait behind it. It gives up soon therefore, and
    comes back after a pause.
    """
    until = time.monotonic() + _MIGRATION_WAIT_SECONDS
    while True:
        try:
            return retry_transaction(lambda: _prepare_locked(database, data_path, creates=creates), _is_retryable_here)
        except LockNotAvailable as error:
            if time.monotonic() > until:
                raise UnavailableError(
                    f"the migration waited {_MIGRATION_WAIT_SECONDS} s for tables in use, and nothing was changed: end "
                    f"{_read_blockers(database)}, then start the server again"
                ) from error
        time.sleep(_MIGRATION_PAUSE_SECONDS)


def _is_retryable_here(error: BaseException) -> bool:
    return is_retryable(error) and not isinstance(error, LockNotAvailable)


def _read_blockers(database: Database) -> str:
    """Describe the sessions whose transactions use tables for the longest time."""
    with database.reading() as cursor:
        found = cursor.execute(_MIGRATE_SQL.blockers).fetchall()
    return _format_names([f"session {pid} of {user} ({program})" for pid, user, program in found], "other session")


def _prepare_locked(database: Database, data_path: str, *, creates: bool) -> str:
    with database.transaction() as cursor:
        disable_timeout(cursor)
        lock_writers(cursor)
        contents = read_contents(cursor)
        is_new = contents.lake is None and creates
        if is_new:
            options = _create_lake(cursor, contents, data_path)
        else:
            check_reachable(contents)
            options = read_options(cursor) or {}
            check_supported(options)
            check_complete(cursor, contents)
            check_migrated(cursor, contents, options)
        cursor.execute(_MIGRATE_SQL.limit_waits)
        apply_migrations(cursor)
        if is_new:
            cursor.execute(_SQL.keep_itself)
    return options["data_path"]


def _create_lake(cursor: Cursor[Row], contents: DatabaseContents, data_path: str) -> dict[str, str]:
    check_vacant(contents)
    create_tables(cursor)
    cursor.execute(_SQL.insert_initial_rows, {"data_path": data_path.rstrip("/") + "/"})
    return dict(cursor.execute(_SQL.options).fetchall())


def create_tables(cursor: Cursor[Row]) -> None:
    """Create the tables of a DuckLake 1.0 catalog, without a row."""
    cursor.execute(build_tables_sql())


def build_tables_sql() -> str:
    """Return the statements that create the tables of a DuckLake 1.0 catalog, for Postgres and DuckDB alike."""
    return _SQL.create_tables
