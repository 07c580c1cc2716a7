"""Limits of a lake, in `duckicelake_lake`: how many tables and namespaces, and how long what is dropped stays."""

from collections.abc import Mapping
from typing import Final

from psycopg.errors import UndefinedColumn

from duckicelake.errors import ConflictError
from duckicelake.postgres.queries import Transaction, load_queries

_SQL: Final = load_queries("lake", "limits")
MAX_TABLES: Final = "max-tables"
MAX_NAMESPACES: Final = "max-namespaces"
DROP_RETENTION: Final = "drop-retention-seconds"


def read_limits(cursor: Transaction) -> dict[str, str]:
    """Read the limits that there are, by their names as options."""
    ((tables, namespaces, seconds),) = cursor.execute(_SQL.limits).fetchall()
    retention = f"{float(seconds):.6f}".rstrip("0").rstrip(".")
    found = {MAX_TABLES: tables, MAX_NAMESPACES: namespaces, DROP_RETENTION: retention}
    return {name: value for name, value in found.items() if value is not None}


def change_limits(cursor: Transaction, changes: Mapping[str, str | None]) -> None:
    """Change limits; ConflictError for a lake of an older version.

    None: any number of tables or namespaces, and the retention of a new lake.
    """
    if changes:
        parameters = {
            "has_tables": MAX_TABLES in changes,
            "max_tables": changes.get(MAX_TABLES),
            "has_namespaces": MAX_NAMESPACES in changes,
            "max_namespaces": changes.get(MAX_NAMESPACES),
            "has_retention": DROP_RETENTION in changes,
            "retention": changes.get(DROP_RETENTION),
        }
        try:
            cursor.execute(_SQL.change_limits, parameters)
        except UndefinedColumn as error:
            raise ConflictError("An older version prepared this lake: let a server open the warehouse first") from error
