"""Schema evolution: what a table that holds rows may change of its fields (table spec, "Schema Evolution")."""

from collections.abc import Iterable

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, NestedField, PrimitiveType

_BOUND_TO_TYPE = frozenset(("identity", "bucket"))


def can_promote(before: IcebergType, after: IcebergType, format_version: int) -> bool:
    """Return whether files written with the type `before` may be read as `after`; every type may be read as itself."""
    if before == after:
        return True
    if not isinstance(before, PrimitiveType):
        return False
    if before.name == "unknown":
        return format_version >= 3
    if not isinstance(after, PrimitiveType):
        return False
    if before.name == after.name == "decimal":
        return before.scale == after.scale and (before.precision or 0) <= (after.precision or 0)
    first_version = before.traits.promotions.get(after.name)
    return first_version is not None and format_version >= first_version


def check_evolution(before: Schema, after: Schema, specs: Iterable[PartitionSpec], format_version: int) -> None:
    """Check that rows written under `before` can be read under `after`.

    Raises:
        InvalidRequestError: a field got a type that its old one doesn't promote to or under which a partition transform
            gives other values, or another initial default.

    """
    known, partitioned = before.map_fields_by_id(), _find_type_bound_sources(specs)
    for field_id, field in after.map_fields_by_id().items():
        old = known.get(field_id)
        if old is None:
            continue
        _check_type(old, field, format_version)
        if old.type != field.type and _format_type(old.type) == "date" and field_id in partitioned:
            raise InvalidRequestError(
                f"Cannot change {field.name!r} from date to {field.type}: the table is or was partitioned by "
                f"{partitioned[field_id]} of it, which would have other values"
            )
        was_promoted = isinstance(old.type, PrimitiveType) and old.type != field.type
        if not was_promoted and old.initial_default != field.initial_default:
            raise InvalidRequestError(
                f"Cannot change the initial default of {field.name!r}: it stands for rows that are already written"
            )


def _check_type(old: NestedField, new: NestedField, format_version: int) -> None:
    before, after = _format_type(old.type), _format_type(new.type)
    parts_may_differ = before == after and not isinstance(old.type, PrimitiveType)
    if not parts_may_differ and not can_promote(old.type, new.type, format_version):
        raise InvalidRequestError(
            f"Cannot change {new.name!r} from {before} to {after}: the rows that the table holds couldn't be read so "
            f"in format version {format_version}"
        )


def _find_type_bound_sources(specs: Iterable[PartitionSpec]) -> dict[int, str]:
    """Find the transforms whose values depend on their source's type, by source id."""
    fields = (field for spec in specs for field in spec.fields)
    return {field.source_id: str(field.transform) for field in fields if field.transform.name in _BOUND_TO_TYPE}


def _format_type(kind: IcebergType) -> str:
    return str(kind) if isinstance(kind, PrimitiveType) else kind.type
