"""Policies of tables: row filters and column masks, by rows of `duckicelake_policy`.

As those of grants, statements run in the schema of a warehouse's own lake, and name the tables of policies where the
warehouse's `GrantPlace` says.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

from duckicelake.lake.side_tables.grants import GrantPlace, run_governance
from duckicelake.postgres.queries import Transaction, load_queries

_SQL: Final = load_queries("lake", "policies")
PolicyKey = tuple[str, UUID]
"""What orders policies: name and id."""
TagKey = tuple[str, int, int]
"""What orders tagged columns: tag and DuckLake's ids."""


@dataclass(frozen=True, slots=True)
class GuardedColumn:
    """A column, or with none named its table, by DuckLake's ids and by the names of now."""

    table_id: int
    schema_name: str
    table_name: str
    column_id: int | None = None
    column_name: str | None = None


@dataclass(frozen=True, slots=True)
class NewPolicy:
    """A policy to add: a mask of a column or of a tag's columns, or a filter of a table's rows.

    Attributes:
        on: The table, with the column of a mask; None of a tag.
        filter: Iceberg's expression as JSON, its columns by field id.
        condition: The same as it was written.
        condition_columns: The ids of the columns that it names, by its names for them, in lower case.
        to: Names of those whom it is for; empty: everyone.
        exempt: Names of those whom it isn't for.

    """

    name: str
    on: GuardedColumn | None
    tag: str | None
    mask: str | None
    filter: Any
    condition: str | None
    to: tuple[str, ...]
    exempt: tuple[str, ...]
    condition_columns: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """A policy for a list, with today's names, or the last ones.

    Attributes:
        is_live: False once its table was dropped.
        condition: As it was written.
        condition_names: Today's names of the columns that it names, by its names for them, in lower case.

    """

    policy_id: UUID
    name: str
    tag: str | None
    table_id: int | None
    is_live: bool
    schema_name: str | None
    table_name: str | None
    column_id: int | None
    column_name: str | None
    mask: str | None
    condition: str | None
    condition_names: Mapping[str, str] | None
    created_by: str
    created_at: datetime
    to: tuple[str, ...]
    exempt: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnTagRow:
    """A tag of a column, with today's names, or the last ones."""

    tag: str
    table_id: int
    column_id: int
    is_live: bool
    schema_name: str
    table_name: str
    column_name: str


@dataclass(frozen=True, slots=True)
class HeldPolicyRow:
    """A policy that is for a principal, and a table that it guards.

    is_successor: the table was made under the name of the one that the policy is on, which was dropped.
    """

    name: str
    table_id: int
    schema_name: str
    table_name: str
    is_successor: bool
    column_id: int | None
    column_name: str | None
    mask: str | None
    filter: Any


def read_held_policies(
    cursor: Transaction, place: GrantPlace, principal_id: int | None, groups: Sequence[str]
) -> list[HeldPolicyRow]:
    """Read the policies that are for a principal. groups: more that it is in, by name."""
    found = run_governance(cursor, _SQL.held, place, principal_id=principal_id, groups=list(groups))
    return [HeldPolicyRow(*row) for row in found]


def read_newest_table_id(cursor: Transaction) -> int:
    """Read the highest id of a table; those made later have higher ones."""
    ((newest,),) = cursor.execute(_SQL.newest).fetchall()
    return int(newest)


def is_trusted(cursor: Transaction, place: GrantPlace, principal_id: int | None, groups: Sequence[str]) -> bool:
    """Return whether a principal is an engine that applies policies itself."""
    return run_governance(cursor, _SQL.trusted, place, principal_id=principal_id, groups=list(groups)) == [(True,)]


def has_policies(cursor: Transaction, place: GrantPlace, table_id: int) -> bool:
    """Return whether a table has any, for whomever."""
    return (table_id,) in run_governance(cursor, _SQL.guarded, place)


