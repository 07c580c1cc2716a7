"""Equality deletes, as Flink writes them: the server resolves them, and every engine reads what Iceberg's Java reads.

Java is the oracle: the very snapshot that a client proposes is also put into a table of its own, in a folder, where no
server touches it, and Spark applies its equality deletes itself.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from scripts.demo_job.server import RunningLake
from tests.engines.engines import Engines, duck, sorted_rows, spark
from tests.support.client import Draft, Json, local
from tests.support.equality_cases import File, Row, Stored, write

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

HISTORY = (
    spark("CREATE TABLE {t} (id bigint, amount double, n int, at timestamp, s struct<x: int, y: string>)"),
    spark(
        "INSERT INTO {t} VALUES "
        "(1, double('NaN'), 1, TIMESTAMP '2024-01-01 00:00:00Z', named_struct('x', 1, 'y', 'a')), "
        "(2, 0.0D, 2, TIMESTAMP '2024-01-01 00:00:01Z', named_struct('x', 2, 'y', NULL)), "
        "(3, -0.0D, NULL, NULL, named_struct('x', NULL, 'y', 'c')), "
        "(4, 1.5D, 4, TIMESTAMP '1969-12-31 23:59:59.999999Z', named_struct('x', 4, 'y', 'd'))"
    ),
    spark("ALTER TABLE {t} ALTER COLUMN n TYPE bigint"),
    spark("ALTER TABLE {t} ADD COLUMN late string"),
    spark("ALTER TABLE {t} RENAME COLUMN amount TO total"),
    spark(
        "INSERT INTO {t} VALUES "
        "(5, double('NaN'), 5000000000, NULL, named_struct('x', 4, 'y', 'e'), 'late'), "
        "(6, -0.0D, 2, TIMESTAMP '2024-01-01 00:00:01Z', named_struct('x', 6, 'y', 'f'), 'x'), "
        "(7, 0.0D, NULL, TIMESTAMP '2024-01-01 00:00:00Z', named_struct('x', 7, 'y', 'g'), 'y'), "
        "(10, 3.0D, NULL, NULL, named_struct('x', 10, 'y', 'j'), 'z'), "
        "(12, 2.0D, 12, NULL, named_struct('x', NULL, 'y', 'l'), 'v')"
    ),
    duck(
        "INSERT INTO {t} VALUES (8, 'nan', 8, NULL, {'x': 8, 'y': 'h'}, 'inlined'), (9, 7, 2, NULL, {'x': 9}, NULL), "
        "(11, 1, 1, NULL, {'x': 11, 'y': 'k'}, 'w'), (13, 13, 13, NULL, {'x': 13, 'y': 'm'}, 'stays')"
    ),
)
TYPES = {"id": "long", "total": "double", "n": "long", "at": "timestamptz", "x": "int", "late": "string"}
DELETES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "zeros": ({"total": -0.0},),
    "NaN": ({"total": math.nan},),
    "promoted, with nulls": ({"n": 2, "at": 1_704_067_201_000_000}, {"n": None, "at": None}),
    "in a struct": ({"x": 4}, {"x": 11}, {"x": None}),
    "a column that old files lack": ({"late": None}, {"late": "y"}),
}


@pytest.mark.parametrize("format_version", [2, 3])
def test_every_engine_reads_what_java_reads(
    engines: Engines, lake: RunningLake, namespace: str, folder: Path, format_version: int
) -> None:
    if lake.backend.minio:
        pytest.skip("Spark reads Java's answer from files, without the server, and so without keys for a bucket")
    name = f"{namespace}.t"
    for step in HISTORY:
        engines.do(step, name)
    if format_version == 3:
        engines.do(spark("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')"), name)
    for title, rows in DELETES.items():
        body, metadata = propose(engines, name, rows)
        before = read(engines, name)["Spark"]
        expected = java_rows(engines, body, metadata, folder / title)
        table = f"{lake.uri}/v1/namespaces/{namespace}/tables/t"
        answer = httpx.post(table, json=body, headers=lake.login(), timeout=60)
        assert answer.status_code == 200, answer.text
        got = read(engines, name)
        assert got == dict.fromkeys(got, expected), title
        assert len(expected) < len(before), title


def propose(engines: Engines, name: str, rows: tuple[Mapping[str, Any], ...]) -> tuple[Json, Json]:
    """A commit of one equality delete file that deletes by the columns of `rows`, and the metadata it builds on."""
    table = engines.catalog.load_table(name)
    metadata: Json = json.loads(local(table.metadata_location).read_bytes())
    draft = Draft(metadata, operation="delete", format_version=metadata["format-version"])
    ids = {name: table.schema().find_field("s.x" if name == "x" else name).field_id for name in rows[0]}
    columns = tuple(Stored(ids[name], name, TYPES[name], nested=name == "x") for name in ids)
    values: list[Row] = [{ids[name]: value for name, value in row.items()} for row in rows]
    struct = table.schema().find_field("s").field_id
    file = File(columns, tuple(values), draft.sequence_number, equality_ids=tuple(ids.values()), struct_id=struct)
    written = write(file, local(metadata["location"]) / "data", 0)
    deletes = DataFile(
        content=FileContent.EQUALITY_DELETES,
        file_path=written.path,
        file_format="PARQUET",
        partition=(),
        record_count=len(rows),
        file_size_in_bytes=written.file_size_in_bytes,
        equality_ids=file.equality_ids,
    )
    return draft.body([draft.manifest([deletes]), *draft.parent_manifests]), metadata


def java_rows(engines: Engines, body: Json, metadata: Json, folder: Path) -> list[str]:
    """What Spark reads from a table in a folder whose newest snapshot is the proposed one."""
    snapshot = next(update["snapshot"] for update in body["updates"] if update["action"] == "add-snapshot")
    proposed = {
        **metadata,
        "last-sequence-number": snapshot["sequence-number"],
        "last-updated-ms": snapshot["timestamp-ms"],
        "current-snapshot-id": snapshot["snapshot-id"],
        "refs": {"main": {"type": "branch", "snapshot-id": snapshot["snapshot-id"]}},
        "snapshots": [*metadata["snapshots"], snapshot],
        "snapshot-log": [],
        "metadata-log": [],
    }
    (folder / "metadata").mkdir(parents=True)
    (folder / "metadata" / "v1.metadata.json").write_text(json.dumps(proposed))
    (folder / "metadata" / "version-hint.text").write_text("1")
    return printed(engines.spark.read.format("iceberg").load(str(folder)).toArrow())


def read(engines: Engines, name: str) -> dict[str, list[str]]:
    return {engine: printed(table) for engine, table in engines.read(name).items()}


def printed(table: pa.Table) -> list[str]:
    """The rows as texts, in which NaN equals itself and -0.0 isn't 0.0."""
    return sorted(map(repr, sorted_rows(table)))
