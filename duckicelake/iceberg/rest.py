"""The bodies of requests to the catalog (REST specification)."""

from pydantic import Field

from duckicelake.iceberg.model import SpecModel
from duckicelake.iceberg.names import NamespaceField, TableNameField
from duckicelake.iceberg.partition import UnboundPartitionSpec
from duckicelake.iceberg.requirements import TableRequirement
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.sort import SortOrder
from duckicelake.iceberg.updates import TableUpdate
from duckicelake.iceberg.view import ViewVersion
from duckicelake.iceberg.view_updates import ViewRequirement, ViewUpdate


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
    """A table to create; the ids inside are only how schema, spec and order refer to one another."""

    name: TableNameField
    location: str | None = None
    schema_: Schema
    partition_spec: UnboundPartitionSpec | None = None
    write_order: SortOrder | None = None
    stage_create: bool = False
    properties: dict[str, str] = Field(default_factory=dict)


class CommitTableRequest(SpecModel):
    """Updates to make if the requirements hold; `identifier` counts in a transaction over several tables."""

    identifier: TableIdentifier | None = None
    requirements: tuple[TableRequirement, ...] = ()
    updates: tuple[TableUpdate, ...]


class CommitTransactionRequest(SpecModel):
    """Changes of several tables, to be committed together; each names its table."""

    table_changes: tuple[CommitTableRequest, ...]


class RemoteSignRequest(SpecModel):
    """A request to the object store that a client wants signed; `body` only where the signature must cover it."""

    region: str = ""
    uri: str
    method: str
    headers: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    properties: dict[str, str] | None = None
    body: str | None = None
    provider: str | None = None


class RegisterTableRequest(SpecModel):
    """A table to make of a metadata.json; with `overwrite` it replaces the one of its name."""

    name: TableNameField
    metadata_location: str
    overwrite: bool = False


class RenameTableRequest(SpecModel):
    source: TableIdentifier
    destination: TableIdentifier


class CreateViewRequest(SpecModel):
    """A view to create; of its version, the ids and the time are the server's to choose."""

    name: TableNameField
    location: str | None = None
    schema_: Schema
    view_version: ViewVersion
    properties: dict[str, str] = Field(default_factory=dict)


class CommitViewRequest(SpecModel):
    """Updates to make to a view if the requirements hold."""

    identifier: TableIdentifier | None = None
    requirements: tuple[ViewRequirement, ...] = ()
    updates: tuple[ViewUpdate, ...]


class RegisterViewRequest(SpecModel):
    """A view to make from a metadata.json that exists."""

    name: TableNameField
    metadata_location: str
