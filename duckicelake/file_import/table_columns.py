"""Decide which columns a load gives a table, and parse the layout of a new one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from duckicelake.client.schema_text import parse_partition_fields, parse_sort_fields
from duckicelake.errors import BadColumnError, BadInputError
from duckicelake.file_import.column_types import (
    build_schema,
    check_nesting,
    holds_type,
    join_types,
    replace_type,
    widen_type,
)
from duckicelake.pipeline.destination import LoadRequest, Target

if TYPE_CHECKING:
    from pyiceberg.table import Table

_NEW_IDS: Final = 10_000
"""Of columns that the catalog numbers once they are added."""
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoadColumns:
    """The columns that a table must have for a load: all, the new ones, and those of wider types.

    A path leads from a column to one of its fields.
    """

    fields: tuple[NestedField, ...]
    new: Mapping[Path, IcebergType]
    widened: Mapping[Path, IcebergType]


@dataclass(slots=True)
class ColumnChanges:
    """What a table's columns lack for those of files, fields of structs included. Keys of maps can't change.

    may_widen: whether types are widened, as Iceberg can. are_checked: columns of files have parts where the table's do.
    """

    may_widen: bool = False
    are_checked: bool = False
    new: dict[Path, IcebergType] = field(default_factory=dict)
    widened: dict[Path, IcebergType] = field(default_factory=dict)

    def join_fields(
        self, path: Path, here: Sequence[NestedField], come: Sequence[NestedField]
    ) -> tuple[NestedField, ...]:
        """Return the fields that hold those of files, too, and note what is new or wider. Raises BadColumnError."""
        wanted = {one.name.lower(): one for one in come}
        kept = []
        for one in here:
            other = wanted.pop(one.name.lower(), one)
            kept.append(replace_type(one, self._join((*path, one.name), one.field_type, other.field_type)))
        for number, one in enumerate(wanted.values()):
            self.new[*path, one.name] = one.field_type
            kept.append(NestedField(_NEW_IDS + number, one.name, one.field_type, required=False))
        return tuple(kept)

    def _join(self, path: Path, here: IcebergType, come: IcebergType) -> IcebergType:
        if isinstance(here, StructType) and isinstance(come, StructType):
            return StructType(*self.join_fields(path, here.fields, come.fields))
        if isinstance(here, ListType) and isinstance(come, ListType):
            element = self._join((*path, "element"), here.element_type, come.element_type)
            return ListType(here.element_id, element, element_required=here.element_required)
        if isinstance(here, MapType) and isinstance(come, MapType):
            value = self._join((*path, "value"), here.value_type, come.value_type)
            return MapType(here.key_id, here.key_type, here.value_id, value, value_required=here.value_required)
        if self.are_checked and self.may_widen:
            check_nesting(format_path(path), here, come)
        wide = widen_type(here, come) if self.may_widen else None
        if wide is not None:
            self.widened[path] = wide
        return here if wide is None else wide


def format_path(path: Path) -> str:
    """Format a path of names as Iceberg names nested fields."""
    return ".".join(path)


def join_columns(found: Iterable[Mapping[str, IcebergType]]) -> dict[str, IcebergType]:
    """Return the columns of groups by name, regardless of case; types that differ become the wider one, or text."""
    joined: dict[str, tuple[str, IcebergType]] = {}
    for columns in found:
        for name, type_ in columns.items():
            label, before = joined.get(name.lower(), (name, type_))
            joined[name.lower()] = (label, join_types(before, type_))
    return dict(joined.values())


def choose_columns(
    request: LoadRequest, table: Table | None, come: Mapping[str, IcebergType], given: Schema | None, *, is_text: bool
) -> LoadColumns:
    """Choose the columns that the table gets. Raises BadColumnError if --evolve strict forbids it, or none fits."""
    wanted = {one.name: one.field_type for one in given.fields} if given is not None else dict(come)
    if given is not None:
        lacking = ColumnChanges()
        lacking.join_fields((), given.fields, build_schema(come).fields)
        if lacking.new:
            raise BadColumnError(
                f"The files have columns that --schema lacks: {', '.join(map(format_path, lacking.new))}"
            )
    if table is None:
        fields = given.fields if given is not None else build_schema(wanted).fields
        return LoadColumns(fields, {(name,): type_ for name, type_ in wanted.items()}, {})
    changes = ColumnChanges(may_widen=given is not None or not is_text, are_checked=given is None)
    kept = changes.join_fields((), table.schema().fields, build_schema(wanted).fields)
    new, widened = changes.new, changes.widened
    if come and len([path for path in new if len(path) == 1]) == len(wanted):
        raise BadColumnError(
            f"None of the files' columns is in {request.target}: they have {', '.join(list(wanted)[:10])}, "
            f"the table has {', '.join(one.name for one in table.schema().fields)}; check --option sep=, or the header"
        )
    if (new or widened) and not request.may_change:
        named = [f"new {format_path(path)} {type_}" for path, type_ in new.items()]
        named += [f"{format_path(path)} to {type_}" for path, type_ in widened.items()]
        raise BadColumnError(f"--evolve strict: {request.target} would need {', '.join(named)}")
    if given is not None:
        _check_given(request.target, given, {one.name.lower(): one for one in kept}, table.schema())
    return LoadColumns(kept, new, widened)


def _check_given(target: Target, given: Schema, kept: Mapping[str, NestedField], before: Schema) -> None:
    """Check that a table which is there has the columns of --schema or gets them, of their types or wider ones.

    kept: the columns that the table has then, by names in lower case. before: its schema now.
    """
    here = {column.name: column.field_type for column in before.fields}
    for wanted in given.fields:
        column = kept[wanted.name.lower()]
        if column.name not in here:
            if wanted.required:
                raise BadColumnError(
                    f"--schema has {wanted.name} NOT NULL, which {target} lacks: "
                    "a new column can't be NOT NULL; leave it out"
                )
            continue
        if not holds_type(column.field_type, wanted.field_type):
            raise BadColumnError(
                f"--schema has {wanted.name} {wanted.field_type}, and {target} has {column.name} {here[column.name]}: "
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
