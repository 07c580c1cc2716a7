"""Make or adopt a DuckLake 1.0 catalog, and bring our side of it up to date."""

import psycopg
from psycopg import Cursor
from psycopg.errors import InsufficientPrivilege

from duckicelake.errors import Unavailable, UnsupportedCatalog
from duckicelake.lake.contents import DEFAULT_SCHEMA, Contents, check_free, check_reached, check_whole, read_contents
from duckicelake.lake.migrate import known_migrations, migrate
from duckicelake.lake.model import SERVED_FORMATS
from duckicelake.lake.postgres.database import Database, Row, without_timeout
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.postgres.session import PinnedSession
from duckicelake.lake.snapshots import lock, retrying

_OLDER_FORMATS = frozenset({"0.1", "0.2", "0.3", "0.3-dev1", "0.4", "0.4-dev1"})
"""Those that DuckDB 1.5 migrates to 1.0."""


def prepare(database: Database, data_path: str, *, creates: bool = True) -> str:
    """Adopt the catalog and migrate it, or create it; return its DATA_PATH, which ends in "/".

    `data_path` is where DuckDB will keep the files of a new lake; an adopted one keeps its own. Any number of workers
    may call this at once. Raises UnsupportedCatalog if the catalog is not ours to serve, StartupError if there is none
    and `creates` is False. From now on each transaction of `database` begins as `require_known` says.
    """
    try:
        path = retrying(lambda: _prepare(database, data_path, creates=creates))
    except Unavailable as error:
        denial = error.__cause__
        if not isinstance(denial, InsufficientPrivilege):
            raise
        raise UnsupportedCatalog(
            f"the server's login lacks rights in Postgres ({denial.diag.message_primary}): "
            "let a superuser run what `duckicelake grants` prints for it"
        ) from error
    require_known(database)
    return path


def session_settings() -> dict[str, str]:
    """Postgres settings by which `duckicelake_require_known` sees what a session's server knows."""
    return {
        "duckicelake.formats": ",".join(SERVED_FORMATS),
        "duckicelake.last_migration": str(known_migrations()[-1].number),
    }


def require_known(database: Database) -> None:
    """Begin each transaction with a check of the lake's format and migrations, which raises UnknownFormatError.

    The lake has all migrations of this version, and `database` has `session_settings`.
    """
    database.require(queries("format").require_known)


def read_options(cursor: Cursor[Row]) -> dict[str, str] | None:
    """Catalog-wide options (version, encrypted, data_path, …); None where there is no DuckLake catalog."""
    row = cursor.execute(queries("format").exists).fetchone()
    if row is None or not row[0]:
        return None
    return dict(cursor.execute(queries("format").options).fetchall())


def stored_lake(url: str) -> tuple[str, dict[str, str]]:
    """Read the schema of the lake at a Postgres URL, and its options, as `read_options`.

    Raises StartupError if the database has no lake, Unavailable if Postgres doesn't answer.
    """
    try:
        with psycopg.connect(url, connect_timeout=5) as connection, connection.cursor() as cursor:
            PinnedSession().pin(connection)
            contents = read_contents(cursor)
            check_reached(contents)
            return contents.lake or DEFAULT_SCHEMA, read_options(cursor) or {}
    except psycopg.OperationalError as error:
        raise Unavailable(f"Postgres does not answer: {error}") from error


def check_supported(options: dict[str, str]) -> None:
    """Raise UnsupportedCatalog unless the catalog is an unencrypted DuckLake 1.0."""
    version = options.get("version", "")
    if version not in SERVED_FORMATS:
        raise UnsupportedCatalog(
            f"the catalog has DuckLake format {version!r}, this server serves {', '.join(SERVED_FORMATS)}: "
            + _advice(version)
        )
    if not options.get("data_path"):
        raise UnsupportedCatalog("ducklake_metadata has no row data_path: restore it from a backup")
    if options.get("encrypted") == "true":
        raise UnsupportedCatalog("the lake is encrypted: Iceberg readers can't read its files; use one that is not")


def _advice(version: str) -> str:
    """How to get from a format that isn't served to one that is."""
    if version in _OLDER_FORMATS:
        return "back it up, then attach it once from DuckDB 1.5 with AUTOMATIC_MIGRATION TRUE, which migrates it to 1.0"
    if not version:
        return "ducklake_metadata has no row for its version; restore the catalog from a backup"
    return (
        "DuckLake can't migrate it back; run a duckicelake that serves this format, "
        "or restore the catalog from a backup of before the migration"
    )


def _prepare(database: Database, data_path: str, *, creates: bool) -> str:
    with database.transaction() as cursor:
        without_timeout(cursor)
        lock(cursor)
        contents = read_contents(cursor)
        if contents.lake is None and creates:
            options = _create(cursor, contents, data_path)
        else:
            check_reached(contents)
            options = read_options(cursor) or {}
            check_supported(options)
            check_whole(cursor, contents)
        migrate(cursor)
    return options["data_path"]


def _create(cursor: Cursor[Row], contents: Contents, data_path: str) -> dict[str, str]:
    check_free(contents)
    cursor.execute(queries("format").create_tables)
    cursor.execute(queries("format").insert_initial_rows, {"data_path": data_path.rstrip("/") + "/"})
    return dict(cursor.execute(queries("format").options).fetchall())
