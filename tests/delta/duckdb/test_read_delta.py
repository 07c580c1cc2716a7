"""`read_delta` and `delta_history` of DuckDB beside delta-rs and DuckDB's own delta extension, row for row."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from duckdb_extensions import import_extension

from duckicelake import delta
from duckicelake.delta.duckdb.connection import DeltaConnection
from duckicelake.delta.duckdb.log import DuckStore
from duckicelake.delta.log import vectors as z85
from duckicelake.errors import (
    CatalogError,
    DamagedLogError,
    ExpiredError,
    InvalidRequestError,
    NoDeltaLogError,
    UnsupportedError,
)
from tests.delta.duckdb.in_place import field, plain, read, rows, some, struct
from tests.delta.log.test_vectors import in_file, native, portable
from tests.delta.logs import HandMade, add, metadata, protocol, remove, write_parquet
from tests.support.backends import Bucket
from tests.support.documents import snippets

NOON = datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)
NAME = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"


@pytest.fixture(scope="module")
def oracle() -> duckdb.DuckDBPyConnection:
    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    return connection


def by_delta_rs(path: str, version: int | None = None) -> tuple[list[tuple[Any, ...]], list[str]]:
    result = duckdb.from_arrow(DeltaTable(path, version=version).to_pyarrow_table())
    return sorted(result.fetchall(), key=repr), [column[0] for column in result.description]


def every_type(path: str) -> None:
    values = {
        "i8": pa.array([-128, None, 1], pa.int8()),
        "i16": pa.array([-(2**15), None, 1], pa.int16()),
        "i32": pa.array([-(2**31), None, 1], pa.int32()),
        "i64": pa.array([2**63 - 1, None, 1], pa.int64()),
        "f32": pa.array([float("nan"), None, -0.5], pa.float32()),
        "f64": pa.array([float("inf"), None, -0.5], pa.float64()),
        "dec": pa.array([Decimal("99999999999999999999999999999999999.999"), None, Decimal("-1.5")]).cast(
            pa.decimal128(38, 3)
        ),
        "s": ["ä€😀\n'\"", None, ""],
        "b": pa.array([b"\x00\xff", None, b""], pa.binary()),
        "flag": [True, None, False],
        "d": [date(1, 1, 1), None, date(9999, 12, 31)],
        "at": pa.array([NOON, None, datetime(1900, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "here": pa.array([NOON.replace(tzinfo=None), None, datetime(1900, 1, 1)], pa.timestamp("us")),
        "deep": pa.array(
            [[{"k": [("a", {"x": [1, None]})]}], None, []],
            pa.list_(pa.struct([("k", pa.map_(pa.string(), pa.struct([("x", pa.list_(pa.int32()))])))])),
        ),
    }
    write_deltalake(path, pa.table(values))


def every_partition(path: str) -> None:
    values = {
        "i": pa.array([1, None], pa.int32()),
        "l": pa.array([-5, None], pa.int64()),
        "s": ["a b/ä'%=\\{\n", None],
        "flag": [True, None],
        "d": [date(2024, 2, 29), None],
        "at": pa.array([NOON, None], pa.timestamp("us", "UTC")),
        "here": pa.array([NOON.replace(tzinfo=None), None], pa.timestamp("us")),
        "dec": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
    }
    write_deltalake(path, pa.table({"id": [1, 2], **values}), partition_by=list(values))
    write_deltalake(path, pa.table({"id": [3, 4], **values}), mode="append")


def empty_partition(path: str) -> None:
    write_deltalake(path, some(0, p=["", None, "x"]), partition_by=["p"])


def evolved(path: str) -> None:
    write_deltalake(path, some(0, v=pa.array(["a", "b", None]), p=["x", "x", "y"]), partition_by=["p"])
    extra = pa.array([{"x": 1, "y": None}] * 3, pa.struct([("x", pa.int32()), ("y", pa.string())]))
    write_deltalake(path, some(3, s=extra, p=["z"] * 3), mode="append", schema_mode="merge")
    more = pa.array([{"x": 1, "y": "q", "z": [1]}] * 3)
    more = more.cast(pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.list_(pa.int64()))]))
    write_deltalake(path, some(6, s=more, p=["z"] * 3), mode="append", schema_mode="merge")
    write_deltalake(
        path, some(0, v=pa.array([1, 2, 2], pa.int32()), p=["x", None, "x"]), mode="overwrite", schema_mode="overwrite"
    )


def many_versions(path: str) -> None:
    for first in range(0, 39, 3):
        write_deltalake(path, some(first), mode="append")
    table = DeltaTable(path)
    table.delete("id = 4")
    table.update(updates={"id": "id + 1000"}, predicate="id > 30")
    table.create_checkpoint()
    table.optimize.compact()
    write_deltalake(path, some(500), mode="overwrite")
    DeltaTable(path).restore(3)


def many_partitions(path: str) -> None:
    write_deltalake(path, some(0, 40, p=[f"p{each}" for each in range(39)] + [None]), partition_by=["p"])
    DeltaTable(path).delete("id = 7")


def emptied(path: str) -> None:
    write_deltalake(path, some(0, p=["a", "b", "c"]), partition_by=["p"])
    DeltaTable(path).delete()


MADE: list[Callable[[str], None]] = [
    every_type,
    every_partition,
    empty_partition,
    many_partitions,
    evolved,
    many_versions,
    emptied,
]


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_each_version_is_what_delta_rs_reads(
    make: Callable[[str], None], duck: DeltaConnection, oracle: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    make(path)
    for version in range(DeltaTable(path).version() + 1):
        assert repr(read(duck, path, version)) == repr(by_delta_rs(path, version))
    ours, names = read(duck, path)
    assert repr(ours) == repr(rows(oracle, f"FROM delta_scan('{path}')"))
    types = "SELECT column_name, column_type FROM (DESCRIBE FROM {})"
    assert rows(duck, types.format(f"read_delta('{path}')")) == rows(oracle, types.format(f"delta_scan('{path}')"))
    assert names == [field.name for field in DeltaTable(path).schema().fields]


@pytest.mark.parametrize("name", ["a b", "it's", 'q"q', "ä€😀", "x[1]*?", "50%", "%20", "a=b", "#;&"])
def test_folders_may_be_called_anything(name: str, duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / name)
    table.begin(table.rows("f.parquet", 0, 3))
    assert read(duck, table.folder)[0] == [(0,), (1,), (2,)]


def test_relative_paths_and_uris_name_the_same_table(
    duck: DeltaConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = HandMade(tmp_path / "a b")
    table.begin(table.rows("f.parquet", 0, 3))
    monkeypatch.chdir(tmp_path)
    for path in ("a b", "./a b", "a b/", (tmp_path / "a b").as_uri(), f"file:{tmp_path}/a b"):
        assert read(duck, path)[0] == [(0,), (1,), (2,)], path


def test_files_elsewhere_are_read_where_the_log_says(duck: DeltaConnection, tmp_path: Path) -> None:
    other = HandMade(tmp_path / "other one")
    named = other.rows("f.parquet", 5, 2)["add"]
    table = HandMade(tmp_path / "t")
    uri = (other.folder / "f.parquet").as_uri()
    table.begin(table.rows("f.parquet", 0, 1), {"add": {**named, "path": uri}})
    assert read(duck, table.folder)[0] == [(0,), (5,), (6,)]


def mapped(name: str, number: int, kind: str) -> str:
    ids = f'{{"delta.columnMapping.id":{number},"delta.columnMapping.physicalName":"col-{number}"}}'
    return f'{{"name":"{name}","type":{kind},"nullable":true,"metadata":{ids}}}'


LONG, STRING = '"long"', '"string"'
NESTED = f'{{"type":"array","containsNull":true,"elementType":{struct(mapped("x y", 4, LONG))}}}'
MAPPED = struct(mapped("id", 1, LONG), mapped("part", 2, STRING), mapped("s", 3, NESTED))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_have_the_names_of_the_table(mode: str, duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    (tmp_path / "t").mkdir()
    of_file = pa.schema(
        [
            pa.field("col-1" if mode == "name" else "old", pa.int32(), metadata={"PARQUET:field_id": "1"}),
            pa.field("col-3", pa.list_(pa.struct([("col-4", pa.int32())])), metadata={"PARQUET:field_id": "3"}),
        ]
    )
    values = {of_file.names[0]: [1, None], "col-3": [[{"col-4": 7}, None], None]}
    pq.write_table(pa.table(values, schema=of_file), tmp_path / "t" / "f.parquet")
    described = metadata({"delta.columnMapping.mode": mode}, MAPPED)
    described["metaData"]["partitionColumns"] = ["part"]
    stats = '{"numRecords":2,"minValues":{"col-1":1},"maxValues":{"col-1":1},"nullCount":{"col-1":1}}'
    added = add("f.parquet", partitionValues={"col-2": "a"}, stats=stats)
    table.commit(0, protocol(2, 5), described, added)
    expected = [(1, "a", [{"x y": 7}, None]), (None, "a", None)]
    assert read(duck, table.folder) == (expected, ["id", "part", "s"])
    (tmp_path / "t" / "f.parquet").unlink()
    for condition in ("id > 1", "id < 1", "part = 'b'", "part IS NULL", "id = 7 OR part > 'a'"):
        assert rows(duck, f"FROM read_delta('{table.folder}') WHERE {condition}") == [], condition


def test_widened_columns_are_read_from_files_of_before(duck: DeltaConnection, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    before = pa.table({"n": pa.array([1], pa.int8()), "d": [Decimal("1.5")], "t": [date(2024, 1, 1)]})
    pq.write_table(before, folder / "f.parquet")
    features = protocol(3, 7, ["typeWidening", "timestampNtz"])
    described = metadata(None, plain(n="long", d="decimal(20,5)", t="timestamp_ntz"))
    HandMade(folder).commit(0, features, described, add("f.parquet"))
    assert read(duck, folder)[0] == [(1, Decimal("1.50000"), datetime(2024, 1, 1))]


def deleted(*vectors: bytes, storage: str, folder: Path) -> list[dict[str, Any]]:
    """What the log says of vectors of one file each, which hold two positions each."""
    if storage == "i":
        return [
            {"storageType": "i", "pathOrInlineDv": z85.encode_z85(data), "sizeInBytes": len(data), "cardinality": 2}
            for data in vectors
        ]
    file = folder / f"deletion_vector_{NAME}.bin"
    file.write_bytes(in_file(*vectors))
    name = file.as_uri() if storage == "p" else z85.encode_z85(bytes.fromhex(NAME.replace("-", "")))
    offsets = [1 + sum(len(data) + 8 for data in vectors[:index]) for index in range(len(vectors))]
    return [
        {"storageType": storage, "pathOrInlineDv": name, "offset": at, "sizeInBytes": len(data), "cardinality": 2}
        for at, data in zip(offsets, vectors, strict=True)
    ]


@pytest.mark.parametrize("storage", ["u", "p", "i"])
def test_deleted_rows_are_not_read(
    storage: str, duck: DeltaConnection, oracle: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    table = HandMade(tmp_path / "t")
    files = [table.rows(f"{name}.parquet", first, 10)["add"] for name, first in (("a", 0), ("b", 10), ("c", 20))]
    one, two = deleted(portable({0, 9}), portable({3, 4}), storage=storage, folder=table.folder)
    added = [{"add": {**files[0], "deletionVector": one}}, {"add": {**files[2], "deletionVector": two}}]
    table.commit(0, protocol(3, 7, ["deletionVectors"]), metadata(), *({"add": file} for file in files))
    table.commit(1, remove("a.parquet"), remove("c.parquet"), *added)
    expected = [(each,) for each in range(30) if each not in {0, 9, 23, 24}]
    assert rows(duck, f"FROM read_delta('{table.folder}')") == sorted(expected, key=repr)
    assert rows(duck, f"FROM read_delta('{table.folder}')") == rows(oracle, f"FROM delta_scan('{table.folder}')")
    assert rows(duck, f"SELECT count(*) FROM read_delta('{table.folder}', version => 0)") == [(30,)]
    assert rows(duck, f"SELECT count(*) FROM read_delta('{table.folder}') WHERE id >= 20") == [(8,)]


def test_deleted_rows_of_the_first_format_are_not_read(duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    file = table.rows("a.parquet", 0, 4)["add"]
    (vector,) = deleted(native({1, 2}), storage="i", folder=table.folder)
    table.commit(0, protocol(3, 7, ["deletionVectors"]), metadata(), {"add": {**file, "deletionVector": vector}})
    assert read(duck, table.folder)[0] == [(0,), (3,)]


def test_instants_as_int96_are_the_same_in_every_zone(duck: DeltaConnection, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    nested = pa.array([{"at": [NOON]}], pa.struct([("at", pa.list_(pa.timestamp("us", "UTC")))]))
    data = pa.table({"at": pa.array([NOON], pa.timestamp("us", "UTC")), "s": nested})
    pq.write_table(data, folder / "old.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(data, folder / "new.parquet")
    listed = '{"type":"array","containsNull":true,"elementType":"timestamp"}'
    schema = struct(field("at", '"timestamp"'), field("s", struct(field("at", listed))))
    HandMade(folder).commit(0, protocol(), metadata(None, schema), add("old.parquet"), add("new.parquet"))
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        duck.execute(f"SET TimeZone = '{zone}'")
        found = duck.execute(f"SELECT \"at\", s FROM read_delta('{folder}')").fetchall()
        assert [(at.astimezone(UTC), s["at"][0].astimezone(UTC)) for at, s in found] == [(NOON, NOON)] * 2


def checkpointed(table: HandMade, kind: str) -> None:
    """Two files at version 1, told by a checkpoint alone, and a third one since."""
    features = protocol(3, 7, ["v2Checkpoint"]) if kind.startswith("v2") else protocol()
    a, b, c = (table.rows(f"{name}.parquet", first, 2) for name, first in (("a", 0), ("b", 2), ("c", 4)))
    head = [features, metadata()]
    at = "00000000000000000001.checkpoint"
    match kind:
        case "classic":
            write_parquet(table.path(f"{at}.parquet"), [*head, a, b])
        case "parts":
            write_parquet(table.path(f"{at}.0000000001.0000000002.parquet"), [*head, a])
            write_parquet(table.path(f"{at}.0000000002.0000000002.parquet"), [b])
        case "v2 parquet" | "v2 json":
            names = ["one.parquet", "two.parquet"]
            for name, actions in zip(names, ([a], [b]), strict=True):
                write_parquet(table.path(f"_sidecars/{name}"), actions)
            report = [{"sidecar": {"path": name, "sizeInBytes": 1, "modificationTime": 1}} for name in names]
            lines = [{"checkpointMetadata": {"version": 1}}, *head, *report]
            if kind == "v2 json":
                table.lines(f"{at}.{NAME}.json", *lines)
            else:
                write_parquet(table.path(f"{at}.{NAME}.parquet"), lines)
    table.commit(2, remove("a.parquet"), c)


@pytest.mark.parametrize("kind", ["classic", "parts", "v2 parquet", "v2 json"])
def test_checkpoints_show_what_commits_no_longer_do(kind: str, duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    checkpointed(table, kind)
    assert read(duck, table.folder)[0] == [(2,), (3,), (4,), (5,)]
    assert read(duck, table.folder, 1)[0] == [(0,), (1,), (2,), (3,)]
    with pytest.raises(ExpiredError, match="the oldest version that it still has is 1"):
        read(duck, table.folder, 0)


def test_compactions_stand_for_their_commits(duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    a, b = table.rows("a.parquet", 0, 1), table.rows("b.parquet", 1, 1)
    table.begin(a)
    table.commit(1, b)
    table.commit(2, remove("a.parquet"))
    table.lines(f"{1:020}.{2:020}.compacted.json", b, remove("a.parquet"))
    assert read(duck, table.folder)[0] == [(1,)]
    assert read(duck, table.folder, 1)[0] == [(0,), (1,)]


def test_bad_calls_say_why(duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.begin(table.rows("f.parquet", 0, 1))
    strange = HandMade(tmp_path / "strange")
    strange.commit(0, protocol(3, 7, ["futureFeature"]), metadata())
    torn = HandMade(tmp_path / "torn")
    torn.begin()
    torn.path("00000000000000000001.json").write_text('{"add":{"path":"x"\n')
    cases: list[tuple[str, type[CatalogError], str]] = [
        (f"read_delta('{tmp_path}/none')", NoDeltaLogError, "none isn't a Delta table"),
        (f"delta_history('{tmp_path}/none')", NoDeltaLogError, "none isn't a Delta table"),
        (f"read_delta('{table.folder}', version => 1)", InvalidRequestError, "no version 1: its newest is 0"),
        (f"read_delta('{table.folder}', version => -1)", InvalidRequestError, "no version -1"),
        (
            f"read_delta('{table.folder}', \"timestamp\" => '2001-01-01')",
            InvalidRequestError,
            "wasn't there at 2001-01-01",
        ),
        (
            f"read_delta('{table.folder}', \"timestamp\" => '2901-01-01')",
            InvalidRequestError,
            "after the newest version",
        ),
        (f"read_delta('{table.folder}', 0, '2001-01-01')", InvalidRequestError, "a version or a timestamp, not both"),
        ("read_delta(NULL)", InvalidRequestError, "read_delta needs a path"),
        (f"read_delta('{strange.folder}')", UnsupportedError, "futureFeature"),
        (f"read_delta('{torn.folder}')", DamagedLogError, "00000000000000000001.json"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            duck.execute(f"FROM {call}")
    with pytest.raises(duckdb.Error, match="none isn't a Delta table"):
        duck.sql(f"FROM read_delta('{tmp_path}/none')")


def test_column_ids_are_no_sql(duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    (tmp_path / "secret").write_text("found")
    sql = f"""1: {{name: 'c0', type: 'BIGINT', default_value: NULL}}}}) AS data UNION ALL
        SELECT length(content) FROM read_text('{tmp_path}/secret') --"""
    mapped = {"delta.columnMapping.id": sql, "delta.columnMapping.physicalName": "id"}
    field = {"name": "id", "type": "long", "nullable": True, "metadata": mapped}
    schema = json.dumps({"type": "struct", "fields": [field]})
    table.commit(0, protocol(2, 5), metadata({"delta.columnMapping.mode": "id"}, schema), table.rows("f.parquet", 0, 1))
    with pytest.raises(DamagedLogError, match=r"column id has the id .1: .name"):
        read(duck, table.folder)


def test_timestamps_answer_as_delta_does(duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.begin(table.rows("a.parquet", 0, 1))
    table.commit(1, table.rows("b.parquet", 1, 1))
    read_at = f"SELECT count(*) FROM read_delta('{table.folder}', \"timestamp\" => $1::TIMESTAMPTZ)"
    assert rows(duck, read_at, ["2023-11-14 22:13:20Z"]) == [(1,)]
    assert rows(duck, read_at, ["2023-11-14 22:13:20.999Z"]) == [(1,)]
    assert rows(duck, read_at, ["2023-11-14 22:13:21Z"]) == [(2,)]


def test_history_is_what_delta_rs_shows(duck: DeltaConnection, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    many_versions(path)
    theirs = DeltaTable(path).history()
    query = f"SELECT version, epoch_ms(\"timestamp\"), operation FROM delta_history('{path}')"
    ours = duck.execute(query).fetchall()
    assert [(version, operation) for version, _, operation in ours] == [
        (each["version"], each["operation"]) for each in theirs
    ]
    times = [ms for _, ms, _ in ours]
    assert times == sorted(set(times), reverse=True)


def test_lines_of_any_length_are_read(duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.begin({"add": {**table.rows("a.parquet", 0, 1)["add"], "tags": {"long": "x" * (17 << 20)}}})
    assert read(duck, table.folder)[0] == [(0,)]


def test_each_execution_reads_the_log_anew(duck: DeltaConnection, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, some(0))
    query = f"SELECT count(*) FROM read_delta('{path}')"
    duck.execute(f"PREPARE counted AS {query}")
    duck.execute(f"CREATE OR REPLACE TEMP VIEW seen AS {query}")
    relation = duck.sql(query)
    raw = duck.execute("SELECT 1")._connection  # DuckDB's own, which has nothing explained first
    raw.execute(f"PREPARE plain AS {query}")
    for expected in (3, 6, 9):
        for again in (query, "EXECUTE counted", "FROM seen"):
            assert duck.execute(again).fetchall() == [(expected,)]
        assert raw.execute("EXECUTE plain").fetchall() == [(expected,)]
        assert relation.execute().fetchall() == [(expected,)]
        write_deltalake(path, some(0), mode="append")


def test_an_empty_table_that_fills_is_seen_by_a_prepared_statement(duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.begin()
    duck.execute(f"PREPARE filling AS FROM read_delta('{table.folder}')")
    assert duck.execute("EXECUTE filling").fetchall() == []
    table.commit(1, table.rows("a.parquet", 0, 1))
    assert duck.execute("EXECUTE filling").fetchall() == [(0,)]


def test_a_statement_in_a_transaction_goes_on_after_an_error(duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.begin(table.rows("a.parquet", 0, 1))
    with pytest.raises(duckdb.BinderException, match="nothing"):
        duck.execute(f"SELECT nothing FROM read_delta('{table.folder}')")
    duck.execute("BEGIN")
    duck.execute(f"CREATE OR REPLACE TEMP TABLE kept AS FROM read_delta('{table.folder}')")
    duck.execute("COMMIT")
    assert rows(duck, "FROM kept") == [(0,)]


def test_threads_that_read_a_log_at_once_get_their_own_files(tmp_path: Path) -> None:
    texts = {str(tmp_path / f"{n:03}.json"): f"commit {n}".encode() * 100 for n in range(200)}
    for path, text in texts.items():
        Path(path).write_bytes(text)
    with duckdb.connect() as duck, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(DuckStore(duck).read, texts)) == list(texts.values())


def test_tables_on_s3_are_read_by_the_connections_own_secret(bucket: Bucket, tmp_path: Path) -> None:
    options = {
        "aws_endpoint": bucket.minio.endpoint,
        "aws_region": bucket.minio.region,
        "aws_access_key_id": bucket.minio.access_key,
        "aws_secret_access_key": bucket.minio.secret_key,
        "aws_allow_http": "true",
        "aws_s3_allow_unsafe_rename": "true",
    }
    path = f"{bucket.uri}/a b/t"
    write_deltalake(path, some(0, p=["x y", None, "z%"]), partition_by=["p"], storage_options=options)
    write_deltalake(path, some(3, p=["x y", None, "z%"]), mode="append", storage_options=options)
    import_extension("httpfs")
    scheme, _, host = bucket.minio.endpoint.partition("://")
    with delta.connect() as duck:
        duck.execute("LOAD httpfs")
        duck.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{bucket.minio.access_key}', SECRET '{bucket.minio.secret_key}', "
            f"ENDPOINT '{host}', URL_STYLE 'path', USE_SSL {scheme == 'https'}, REGION '{bucket.minio.region}')"
        )
        expected = [(0, "x y"), (1, None), (2, "z%"), (3, "x y"), (4, None), (5, "z%")]
        assert read(duck, path)[0] == sorted(expected, key=repr)
        assert rows(duck, f"SELECT id FROM read_delta('{path}', version => 0) WHERE p = 'z%'") == [(2,)]
        assert rows(duck, f"SELECT version FROM delta_history('{path}')") == [(0,), (1,)]
        now = rows(duck, f"SELECT max(\"timestamp\") FROM delta_history('{path}')")[0][0]
        assert Counter(rows(duck, f"FROM read_delta('{path}', \"timestamp\" => $1)", [now])) == Counter(expected)


def test_the_snippet_of_the_documentation_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what its comments (`# -> …`) say."""
    table = HandMade(tmp_path / "t")
    described = metadata(None, plain(id="long", day="date"))
    described["metaData"]["partitionColumns"] = ["day"]
    noon = int(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp() * 1000)
    table.commit(0, protocol(), described, at_ms=noon - 1000)
    for version, day, count in ((1, 21, 5), (2, 22, 2), (3, 23, 1)):
        added = table.rows(f"{day}.parquet", 0, count)["add"]
        table.commit(
            version, {"add": {**added, "partitionValues": {"day": f"2026-11-{day}"}}}, at_ms=noon + 1000 * version
        )
    (snippet,) = snippets("docs/delta.md")
    snippet.run_python({"/lake/orders": str(table.folder)})
    printed = capsys.readouterr().out
    for promised in snippet.promised:
        assert promised in printed


def test_nothing_of_duckdb_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, duckicelake.delta as d; print('duckdb' in sys.modules); d.connect; print('duckdb' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["False", "True"]
