"""`read_delta` and `delta_history` of DuckDB beside delta-rs and DuckDB's own delta extension, row for row."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from duckdb_extensions import import_extension

from duckicelake import delta
from duckicelake.delta import z85
from duckicelake.delta.duckdb import Connection
from duckicelake.delta.duckdb_macros import Macros
from duckicelake.errors import CatalogError, DamagedLog, Forgotten, InvalidRequest, NotDelta, Unsupported
from tests.backends import Bucket
from tests.delta.logs import HandMade, add, metadata, protocol, remove, write_parquet
from tests.delta.test_vectors import in_file, native, portable

NOON = datetime(2024, 2, 29, 12, 30, 0, 123456, tzinfo=UTC)
NAME = "d2c639aa-8816-431a-aaf6-d3fe2512ff61"


@pytest.fixture(scope="module")
def installed() -> Connection:
    return delta.connect()


@pytest.fixture
def duck(installed: Connection) -> Connection:
    """A connection of the test's own."""
    return installed.cursor()


@pytest.fixture(scope="module")
def oracle() -> duckdb.DuckDBPyConnection:
    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    return connection


def rows(connection: Any, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(query, *parameters).fetchall(), key=repr)


def by_delta_rs(path: str, version: int | None = None) -> tuple[list[tuple[Any, ...]], list[str]]:
    result = duckdb.from_arrow(DeltaTable(path, version=version).to_pyarrow_table())
    return sorted(result.fetchall(), key=repr), [column[0] for column in result.description]


def read(duck: Connection, path: object, version: int | None = None) -> tuple[list[tuple[Any, ...]], list[str]]:
    result = duck.execute("FROM read_delta($path, version => $version)", {"path": str(path), "version": version})
    return sorted(result.fetchall(), key=repr), [column[0] for column in result.description]


def some(first: int, count: int = 3, **more: Any) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), **more})


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
    make: Callable[[str], None], duck: Connection, oracle: duckdb.DuckDBPyConnection, tmp_path: Path
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
def test_folders_may_be_called_anything(name: str, duck: Connection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / name)
    table.begin(table.rows("f.parquet", 0, 3))
    assert read(duck, table.folder)[0] == [(0,), (1,), (2,)]


def test_relative_paths_and_uris_name_the_same_table(
    duck: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = HandMade(tmp_path / "a b")
    table.begin(table.rows("f.parquet", 0, 3))
    monkeypatch.chdir(tmp_path)
    for path in ("a b", "./a b", "a b/", (tmp_path / "a b").as_uri(), f"file:{tmp_path}/a b"):
        assert read(duck, path)[0] == [(0,), (1,), (2,)], path


def test_files_elsewhere_are_read_where_the_log_says(duck: Connection, tmp_path: Path) -> None:
    other = HandMade(tmp_path / "other one")
    named = other.rows("f.parquet", 5, 2)["add"]
    table = HandMade(tmp_path / "t")
    uri = (other.folder / "f.parquet").as_uri()
    table.begin(table.rows("f.parquet", 0, 1), {"add": {**named, "path": uri}})
    assert read(duck, table.folder)[0] == [(0,), (5,), (6,)]


def mapped(name: str, number: int, kind: str) -> str:
    ids = f'{{"delta.columnMapping.id":{number},"delta.columnMapping.physicalName":"col-{number}"}}'
    return f'{{"name":"{name}","type":{kind},"nullable":true,"metadata":{ids}}}'


def struct(*fields: str) -> str:
    return f'{{"type":"struct","fields":[{",".join(fields)}]}}'


def field(name: str, kind: str) -> str:
    return f'{{"name":"{name}","type":{kind},"nullable":true,"metadata":{{}}}}'


def plain(**kinds: str) -> str:
    """A schema of columns without mapping."""
    return struct(*(field(name, f'"{kind}"') for name, kind in kinds.items()))


LONG, STRING = '"long"', '"string"'
NESTED = f'{{"type":"array","containsNull":true,"elementType":{struct(mapped("x y", 4, LONG))}}}'
MAPPED = struct(mapped("id", 1, LONG), mapped("part", 2, STRING), mapped("s", 3, NESTED))


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_have_the_names_of_the_table(mode: str, duck: Connection, tmp_path: Path) -> None:
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


def test_widened_columns_are_read_from_files_of_before(duck: Connection, tmp_path: Path) -> None:
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
            {"storageType": "i", "pathOrInlineDv": z85.encode(data), "sizeInBytes": len(data), "cardinality": 2}
            for data in vectors
        ]
    file = folder / f"deletion_vector_{NAME}.bin"
    file.write_bytes(in_file(*vectors))
    name = file.as_uri() if storage == "p" else z85.encode(bytes.fromhex(NAME.replace("-", "")))
    offsets = [1 + sum(len(data) + 8 for data in vectors[:index]) for index in range(len(vectors))]
    return [
        {"storageType": storage, "pathOrInlineDv": name, "offset": at, "sizeInBytes": len(data), "cardinality": 2}
        for at, data in zip(offsets, vectors, strict=True)
    ]