def list_policies(
    cursor: Transaction,
    place: GrantPlace,
    table_id: int | None = None,
    after: PolicyKey | None = None,
    limit: int | None = None,
    policy_id: UUID | None = None,
) -> list[PolicyRow]:
    """List the policies of a warehouse, or of one table, those of its columns' tags among them.

    after: the key of the policy behind which the list begins. limit: None: all. policy_id: of the only one.
    """
    name, after_id = after or (None, None)
    asked = {"table_id": table_id, "after_name": name, "after_id": after_id, "limit": limit, "policy_id": policy_id}
    found = run_governance(cursor, _SQL.list, place, **asked)
    return [PolicyRow(*row[:-2], *map(tuple, row[-2:])) for row in found]


def insert_policy(cursor: Transaction, place: GrantPlace, new: NewPolicy, by: str) -> UUID | None:
    """Add a policy; None if its table, or the warehouse for tags, has one of its name."""
    policy_id, on = uuid4(), new.on
    values = {
        "policy_id": policy_id,
        "name": new.name,
        "tag": new.tag,
        "table_id": None if on is None else on.table_id,
        "schema_name": None if on is None else on.schema_name,
        "table_name": None if on is None else on.table_name,
        "column_id": None if on is None else on.column_id,
        "column_name": None if on is None else on.column_name,
        "mask": new.mask,
        "filter": None if new.mask is not None else json.dumps(new.filter),
        "condition": new.condition,
        "condition_columns": None if new.condition_columns is None else json.dumps(dict(new.condition_columns)),
        "by": by,
    }
    return policy_id if run_governance(cursor, _SQL.insert, place, **values) else None


def add_principals(
    cursor: Transaction, place: GrantPlace, policy_id: UUID, names: Sequence[str], *, is_exempt: bool
) -> set[str]:
    """Say whom a policy is for, or whom it isn't for; return the names of principals that there aren't."""
    asked = {"policy_id": policy_id, "names": list(names), "is_exempt": is_exempt}
    return set(names) - {name for (name,) in run_governance(cursor, _SQL.add_principals, place, **asked)}


def delete_policy(cursor: Transaction, place: GrantPlace, policy_id: UUID) -> bool:
    """Delete a policy; return whether there was one."""
    return bool(run_governance(cursor, _SQL.delete, place, policy_id=policy_id))


def tag_column(cursor: Transaction, place: GrantPlace, tag: str, on: GuardedColumn) -> bool:
    """Give a column a tag; return whether it is new."""
    names = {"schema_name": on.schema_name, "table_name": on.table_name, "column_name": on.column_name}
    asked = {"tag": tag, "table_id": on.table_id, "column_id": on.column_id, **names}
    return bool(run_governance(cursor, _SQL.tag, place, **asked))


def untag_column(cursor: Transaction, place: GrantPlace, tag: str, on: GuardedColumn) -> bool:
    """Take a tag from a column; return whether it had it."""
    return bool(run_governance(cursor, _SQL.untag, place, tag=tag, table_id=on.table_id, column_id=on.column_id))


def list_tags(
    cursor: Transaction,
    place: GrantPlace,
    table_id: int | None = None,
    after: TagKey | None = None,
    limit: int | None = None,
) -> list[ColumnTagRow]:
    """List the tagged columns of a warehouse, or of one table. after, limit: as of `list_policies`."""
    tag, after_table, after_column = after or (None, None, None)
    key = {"after_tag": tag, "after_table": after_table, "after_column": after_column}
    found = run_governance(cursor, _SQL.tags, place, table_id=table_id, limit=limit, **key)
    return [ColumnTagRow(*row) for row in found]


def copy_policies(cursor: Transaction, place: GrantPlace, from_id: int, to: GuardedColumn) -> None:
    """Give a table the policies of another one, and its columns' tags; its columns have the same ids."""
    names = {"schema_name": to.schema_name, "table_name": to.table_name}
    run_governance(cursor, _SQL.copy, place, from_id=from_id, to_id=to.table_id, **names)
