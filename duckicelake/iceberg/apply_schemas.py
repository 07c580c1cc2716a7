"""Updates of schemas, partition specs and sort orders: equal ones are reused, others get the next id."""

from collections.abc import Iterable, Sequence
from itertools import count

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.draft import Draft
from duckicelake.iceberg.partition import (
    FIRST_PARTITION_FIELD_ID,
    PartitionField,
    PartitionSpec,
    UnboundPartitionField,
    UnboundPartitionSpec,
    check_spec,
)
from duckicelake.iceberg.schema import check_schema
from duckicelake.iceberg.sort import FIRST_SORT_ORDER_ID, UNSORTED, check_order
from duckicelake.iceberg.updates import (
    LAST_ADDED,
    AddSchema,
    AddSortOrder,
    AddSpec,
    RemovePartitionSpecs,
    RemoveSchemas,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
)

_SEQUENTIAL_IDS_VERSION = 1


def add_schema(draft: Draft, update: AddSchema) -> None:
    served = draft.current_schema().fields_by_id() if draft.current_schema_id is not None else {}
    check_schema(update.schema_, draft.format_version, served)
    schema_id = next((each.schema_id for each in draft.schemas.values() if each.same_as(update.schema_)), None)
    if schema_id is None:
        schema_id = _next_id(draft.schemas, first=0)
        draft.schemas[schema_id] = update.schema_.replaced(schema_id=schema_id)
        draft.last_column_id = max(draft.last_column_id, update.schema_.highest_field_id())
    draft.last_added_schema_id = schema_id


def set_current_schema(draft: Draft, update: SetCurrentSchema) -> None:
    draft.current_schema_id = _chosen(update.schema_id, draft.last_added_schema_id, draft.schemas, "schema")


def remove_schemas(draft: Draft, update: RemoveSchemas) -> None:
    if draft.current_schema_id in update.schema_ids:
        raise InvalidRequest("Cannot remove the current schema")
    for schema_id in update.schema_ids:
        draft.schemas.pop(schema_id, None)


def add_spec(draft: Draft, update: AddSpec) -> None:
    schema = draft.current_schema()
    spec_id = next((each.spec_id for each in draft.specs.values() if each.same_as(update.spec)), None)
    if spec_id is None:
        check_spec(update.spec, schema)
        spec_id = _next_id(draft.specs, first=0)
        spec = _bound(draft, spec_id, update.spec)
        draft.specs[spec_id] = spec
        draft.last_partition_id = max(draft.last_partition_id, spec.highest_field_id())
    draft.last_added_spec_id = spec_id


def set_default_spec(draft: Draft, update: SetDefaultSpec) -> None:
    draft.default_spec_id = _chosen(update.spec_id, draft.last_added_spec_id, draft.specs, "partition spec")


def remove_partition_specs(draft: Draft, update: RemovePartitionSpecs) -> None:
    if draft.default_spec_id in update.spec_ids:
        raise InvalidRequest("Cannot remove the default partition spec")
    for spec_id in update.spec_ids:
        draft.specs.pop(spec_id, None)


def add_sort_order(draft: Draft, update: AddSortOrder) -> None:
    order = update.sort_order
    order_id = next((each.order_id for each in draft.orders.values() if each.same_as(order)), None)
    if order_id is None:
        check_order(order, draft.current_schema())
        order_id = _next_id(draft.orders, first=FIRST_SORT_ORDER_ID) if order.fields else UNSORTED.order_id
        draft.orders[order_id] = order.replaced(order_id=order_id)
    draft.last_added_order_id = order_id


def set_default_sort_order(draft: Draft, update: SetDefaultSortOrder) -> None:
    draft.default_sort_order_id = _chosen(update.sort_order_id, draft.last_added_order_id, draft.orders, "sort order")


def _next_id(ids: Iterable[int], first: int) -> int:
    return max(ids, default=first - 1) + 1


def _chosen(wanted: int, last_added: int | None, known: Iterable[int], what: str) -> int:
    if wanted == LAST_ADDED:
        if last_added is None:
            raise InvalidRequest(f"Cannot set last added {what}: no {what} has been added")
        return last_added
    if wanted not in known:
        raise InvalidRequest(f"Cannot set default or current {what} to unknown {what}: {wanted}")
    return wanted


def _bound(draft: Draft, spec_id: int, spec: UnboundPartitionSpec) -> PartitionSpec:
    """Give every field an id: the client's, that of an equal field of another spec, or the next."""
    known = [field for each in draft.specs.values() for field in each.fields]
    taken = [field.field_id for field in spec.fields if field.field_id is not None]
    if draft.format_version == _SEQUENTIAL_IDS_VERSION:
        fresh, known = count(FIRST_PARTITION_FIELD_ID), []
    else:
        fresh = count(max([draft.last_partition_id, *taken]) + 1)
    fields = []
    for field in spec.fields:
        chosen = field.field_id if field.field_id is not None else _known_id(known, field, taken)
        taken.append(next(fresh) if chosen is None else chosen)
        fields.append(_with_id(field, taken[-1]))
    bound = PartitionSpec(spec_id=spec_id, fields=tuple(fields))
    _check_field_ids(draft, bound, known)
    return bound


def _with_id(field: UnboundPartitionField, field_id: int) -> PartitionField:
    return PartitionField(source_id=field.source_id, field_id=field_id, name=field.name, transform=field.transform)


def _known_id(known: Sequence[PartitionField], field: UnboundPartitionField, taken: Sequence[int]) -> int | None:
    same = [each for each in known if _means_the_same(each, field) and each.field_id not in taken]
    named = [each for each in same if each.name == field.name]
    return (named or same)[0].field_id if same else None


def _means_the_same(one: UnboundPartitionField, other: UnboundPartitionField) -> bool:
    return one.source_id == other.source_id and one.transform == other.transform


def _check_field_ids(draft: Draft, spec: PartitionSpec, known: Sequence[PartitionField]) -> None:
    ids = [field.field_id for field in spec.fields]
    if len(set(ids)) < len(ids):
        raise InvalidRequest(f"two partition fields have the same id: {ids}")
    if draft.format_version == _SEQUENTIAL_IDS_VERSION and ids != list(
        range(FIRST_PARTITION_FIELD_ID, FIRST_PARTITION_FIELD_ID + len(ids))
    ):
        raise InvalidRequest(f"Spec does not use sequential IDs that are required in v1: {ids}")
    for field in spec.fields:
        holders = [each for each in known if each.field_id == field.field_id]
        if holders and not any(_compatible(each, field) for each in holders):
            raise InvalidRequest(
                f"partition field id {field.field_id} of {field.name!r} belongs to {holders[0].name!r}"
            )


def _compatible(one: PartitionField, other: PartitionField) -> bool:
    dropped = "void" in {one.transform.name, other.transform.name}
    return one.source_id == other.source_id and (dropped or one.transform == other.transform)
