"""Checkpoints of every kind and name, whole and torn, with delta-rs and DuckDB's delta extension as oracles."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from duckdb_extensions import import_extension

from duckicelake.delta.log.actions import DeletionVector, DomainMetadata, Txn
from duckicelake.errors import DamagedLogError
from tests.delta.logs import START_MS, Action, HandMade, add, metadata, paths, protocol, remove, write_parquet

V2 = {"v2Checkpoint"}
NAME = UUID("80a083e8-7026-4e79-81be-64bd76c43a11")


@pytest.fixture
def table(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "t")


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    return connection


def state(table: HandMade, *, v2: bool) -> list[Action]:
    """Three files of ten rows at version 2, and what else a checkpoint holds."""
    features = protocol(3, 7, ["v2Checkpoint"]) if v2 else protocol()
    table.commit(0, features, metadata(), table.rows("a.parquet", 0, 10))
    table.commit(1, table.rows("b.parquet", 10, 10), {"txn": {"appId": "app", "version": 8, "lastUpdated": 5}})
    table.commit(2, table.rows("c%20c.parquet", 20, 10) | {}, {"domainMetadata": domain(removed=False)})
    (table.folder / "c%20c.parquet").rename(table.folder / "c c.parquet")
    return [features, metadata(), {"txn": {"appId": "app", "version": 8, "lastUpdated": 5}}]


def domain(*, removed: bool) -> dict[str, object]:
    return {"domain": "some.domain", "configuration": '{"x":1}', "removed": removed}


def files(table: HandMade) -> list[Action]:
    names = {"a.parquet": "a.parquet", "b.parquet": "b.parquet", "c%20c.parquet": "c c.parquet"}
    sizes = {name: (table.folder / path).stat().st_size for name, path in names.items()}
    stats = '{"numRecords":10}'
    return [add(name, size, stats=stats, dataChange=False) for name, size in sizes.items()] + [remove("gone.parquet")]


def classic(table: HandMade) -> None:
    write_parquet(table.path(f"{2:020}.checkpoint.parquet"), state(table, v2=False) + files(table))


def multi_part(table: HandMade) -> None:
    rows = state(table, v2=False)
    write_parquet(table.path(f"{2:020}.checkpoint.{1:010}.{2:010}.parquet"), rows + files(table)[:1])
    write_parquet(table.path(f"{2:020}.checkpoint.{2:010}.{2:010}.parquet"), files(table)[1:])


def sidecars(table: HandMade) -> list[Action]:
    made: list[Action] = []
    for number, part in enumerate((files(table)[:1], files(table)[1:])):
        path = table.path(f"_sidecars/{UUID(int=number)}.parquet")
        write_parquet(path, part)
        row = {"path": path.name, "sizeInBytes": path.stat().st_size, "modificationTime": START_MS}
        made.append({"sidecar": row})
    return made


def v2_json(table: HandMade) -> None:
    rows = state(table, v2=True)
    table.lines(f"{2:020}.checkpoint.{NAME}.json", {"checkpointMetadata": {"version": 2}}, *rows, *sidecars(table))


def v2_parquet(table: HandMade) -> None:
    rows = state(table, v2=True)
    path = table.path(f"{2:020}.checkpoint.{NAME}.parquet")
    write_parquet(path, [{"checkpointMetadata": {"version": 2, "tags": {}}}, *rows, *sidecars(table)])


def v2_without_sidecars(table: HandMade) -> None:
    rows = state(table, v2=True)
    table.lines(f"{2:020}.checkpoint.{NAME}.json", {"checkpointMetadata": {"version": 2}}, *rows, *files(table))


def v2_under_the_classic_name(table: HandMade) -> None:
    rows = state(table, v2=True)
    path = table.path(f"{2:020}.checkpoint.parquet")
    write_parquet(path, [{"checkpointMetadata": {"version": 2, "tags": {}}}, *rows, *sidecars(table)])


KINDS: list[Callable[[HandMade], None]] = [
    classic,
    multi_part,
    v2_json,
    v2_parquet,
    v2_without_sidecars,
    v2_under_the_classic_name,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_checkpoint_is_read_like_others_read_it(
    table: HandMade, duck: duckdb.DuckDBPyConnection, kind: Callable[[HandMade], None]
) -> None:
    kind(table)
    table.commit(3, remove("b.parquet"), {"domainMetadata": domain(removed=True)})
    for version in range(3):
        table.path(f"{version:020}.json").unlink()
    ours = {"a.parquet", "c c.parquet"}
    assert (table.log.oldest(), paths(table.log, 2), paths(table.log)) == (2, ours | {"b.parquet"}, ours)
    snapshot = table.log.snapshot()
    assert (snapshot.txns, snapshot.domains) == ({"app": Txn("app", 8, 5)}, {})
    assert {add.stats for add in snapshot.files.values()} == {'{"numRecords":10}'}
    ids = duck.execute("SELECT sum(id), count(*) FROM delta_scan(?)", [str(table.folder)]).fetchone()
    assert ids == (sum(range(10)) + sum(range(20, 30)), 20)
    theirs = {Path(uri.removeprefix("file://")).name for uri in DeltaTable(table.folder).file_uris()}
    assert {name.replace("%20", " ") for name in theirs} == ours


def test_values_in_columns_are_those_of_json(table: HandMade) -> None:
    vector = {"storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"}
    vector |= {"sizeInBytes": 44, "cardinality": 6}
    adds = [
        add("p=1/a", partitionValues={"p": "1", "q": ""}, tags={"k": None}, baseRowId=5, defaultRowCommitVersion=2),
        add("p=__HIVE_DEFAULT_PARTITION__/b", partitionValues={"p": None, "q": "x=%"}, deletionVector=vector),
        add("c", partitionValues={}),
    ]
    table.begin(*adds, {"domainMetadata": domain(removed=False)})
    by_json = table.log.snapshot()
    rows = [protocol(), metadata(), {"domainMetadata": domain(removed=False)}, *adds]
    write_parquet(table.path(f"{0:020}.checkpoint.parquet"), rows)
    table.path(f"{0:020}.json").unlink()
    by_columns = table.log.snapshot()
    assert by_columns.files == {key: add._replace(data_change=False) for key, add in by_json.files.items()}
    assert by_columns.domains == {"some.domain": DomainMetadata("some.domain", '{"x":1}', removed=False)}
    first, second, _ = by_columns.files.values()
    assert (first.partition_values, second.partition_values) == ({"p": "1", "q": None}, {"p": None, "q": "x=%"})
    assert second.deletion_vector == DeletionVector("i", str(vector["pathOrInlineDv"]), 44, 6)


def test_statistics_as_columns_become_json(table: HandMade) -> None:
    types = {"id": pa.int64(), "d": pa.date32(), "t": pa.timestamp("us", "UTC"), "n": pa.decimal128(5, 2)}
    types |= {"f": pa.float64(), "s": pa.struct([("x", pa.string())])}
    bounds = pa.struct(list(types.items()))
    stats = pa.struct([("numRecords", pa.int64()), ("minValues", bounds), ("tightBounds", pa.bool_())])
    values = {"id": 1, "d": date(2024, 2, 29), "t": datetime(2024, 1, 1, 1, 2, 3, 4000, UTC), "n": Decimal("1.50")}
    values |= {"f": float("inf"), "s": {"x": "ä"}}
    parsed = {"numRecords": 3, "minValues": values, "tightBounds": True}
    rows = [protocol(), metadata(), add("a", stats_parsed=parsed), add("b", stats='{"numRecords":7}'), add("c")]
    extra = {"stats_parsed": stats, "stats": pa.string()}
    write_parquet(table.path(f"{0:020}.checkpoint.parquet"), rows, extra)
    found = {add.path: add.stats for add in table.log.snapshot().files.values()}
    assert json.loads(found["a"] or "", parse_float=str) == {
        "numRecords": 3,
        "minValues": {
            "id": 1,
            "d": "2024-02-29",
            "t": "2024-01-01T01:02:03.004Z",
            "n": "1.50",
            "f": "Infinity",
            "s": {"x": "ä"},
        },
        "tightBounds": True,
    }
    assert (found["b"], found["c"]) == ('{"numRecords":7}', None)


def test_torn_checkpoint_is_gone_around_where_commits_show_the_same(table: HandMade) -> None:
    classic(table)
    path = table.path(f"{2:020}.checkpoint.parquet")
    path.write_bytes(path.read_bytes()[:-40])
    assert len(paths(table.log)) == 3
    table.path(f"{0:020}.json").unlink()
    with pytest.raises(DamagedLogError, match=r"0{19}2\.checkpoint\.parquet can't be read as Parquet"):
        table.log.snapshot()


def test_missing_sidecar_is_named(table: HandMade) -> None:
    v2_json(table)
    table.path(f"_sidecars/{UUID(int=1)}.parquet").unlink()
    assert len(paths(table.log)) == 3
    table.path(f"{0:020}.json").unlink()
    with pytest.raises(DamagedLogError, match=rf"file .*_delta_log/_sidecars/{UUID(int=1)}\.parquet doesn't exist"):
        table.log.snapshot()


def test_checkpoint_whose_adds_lack_a_size_is_named(table: HandMade) -> None:
    row = add("a")
    row["add"]["size"] = None
    write_parquet(table.path(f"{0:020}.checkpoint.parquet"), [protocol(), metadata(), row])
    with pytest.raises(
        DamagedLogError, match=r"0\.checkpoint\.parquet: an action isn't one of Delta's: an add has no size"
    ):
        table.log.snapshot()
