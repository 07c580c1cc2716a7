"""A small Iceberg reader: rows of a snapshot by field id, from its files alone.

What a file holds is read once, as no name ever means two contents. PyIceberg's reader is the oracle beside it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.iceberg.manifest.entry import DataFile, FileContent, ManifestFile
from duckicelake.iceberg.manifest.reader import read_manifest_list
from duckicelake.iceberg.puffin import FILE_FORMAT, read_vector
from duckicelake.parquet.inlined_rows import read_position_deletes
from tests.model.model import Shown
from tests.support.client import Json, live, local

FIELD_ID = b"PARQUET:field_id"
ById = dict[int, Any]


@dataclass(slots=True)
class Reader:
    """Reads snapshots; remembers files by their paths."""

    rows: dict[tuple[str, str], list[ById]] = field(default_factory=dict)
    deletes: dict[tuple[str, int | None], dict[str, frozenset[int]]] = field(default_factory=dict)
    lists: dict[str, list[DataFile]] = field(default_factory=dict)

    def current(self, metadata: Json) -> Shown:
        """What the table shows: the rows of main under the current schema."""
        current = metadata.get("refs", {}).get("main", {}).get("snapshot-id")
        return self.shown(metadata, current, metadata["current-schema-id"])

    def at(self, metadata: Json, snapshot_id: int) -> Shown:
        """What a snapshot shows under its own schema."""
        return self.shown(metadata, snapshot_id, _snapshot(metadata, snapshot_id)["schema-id"])

    def shown(self, metadata: Json, snapshot_id: int | None, schema_id: int) -> Shown:
        schema = next(each for each in metadata["schemas"] if each["schema-id"] == schema_id)
        ordered = sorted(schema["fields"], key=lambda each: str(each["name"]))
        rows = () if snapshot_id is None else self.live_rows(metadata, snapshot_id)
        made = [tuple(_value(each, row) for each in ordered) for row in rows]
        return Shown(tuple(each["name"] for each in ordered), tuple(sorted(made, key=repr)))

    def live_rows(self, metadata: Json, snapshot_id: int) -> Iterator[ById]:
        files = self.files(_snapshot(metadata, snapshot_id)["manifest-list"])
        deleted = self.deleted(files)
        for file in files:
            if file.content is FileContent.DATA:
                gone = deleted.get(file.file_path, ())
                rows = enumerate(self.data(file.file_path, metadata))
                yield from (row for position, row in rows if position not in gone)

    def files(self, manifest_list: str) -> list[DataFile]:
        """The live files of a snapshot, data and deletes."""
        if manifest_list not in self.lists:
            lines = read_manifest_list(local(manifest_list).read_bytes())
            self.lists[manifest_list] = [entry.data_file for line in lines for entry in live(line)]
        return self.lists[manifest_list]

    def data(self, path: str, metadata: Json) -> list[ById]:
        """A data file's rows by field id; columns without one have those of the table's name mapping."""
        mapping = metadata.get("properties", {}).get("schema.name-mapping.default", "")
        if (path, mapping) not in self.rows:
            table = pq.read_table(local(path), partitioning=None)
            names = _mapped(json.loads(mapping) if mapping else [])
            self.rows[path, mapping] = [_by_id(table.schema, row, names) for row in table.to_pylist()]
        return self.rows[path, mapping]

    def deleted(self, files: Iterable[DataFile]) -> dict[str, set[int]]:
        """The positions that files of deletes delete, by data file."""
        found: dict[str, set[int]] = {}
        for file in files:
            if file.content is not FileContent.DATA:
                for path, positions in self._deleted_by(file).items():
                    found.setdefault(path, set()).update(positions)
        return found

    def _deleted_by(self, file: DataFile) -> dict[str, frozenset[int]]:
        key = file.file_path, file.content_offset
        if key not in self.deletes:
            data = local(file.file_path).read_bytes()
            if file.file_format == FILE_FORMAT:
                offset = file.content_offset or 0
                vector = data[offset : offset + (file.content_size_in_bytes or 0)]
                self.deletes[key] = {str(file.referenced_data_file): frozenset(read_vector(vector))}
            else:
                read = read_position_deletes(data, file.file_path)
                self.deletes[key] = {path: frozenset(positions) for path, positions in read.items()}
        return self.deletes[key]


def lines_of(metadata: Json, snapshot_id: int) -> tuple[ManifestFile, ...]:
    return read_manifest_list(local(_snapshot(metadata, snapshot_id)["manifest-list"]).read_bytes())


def _snapshot(metadata: Json, snapshot_id: int) -> Json:
    return next(each for each in metadata["snapshots"] if each["snapshot-id"] == snapshot_id)


def _mapped(mapping: list[Json]) -> dict[str, tuple[int | None, Any]]:
    """Field id and nested mapping by name."""
    return {name: (each.get("field-id"), _mapped(each.get("fields", []))) for each in mapping for name in each["names"]}


def _by_id(fields: Iterable[pa.Field], values: Json, names: dict[str, tuple[int | None, Any]]) -> ById:
    made = {}
    for each in fields:
        known, nested = names.get(each.name, (None, {}))
        field_id = int(each.metadata[FIELD_ID]) if each.metadata and FIELD_ID in each.metadata else known
        value = values[each.name]
        if field_id is not None:
            made[field_id] = (
                _by_id(each.type, value, nested) if pa.types.is_struct(each.type) and value is not None else value
            )
    return made


def _value(column: Json, row: ById) -> Any:
    value = row[column["id"]] if column["id"] in row else _default(column)
    if isinstance(column["type"], dict) and value is not None:
        ordered = sorted(column["type"]["fields"], key=lambda each: str(each["name"]))
        return tuple(_value(each, value) for each in ordered)
    return value


def _default(column: Json) -> Any:
    value = column.get("initial-default")
    if value is None:
        return None
    if column["type"] == "date":
        return date.fromisoformat(value)
    if column["type"] == "timestamp":
        return datetime.fromisoformat(value)
    return Decimal(value) if str(column["type"]).startswith("decimal") else value
