"""Names in a schema: tables and views share them, and DuckDB ignores their case (design §6.8)."""

import re
from collections.abc import Iterable
from typing import Final, Literal

from psycopg import Cursor

from duckicelake.errors import AlreadyExists, InvalidRequest, NoSuchNamespace
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries

Kind = Literal["Table", "View"]
_SQL = queries("names")
_AMBIGUOUS_PERCENT: Final = re.compile(r"%(?=25|2E)")


def full_name(schema_name: str, name: str | None) -> str:
    """The name of a schema, or of what is in it; a dot in the latter's own name is %2E, as in the names of levels."""
    if name is None:
        return schema_name
    return f"{schema_name}.{_AMBIGUOUS_PERCENT.sub('%25', name).replace('.', '%2E')}"


def namespace_exists(cursor: Cursor[Row], schema_name: str) -> bool:
    """Whether there is such a namespace, virtual or real."""
    parameters = {"schema_name": schema_name, "prefix": f"{schema_name}."}
    row = cursor.execute(_SQL.namespace_exists, parameters).fetchone()
    return row is not None and bool(row[0])


def check_name_is_free(cursor: Cursor[Row], schema_name: str, name: str, kind: Kind = "Table") -> int:
    """The id of the live schema in which a new table or view may have the name.

    Raises NoSuchNamespace, AlreadyExists in the words of Iceberg's own catalogs, InvalidRequest if only case differs.
    """
    schema_id = _schema_id(cursor, schema_name)
    taken = _taken(cursor, schema_id, schema_name, name)
    if taken is not None:
        problem = f"{kind} already exists" if taken == kind else f"{taken} with same name already exists"
        raise AlreadyExists(f"{problem}: {full_name(schema_name, name)}")
    return schema_id


def check_name_is_new(name: tuple[str, str], others: Iterable[tuple[str, str]]) -> None:
    """Raises as `check_name_is_free` if one of these tables of the same commit has the (schema name, name)."""
    for other in others:
        if other == name:
            raise AlreadyExists(f"Table already exists: {full_name(*name)}")
        if _folded(other) == _folded(name):
            raise _differs_only_by_case(name, other[1])


def check_target_is_free(cursor: Cursor[Row], source: tuple[str, str], target: tuple[str, str], own_id: int) -> int:
    """The id of the schema to which table or view `own_id` may be renamed; both names are (schema name, name).

    It may take another spelling of its own name. Raises what `check_name_is_free` raises.
    """
    schema_id = _schema_id(cursor, target[0])
    taken = _taken(cursor, schema_id, *target, own_id)
    if taken is not None:
        raise AlreadyExists(f"Cannot rename {full_name(*source)} to {full_name(*target)}. {taken} already exists")
    return schema_id


def _schema_id(cursor: Cursor[Row], schema_name: str) -> int:
    row = cursor.execute(_SQL.schema_id, {"schema_name": schema_name}).fetchone()
    if row is None:
        raise NoSuchNamespace(f"Namespace does not exist: {schema_name}")
    return int(row[0])


def _taken(cursor: Cursor[Row], schema_id: int, schema_name: str, name: str, own_id: int | None = None) -> str | None:
    """What has the name; InvalidRequest if what is there differs only by case."""
    found = cursor.execute(_SQL.taken, {"schema_id": schema_id, "name": name, "own_id": own_id}).fetchall()
    for kind, other in found:
        if other == name:
            return str(kind)
    for _, other in found:
        raise _differs_only_by_case((schema_name, name), other)
    return None


def _folded(name: tuple[str, str]) -> tuple[str, str]:
    return name[0], name[1].lower()


def _differs_only_by_case(name: tuple[str, str], other: str) -> InvalidRequest:
    return InvalidRequest(
        f"{full_name(*name)} differs only by case from {full_name(name[0], other)}, which DuckDB would take for the "
        "same table: choose another name"
    )
