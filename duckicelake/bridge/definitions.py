"""PURE. Table definitions as DuckLake's rows: the change between two, and the one of a former snapshot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from duckicelake.bridge.values.columns import to_columns
from duckicelake.bridge.values.partitions import has_buckets, is_described_by, to_partition_keys
from duckicelake.bridge.values.types import quote_identifier
from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.iceberg.sort import SortOrder
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.updates import SetCurrentSchema, SetDefaultSortOrder, SetDefaultSpec, TableUpdate
from duckicelake.lake.changes import DefinitionChange
from duckicelake.lake.model import Column, PartitionKey, SortKey, TableDefinition

COMMENT = "comment"
_DIRECTIONS = {"asc": "ASC", "desc": "DESC"}
_NULL_ORDERS = {"nulls-first": "NULLS_FIRST", "nulls-last": "NULLS_LAST"}


def build_creation(target: TableMetadata, *, with_epochs: bool) -> DefinitionChange:
    """Build the rows of a new table. with_epochs: whether the lake takes `epoch_*` keys."""
    columns = to_columns(target.current_schema)
    keys = to_partition_keys(target.spec(), target.current_schema, with_buckets=True, with_epochs=with_epochs)
    comment = target.properties.get(COMMENT)
    return DefinitionChange(
        new_columns=columns,
        hidden_columns=_build_hidden_column(columns, 0, target.last_column_id),
        comments={column.column_id: column.comment for column in columns if column.comment},
        table_comment=(comment,) if comment is not None else None,
        partition_keys=keys or None,
        sort_keys=build_sort_keys(target.sort_order(), target.current_schema) or None,
        columns_after=columns,
    )


@dataclass(frozen=True, slots=True)
class DeclaredDefinition:
    """What DuckLake says of a table in words of its own: its partition keys, and types narrower than Iceberg's by id.

    Those `outgrown` can't stay. with_epochs: whether the lake takes `epoch_*` keys.
    """

    partition_keys: tuple[PartitionKey, ...] = ()
    narrow: Mapping[int, str] = field(default_factory=dict)
    outgrown: frozenset[int] = frozenset()
    with_epochs: bool = False


def build_definition_change(
    base: TableMetadata, target: TableMetadata, declared: DeclaredDefinition, *, holds_files: bool
) -> DefinitionChange:
    """Return the rows that change from `base` to `target`.

    A bucket is declared to DuckLake only on an empty table, or if it is already: DuckDB skips files without its value.
    Its column is begun anew, as DuckDB's narrower integers and timestamps would get into other buckets than Iceberg's.
    """
    after = to_columns(target.current_schema)
    if _is_same(base, target) and not declared.outgrown:
        return DefinitionChange(columns_after=_narrow_columns(after, declared.narrow))
    before = to_columns(base.current_schema)
    if holds_files:
        _check_nested_defaults(base.current_schema, target.current_schema)
    comment, old_comment = target.properties.get(COMMENT), base.properties.get(COMMENT)
    old_keys = declared.partition_keys
    keys = find_declarable_keys(target, declared, holds_files=holds_files)
    respecified = target.default_spec_id != base.default_spec_id or not _have_same_columns(before, after)
    sorting = build_sort_keys(target.sort_order(), target.current_schema)
    bucketed = {key.column_id for key in keys if respecified and has_buckets([key]) and key not in old_keys}
    kept = [column for column in before if column.column_id not in bucketed | declared.outgrown]
    gone, new = _select_only_in(before, after), _select_only_in(after, kept)
    begun = {column.column_id for column in new}
    respecified |= any(key.column_id in begun and has_buckets([key]) and key not in keys for key in old_keys)
    narrow = {column_id: kind for column_id, kind in declared.narrow.items() if column_id not in begun}
    return DefinitionChange(
        ended_columns=tuple(c.column_id for c in before if c not in kept or c in gone),
        new_columns=tuple(new),
        hidden_columns=_build_hidden_column(after, base.last_column_id, target.last_column_id),
        comments=_compare_comments(before, after),
        table_comment=(comment,) if comment != old_comment else None,
        partition_keys=keys if respecified and keys != old_keys else None,
        sort_keys=sorting if sorting != build_sort_keys(base.sort_order(), base.current_schema) else None,
        columns_after=_narrow_columns(after, narrow),
    )


def _is_same(base: TableMetadata, target: TableMetadata) -> bool:
    """Return whether nothing changes that DuckLake has rows for."""
    if base.properties.get(COMMENT) != target.properties.get(COMMENT) or base.last_column_id != target.last_column_id:
        return False
    shared = ("schemas", "partition_specs", "sort_orders")
    current = ("current_schema_id", "default_spec_id", "default_sort_order_id")
    return all(getattr(base, name) is getattr(target, name) for name in shared) and all(
        getattr(base, name) == getattr(target, name) for name in current
    )


def _narrow_columns(columns: Sequence[Column], narrow: Mapping[int, str]) -> tuple[Column, ...]:
    """Return the columns of the types that DuckLake has for them."""
    return tuple(replace(c, column_type=narrow[c.column_id]) if c.column_id in narrow else c for c in columns)


def find_declarable_keys(
    target: TableMetadata, declared: DeclaredDefinition, *, holds_files: bool
) -> tuple[PartitionKey, ...]:
    """Return the partition keys that DuckLake may have; those that it has if they say the same in another form."""
    old_keys, spec, schema = declared.partition_keys, target.spec(), target.current_schema
    parts = to_partition_keys(spec, schema, with_buckets=True)
    with_buckets = not holds_files or {key for key in parts if has_buckets([key])} <= set(old_keys)
    if is_described_by(spec, schema, old_keys) and has_buckets(old_keys) == (with_buckets and has_buckets(parts)):
        return old_keys
    return to_partition_keys(spec, schema, with_buckets=with_buckets, with_epochs=declared.with_epochs)


def build_sort_keys(order: SortOrder, schema: Schema) -> tuple[SortKey, ...]:
    """Return DuckLake's sort keys of a sort order; none at all where a field isn't a plain top-level column."""
    names = {field.id: field.name for field in schema.fields}
    if any(field.transform.name != "identity" or field.source_id not in names for field in order.fields):
        return ()
    return tuple(
        SortKey(quote_identifier(names[field.source_id]), _DIRECTIONS[field.direction], _NULL_ORDERS[field.null_order])
        for field in order.fields
    )


def _check_nested_defaults(before: Schema, after: Schema) -> None:
    """Raise UnsupportedError for a new struct, list or map with a default: DuckDB reads null in older rows."""
    known = before.map_fields_by_id()
    for new_field in after.map_fields_by_id().values():
        nested = not isinstance(new_field.type, PrimitiveType)
        if nested and new_field.initial_default is not None and new_field.id not in known:
            raise UnsupportedError(
                "default-values",
                f"Field {new_field.name!r} has an initial default, which DuckDB doesn't read in rows of before: add it "
                "with a write default only, or while the table is empty",
            )


def _have_same_columns(before: Sequence[Column], after: Sequence[Column]) -> bool:
    return {c.column_id for c in before} == {c.column_id for c in after}


def _select_only_in(columns: Sequence[Column], others: Sequence[Column]) -> list[Column]:
    """Return columns whose row isn't the same in the others, comments aside."""
    known = {replace(column, comment=None) for column in others}
    return [column for column in columns if replace(column, comment=None) not in known]


