"""Decide which columns a load gives a table, and parse the layout of a new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.types import DoubleType, IcebergType, LongType, NestedField, StringType

from duckicelake.client.schema_text import parse_partition_fields, parse_sort_fields
from duckicelake.errors import BadColumnError, BadInputError
from duckicelake.file_import.column_types import build_schema, check_nesting, holds_type, widen_type
from duckicelake.pipeline.destination import LoadRequest, Target

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class LoadColumns:
    """The columns that a table must have for a load: all, the new ones, and those of wider types."""

    fields: tuple[NestedField, ...]
    new: Mapping[str, IcebergType]
    widened: Mapping[str, IcebergType]


def join_columns(found: Iterable[Mapping[str, IcebergType]]) -> dict[str, IcebergType]:
    """Return the columns of groups by name, regardless of case; types that differ become the wider one, or text."""
    joined: dict[str, tuple[str, IcebergType]] = {}
    for columns in found:
        for name, type_ in columns.items():
            label, before = joined.get(name.lower(), (name, type_))
            wide: IcebergType = before
            if str(type_) != str(before):
                numbers = {str(type_), str(before)}
                if numbers <= {"int", "long", "float", "double"}:
                    wide = DoubleType() if numbers & {"float", "double"} else LongType()
                elif type_.is_primitive or before.is_primitive:
                    wide = StringType()
            joined[name.lower()] = (label, wide)
    return dict(joined.values())


def choose_columns(
    request: LoadRequest, table: Table | None, come: Mapping[str, IcebergType], given: Schema | None, *, is_text: bool
) -> LoadColumns:
    """Choose the columns that the table gets. Raises BadColumnError if --evolve strict forbids it, or none fits."""
    wanted = {one.name: one.field_type for one in given.fields} if given is not None else dict(come)
    if given is not None:
        named = {name.lower() for name in wanted}
        extra = [name for name in come if name.lower() not in named]
        if extra:
            raise BadColumnError(f"The files have columns that --schema lacks: {', '.join(extra)}")
    if table is None:
        fields = given.fields if given is not None else build_schema(wanted).fields
        return LoadColumns(fields, wanted, {})
    here = {one.name.lower(): one for one in table.schema().fields}
    new = {name: type_ for name, type_ in wanted.items() if name.lower() not in here}
    widened: dict[str, IcebergType] = {}
    for name, type_ in wanted.items():
        old = here.get(name.lower())
        if old is not None and (given is not None or not is_text):
            if given is None:
                check_nesting(old.name, old.field_type, type_)
            wide = widen_type(old.field_type, type_)
            if wide is not None:
                widened[old.name] = wide
    if come and len(new) == len(wanted):
        raise BadColumnError(
            f"None of the files' columns is in {request.target}: they have {', '.join(list(wanted)[:10])}, "
            f"the table has {', '.join(one.name for one in table.schema().fields)}; check --option sep=, or the header"
        )
    if (new or widened) and not request.may_change:
        changes = [f"new {name} {type_}" for name, type_ in new.items()]
        changes += [f"{name} to {type_}" for name, type_ in widened.items()]
        raise BadColumnError(f"--evolve strict: {request.target} would need {', '.join(changes)}")
    kept = [
        NestedField(one.field_id, one.name, widened.get(one.name, one.field_type), required=one.required)
        for one in table.schema().fields
    ]
    kept += [
        NestedField(10_000 + number, name, type_, required=False) for number, (name, type_) in enumerate(new.items())
    ]
    if given is not None:
        _check_given(request.target, given, here, widened)
    return LoadColumns(tuple(kept), new, widened)


def _check_given(
    target: Target, given: Schema, here: Mapping[str, NestedField], widened: Mapping[str, IcebergType]
) -> None:
    """Check that a table which is there has the columns of --schema or gets them, of their types or wider ones.

    here: the table's columns by names in lower case.
    """
    for wanted in given.fields:
        column = here.get(wanted.name.lower())
        if column is None:
            if wanted.required:
                raise BadColumnError(
                    f"--schema has {wanted.name} NOT NULL, which {target} lacks: "
                    "a new column can't be NOT NULL; leave it out"
                )
            continue
        if not holds_type(widened.get(column.name, column.field_type), wanted.field_type):
            raise BadColumnError(
                f"--schema has {wanted.name} {wanted.field_type}, and {target} has {column.name} {column.field_type}: "
                f"leave --schema out, which gives the files the table's types, or change the table"
            )
        if wanted.required and not column.required:
            raise BadColumnError(
                f"--schema has {wanted.name} NOT NULL, and {target} lets {column.name} be NULL: leave NOT NULL out"
            )


def parse_layout(target: Target, schema: Schema) -> tuple[PartitionSpec, SortOrder]:
    """Parse --partition-by and --sort-by of a new table. Raises BadInputError."""
    spec, order = UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER
    as_json = schema.model_dump(by_alias=True, mode="json")
    try:
        if target.partition_by:
            spec = PartitionSpec.model_validate(parse_partition_fields(target.partition_by, as_json))
        if target.sort_by:
            order = SortOrder.model_validate(parse_sort_fields(target.sort_by, as_json))
    except ValueError as error:
        raise BadInputError(f"Invalid --partition-by or --sort-by: {' '.join(str(error).split())[:300]}") from error
    return spec, order
