"""PURE. Write the SQL that reads the changed rows of snapshots, by DuckLake's own functions.

`ducklake_table_insertions` and `ducklake_table_deletions` list a snapshot's rows on both sides of it, whether they lie
in files or in Postgres. The SQL here leaves out rows that were only moved, and pairs those that were updated.
Columns are called `c0`, `c1`, … in it, so that no name of a table's column can clash with its own names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from duckicelake.bridge.values.types import quote_identifier
from duckicelake.iceberg.expressions import Predicate
from duckicelake.iceberg.read_restrictions import Restriction
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, NestedField, PrimitiveType, StructType, list_children
from duckicelake.lake.ducklake.database import quote_literal
from duckicelake.lake.model import LOCAL_ROW_ID
from duckicelake.query.restricted import build_filter_column, list_filter_columns, write_visible_rows
from duckicelake.query.statement import LAKE
from duckicelake.row_changes.masks import check_condition
from duckicelake.row_changes.pairs import PairedColumns, Pairing, write_digest
from duckicelake.rows.filters import bind_filter, write_condition

ROW_ID: Final = "rowid"
SNAPSHOT: Final = "snapshot_id"
"""Columns that DuckLake's functions have beside those of the table."""
TYPE_COLUMN: Final = "_change_type"
ORDINAL_COLUMN: Final = "_change_ordinal"
SNAPSHOT_COLUMN: Final = "_commit_snapshot_id"
ROW_ID_COLUMN: Final = "_changed_row_id"
OWN_COLUMNS: Final = (TYPE_COLUMN, ORDINAL_COLUMN, SNAPSHOT_COLUMN, ROW_ID_COLUMN)
"""Iceberg's names of what changelogs say of a row; the last is its row id."""
VARIANT: Final = PrimitiveType(name="variant")
_PAIRED_ORDER: Final = "q.place, q.tie"


@dataclass(frozen=True, slots=True)
class TableSide:
    """A table as it was at a snapshot, or in a run of snapshots that only added rows.

    Attributes:
        first, last: the snapshots, both included.
        schema_name, name: of the table then.
        schema: its columns then.
        restriction: what the reader may see of them, but for salted hashes.
        salt: random bytes of the answer.
        defaults: by field id, the SQL of the value of rows that are older than the column.
        before: the table at the snapshot before, if files left the table or came back to it.

    """

    first: int
    last: int
    schema_name: str
    name: str
    schema: Schema
    restriction: Restriction | None = None
    salt: bytes = field(default=b"", repr=False)
    defaults: Mapping[int, str] = field(default_factory=dict)
    before: "TableSide | None" = None


@dataclass(frozen=True, slots=True)
class ChangeStep:
    """Snapshots whose changes are read by one query."""

    table: TableSide
    has_additions: bool
    has_removals: bool


@dataclass(frozen=True, slots=True)
class StepQuery:
    """The query of a step, whose columns are `t`, `s`, `r` (type, snapshot, row id), and those of the table.

    order: by which the query, called q, is sorted; it leaves no choice but between rows that are alike. Of a million
    rows, one number takes a third less time than three.
    """

    sql: str
    order: str


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """The columns of an answer, those of the table at its last snapshot.

    Attributes:
        fields: all columns.
        defaults: by field id, the SQL of the value of rows that are older than the column.
        key: names of columns that identify a row.
        condition: what holds for the rows of the answer, as `write_answer_condition` writes it.

    """

    fields: Sequence[NestedField]
    defaults: Mapping[int, str]
    pairing: Pairing
    key: Sequence[str] = ()
    condition: str = "true"


def write_answer_condition(
    predicate: Predicate, fields: Sequence[NestedField], restriction: Restriction | None = None
) -> str:
    """Write a filter over the columns of an answer.

    Raises InvalidRequestError for one that they don't take, and for one of salted hashes.
    """
    columns = [*list_filter_columns(fields)]
    places = {field.id: f"c{at}" for at, field in enumerate(fields)}
    bound = bind_filter(predicate, columns)
    check_condition(bound, restriction, fields)
    return write_condition(
        bound, {column.field_id: build_filter_column(column, places[column.field_id]) for column in columns}
    )


def write_target(side: TableSide) -> str:
    """Write a query with the names and types of an answer's columns."""
    levels = ".".join(map(quote_identifier, (LAKE, side.schema_name, side.name)))
    source = f"{levels} AT (VERSION => {side.last})"
    if side.restriction is None:
        return f"SELECT * FROM {source}"
    return write_visible_rows(source, side.schema, side.restriction, side.salt)


def write_step(step: ChangeStep, target: TargetColumns) -> StepQuery:
    """Write the query of a step, and the order in which its rows are the same whenever they are read."""
    if step.table.before is not None or (step.has_additions and step.has_removals):
        return StepQuery(_pair_rows(step, target), _PAIRED_ORDER)
    kind, function = ("INSERT", "insertions") if step.has_additions else ("DELETE", "deletions")
    is_run = step.table.first < step.table.last
    number = "changed_at" if is_run else str(step.table.last)
    found = _write_rows(step.table, function, target)
    tie = write_digest([f"q.{name}" for name in _list_own_columns(step.table, target)])
    order = f"q.r, CASE WHEN q.r >= {LOCAL_ROW_ID} THEN {tie} END"
    return StepQuery(f"SELECT '{kind}' AS t, {number} AS s, * FROM ({found})", f"q.s, {order}" if is_run else order)