def _build_hidden_column(columns: Iterable[Column], last_before: int, last_after: int) -> tuple[Column, ...]:
    """Build a column that is never seen: DuckDB's next column id then lies above every id of Iceberg."""
    highest = max((column.column_id for column in columns), default=0)
    if last_after <= max(highest, last_before):
        return ()
    return (Column(last_after, None, f"_reserved_{last_after}", "int32", nulls_allowed=True),)


def _compare_comments(before: Sequence[Column], after: Sequence[Column]) -> dict[int, str | None]:
    old = {column.column_id: column.comment for column in before}
    new = {column.column_id: column.comment for column in after}
    return {key: new.get(key) for key in old | new if old.get(key) != new.get(key)}


@dataclass(frozen=True, slots=True)
class FormerDefinition:
    """Ids of a schema, a spec and an order of the table."""

    schema_id: int
    spec_id: int
    order_id: int

    def updates(self, metadata: TableMetadata) -> Iterator[TableUpdate]:
        """Yield what makes them the table's own; nothing where they are."""
        if self.schema_id != metadata.current_schema_id:
            yield SetCurrentSchema(schema_id=self.schema_id)
        if self.spec_id != metadata.default_spec_id:
            yield SetDefaultSpec(spec_id=self.spec_id)
        if self.order_id != metadata.default_sort_order_id:
            yield SetDefaultSortOrder(sort_order_id=self.order_id)


def find_former_definition(
    metadata: TableMetadata, snapshot: Snapshot, used: AbstractSet[int], then: TableDefinition | None
) -> FormerDefinition:
    """Return what the table was. used: the specs of the snapshot's data files.

    Then: what DuckLake had of it, if known.
    """
    schema = next((s for s in metadata.schemas if s.schema_id == snapshot.schema_id), metadata.schema())
    keys = then.partition_keys if then else None
    sorting = then.sort_keys if then else None
    spec = _find_spec(metadata, schema, used, keys)
    return FormerDefinition(schema.schema_id, spec.spec_id, _find_order(metadata, schema, sorting).order_id)


def _find_spec(
    metadata: TableMetadata, schema: Schema, used: AbstractSet[int], keys: Sequence[PartitionKey] | None
) -> PartitionSpec:
    columns = schema.map_fields_by_id().keys()
    fitting = [s for s in metadata.partition_specs if {field.source_id for field in s.fields} <= columns]
    meant = [s for s in fitting if keys is None or is_described_by(s, schema, keys)] or fitting
    own = metadata.spec()
    with_files = [spec for spec in meant if spec.spec_id in used]
    if own in meant and (own in with_files or not with_files):
        return own
    return max(with_files or meant or [own], key=lambda spec: spec.spec_id)


def _find_order(metadata: TableMetadata, schema: Schema, keys: Sequence[SortKey] | None) -> SortOrder:
    columns = schema.map_fields_by_id().keys()
    fitting = [o for o in metadata.sort_orders if {field.source_id for field in o.fields} <= columns]
    meant = [o for o in fitting if keys is None or build_sort_keys(o, schema) == tuple(keys)] or fitting
    own = metadata.sort_order()
    return own if own in meant or not meant else max(meant, key=lambda order: order.order_id)
