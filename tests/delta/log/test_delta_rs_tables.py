"""Tables that delta-rs wrote, read at every version as it and DuckDB's delta extension read them."""

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.schema import PrimitiveType
from duckdb_extensions import import_extension

from duckicelake.delta.log.actions import Txn
from duckicelake.delta.log.paths import resolve_location
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.delta.log.schema import DeltaPrimitive, format_schema, parse_schema
from duckicelake.storage.local import LocalStore
from duckicelake.storage.s3 import S3Store
from tests.support.backends import Bucket

TEXTS = [
    "a b",
    "50%",
    "x/y",
    "k=v",
    "a+b",
    "ä€😀",
    "c:d",
    "q?#&",
    "'\"\\",
    "%41",
    "{n}[1]*|<>",
    "tab\there",
    "~.-_",
    "a\nb",
]


def rows(first: int, count: int = 3) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "v": [f"v{first}"] * count})


def many_writes(path: str) -> None:
    for first in range(0, 39, 3):
        write_deltalake(path, rows(first), mode="append")
    table = DeltaTable(path)
    table.delete("id = 4")
    table.update(updates={"v": "'new'"}, predicate="id > 30")
    merged = pa.table({"id": pa.array([1, 1000], pa.int64()), "v": ["merged", "merged"]})
    table.merge(
        merged, predicate="t.id = s.id", source_alias="s", target_alias="t"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    table.optimize.compact()
    write_deltalake(path, rows(500), mode="overwrite")
    table = DeltaTable(path)
    table.restore(3)


def with_checkpoints(path: str) -> None:
    for version in range(7):
        write_deltalake(path, rows(version), mode="append" if version % 3 else "overwrite")
        if version in {2, 5}:
            DeltaTable(path).create_checkpoint()


def strange_partitions(path: str) -> None:
    texts = [*TEXTS, None]
    table = pa.table({"p": texts, "id": pa.array(range(len(texts)), pa.int64())})
    write_deltalake(path, table, partition_by=["p"])
    write_deltalake(path, table, mode="append", partition_by=["p"])
    DeltaTable(path).delete("p = 'x/y'")
    DeltaTable(path).create_checkpoint()


def typed_partitions(path: str) -> None:
    table = pa.table(
        {
            "d": [date(2024, 2, 29), None],
            "t": pa.array([datetime(2024, 1, 1, 2, 3, 4, 5, UTC), None], pa.timestamp("us", "UTC")),
            "n": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
            "b": [True, None],
            "id": pa.array([1, 2], pa.int64()),
        }
    )
    write_deltalake(path, table, partition_by=["d", "t", "n", "b"])


def evolving(path: str) -> None:
    write_deltalake(path, rows(0))
    write_deltalake(path, rows(3).append_column("w", pa.array([1.5, 2, 3])), mode="append", schema_mode="merge")
    write_deltalake(path, pa.table({"other": [1]}), mode="overwrite", schema_mode="overwrite")
    DeltaTable(path).alter.add_columns([Field("more", PrimitiveType("string"))])
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})


TABLES: list[Callable[[str], None]] = [many_writes, with_checkpoints, strange_partitions, typed_partitions, evolving]


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    return connection


def log_of(path: str) -> DeltaLog:
    return DeltaLog(LocalStore(Path(path)), path)


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_every_version_is_what_delta_rs_says(tmp_path: Path, make: Callable[[str], None]) -> None:
    path = str(tmp_path / "a table")
    make(path)
    log = log_of(path)
    theirs = DeltaTable(path)
    assert (log.oldest(), log.newest()) == (0, theirs.version())
    for version in range(theirs.version() + 1):
        theirs.load_as_version(version)
        ours = log.snapshot(version)
        adds = pa.table(theirs.get_add_actions()).to_pylist()
        assert {add.path for add in ours.files.values()} == {unquote(row["path"]) for row in adds}
        assert {add.path: (add.size, add.modification_ms) for add in ours.files.values()} == {
            unquote(row["path"]): (row["size_bytes"], row["modification_time"]) for row in adds
        }
        assert all(Path(resolve_location(path, add.path)).is_file() for add in ours.files.values())
        assert (ours.metadata.id, ours.metadata.partition_columns) == (
            str(theirs.metadata().id),
            tuple(theirs.metadata().partition_columns),
        )
        assert ours.metadata.configuration == theirs.metadata().configuration
        assert ours.protocol.min_reader_version == theirs.protocol().min_reader_version
        again = Schema.from_json(format_schema(parse_schema(ours.metadata.schema_string)))
        assert again == theirs.schema()