@pytest.mark.parametrize("storage", ["u", "p", "i"])
def test_deleted_rows_are_not_read(
    storage: str, duck: Connection, oracle: duckdb.DuckDBPyConnection, tmp_path: Path
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


def test_deleted_rows_of_the_first_format_are_not_read(duck: Connection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    file = table.rows("a.parquet", 0, 4)["add"]
    (vector,) = deleted(native({1, 2}), storage="i", folder=table.folder)
    table.commit(0, protocol(3, 7, ["deletionVectors"]), metadata(), {"add": {**file, "deletionVector": vector}})
    assert read(duck, table.folder)[0] == [(0,), (3,)]


def test_instants_as_int96_are_the_same_in_every_zone(duck: Connection, tmp_path: Path) -> None:
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
            told = [{"sidecar": {"path": name, "sizeInBytes": 1, "modificationTime": 1}} for name in names]
            lines = [{"checkpointMetadata": {"version": 1}}, *head, *told]
            if kind == "v2 json":
                table.lines(f"{at}.{NAME}.json", *lines)
            else:
                write_parquet(table.path(f"{at}.{NAME}.parquet"), lines)
    table.commit(2, remove("a.parquet"), c)


@pytest.mark.parametrize("kind", ["classic", "parts", "v2 parquet", "v2 json"])
def test_checkpoints_tell_what_commits_no_longer_do(kind: str, duck: Connection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    checkpointed(table, kind)
    assert read(duck, table.folder)[0] == [(2,), (3,), (4,), (5,)]
    assert read(duck, table.folder, 1)[0] == [(0,), (1,), (2,), (3,)]
    with pytest.raises(Forgotten, match="the oldest version that it still tells is 1"):
        read(duck, table.folder, 0)


def test_compactions_stand_for_their_commits(duck: Connection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    a, b = table.rows("a.parquet", 0, 1), table.rows("b.parquet", 1, 1)
    table.begin(a)
    table.commit(1, b)
    table.commit(2, remove("a.parquet"))
    table.lines(f"{1:020}.{2:020}.compacted.json", b, remove("a.parquet"))
    assert read(duck, table.folder)[0] == [(1,)]
    assert read(duck, table.folder, 1)[0] == [(0,), (1,)]


def test_bad_calls_say_why(duck: Connection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.begin(table.rows("f.parquet", 0, 1))
    strange = HandMade(tmp_path / "strange")
    strange.commit(0, protocol(3, 7, ["futureFeature"]), metadata())
    torn = HandMade(tmp_path / "torn")
    torn.begin()
    torn.path("00000000000000000001.json").write_text('{"add":{"path":"x"\n')
    cases: list[tuple[str, type[CatalogError], str]] = [
        (f"read_delta('{tmp_path}/none')", NotDelta, "none isn't a Delta table"),
        (f"delta_history('{tmp_path}/none')", NotDelta, "none isn't a Delta table"),
        (f"read_delta('{table.folder}', version => 1)", InvalidRequest, "no version 1: its newest is 0"),
        (f"read_delta('{table.folder}', version => -1)", InvalidRequest, "no version -1"),
        (f"read_delta('{table.folder}', \"timestamp\" => '2001-01-01')", InvalidRequest, "wasn't there at 2001-01-01"),
        (f"read_delta('{table.folder}', \"timestamp\" => '2901-01-01')", InvalidRequest, "after the newest version"),
        (f"read_delta('{table.folder}', 0, '2001-01-01')", InvalidRequest, "a version or a timestamp, not both"),
        ("read_delta(NULL)", InvalidRequest, "read_delta needs a path"),
        (f"read_delta('{strange.folder}')", Unsupported, "futureFeature"),
        (f"read_delta('{torn.folder}')", DamagedLog, "00000000000000000001.json"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            duck.execute(f"FROM {call}")
    with pytest.raises(duckdb.Error, match="none isn't a Delta table"):
        duck.sql(f"FROM read_delta('{tmp_path}/none')")


def test_timestamps_answer_as_delta_does(duck: Connection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.begin(table.rows("a.parquet", 0, 1))
    table.commit(1, table.rows("b.parquet", 1, 1))
    read_at = f"SELECT count(*) FROM read_delta('{table.folder}', \"timestamp\" => $1::TIMESTAMPTZ)"
    assert rows(duck, read_at, ["2023-11-14 22:13:20Z"]) == [(1,)]
    assert rows(duck, read_at, ["2023-11-14 22:13:20.999Z"]) == [(1,)]
    assert rows(duck, read_at, ["2023-11-14 22:13:21Z"]) == [(2,)]


def test_history_is_what_delta_rs_tells(duck: Connection, tmp_path: Path) -> None:
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


@pytest.fixture
def pruned(tmp_path: Path) -> HandMade:
    """Files of ten ids each by days; those of all days but the second are gone."""
    table = HandMade(tmp_path / "t")
    described = metadata(None, PRUNED_SCHEMA)
    described["metaData"]["partitionColumns"] = ["day"]
    table.commit(0, protocol(), described, *(_day(table, day) for day in range(1, 6)))
    for day in (1, 3, 4, 5):
        (table.folder / f"{day}.parquet").unlink()
    return table


PRUNED_SCHEMA = plain(
    **{"id": "long", "day": "date", "word": "string", "at": "timestamp", "x": "double", "a/b ~c": "decimal(9,2)"},
    none="integer",
)


def _day(table: HandMade, day: int) -> dict[str, Any]:
    ids = range(day * 10, day * 10 + 10)
    words = [f"{chr(96 + day)}{each}" for each in ids]
    moments = [datetime(2024, 1, day, each % 10, 0, 0, 999, tzinfo=UTC) for each in ids]
    data = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "word": words,
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "x": [float(each) if each % 10 else float("nan") for each in ids],
            "a/b ~c": pa.array([Decimal(each) / 4 for each in ids]).cast(pa.decimal128(9, 2)),
            "none": pa.array([None if day == 2 else each for each in ids], pa.int32()),
        }
    )
    table.folder.mkdir(exist_ok=True)
    pq.write_table(data, table.folder / f"{day}.parquet")
    bounds: dict[str, list[Any]] = {
        "id": [ids[0], ids[9]],
        "word": [words[0], words[9]],
        "at": [f"2024-01-{day:02}T00:00:00.000Z", f"2024-01-{day:02}T09:00:00.000Z"],
        "x": [ids[1], ids[9]],
        "a/b ~c": [ids[0] / 4, ids[9] / 4],
        **({} if day == 2 else {"none": [ids[0], ids[9]]}),
    }
    least, greatest = ({name: pair[end] for name, pair in bounds.items()} for end in (0, 1))
    nulls = {"id": 0, "word": 0, "at": 0, "a/b ~c": 0, "none": 10 if day == 2 else 0}
    stats = json.dumps({"numRecords": 10, "minValues": least, "maxValues": greatest, "nullCount": nulls})
    return add(f"{day}.parquet", partitionValues={"day": f"2024-01-{day:02}"}, stats=stats)


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("day = '2024-01-02'", 10),
        ("day > '2024-01-01' AND day < '2024-01-03'", 10),
        ("day IN ('2024-01-02', '2025-01-01')", 10),
        ("day IS NULL", 0),
        ("id = 25", 1),
        ("id BETWEEN 21 AND 23", 3),
        ("id IN (22, 24, 99)", 2),
        ("id >= 20 AND id < 30 AND id % 2 = 0", 5),
        ("25 > id AND id > 19", 5),
        ("id < 10", 0),
        ("id = 21 OR id = 29", 2),
        ("id = 21 OR word = 'b22'", 2),
        ("word LIKE 'b%'", 10),
        ("word = 'b20'", 1),
        ("word = 'b20' AND random() < 2", 1),
        ("word IS NULL OR word = 'b21'", 1),
        ("\"at\" = '2024-01-02 09:00:00.000999Z'", 1),
        ("\"at\" > '2024-01-02 00:00:00Z' AND \"at\" < '2024-01-03 00:00:00Z'", 10),
        ("x < 30 AND x > 19 AND day = '2024-01-02'", 9),
        ('"a/b ~c" = 5.25', 1),
        ('"none" IS NULL', 10),
        ("none IS NOT NULL AND id < 30 AND id >= 20", 0),
        ("id = (SELECT 25) AND id < 30 AND id > 19", 1),
        ("NOT (id < 20 OR id > 29)", 10),
        ("NOT (id <> 25 OR word IS NULL)", 1),
        ("id > 19.5 AND id < 29.5", 10),
        ("day + 1 = DATE '2024-01-03' AND day >= '2024-01-02'::TIMESTAMP AND day < '2024-01-02 01:00'::TIMESTAMP", 10),
        ("word = 'id = 5\nid > 99' OR id = 25", 1),
    ],
)
def test_files_that_can_not_match_are_not_opened(
    condition: str, count: int, duck: Connection, pruned: HandMade
) -> None:
    """Opening one of them would fail."""
    query = f"SELECT id FROM read_delta('{pruned.folder}') WHERE {condition}"
    assert len(duck.execute(query).fetchall()) == count
    with pytest.raises(duckdb.IOException, match=r"1\.parquet"):
        duck.execute(f"SELECT id FROM read_delta('{pruned.folder}')")


def test_what_asks_for_all_files_opens_all(duck: Connection, pruned: HandMade) -> None:
    source = f"read_delta('{pruned.folder}')"
    for query in (
        f"FROM {source} WHERE x > 20 AND x < 30 OR word > 'a'",
        f"FROM {source} WHERE x > 1000",  # NaN is more than that
        f"FROM {source} WHERE id = 25 OR none IS NOT NULL",
        f"FROM {source} WHERE id = 25 OR length(word) = 3",
        f"FROM {source} WHERE word = 'x\nid=25\ny' OR word <> 'q'",
        f"SELECT count(*) FROM {source}",
        f"SELECT 1 FROM {source} a, {source} b WHERE a.id = 25",
        f"FROM {source} LEFT JOIN (SELECT 25::BIGINT AS id) USING (id)",
    ):
        with pytest.raises(duckdb.IOException, match="No files found"):
            duck.execute(query).fetchall()


ATOMS = re.split(
    r";\s*",
    """i = 7; i < 12; 14 <= i; i <> 3; i IN (3, 30, 31); i BETWEEN 8 AND 9; i > 20.5; i + 1 = 8; i IS NULL; f > 4.5;
    f = 'nan'; f <= 3; f IS NOT NULL; s LIKE 'w1%'; s < 'w05'; s = 'w33'; s IS NULL; b; NOT b; d > '2024-01-20';
    d >= TIMESTAMP '2024-01-20 05:00:00'; d + 1 = DATE '2024-01-06'; p = 1; p IN (0, 3); p IS NULL; p <> 2;
    coalesce(i, 7) = 7; i IS NOT DISTINCT FROM 7; p = i // 10; s > 'w3' OR p = 0""",
)


def any_condition(random: Random, depth: int = 0) -> str:
    if depth == 3 or random.random() < 0.3:
        return random.choice(ATOMS)
    left, right = (any_condition(random, depth + 1) for _ in range(2))
    return random.choice([f"({left} AND {right})", f"({left} OR {right})", f"(NOT {left})"])


def test_passing_files_over_changes_no_answer(duck: Connection, tmp_path: Path) -> None:
    random, path = Random(5), str(tmp_path / "t")
    for _ in range(6):
        picked = random.sample(range(40), 4)
        columns = {
            "i": [None if each % 9 == 0 else each for each in picked],
            "f": [float("nan") if each == 5 else each / 4 for each in picked],
            "s": [f"w{each:02}" + "x" * random.choice([0, 70]) for each in picked],
            "b": [each % 2 == 0 for each in picked],
            "d": [date(2024, 1, 1 + each % 31) for each in picked],
            "p": [None if each == 11 else each // 10 for each in picked],
        }
        write_deltalake(path, pa.table(columns), mode="append", partition_by=["p"])
    duck.execute(f"CREATE OR REPLACE TEMP TABLE everything AS FROM read_delta('{path}')")
    outer = "FROM {} a LEFT JOIN (SELECT i AS j, s AS t FROM {} WHERE p = 1) ON i = j WHERE {}"
    for _ in range(40):
        condition = any_condition(random)
        query = outer if random.random() < 0.2 else "FROM {0} WHERE {2}"
        source = f"read_delta('{path}')"
        expected = rows(duck, query.format("everything", "everything", condition))
        assert repr(rows(duck, query.format(source, source, condition))) == repr(expected), condition


def test_literals_that_look_like_filters_rule_nothing_out(duck: Connection, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    words = ["x\ndelta_0_0>99\ny", "optional: a", "a AND b", "delta_0_mark>0", "it's\n"]
    for word in words:
        write_deltalake(path, pa.table({"id": [1], "word": [word]}), mode="append")
    for word in words:
        assert rows(duck, f"FROM read_delta('{path}') WHERE word = $1 AND id = 1", [word]) == [(1, word)]
        assert rows(duck, f"FROM read_delta('{path}') WHERE word IN ($1, 'other')", [word]) == [(1, word)]


def test_files_are_passed_over_however_a_statement_is_put(duck: Connection, pruned: HandMade, tmp_path: Path) -> None:
    source = f"read_delta('{pruned.folder}')"
    gone = [(pruned.folder / f"{day}.parquet").resolve() for day in (1, 3, 4, 5)]
    for path in gone:  # DuckDB looks at what a view or a prepared statement would read
        path.touch()
    duck.execute(f"CREATE OR REPLACE TEMP VIEW days AS SELECT id AS number, day FROM {source}")
    duck.execute("PREPARE of_day AS FROM days WHERE day = $1")
    for path in gone:
        path.unlink()
    duck.execute("CREATE OR REPLACE TEMP TABLE wanted AS SELECT 25::BIGINT AS id")
    frame = pa.table({"id": [25]})  # noqa: F841 - DuckDB finds it by its name
    for query, expected in (
        (f"WITH t AS (FROM {source}) SELECT count(*) FROM t WHERE id BETWEEN 20 AND 29", 10),
        ("SELECT count(*) FROM days WHERE number = 25", 1),
        (f"SELECT count(*) FROM {source} JOIN wanted USING (id) WHERE day = '2024-01-02'", 1),
        (f"SELECT count(*) FROM {source} JOIN frame USING (id) WHERE id = 25", 1),
        (f"SELECT count(*) FROM {source} a JOIN {source} b USING (id) WHERE id = 25", 1),
        (f"SELECT (SELECT count(*) FROM {source} WHERE id = 21) + (SELECT count(*) FROM {source} WHERE id = 22)", 2),
        (f"SELECT 1; SELECT count(*) FROM {source} WHERE id = 25", 1),
    ):
        assert duck.execute(query).fetchall() == [(expected,)], query
    assert len(duck.execute("EXECUTE of_day('2024-01-02')").fetchall()) == 10
    assert rows(duck, f"SELECT id FROM {source} WHERE id = $1", [25]) == [(25,)]
    assert rows(duck, f"SELECT id FROM {source} WHERE id = $id", {"id": 25}) == [(25,)]
    duck.execute(f"CREATE OR REPLACE TEMP TABLE copied AS FROM {source} WHERE id = 25")
    duck.execute(f"INSERT INTO copied FROM {source} WHERE id = 26")
    duck.execute(f"COPY (FROM {source} WHERE id = 25) TO '{tmp_path}/out.parquet'")
    assert rows(duck, "SELECT id FROM copied") == [(25,), (26,)]
    analyzed = duck.execute(f"EXPLAIN ANALYZE FROM {source} WHERE id = 25").fetchall()[0][1]
    assert "Total Files Read: 1" in analyzed


def test_no_file_is_passed_over_at_midnight(pruned: HandMade) -> None:
    """`current_date` may be another when the statement runs than when it was explained."""
    ticks = iter([899.9, 900.1, 900.2, 900.3])
    raw = duckdb.connect()
    duck = Connection(raw, Macros(raw, lambda: next(ticks)))
    query = f"FROM read_delta('{pruned.folder}') WHERE day = '2024-01-02'"
    with pytest.raises(duckdb.IOException, match="No files found"):
        duck.execute(query)
    assert len(duck.execute(query).fetchall()) == 10


def test_files_without_statistics_are_read(duck: Connection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    bare = {"add": {**table.rows("b.parquet", 1, 1)["add"], "stats": None}}
    table.begin(table.rows("a.parquet", 0, 1), bare, {"add": {**table.rows("c.parquet", 5, 1)["add"], "stats": "{}"}})
    assert rows(duck, f"FROM read_delta('{table.folder}') WHERE id >= 1") == [(1,), (5,)]
    assert rows(duck, f"FROM read_delta('{table.folder}') WHERE id IS NULL") == []


def test_lines_of_any_length_are_read(duck: Connection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.begin({"add": {**table.rows("a.parquet", 0, 1)["add"], "tags": {"long": "x" * (17 << 20)}}})
    assert read(duck, table.folder)[0] == [(0,)]


def test_each_execution_reads_the_log_anew(duck: Connection, tmp_path: Path) -> None:
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


def test_an_empty_table_that_fills_is_seen_by_a_prepared_statement(duck: Connection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.begin()
    duck.execute(f"PREPARE filling AS FROM read_delta('{table.folder}')")
    assert duck.execute("EXECUTE filling").fetchall() == []
    table.commit(1, table.rows("a.parquet", 0, 1))
    assert duck.execute("EXECUTE filling").fetchall() == [(0,)]


def test_a_statement_in_a_transaction_goes_on_after_an_error(duck: Connection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    table.begin(table.rows("a.parquet", 0, 1))
    with pytest.raises(duckdb.BinderException, match="nothing"):
        duck.execute(f"SELECT nothing FROM read_delta('{table.folder}')")
    duck.execute("BEGIN")
    duck.execute(f"CREATE OR REPLACE TEMP TABLE kept AS FROM read_delta('{table.folder}')")
    duck.execute("COMMIT")
    assert rows(duck, "FROM kept") == [(0,)]


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


def test_the_snippet_of_readme_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    found = re.search(r"<!-- runs alone: read_delta -->\n```python\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    exec(compile(found[1].replace("/lake/orders", str(table.folder)), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    for promised in re.findall(r"# -> (.*)", found[1]):
        assert promised in printed


def test_nothing_of_duckdb_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, duckicelake.delta as d; print('duckdb' in sys.modules); d.connect; print('duckdb' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["False", "True"]
