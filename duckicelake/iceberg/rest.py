"""The bodies of requests to the catalog (REST specification)."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, Field, model_validator

from duckicelake.iceberg.identifiers import NamespaceField, TableNameField
from duckicelake.iceberg.model import Long, SpecModel
from duckicelake.iceberg.partition import UnboundPartitionSpec
from duckicelake.iceberg.requirements import TableRequirement
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.sort import SortOrder
from duckicelake.iceberg.updates import AddSchema, AddSortOrder, AddSpec, TableUpdate
from duckicelake.iceberg.view import AddViewVersion, ViewRequirement, ViewUpdate, ViewVersion

MAX_ADDED: Final = 1000
"""Schemas, specs and orders with their fields, and view versions, in a commit: each is compared with all others."""
MAX_NAMES: Final = 10_000
"""Columns that a request to plan names, in each of its lists."""
Update = TypeVar("Update", bound=TableUpdate | ViewUpdate)


def _limit_updates(updates: tuple[Update, ...]) -> tuple[Update, ...]:
    added = sum(_count_added(updates))
    if added > MAX_ADDED:
        raise ValueError(
            f"add {added} schemas, partition specs, sort orders, fields of these, and versions, but one request "
            f"may add {MAX_ADDED}: send several"
        )
    return updates


def _count_added(updates: Sequence[TableUpdate | ViewUpdate]) -> Iterator[int]:
    for update in updates:
        match update:
            case AddSchema() | AddViewVersion():
                yield 1
            case AddSpec():
                yield 1 + len(update.spec.fields)
            case AddSortOrder():
                yield 1 + len(update.sort_order.fields)


class TableIdentifier(SpecModel):
    namespace: NamespaceField
    name: TableNameField


class CreateNamespaceRequest(SpecModel):
    namespace: NamespaceField
    properties: dict[str, str] = Field(default_factory=dict)


class UpdateNamespacePropertiesRequest(SpecModel):
    removals: tuple[str, ...] = ()
    updates: dict[str, str] = Field(default_factory=dict)


class CreateTableRequest(SpecModel):
    """A table to create. Its ids only relate schema, spec and order to one another."""

    name: TableNameField
    location: str | None = None
    schema_: Schema
    partition_spec: UnboundPartitionSpec | None = None
    write_order: SortOrder | None = None
    stage_create: bool = False
    properties: dict[str, str] = Field(default_factory=dict)


class CommitTableRequest(SpecModel):
    """Updates to apply if the requirements hold. `identifier` is used in transactions over several tables."""

    identifier: TableIdentifier | None = None
    requirements: tuple[TableRequirement, ...] = ()
    updates: Annotated[tuple[TableUpdate, ...], AfterValidator(_limit_updates)]


class CommitTransactionRequest(SpecModel):
    """Changes of several tables, to be committed together; each names its table."""

    table_changes: tuple[CommitTableRequest, ...]


class RemoteSignRequest(SpecModel):
    """A request to the object store that a client wants signed. body: only if the signature must cover it."""

    region: str = ""
    uri: str
    method: str
    headers: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    properties: dict[str, str] | None = None
    body: str | None = None
    provider: str | None = None


class RegisterTableRequest(SpecModel):
    """A table to make from a metadata.json. With `overwrite` it replaces the table of its name."""

    name: TableNameField
    metadata_location: str
    overwrite: bool = False


class RenameTableRequest(SpecModel):
    source: TableIdentifier
    destination: TableIdentifier


class CreateViewRequest(SpecModel):
    """A view to create. The server chooses ids and time of its version."""

    name: TableNameField
    location: str | None = None
    schema_: Schema
    view_version: ViewVersion
    properties: dict[str, str] = Field(default_factory=dict)


class CommitViewRequest(SpecModel):
    """Updates to make to a view if the requirements hold."""

    identifier: TableIdentifier | None = None
    requirements: tuple[ViewRequirement, ...] = ()
    updates: Annotated[tuple[ViewUpdate, ...], AfterValidator(_limit_updates)]


class RegisterViewRequest(SpecModel):
    """A view to make from a metadata.json that exists."""

    name: TableNameField
    metadata_location: str


class PlanTableScanRequest(SpecModel):
    """What a scan reads. The filter is JSON, parsed by `expressions`; without one, everything passes."""

    snapshot_id: Long | None = None
    start_snapshot_id: Long | None = None
    end_snapshot_id: Long | None = None
    select: tuple[str, ...] | None = Field(default=None, max_length=MAX_NAMES)
    filter: Any = True
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    stats_fields: tuple[str, ...] | None = Field(default=None, max_length=MAX_NAMES)
    min_rows_requested: Long | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _check_kinds(self) -> "PlanTableScanRequest":
        is_incremental = self.start_snapshot_id is not None or self.end_snapshot_id is not None
        if is_incremental and self.snapshot_id is not None:
            raise ValueError(
                "snapshot-id names one snapshot, start-snapshot-id and end-snapshot-id a range: send one kind"
            )
        if self.start_snapshot_id is not None and self.end_snapshot_id is None:
            raise ValueError("start-snapshot-id is given, so end-snapshot-id is needed")
        return self


class FetchScanTasksRequest(SpecModel):
    """The body of `fetchScanTasks`. plan_task: a token of a plan."""

    plan_task: str