@pytest.mark.parametrize("make", [many_writes, with_checkpoints, strange_partitions], ids=lambda make: make.__name__)
def test_files_hold_the_rows_that_duckdb_reads(
    tmp_path: Path, duck: duckdb.DuckDBPyConnection, make: Callable[[str], None]
) -> None:
    path = str(tmp_path / "t")
    make(path)
    ours = [resolve_location(path, add.path) for add in log_of(path).snapshot().files.values()]
    by_us = duck.execute("SELECT id FROM read_parquet(?) ORDER BY ALL", [ours]).fetchall()
    assert by_us == duck.execute("SELECT id FROM delta_scan(?) ORDER BY ALL", [path]).fetchall()


def test_partition_values_are_the_texts_themselves(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    strange_partitions(path)
    log = log_of(path)
    by_commits = [add.partition_values["p"] for commit in log.commits(-1, 1) for add in commit.adds]
    assert sorted(by_commits, key=str) == sorted([*TEXTS, None] * 2, key=str)
    by_checkpoint = [add.partition_values["p"] for add in log.snapshot().files.values()]
    assert sorted(by_checkpoint, key=str) == sorted([*(text for text in TEXTS if text != "x/y"), None] * 2, key=str)


def test_commits_add_up_to_the_snapshots(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    many_writes(path)
    log = log_of(path)
    files: set[str] = set()
    for commit in log.commits(-1, log.newest()):
        files -= {removed.path for removed in commit.removes}
        files |= {added.path for added in commit.adds}
        assert files == {add.path for add in log.snapshot(commit.version).files.values()}
    operations = [commit.operation for commit in log.commits(12, log.newest())]
    assert operations == ["DELETE", "UPDATE", "MERGE", "OPTIMIZE", "WRITE", "RESTORE"]
    optimize = next(commit for commit in log.commits(15, 16))
    assert not any(action.data_change for action in (*optimize.adds, *optimize.removes))


def test_table_in_s3_is_read_in_its_place(bucket: Bucket) -> None:
    path = f"{bucket.uri}/some folder/t"
    options = {
        "AWS_ENDPOINT_URL": bucket.minio.endpoint,
        "AWS_ACCESS_KEY_ID": bucket.minio.access_key,
        "AWS_SECRET_ACCESS_KEY": bucket.minio.secret_key,
        "AWS_REGION": bucket.minio.region,
        "AWS_ALLOW_HTTP": "true",
    }
    texts = pa.table({"p": [*TEXTS, None], "id": pa.array(range(len(TEXTS) + 1), pa.int64())})
    for _ in range(3):
        write_deltalake(path, texts, mode="append", partition_by=["p"], storage_options=options)
    with closing(S3Store(bucket.uri, bucket.options())) as store:
        log = DeltaLog(store, path.replace("s3://", "s3a://") + "/")
        assert [len(commit.adds) for commit in log.commits(-1, log.newest())] == [len(TEXTS) + 1] * 3
        files = log.snapshot().files.values()
        assert {add.partition_values["p"] for add in files} == {*TEXTS, None}
        assert [store.size(resolve_location(path, add.path)) for add in files] == [add.size for add in files]
        assert not log.has_next(2)


def test_what_an_application_counts_is_kept(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, rows(0))
    properties = CommitProperties(app_transactions=[Transaction("app", 5, 6)])
    write_deltalake(path, rows(3), mode="append", commit_properties=properties)
    log = log_of(path)
    assert [commit.txns for commit in log.commits(-1, 1)] == [(), (Txn("app", 5, 6),)]
    assert log.snapshot().txns == {"app": Txn("app", 5, 6)}
    assert log.snapshot(0).txns == {}


def test_columns_have_delta_s_types(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    evolving(path)
    log = log_of(path)
    schemas = [parse_schema(log.snapshot(version).metadata.schema_string) for version in (0, 1, 2, 3)]
    assert [[field.name for field in schema.fields] for schema in schemas] == [
        ["id", "v"],
        ["id", "v", "w"],
        ["other"],
        ["other", "more"],
    ]
    assert [field.type for field in schemas[1].fields] == [
        DeltaPrimitive(name) for name in ("long", "string", "double")
    ]
