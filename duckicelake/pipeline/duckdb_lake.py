"""Attach the lake to DuckDB by its `ducklake` extension, without the catalog's server."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import duckdb

from duckicelake.errors import BadInputError, BadSourceError

LAKE_ALIAS: Final = "lake"
_PASSWORD: Final = re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s\"&]+)", re.IGNORECASE)


@contextmanager
def attach_lake(attach: str | None, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with the lake as `lake`.

    Raises BadInputError, and BadSourceError for every error of DuckDB in the block.

    attach: what `duckicelake info` prints for ATTACH; no error repeats it, as it may have a password in it. Keys for a
    store are DuckDB's own: `CREATE PERSISTENT SECRET`.
    """
    if attach is None:
        raise BadInputError("DuckDB needs to know the lake: give --attach what `duckicelake info` prints for ATTACH")
    _load_extensions()
    literal = attach.replace("'", "''")
    with duckdb.connect() as connection:
        try:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute(f"ATTACH '{literal}' AS {LAKE_ALIAS}{' (READ_ONLY)' if read_only else ''}")
            yield connection
        except duckdb.Error as error:
            raise BadSourceError(f"DuckDB fails: {_explain_error(error, attach)}; check --attach") from None


def _load_extensions() -> None:
    """Put DuckDB's extensions where it finds them, if they came as Python packages; else DuckDB gets them itself."""
    try:
        from duckdb_extensions import import_extension
    except ImportError:
        return
    for name in ("ducklake", "postgres_scanner", "httpfs"):
        import_extension(name)


def _explain_error(error: Exception, attach: str) -> str:
    """Return what DuckDB says, which repeats the connection string, without that."""
    text = str(error)
    for known in (attach, attach.partition(":")[2], attach.split(":", 2)[-1]):
        if "=" in known or "@" in known:
            text = text.replace(known, "…")
    return read_first_line(_PASSWORD.sub(r"\1…", text))


def read_first_line(text: object) -> str:
    return str(text).splitlines()[0]
