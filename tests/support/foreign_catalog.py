"""Another catalog, which knows nothing of this one: PyIceberg's own, with its pointers in memory; and the way there."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, StaticTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from duckicelake.catalog import tables
from duckicelake.iceberg.rest import RegisterTableRequest
from tests.support.client import NS, SCHEMA, Client, Json, Row, local, pyiceberg_rows

_REQUIREMENTS: TypeAdapter[tuple[TableRequirement, ...]] = TypeAdapter(tuple[TableRequirement, ...])
_UPDATES: TypeAdapter[tuple[TableUpdate, ...]] = TypeAdapter(tuple[TableUpdate, ...])

CLEANERS = (
    "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 HOUR)",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)",
)


class OtherCatalog(NoopCatalog, MetastoreCatalog):
    """Tables are folders; which metadata.json is a table's is all that the catalog knows."""

    def __init__(self, folder: str) -> None:
        super().__init__("other")
        self.folder = folder
        self.pointers: dict[Identifier, str] = {}

    def create_table(self, identifier: Any, schema: Any, *args: Any, **kwargs: Any) -> Table:
        made: Table = self.create_table_transaction(identifier, schema, *args, **kwargs).commit_transaction()
        return made

    def create_table_transaction(self, identifier: Any, schema: Any, *args: Any, **kwargs: Any) -> Any:
        location = {"location": f"{self.folder}/{'/'.join(self.identifier_to_tuple(identifier))}"}
        return MetastoreCatalog.create_table_transaction(self, identifier, schema, *args, **(location | kwargs))

    def register_table(self, identifier: Any, metadata_location: str, overwrite: bool = False) -> Table:  # noqa: ARG002
        self.pointers[self.identifier_to_tuple(identifier)] = metadata_location
        return self.load_table(identifier)

    def load_table(self, identifier: Any) -> Table:
        name = self.identifier_to_tuple(identifier)
        location = self.pointers[name]
        io = load_file_io(location=location)
        return Table(name, FromInputFile.table_metadata(io.new_input(location)), location, io, self)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        current = self.load_table(table.name()) if table.name() in self.pointers else None
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self.pointers[table.name()] = staged.metadata_location
        return CommitTableResponse.model_validate(
            {"metadata": staged.metadata, "metadata-location": staged.metadata_location}
        )


@dataclass(frozen=True, slots=True)
class Foreign:
    """A table of the other catalog that takes the small client's commits."""

    catalog: OtherCatalog
    name: Identifier

    @property
    def table(self) -> Table:
        return self.catalog.load_table(self.name)

    @property
    def location(self) -> str:
        return self.catalog.pointers[self.name]

    def metadata(self) -> Json:
        metadata: Json = json.loads(local(self.location).read_bytes())
        return metadata

    def commit(self, body: Json) -> Json:
        requirements = _REQUIREMENTS.validate_python(body["requirements"])
        updates = _UPDATES.validate_python(body["updates"])
        self.catalog.commit_table(self.table, requirements, updates)
        return self.metadata()


def new_foreign(folder: str, version: int = 2, schema: Json | None = None, **kwargs: Any) -> Foreign:
    """A new table of the other catalog, with the small client's columns."""
    catalog, name = OtherCatalog(folder), ("ns", "t")
    properties = {"format-version": str(version)} | kwargs.pop("properties", {})
    catalog.create_table(name, Schema.model_validate(schema or SCHEMA), properties=properties, **kwargs)
    return Foreign(catalog, name)


def register(client: Client, location: str, name: str = "r", *, overwrite: bool = False) -> Json:
    request = RegisterTableRequest(name=name, metadata_location=location, overwrite=overwrite)
    answer: Json = json.loads(tables.register_table(client.services, NS, request).body)
    return answer


def unregister(client: Client, name: str = "t") -> Json:
    answer: Json = json.loads(tables.unregister_table(client.services, NS, name))
    return answer


def rows_by_snapshot(location: str) -> dict[int, list[Row]]:
    """What PyIceberg reads of every snapshot, from the files alone."""
    table = StaticTable.from_metadata(location)
    answer = {"metadata-location": location}
    return {snapshot.snapshot_id: pyiceberg_rows(answer, snapshot.snapshot_id) for snapshot in table.snapshots()}
