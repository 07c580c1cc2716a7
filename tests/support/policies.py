"""Policies of tables, made in the side tables: of local files, which readers could open, the server makes none."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.read_restrictions import Mask
from duckicelake.lake.side_tables.policies import GuardedColumn, NewPolicy, add_principals, insert_policy
from duckicelake.postgres.queries import Transaction


def restrict(
    services: Services, name: str, *filters: Any, masks: Mapping[int, Mask] | None = None, to: tuple[str, ...] = ()
) -> None:
    """Hide rows and values of a table from some, by default from everyone.

    name: as `sales.orders`. masks: by the id of the column.
    """
    rights = services.rights
    assert rights is not None
    wanted: list[tuple[int | None, Mask | None, Any]] = [(None, None, filter_) for filter_ in filters]
    wanted += [(column_id, mask, None) for column_id, mask in (masks or {}).items()]
    with services.database.transaction() as cursor:
        for column_id, mask, filter_ in wanted:
            on = _find_guarded(cursor, name, column_id)
            condition = None if filter_ is None else "as JSON"
            new = NewPolicy(f"p{uuid4()}", on, None, mask, filter_, condition, to, ())
            policy_id = insert_policy(cursor, rights.place, new, "owner")
            assert policy_id is not None
            assert not add_principals(cursor, rights.place, policy_id, to, is_exempt=False)
    rights.look()


def _find_guarded(cursor: Transaction, name: str, column_id: int | None) -> GuardedColumn:
    schema, _, table = name.rpartition(".")
    ((table_id,),) = cursor.execute(
        "SELECT table_id FROM ducklake_table t JOIN ducklake_schema s USING (schema_id) "
        "WHERE schema_name = %(schema)s AND table_name = %(table)s AND t.end_snapshot IS NULL",
        {"schema": schema, "table": table},
    ).fetchall()
    if column_id is None:
        return GuardedColumn(table_id, schema, table)
    ((column,),) = cursor.execute(
        "SELECT column_name FROM ducklake_column "
        "WHERE table_id = %(table_id)s AND column_id = %(column_id)s AND end_snapshot IS NULL",
        {"table_id": table_id, "column_id": column_id},
    ).fetchall()
    return GuardedColumn(table_id, schema, table, column_id, column)
