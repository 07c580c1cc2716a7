"""PURE. What a table is: a change of Iceberg's schema, spec, sort order and comment as a change of DuckLake's rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from duckicelake.bridge.columns import columns_of
from duckicelake.bridge.parquet_types import quoted
from duckicelake.bridge.partitions import has_buckets, keys_of
from duckicelake.errors import Unsupported
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.sort import SortOrder
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.changes import DefinitionChange
from duckicelake.lake.model import Column, PartitionKey, SortKey

COMMENT = "comment"
_DIRECTIONS = {"asc": "ASC", "desc": "DESC"}
_NULL_ORDERS = {"nulls-first": "NULLS_FIRST", "nulls-last": "NULLS_LAST"}


def creation(target: TableMetadata) -> DefinitionChange:
    """The rows of a new table."""
    columns = columns_of(target.schema())
    keys = keys_of(target.spec(), target.schema(), with_buckets=True)
    comment = target.properties.get(COMMENT)
    return DefinitionChange(
        new_columns=columns,
        hidden_columns=_hidden(columns, 0, target.last_column_id),
        comments={column.column_id: column.comment for column in columns if column.comment},
        table_comment=(comment,) if comment is not None else None,
        partition_keys=keys or None,
        sort_keys=sort_keys(target.sort_order(), target.schema()) or None,
        columns_after=columns,
    )


@dataclass(frozen=True, slots=True)
class Declared:
    """What DuckLake says of a table in words of its own: its partition keys, and types narrower than Iceberg's by id.

    Those `outgrown` can't stay.
    """

    partition_keys: tuple[PartitionKey, ...] = ()
    narrow: Mapping[int, str] = field(default_factory=dict)
    outgrown: frozenset[int] = frozenset()


def change(base: TableMetadata, target: TableMetadata, declared: Declared, *, holds_files: bool) -> DefinitionChange:
    """The rows that change from `base` to `target`.

    A bucket is declared to DuckLake only on an empty table, or if it is already: DuckDB skips files without its value.
    Its column is begun anew, as DuckDB's narrower integers and timestamps would get into other buckets than Iceberg's.
    """
    after = columns_of(target.schema())
    if _is_same(base, target) and not declared.outgrown:
        return DefinitionChange(columns_after=_narrowed(after, declared.narrow))
    before = columns_of(base.schema())
    if holds_files:
        _check_nested_defaults(base.schema(), target.schema())
    comment, old_comment = target.properties.get(COMMENT), base.properties.get(COMMENT)
    old_keys = declared.partition_keys
    keys = declarable_keys(target, old_keys, holds_files=holds_files)
    respecified = target.default_spec_id != base.default_spec_id or not _same_columns(before, after)
    sorting = sort_keys(target.sort_order(), target.schema())
    bucketed = {key.column_id for key in keys if respecified and has_buckets([key]) and key not in old_keys}
    kept = [column for column in before if column.column_id not in bucketed | declared.outgrown]
    gone, new = _only_in(before, after), _only_in(after, kept)
    begun = {column.column_id for column in new}
    respecified |= any(key.column_id in begun and has_buckets([key]) and key not in keys for key in old_keys)
    narrow = {column_id: kind for column_id, kind in declared.narrow.items() if column_id not in begun}
    return DefinitionChange(
        ended_columns=tuple(c.column_id for c in before if c not in kept or c in gone),
        new_columns=tuple(new),
        hidden_columns=_hidden(after, base.last_column_id, target.last_column_id),
        comments=_comments(before, after),
        table_comment=(comment,) if comment != old_comment else None,
        partition_keys=keys if respecified and keys != old_keys else None,
        sort_keys=sorting if sorting != sort_keys(base.sort_order(), base.schema()) else None,
        columns_after=_narrowed(after, narrow),
    )


def _is_same(base: TableMetadata, target: TableMetadata) -> bool:
    """Whether nothing changes that DuckLake could be told of."""
    if base.properties.get(COMMENT) != target.properties.get(COMMENT) or base.last_column_id != target.last_column_id:
        return False
    shared = ("schemas", "partition_specs", "sort_orders")
    current = ("current_schema_id", "default_spec_id", "default_sort_order_id")
    return all(getattr(base, name) is getattr(target, name) for name in shared) and all(
        getattr(base, name) == getattr(target, name) for name in current
    )


def _narrowed(columns: Sequence[Column], narrow: Mapping[int, str]) -> tuple[Column, ...]:
    """The columns of the types that DuckLake has for them."""
    return tuple(replace(c, column_type=narrow[c.column_id]) if c.column_id in narrow else c for c in columns)


def declarable_keys(
    target: TableMetadata, declared: Sequence[PartitionKey], *, holds_files: bool
) -> tuple[PartitionKey, ...]:
    """The partition keys that DuckLake may be told of."""
    keys = keys_of(target.spec(), target.schema(), with_buckets=True)
    buckets = {key for key in keys if has_buckets([key])}
    if holds_files and not buckets <= set(declared):
        return keys_of(target.spec(), target.schema(), with_buckets=False)
    return keys


def sort_keys(order: SortOrder, schema: Schema) -> tuple[SortKey, ...]:
    """DuckLake's sort keys of a sort order; none at all where a field isn't a plain top-level column."""
    names = {field.id: field.name for field in schema.fields}
    if any(field.transform.name != "identity" or field.source_id not in names for field in order.fields):
        return ()
    return tuple(
        SortKey(quoted(names[field.source_id]), _DIRECTIONS[field.direction], _NULL_ORDERS[field.null_order])
        for field in order.fields
    )


def _check_nested_defaults(before: Schema, after: Schema) -> None:
    """Unsupported for a new struct, list or map that rows of before shall have a value of: to DuckDB they hold null."""
    known = before.fields_by_id()
    for each in after.fields_by_id().values():
        nested = not isinstance(each.type, PrimitiveType)
        if nested and each.initial_default is not None and each.id not in known:
            raise Unsupported(
                "default-values",
                f"Field {each.name!r} has an initial default, which DuckDB doesn't read in rows of before: add it "
                "with a write default only, or while the table is empty",
            )


def _same_columns(before: Sequence[Column], after: Sequence[Column]) -> bool:
    return {c.column_id for c in before} == {c.column_id for c in after}


def _only_in(columns: Sequence[Column], others: Sequence[Column]) -> list[Column]:
    """Columns whose row isn't the same in the others, comments aside."""
    known = {replace(column, comment=None) for column in others}
    return [column for column in columns if replace(column, comment=None) not in known]


def _hidden(columns: Iterable[Column], last_before: int, last_after: int) -> tuple[Column, ...]:
    """A column never to be seen, so that DuckDB's next column id lies above every id that Iceberg has given out."""
    highest = max((column.column_id for column in columns), default=0)
    if last_after <= max(highest, last_before):
        return ()
    return (Column(last_after, None, f"_reserved_{last_after}", "int32", nulls_allowed=True),)


def _comments(before: Sequence[Column], after: Sequence[Column]) -> dict[int, str | None]:
    old = {column.column_id: column.comment for column in before}
    new = {column.column_id: column.comment for column in after}
    return {key: new.get(key) for key in old | new if old.get(key) != new.get(key)}
