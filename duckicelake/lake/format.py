"""Make or adopt a DuckLake 1.0 catalog, and bring our side of it up to date."""

import psycopg
from psycopg import Cursor
from psycopg.errors import InsufficientPrivilege

from duckicelake.errors import UnsupportedCatalog
from duckicelake.lake.migrate import migrate
from duckicelake.lake.model import FORMAT_VERSION
from duckicelake.lake.postgres.database import Database, Row, without_timeout
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.postgres.session import Session
from duckicelake.lake.snapshots import lock, retrying


def prepare(database: Database, data_path: str) -> str:
    """Create the catalog if there is none, adopt it if there is, migrate; return its DATA_PATH, which ends in "/".

    `data_path` is where DuckDB will keep the files of a new lake; an adopted one keeps its own. Any number of workers
    may call this at once. Raises UnsupportedCatalog if the catalog is not ours to serve.
    """
    try:
        return retrying(lambda: _prepare(database, data_path))
    except InsufficientPrivilege as error:
        raise UnsupportedCatalog(
            f"the server's login lacks rights in Postgres ({error.diag.message_primary}): "
            "let a superuser run what `duckicelake grants` prints for it"
        ) from error


def read_options(cursor: Cursor[Row]) -> dict[str, str] | None:
    """Catalog-wide options (version, encrypted, data_path, …); None where there is no DuckLake catalog."""
    row = cursor.execute(queries("format").exists).fetchone()
    if row is None or not row[0]:
        return None
    return dict(cursor.execute(queries("format").options).fetchall())


def stored_data_path(url: str) -> str | None:
    """The DATA_PATH of the catalog at a Postgres URL; None if it doesn't answer or holds none."""
    try:
        with psycopg.connect(url, connect_timeout=2) as connection, connection.cursor() as cursor:
            Session().pin(connection)
            options = read_options(cursor)
    except psycopg.OperationalError:
        return None
    return options["data_path"] if options else None


def check_supported(options: dict[str, str]) -> None:
    """Raise UnsupportedCatalog unless the catalog is an unencrypted DuckLake 1.0."""
    version = options.get("version")
    if version != FORMAT_VERSION:
        raise UnsupportedCatalog(
            f"the catalog has DuckLake format {version!r}, this server reads {FORMAT_VERSION!r}; "
            "attach it once from DuckDB 1.5 with AUTOMATIC_MIGRATION if it is older"
        )
    if options.get("encrypted") == "true":
        raise UnsupportedCatalog("the lake is encrypted: Iceberg readers can't read its files; use one that is not")


def _prepare(database: Database, data_path: str) -> str:
    with database.transaction() as cursor:
        without_timeout(cursor)
        lock(cursor)
        options = read_options(cursor) or _create(cursor, data_path)
        check_supported(options)
        migrate(cursor)
    return options["data_path"]


def _create(cursor: Cursor[Row], data_path: str) -> dict[str, str]:
    cursor.execute(queries("format").create_tables)
    cursor.execute(queries("format").insert_initial_rows, {"data_path": data_path.rstrip("/") + "/"})
    return dict(cursor.execute(queries("format").options).fetchall())
