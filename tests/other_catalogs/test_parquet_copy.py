"""Tables in ORC and Avro come by a copy of their rows: files written by fastavro and PyArrow, read by DuckDB."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import fastavro
import orjson
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from duckicelake.iceberg.manifest.entry import (
    DataFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from duckicelake.iceberg.manifest.writer import write_manifest, write_manifest_list
from duckicelake.iceberg.metadata import parse_table_metadata
from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import RunningLake, running_lake
from tests.engines.conftest import new_folder
from tests.support.commands import invoke

_numbers = count(1)
_UUID = UUID("12345678-1234-5678-1234-567812345678")


@dataclass
class Lake:
    """A lake, and a Hadoop catalog whose files only the command reads."""

    running: RunningLake
    duck: duckdb.DuckDBPyConnection
    warehouse: Path

    def migrate(self, table: "SourceTable", *arguments: str, code: int = 0) -> dict[str, Any]:
        given = ("--from", "hadoop", "--option", f"warehouse={self.warehouse}", "--namespace", table.namespace)
        ran = invoke("migrate-catalog", *given, "--uri", self.running.uri, "--json", *arguments)
        assert ran.exit_code == code, ran.output
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        return next(line for line in lines if line["kind"] == "table")

    def read(self, table: "SourceTable", columns: str = "*") -> list[tuple[Any, ...]]:
        return self.duck.execute(f"SELECT {columns} FROM lake.{table.namespace}.t ORDER BY id").fetchall()


@dataclass
class SourceTable:
    """A table whose versions are written by hand."""

    warehouse: Path
    schema: Sequence[Mapping[str, Any]]
    partition: Sequence[Mapping[str, Any]] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    namespace: str = field(default_factory=lambda: f"copied{next(_numbers)}")
    files: list[tuple[int, DataFile]] = field(default_factory=list)
    """With the sequence number that each was added by."""
    versions: int = 0

    @property
    def folder(self) -> Path:
        folder = self.warehouse / self.namespace / "t"
        (folder / "metadata").mkdir(parents=True, exist_ok=True)
        return folder

    def add_avro(self, records: Sequence[Mapping[str, Any]], schema: dict[str, Any], **of: Any) -> Path:
        path = self.folder / f"{next(_numbers)}.avro"
        with path.open("wb") as stream:
            fastavro.writer(stream, schema, records)
        return self._add(path, "AVRO", len(records), **of)

    def add_orc(self, rows: pa.Table, **of: Any) -> Path:
        path = self.folder / f"{next(_numbers)}.orc"
        pyarrow.orc.write_table(rows, path)
        return self._add(path, "ORC", len(rows), **of)

    def add_parquet(self, rows: pa.Table, **of: Any) -> Path:
        path = self.folder / f"{next(_numbers)}.parquet"
        pq.write_table(rows, path)
        return self._add(path, "PARQUET", len(rows), **of)

    def _add(self, path: Path, kind: str, rows: int, *, sequence: int = 1, **of: Any) -> Path:
        given = {"content": FileContent.DATA, "partition": (), **of}
        file = DataFile(
            file_path=str(path), file_format=kind, record_count=rows, file_size_in_bytes=path.stat().st_size, **given
        )
        self.files.append((sequence, file))
        return path

    def commit(self) -> None:
        """Write the next version, with all files."""
        self.versions += 1
        metadata = self._metadata()
        parsed = parse_table_metadata({**metadata, "current-snapshot-id": None, "snapshots": []})
        manifests = []
        for number, (sequence, file) in enumerate(self.files):
            content = ManifestContent.DATA if file.content is FileContent.DATA else ManifestContent.DELETES
            entry = ManifestEntry(EntryStatus.ADDED, 1, sequence, sequence, file)
            data = write_manifest(
                format_version=2, content=content, schema=parsed.schema(), spec=parsed.spec(), entries=[entry]
            )
            path = self.folder / "metadata" / f"{self.versions}-m{number}.avro"
            path.write_bytes(data)
            line = ManifestFile(
                str(path), len(data), 0, content, sequence, sequence, 1, 1, 0, 0, file.record_count, 0, 0
            )
            manifests.append(line)
        listed = write_manifest_list(
            format_version=2, snapshot_id=self.versions, parent_snapshot_id=None, sequence_number=9, manifests=manifests
        )
        Path(metadata["snapshots"][0]["manifest-list"]).write_bytes(listed)
        (self.folder / "metadata" / f"v{self.versions}.metadata.json").write_bytes(orjson.dumps(metadata))

    def _metadata(self) -> dict[str, Any]:
        snapshot = {
            "snapshot-id": self.versions,
            "sequence-number": 9,
            "timestamp-ms": 1_700_000_000_000,
            "manifest-list": str(self.folder / "metadata" / f"snap-{self.versions}.avro"),
            "summary": {"operation": "append"},
        }
        number = int(self.namespace.removeprefix("copied"))
        return {
            "format-version": 2,
            "table-uuid": str(UUID(int=number)),
            "location": f"file://{self.folder}",
            "last-sequence-number": 9,
            "last-updated-ms": 1_700_000_000_000,
            "last-column-id": 99,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": list(self.schema)}],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": list(self.partition)}],
            "default-spec-id": 0,
            "last-partition-id": 1000,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": dict(self.properties),
            "current-snapshot-id": self.versions,
            "snapshots": [snapshot],
        }


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    with new_folder() as folder:
        allowed = {"DUCKICELAKE_ALLOWED_LOCATIONS": str(folder / "hadoop")}
        with running_lake(folder / "lake", folder / "log", allowed) as running, duckdb_lake(running) as duck:
            yield Lake(running, duck, folder / "hadoop")


def column(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": kind}


def member(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"field-id": number, "name": name, "type": ["null", kind], "default": None}


def record(*fields: Mapping[str, Any], name: str = "table") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


ID, TEXT = column(1, "id", "long"), column(2, "text", "string")
ID_TEXT = record(member(1, "id", "long"), member(2, "text", "string"))
_POINT = {"type": "struct", "fields": [column(12, "x", "int"), column(13, "y", "double")]}
_AVRO_POINT = record(member(12, "x", "int"), name="point")
_KEYED = record({"field-id": 16, "name": "key", "type": "int"}, member(17, "value", "string"), name="k16_v17")
TYPES = [
    ID,
    column(3, "t", "time"),
    column(4, "u", "uuid"),
    column(5, "f", "fixed[3]"),
    column(6, "n", "decimal(20, 2)"),
    column(7, "at", "timestamptz"),
    column(8, "grown", "long"),
    column(9, "points", {"type": "list", "element-id": 11, "element-required": False, "element": _POINT}),
    column(
        10,
        "names",
        {"type": "map", "key-id": 16, "key": "int", "value-id": 17, "value-required": False, "value": "string"},
    ),
    column(18, "day", "date"),
    column(19, "with space", "string"),
]
AVRO_TYPES = record(
    member(1, "id", "long"),
    member(3, "t", {"type": "long", "logicalType": "time-micros"}),
    member(4, "u", {"type": "fixed", "size": 16, "logicalType": "uuid", "name": "uuid_fixed"}),
    member(5, "f", {"type": "fixed", "size": 3, "name": "fixed_3"}),
    member(6, "n", {"type": "fixed", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 2, "name": "d"}),
    member(7, "at", {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}),
    member(8, "grown", "int"),
    member(9, "points", {"type": "array", "element-id": 11, "items": ["null", _AVRO_POINT]}),
    member(10, "names", {"type": "array", "logicalType": "map", "items": _KEYED}),
    member(18, "day", {"type": "int", "logicalType": "date"}),
    member(19, "with_x20space", "string"),
)


def test_avro_comes_with_every_type_and_evolved_columns(lake: Lake) -> None:
    table = SourceTable(lake.warehouse, TYPES, properties={"write.format.default": "avro"})
    full: dict[str, Any] = {
        "id": 1,
        "t": time(12, 30, 1, 5),
        "u": _UUID.bytes,
        "f": b"abc",
        "n": Decimal("123456789012345678.25"),
        "at": datetime.fromisoformat("1931-05-05T01:02:03.000004+00:00"),
        "grown": -7,
        "points": [{"x": 1}, None, {"x": None}],
        "names": [{"key": 3, "value": "c"}, {"key": 1, "value": None}],
        "day": date(1931, 5, 5),
        "with_x20space": "b",
    }
    table.add_avro([full, {"id": 2}, {"id": 3, "points": [], "names": []}], AVRO_TYPES)
    table.commit()
    refused = lake.migrate(table, code=1)
    assert (refused["state"], "--rewrite copies its rows to Parquet" in refused["detail"]) == ("refused", True)
    assert lake.migrate(table, "--rewrite", "--dry-run")["state"] == "would copy"
    copied = lake.migrate(table, "--rewrite")
    assert (copied["state"], copied["detail"]) == ("copied", "files: 1, rows: 3")
    assert lake.migrate(table)["state"] == "there"
    first, second, third = lake.read(table, '* REPLACE (epoch_us("at") AS "at")')
    assert second == (2, *[None] * 10)
    assert third == (3, *[None] * 6, [], {}, None, None)
    moment = full["at"]
    assert first == (
        1,
        full["t"],
        _UUID,
        b"abc",
        full["n"],
        (moment - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1),
        -7,
        [{"x": 1, "y": None}, None, {"x": None, "y": None}],
        {3: "c", 1: None},
        full["day"],
        "b",
    )
    with pyiceberg_catalog(lake.running) as catalog:
        there = catalog.load_table(f"{table.namespace}.t")
        assert there.scan(selected_fields=("id", "n")).to_arrow().sort_by("id")["n"].to_pylist() == [
            full["n"],
            None,
            None,
        ]
        assert there.schema().highest_field_id == 19
        assert there.metadata.last_column_id == 99
        assert [one.file.file_format for one in there.scan().plan_files()] == ["PARQUET"]


def test_deletes_of_every_kind_are_applied_where_they_reach(lake: Lake) -> None:
    spec = [{"source-id": 2, "field-id": 1000, "name": "text", "transform": "identity"}]
    table = SourceTable(lake.warehouse, [ID, TEXT], spec)
    mapping = [{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["text"]}]
    table.properties = {"schema.name-mapping.default": json.dumps(mapping)}
    a = table.add_avro([{"id": n, "text": "a"} for n in range(6)], ID_TEXT, partition=("a",))
    table.add_orc(pa.table({"id": [10, 11, None]}), partition=("b",))  # as Hive writes: without the partition's column
    table.add_avro([{"id": 1, "text": "a"}], ID_TEXT, partition=("a",), sequence=3)
    position = record(
        {"field-id": 2147483546, "name": "file_path", "type": "string"},
        {"field-id": 2147483545, "name": "pos", "type": "long"},
    )
    table.add_avro(
        [{"file_path": str(a), "pos": 0}, {"file_path": str(a), "pos": 5}],
        position,
        content=FileContent.POSITION_DELETES,
        partition=("a",),
        sequence=2,
    )
    of_id = record(member(1, "id", "long"))
    equal = {"content": FileContent.EQUALITY_DELETES, "equality_ids": (1,), "sequence": 2}
    table.add_avro([{"id": 1}, {"id": 10}], of_id, partition=("a",), **equal)
    ids = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
    table.add_parquet(pa.table({"id": [None]}, ids), partition=("b",), **equal)
    table.commit()
    assert lake.migrate(table, "--rewrite")["detail"] == "files: 3, rows: 6"
    assert lake.read(table) == [(1, "a"), (2, "a"), (3, "a"), (4, "a"), (10, "b"), (11, "b")]
    with pyiceberg_catalog(lake.running) as catalog:
        there = catalog.load_table(f"{table.namespace}.t")
        assert there.scan("text = 'b'").to_arrow()["id"].to_pylist() == [10, 11]
        assert {one.file.partition[0] for one in there.scan().plan_files()} == {"a", "b"}
    lake.duck.execute(f"DELETE FROM lake.{table.namespace}.t WHERE id = 2")
    assert lake.migrate(table)["state"] == "there"


def test_an_interrupted_copy_goes_on_and_the_table_appears_when_all_is_there(lake: Lake) -> None:
    table = SourceTable(lake.warehouse, [ID, TEXT])
    table.add_avro([{"id": 1, "text": "one"}], ID_TEXT)
    torn = table.add_avro([{"id": 2, "text": "two"}], ID_TEXT)
    table.commit()
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-20])
    refused = lake.migrate(table, "--rewrite", code=1)
    assert (refused["state"], f"{torn} can't be copied" in refused["detail"]) == ("refused", True)
    with pyiceberg_catalog(lake.running) as catalog:
        assert not catalog.table_exists(f"{table.namespace}.t")
    (first,) = (lake.warehouse.parent / "lake").rglob(f"{table.namespace}/*/data/*.parquet")
    written = first.stat().st_mtime_ns
    torn.write_bytes(whole)
    assert lake.migrate(table, "--rewrite")["detail"] == "files: 2, rows: 2"
    assert first.stat().st_mtime_ns == written
    assert lake.read(table) == [(1, "one"), (2, "two")]


def test_what_the_source_gained_comes_by_a_new_copy(lake: Lake) -> None:
    table = SourceTable(lake.warehouse, [ID, TEXT])
    table.add_avro([{"id": 1, "text": "one"}], ID_TEXT)
    table.commit()
    lake.migrate(table, "--rewrite")
    table.add_avro([{"id": 2, "text": "two"}], ID_TEXT)
    table.commit()
    behind = lake.migrate(table, code=1)
    assert behind["detail"] == "a copy of snapshot 1; --update --rewrite copies it again"
    assert lake.migrate(table, "--rewrite", "--update")["detail"] == "files: 2, rows: 2"
    assert lake.read(table) == [(1, "one"), (2, "two")]
    lake.duck.execute(f"INSERT INTO lake.{table.namespace}.t VALUES (3, 'here')")
    table.commit()
    assert lake.migrate(table, "--rewrite", "--update", code=1)["state"] == "diverged"


def test_register_copies_one_table_and_says_what_is_wrong(lake: Lake, tmp_path: Path) -> None:
    table = SourceTable(tmp_path, [ID, TEXT])
    table.add_avro([{"id": 1, "text": "one"}], ID_TEXT)
    table.commit()
    lake.duck.execute(f"CREATE SCHEMA lake.{table.namespace}")
    name, location = f"{table.namespace}.t", str(table.folder / "metadata/v1.metadata.json")

    def register(*arguments: str) -> tuple[int, str]:
        ran = invoke("register", name, *arguments, "--uri", lake.running.uri)
        return ran.exit_code, ran.output

    assert "--option is for --rewrite" in register(location, "--option", "s3.region=x")[1]
    assert "can't be read" in register(f"{location}.gone", "--rewrite")[1]
    assert register(location, "--rewrite") == (0, f"registered {name}: a copy of 1 row in 1 file\n")
    assert "is there already" in register(location, "--rewrite")[1]
    assert lake.read(table) == [(1, "one")]


def test_a_source_outside_of_the_allowed_locations_is_refused_by_name(lake: Lake, tmp_path: Path) -> None:
    table = SourceTable(tmp_path, [ID, TEXT])
    table.add_avro([{"id": 1, "text": "one"}], ID_TEXT)
    table.commit()
    outside = Lake(lake.running, lake.duck, tmp_path)
    refused = outside.migrate(table, "--rewrite", code=1)
    assert (refused["state"], "DUCKICELAKE_ALLOWED_LOCATIONS" in refused["detail"]) == ("refused", True), refused
    assert "--rewrite needs this, too" in refused["detail"]
    assert "--rewrite" not in outside.migrate(table, code=1)["detail"]


def test_an_encrypted_file_is_refused_by_name(lake: Lake) -> None:
    table = SourceTable(lake.warehouse, [ID, TEXT])
    path = table.add_avro([{"id": 1, "text": "one"}], ID_TEXT)
    table.files = [(sequence, replace(file, key_metadata=b"key")) for sequence, file in table.files]
    table.commit()
    refused = lake.migrate(table, "--rewrite", code=1)
    assert (refused["state"], refused["detail"]) == ("refused", f"{path} is encrypted")


def test_what_pyiceberg_reads_not_at_all_of_other_formats(tmp_path: Path) -> None:
    """MISSING.md names both under "Faults of others"."""
    avro = SourceTable(tmp_path, [ID, TEXT])
    avro.add_avro([{"id": 1, "text": "one"}], ID_TEXT)
    far = make_far_table(tmp_path)
    for table, error in ((avro, ValueError), (far, pa.ArrowInvalid)):
        table.commit()
        with pytest.raises(error):
            StaticTable.from_metadata(str(table.folder / "metadata/v1.metadata.json")).scan().to_arrow()


def test_timestamps_of_orc_that_pyarrow_cannot_read_are_refused_with_a_way_out(lake: Lake) -> None:
    table = make_far_table(lake.warehouse)
    table.commit()
    refused = lake.migrate(table, "--rewrite", code=1)
    assert (refused["state"], "rewrite the table to Parquet with Spark" in refused["detail"]) == ("refused", True)


def make_far_table(warehouse: Path) -> SourceTable:
    mapping = [{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["at"]}]
    named = {"schema.name-mapping.default": json.dumps(mapping)}
    table = SourceTable(warehouse, [ID, column(2, "at", "timestamp")], properties=named)
    table.add_orc(pa.table({"id": [1], "at": pa.array([datetime(1500, 1, 1)], pa.timestamp("us"))}))
    return table
