"""The bodies of requests to the catalog (REST specification)."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, Field

from duckicelake.iceberg.identifiers import NamespaceField, TableNameField
from duckicelake.iceberg.model import SpecModel
from duckicelake.iceberg.partition import UnboundPartitionSpec
from duckicelake.iceberg.requirements import TableRequirement
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.sort import SortOrder
from duckicelake.iceberg.updates import AddSchema, AddSortOrder, AddSpec, TableUpdate
from duckicelake.iceberg.view import AddViewVersion, ViewRequirement, ViewUpdate, ViewVersion

MAX_ADDED: Final = 1000
"""Schemas, specs and orders with their fields, and view versions, in a commit: each is compared with all others."""
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