def _write_rows(side: TableSide, function: str, target: TargetColumns) -> str:
    """Write the rows that came or went: row id, the snapshot that they name as their last change, and the columns."""
    source, state = _write_listing(side, function), side
    if side.before is not None:
        state = side.before if function == "deletions" else side
        source = _write_state(state, side)
    if state.restriction is not None:
        own = [
            NestedField(id=-number, name=name, required=False, type=_LONG)
            for number, name in enumerate((ROW_ID, SNAPSHOT), start=1)
        ]
        schema = state.schema.replace_fields(fields=(*own, *state.schema.fields))
        source = f"({write_visible_rows(source, schema, state.restriction, state.salt)})"
    columns = [
        f"{_write_value(field, state.schema, target.defaults)} AS c{at}" for at, field in enumerate(target.fields)
    ]
    columns += [
        f"{_write_value(field, state.schema, side.defaults)} AS {old}"
        for old, field in _list_old_columns(side, target).items()
    ]
    found = f"SELECT {ROW_ID} AS r, {SNAPSHOT} AS changed_at, {', '.join(columns)} FROM {source}"
    return found if target.condition == "true" else f"FROM ({found}) WHERE {target.condition}"


def _list_old_columns(side: TableSide, target: TargetColumns) -> dict[str, NestedField]:
    """List the columns that an answer doesn't have, or not as they were.

    They count where rows are compared. So a snapshot's changes stay the same for a reader that has read some of them
    before a column was dropped.
    """
    kept = {field.id: field.type for field in target.fields}
    old = (field for field in side.schema.fields if kept.get(field.id) != field.type)
    return {f"o{at}": field for at, field in enumerate(old)}


def _list_own_columns(side: TableSide, target: TargetColumns) -> list[str]:
    """List the names of the columns that the table had then, which are the same whenever they are read."""
    names = {field.id: f"c{at}" for at, field in enumerate(target.fields)}
    names |= {field.id: name for name, field in _list_old_columns(side, target).items()}
    return [names[field.id] for field in side.schema.fields]


def _write_listing(side: TableSide, function: str) -> str:
    names = ", ".join(map(quote_literal, (LAKE, side.schema_name, side.name)))
    return f"ducklake_table_{function}({names}, {side.first}, {side.last})"


def _write_state(state: TableSide, changed: TableSide) -> str:
    """Write the rows that the table has before or after a snapshot, of those that DuckLake lists with it.

    state: the table before or after the snapshot. changed: with the snapshot.
    """
    levels = ".".join(map(quote_identifier, (LAKE, state.schema_name, state.name)))
    names = ", ".join(quote_identifier(field.name) for field in state.schema.fields)
    listed = " UNION ALL ".join(
        f"SELECT {ROW_ID} FROM {_write_listing(changed, one)}" for one in ("deletions", "insertions")
    )
    return (
        f"(SELECT {ROW_ID}, {SNAPSHOT}, {names} FROM {levels} AT (VERSION => {state.last}) "
        f"WHERE {ROW_ID} IN ({listed}))"
    )


def _pair_rows(step: ChangeStep, target: TargetColumns) -> str:
    """Pair the rows that a snapshot took away with those that it brought."""
    before, after = (_write_rows(step.table, function, target) for function in ("deletions", "insertions"))
    shown = [f"c{at}" for at in range(len(target.fields))]
    columns = PairedColumns(
        shown=shown,
        compared=(*shown, *_list_old_columns(step.table, target)),
        pairing=target.pairing,
        key=[f"c{_find_place(target, name)}" for name in target.key],
        ordered=_list_own_columns(step.table, target),
    )
    return f"SELECT *, {step.table.last} AS s FROM ({columns.write(before, after)})"


def _find_place(target: TargetColumns, name: str) -> int:
    return next(at for at, field in enumerate(target.fields) if field.name == name)


def _write_value(field: NestedField, schema: Schema, defaults: Mapping[int, str]) -> str:
    """Write the value of a column as the answer has it, from the columns that the table had then.

    A variant is its JSON: no answer shows one, and DuckDB doesn't compare variants of different types.
    """
    found = next((one for one in schema.fields if one.id == field.id), None)
    if found is None:
        return defaults.get(field.id, "NULL")
    name = quote_identifier(found.name)
    if field.type == VARIANT:
        return f"CASE WHEN {name} IS NOT NULL THEN CAST(CAST({name} AS JSON) AS VARCHAR) END"
    return project_value(name, found.type, field.type)


def project_value(value: str, old: IcebergType, new: IcebergType, depth: int = 0) -> str:
    """Write a value of a type as one of a newer type of the same column: fields are found by their ids."""
    if old == new or isinstance(old, PrimitiveType) or isinstance(new, PrimitiveType):
        return value
    if isinstance(new, StructType):
        known = {one.id: one for one in list_children(old)}
        members = (
            f"{quote_identifier(one.name)}: {_project_member(value, known.get(one.id), one, depth)}"
            for one in new.fields
        )
        return f"CASE WHEN {value} IS NOT NULL THEN {{{', '.join(members)}}} END"
    variable = f"part_{depth}"
    *_, before = list_children(old)
    *_, after = list_children(new)
    if len(list_children(new)) == 1:
        return (
            f"list_transform({value}, lambda {variable}: {project_value(variable, before.type, after.type, depth + 1)})"
        )
    entry = project_value(f"{variable}.value", before.type, after.type, depth + 1)
    entries = f"list_transform(map_entries({value}), lambda {variable}: {{'key': {variable}.key, 'value': {entry}}})"
    return f"CASE WHEN {value} IS NOT NULL THEN map_from_entries({entries}) END"


def _project_member(value: str, old: NestedField | None, new: NestedField, depth: int) -> str:
    if old is None:
        return "NULL"
    return project_value(f"struct_extract({value}, {quote_literal(old.name)})", old.type, new.type, depth)


_LONG: Final = PrimitiveType(name="long")
