"""What a commit assumes about the table it changes, and the check of it (REST specification, `TableRequirement`).

The messages are the reference server's: clients and its compatibility kit match their texts.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Tag

from duckicelake.errors import CommitFailedError, InvalidRequestError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.model import Int, Long, SpecModel, build_discriminator

VIEW_REQUIREMENTS = ("assert-view-uuid",)


class AssertCreate(SpecModel):
    type: Literal["assert-create"] = "assert-create"


class AssertTableUuid(SpecModel):
    type: Literal["assert-table-uuid"] = "assert-table-uuid"
    uuid: str


class AssertRefSnapshotId(SpecModel):
    """`snapshot_id` None demands that the ref doesn't exist. ClickHouse leaves the key out then, as Java reads it."""

    type: Literal["assert-ref-snapshot-id"] = "assert-ref-snapshot-id"
    ref: str
    snapshot_id: Long | None = None


class AssertLastAssignedFieldId(SpecModel):
    type: Literal["assert-last-assigned-field-id"] = "assert-last-assigned-field-id"
    last_assigned_field_id: Int


class AssertCurrentSchemaId(SpecModel):
    type: Literal["assert-current-schema-id"] = "assert-current-schema-id"
    current_schema_id: Int


class AssertLastAssignedPartitionId(SpecModel):
    type: Literal["assert-last-assigned-partition-id"] = "assert-last-assigned-partition-id"
    last_assigned_partition_id: Int


class AssertDefaultSpecId(SpecModel):
    type: Literal["assert-default-spec-id"] = "assert-default-spec-id"
    default_spec_id: Int


class AssertDefaultSortOrderId(SpecModel):
    type: Literal["assert-default-sort-order-id"] = "assert-default-sort-order-id"
    default_sort_order_id: Int


TABLE_REQUIREMENTS = (
    "assert-create",
    "assert-table-uuid",
    "assert-ref-snapshot-id",
    "assert-last-assigned-field-id",
    "assert-current-schema-id",
    "assert-last-assigned-partition-id",
    "assert-default-spec-id",
    "assert-default-sort-order-id",
)


TableRequirement = Annotated[
    Annotated[AssertCreate, Tag("assert-create")]
    | Annotated[AssertTableUuid, Tag("assert-table-uuid")]
    | Annotated[AssertRefSnapshotId, Tag("assert-ref-snapshot-id")]
    | Annotated[AssertLastAssignedFieldId, Tag("assert-last-assigned-field-id")]
    | Annotated[AssertCurrentSchemaId, Tag("assert-current-schema-id")]
    | Annotated[AssertLastAssignedPartitionId, Tag("assert-last-assigned-partition-id")]
    | Annotated[AssertDefaultSpecId, Tag("assert-default-spec-id")]
    | Annotated[AssertDefaultSortOrderId, Tag("assert-default-sort-order-id")],
    build_discriminator("type", "requirement", TABLE_REQUIREMENTS, VIEW_REQUIREMENTS),
]


def check_requirements(requirements: Sequence[TableRequirement], base: TableMetadata | None) -> None:
    """Check what a commit assumes about the table; `base` is None where it doesn't exist.

    Raises:
        CommitFailedError: a requirement doesn't hold.
        InvalidRequestError: assert-create beside other requirements.

    """
    creates = any(isinstance(requirement, AssertCreate) for requirement in requirements)
    others = [requirement.type for requirement in requirements if not isinstance(requirement, AssertCreate)]
    if creates and others:
        raise InvalidRequestError(f"Invalid create requirements: {', '.join(others)}; assert-create stands alone")
    for requirement in requirements:
        problem = _find_problem(requirement, base)
        if problem is not None:
            raise CommitFailedError(f"Requirement failed: {problem}", requirement.type)


def _find_problem(requirement: TableRequirement, base: TableMetadata | None) -> str | None:
    if isinstance(requirement, AssertCreate):
        return None if base is None else "table already exists"
    if base is None:
        may_be_new = isinstance(requirement, AssertLastAssignedFieldId | AssertLastAssignedPartitionId)
        return None if may_be_new else "table does not exist"
    if isinstance(requirement, AssertTableUuid):
        same = requirement.uuid.lower() == base.table_uuid.lower()
        return None if same else f"UUID does not match: expected {base.table_uuid} != {requirement.uuid}"
    if isinstance(requirement, AssertRefSnapshotId):
        return _find_ref_problem(requirement, base)
    what, expected, actual = _ID_CHECKS[type(requirement)](requirement, base)
    return None if expected == actual else f"{what} changed: expected id {expected} != {actual}"


def _find_ref_problem(requirement: AssertRefSnapshotId, base: TableMetadata) -> str | None:
    name, expected, ref = requirement.ref, requirement.snapshot_id, base.refs.get(requirement.ref)
    if ref is None:
        return None if expected is None else f"branch or tag {name} is missing, expected {expected}"
    if expected is None:
        return f"{ref.type} {name} was created concurrently"
    if ref.snapshot_id != expected:
        return f"{ref.type} {name} has changed: expected id {expected} != {ref.snapshot_id}"
    return None


_ID_CHECKS: dict[type[SpecModel], Callable[[Any, TableMetadata], tuple[str, int, int]]] = {
    AssertLastAssignedFieldId: lambda requirement, base: (
        "last assigned field id",
        requirement.last_assigned_field_id,
        base.last_column_id,
    ),
    AssertCurrentSchemaId: lambda requirement, base: (
        "current schema",
        requirement.current_schema_id,
        base.current_schema_id,
    ),
    AssertLastAssignedPartitionId: lambda requirement, base: (
        "last assigned partition id",
        requirement.last_assigned_partition_id,
        base.last_partition_id,
    ),
    AssertDefaultSpecId: lambda requirement, base: (
        "default partition spec",
        requirement.default_spec_id,
        base.default_spec_id,
    ),
    AssertDefaultSortOrderId: lambda requirement, base: (
        "default sort order",
        requirement.default_sort_order_id,
        base.default_sort_order_id,
    ),
}
