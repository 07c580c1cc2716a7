"""Delta tables imported with their history: every reader reads each version as delta-rs does."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from duckicelake.catalog import doctor
from duckicelake.catalog.context.services import Services
from duckicelake.delta.import_.importer import DeltaImport, import_table
from duckicelake.errors import (
    AlreadyExistsError,
    DamagedLogError,
    FileMissingError,
    InvalidRequestError,
    NoDeltaLogError,
    NoSuchNamespaceError,
)
from tests.delta.import_.tables import (
    VECTORS,
    again,
    column,
    defined,
    gone,
    new_table,
    vector,
    with_features,
    written,
)
from tests.delta.import_.versions import assert_law, delta_rows, iceberg_rows, imported, rows, table_metadata
from tests.delta.logs import START_MS, protocol
from tests.support.client import new_client
from tests.support.killed_process import Work, mortal


@pytest.fixture
def folder(services: Services, warehouse: Path) -> Path:
    """Where a Delta table may be, in a lake with the namespace of the tests."""
    new_client(services)
    return warehouse / "delta" / "t"


def expected(folder: Path) -> dict[int, list[str]]:
    return {version: delta_rows(folder, version) for version in range(DeltaTable(str(folder)).version() + 1)}


TYPES = pa.table(
    {
        "b": pa.array([True, None, False]),
        "i8": pa.array([1, None, -128], pa.int8()),
        "i16": pa.array([1, None, -32768], pa.int16()),
        "i32": pa.array([1, None, -(2**31)], pa.int32()),
        "i64": pa.array([1, None, -(2**63)], pa.int64()),
        "f": pa.array([1.5, None, float("inf")], pa.float32()),
        "d": pa.array([1.1, None, float("nan")], pa.float64()),
        "dec": pa.array(
            [Decimal("1.50"), None, Decimal("99999999.99")], pa.decimal128(10, 2)
        ),  # delta-rs reads no negative ones as partitions
        "big": pa.array([Decimal("1.5"), None, Decimal("12345678901234567890.123456789")], pa.decimal128(38, 9)),
        "s": pa.array(["a", None, "ü" * 40]),
        "bin": pa.array([b"\x00\xff", None, b""]),
        "day": pa.array([date(2024, 1, 2), None, date(1900, 1, 1)]),
        "ts": pa.array([datetime(2024, 1, 2, 3, 4, 5, 123456, UTC), None, datetime(1969, 12, 31, tzinfo=UTC)]),
        "ntz": pa.array([datetime(2024, 1, 2, 3, 4, 5, 123456), None, datetime(1969, 12, 31)], pa.timestamp("us")),
        "st": pa.array([{"x": 1, "y": {"z": "a"}}, None, {"x": None, "y": None}]),
        "li": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        # without null lists and maps of structs, which PyIceberg reads as empty ones
        "ls": pa.array([[{"k": "a", "v": [1]}], [], []]),
        "m": pa.array([[("a", {"q": 1})], [], []], pa.map_(pa.string(), pa.struct([("q", pa.int64())]))),
    }
)


def test_every_type_is_read_by_every_reader(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    write_deltalake(folder, TYPES)
    write_deltalake(folder, TYPES.slice(0, 2), mode="append")
    DeltaTable(str(folder)).delete("i32 = 1")
    report = imported(services, folder)
    assert (report.versions, report.left_out) == (3, ())
    assert_law(services, ducklake, expected(folder))


def test_partitions_of_every_type(services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path) -> None:
    names = ["b", "i32", "i64", "f", "dec", "s", "day", "ts", "ntz"]
    table = TYPES.select([*names, "i16"])
    write_deltalake(folder, table, partition_by=names)
    write_deltalake(folder, table.slice(1), mode="append")
    imported(services, folder)
    assert_law(services, ducklake, expected(folder))


def test_history_of_every_operation(services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path) -> None:
    rows = pa.table({"id": list(range(20)), "p": ["a/b c", "", None, "x=y&%41"] * 5, "v": [1.5] * 20})
    write_deltalake(folder, rows.slice(0, 0), partition_by=["p"])
    write_deltalake(folder, rows, mode="append")
    table = DeltaTable(str(folder))
    table.update(updates={"v": "v + 1"}, predicate="id < 3")
    table.delete("id = 7")
    table.merge(
        pa.table({"id": [1, 100], "p": ["z", "z"], "v": [0.0, 0.0]}), "t.id = s.id", "s", "t"
    ).when_matched_update_all().when_not_matched_insert_all().execute()
    write_deltalake(folder, rows.append_column("extra", pa.array([None, 5] * 10, pa.int64())), mode="append",
                    schema_mode="merge")  # fmt: skip
    table = DeltaTable(str(folder))
    table.optimize.compact()
    table.create_checkpoint()
    write_deltalake(folder, pa.table({"id": ["a", "b"], "q": [1, 2]}), mode="overwrite", schema_mode="overwrite",
                    partition_by=[])  # fmt: skip
    table = DeltaTable(str(folder))
    table.restore(5)
    report = imported(services, folder)
    assert report.left_out == ()
    assert_law(services, ducklake, expected(folder))


def test_imported_twice_is_refused_and_changes_nothing(services: Services, folder: Path) -> None:
    write_deltalake(folder, pa.table({"id": [1]}))
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    imported(services, folder)
    with pytest.raises(
        AlreadyExistsError, match=r"with version 0 of this very Delta table. `duckicelake delta sync ns\.t` brings"
    ):
        imported(services, folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == files


def test_table_that_is_empty_or_has_one_version(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    DeltaTable.create(folder, schema=pa.schema([("id", pa.int64())]))
    assert imported(services, folder).versions == 1
    assert_law(services, ducklake, {0: []})
    assert ducklake.sql("SELECT count(*) FROM lake.ns.t").fetchall() == [(0,)]
    ducklake.execute("INSERT INTO lake.ns.t VALUES (7)")
    assert rows(pa.table({"id": [7]})) == newest_rows(services)


def test_versions_whose_files_are_vacuumed_are_left_out(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    for number in range(4):
        write_deltalake(folder, pa.table({"id": [number]}), mode="overwrite" if number == 2 else "append")
    kept = {version: delta_rows(folder, version) for version in (2, 3)}
    DeltaTable(str(folder)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    kept |= dict.fromkeys(range(4, DeltaTable(str(folder)).version() + 1), kept[3])
    report = imported(services, folder)
    assert report.left_out == (0, 1)
    assert_law(services, ducklake, kept)


def test_history_begins_at_a_checkpoint_or_where_it_is_asked_to(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    for number in range(5):
        write_deltalake(folder, pa.table({"id": [number]}), mode="append")
        if number == 2:
            DeltaTable(str(folder)).create_checkpoint()
    whole = expected(folder)
    imported(services, folder, "later", from_version=1)
    assert_law(services, ducklake, {version: whole[version] for version in range(1, 5)}, "later")
    for version in range(3):
        (folder / "_delta_log" / f"{version:020}.json").unlink()
    imported(services, folder)
    assert_law(services, ducklake, {version: whole[version] for version in range(2, 5)})


def test_files_without_statistics_are_counted(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    table = new_table(folder)
    data = pa.table({"id": [1, 2, None], "s": ["a", None, "b"]})
    table.begin()
    table.commit(1, defined(column("id", "long"), column("s", "string")), written(table, "f.parquet", data, {}))
    report = imported(services, folder)
    assert report.rows == 3
    assert_law(services, ducklake, {0: [], 1: rows(data)})
    assert ducklake.sql("SELECT count(*), min(id), max(s) FROM lake.ns.t WHERE s >= 'a'").fetchall() == [(2, 1, "b")]


def test_statistics_answer_duckdb_rightly(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    long = "x" * 40
    data = pa.table(
        {
            "n": [5, -3, None, 9],
            "s": ["b", "a", None, long],
            "ts": [datetime(2024, 1, 1, 0, 0, 0, 999, UTC), datetime(1950, 1, 1, tzinfo=UTC), None, None],
            "d": [0.5, float("nan"), None, -1.0],
            "p": ["u", "v", None, "u"],
        }
    )
    write_deltalake(folder, data.slice(0, 2), partition_by=["p"])
    write_deltalake(folder, data.slice(2), mode="append")
    DeltaTable(str(folder)).delete("n = 5")
    imported(services, folder)
    left = DeltaTable(str(folder)).to_pyarrow_table()
    own = duckdb.connect().execute("SET TimeZone = 'UTC'")
    ducklake.execute("SET TimeZone = 'UTC'")
    own.register("t", left)
    questions = ("count(*), count(n), min(n), max(n)", "min(s), max(s)", "min(ts), max(ts)", "max(d)", "min(p), max(p)")
    conditions = ("true", "n > -4", "s > 'xx'", "ts < '1990-01-01'", "ts >= '2024-01-01'", "n IS NULL", "isnan(d)",
                  "p IS NULL", "p = 'v'")  # fmt: skip
    for question in questions:
        for condition in conditions:
            asked = f"SELECT {question} FROM {{}} WHERE {condition}"
            found, wanted = ducklake.sql(asked.format("lake.ns.t")), own.sql(asked.format("t"))
            assert repr(found.fetchall()) == repr(wanted.fetchall()), asked


def test_both_sides_write_to_an_imported_table_and_read_each_other(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    write_deltalake(folder, pa.table({"id": [1, 2], "p": ["a", "b"], "l": [[1], None]}), partition_by=["p"])
    imported(services, folder)
    ducklake.execute("INSERT INTO lake.ns.t VALUES (3, 'c', [3])")
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 1")
    ducklake.execute("ALTER TABLE lake.ns.t ADD COLUMN more INTEGER")
    ducklake.execute("UPDATE lake.ns.t SET more = 5 WHERE id = 2")
    wanted = pa.table({"id": [2, 3], "p": ["b", "c"], "l": [None, [3]], "more": [5, None]})
    assert newest_rows(services) == rows(wanted)
    assert rows(ducklake.sql("SELECT * FROM lake.ns.t").to_arrow_table()) == rows(wanted)
    assert_sound(services)


def test_killed_at_any_step_it_leaves_no_table_or_the_whole_one(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    table = new_table(folder)
    first = written(table, "f0.parquet", pa.table({"id": list(range(10))}))
    table.commit(0, with_features(*VECTORS), defined(column("id", "long")), first)
    table.commit(1, gone(first), again(first, vector(3)))
    step = 0
    with mortal(services) as server:
        while True:
            ending = server.serve(Work("import", step, "t", {"root": str(folder)}))
            names = [name for (name,) in ducklake.sql("FROM (SHOW TABLES)").fetchall()]
            tables = ducklake.sql("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'lake'").fetchone()
            if tables != (0,):
                break
            assert not ending.answered, names
            step += 2
    assert step > 3
    assert_law(services, ducklake, {0: rows(pa.table({"id": list(range(10))})),
                                    1: rows(pa.table({"id": [i for i in range(10) if i != 3]}))})  # fmt: skip
    with pytest.raises(AlreadyExistsError):
        imported(services, folder)
    assert_sound(services)


def test_properties_comments_and_constraints_come_along(services: Services, folder: Path) -> None:
    table = new_table(folder)
    more = {"comment": "how many", "delta.generationExpression": "m + 1"}
    columns = (column("n", "long", metadata=more), column("m", "long", nullable=False))
    definition = defined(*columns, **{"delta.constraints.small": "n < 10", "delta.appendOnly": "false", "mine": "yes"})
    definition["metaData"] |= {"description": "all of it", "name": "called"}
    info = {"commitInfo": {"operation": "WRITE", "timestamp": 1, "userMetadata": "by hand", "engineInfo": "E/1"}}
    table.commit(0, protocol(1, 7), definition, info, {"txn": {"appId": "job", "version": 17}})
    imported(services, folder)
    metadata = table_metadata(services)
    wanted = {"constraint.small": "n < 10", "delta.constraints.small": "n < 10", "delta.appendOnly": "false",
              "mine": "yes", "comment": "all of it", "delta.name": "called", "gc.enabled": "false",
              "delta.column-metadata": '{"n":{"delta.generationExpression":"m + 1"}}'}  # fmt: skip
    assert wanted.items() <= metadata.properties.items()
    assert [(field.doc, field.required) for field in metadata.schema().fields] == [("how many", False), (None, True)]
    (snapshot,) = metadata.snapshots
    report = {"delta.version": "0", "delta.operation": "WRITE", "delta.user-metadata": "by hand",
            "delta.engine-info": "E/1", "delta.txn.job": "17", "operation": "append"}  # fmt: skip
    assert report.items() <= snapshot.summary.items()
    assert snapshot.timestamp_ms == START_MS == metadata.snapshot_log[0].timestamp_ms


def test_what_can_not_be_imported_is_named_and_leaves_nothing(
    services: Services, ducklake: duckdb.DuckDBPyConnection, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(NoDeltaLogError, match="isn't a Delta table"):
        imported(services, folder)
    write_deltalake(tmp_path / "outside", pa.table({"id": [1]}))
    with pytest.raises(InvalidRequestError, match="DUCKICELAKE_ALLOWED_LOCATIONS"):
        imported(services, tmp_path / "outside")
    inside = Path(services.policy.data_path) / "t"
    with pytest.raises(InvalidRequestError, match="where DuckDB deletes"):
        imported(services, inside)
    write_deltalake(folder, pa.table({"id": [1]}))
    with pytest.raises(NoSuchNamespaceError, match="Create it first"):
        import_table(services, DeltaImport(str(folder), ("nowhere",), "t"))
    next(folder.glob("*.parquet")).unlink()
    with pytest.raises(FileMissingError, match=r"\.parquet.*version 0"):
        imported(services, folder)
    (folder / "_delta_log" / f"{1:020}.json").write_text('{"add":')
    with pytest.raises(DamagedLogError, match=f"{1:020}.json"):
        imported(services, folder)
    assert ducklake.sql("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'lake'").fetchone() == (0,)


def newest_rows(services: Services) -> list[str]:
    return iceberg_rows(services, table_metadata(services).current_snapshot_id or 0)


def assert_sound(services: Services) -> None:
    """Nothing that `duckicelake doctor` would say."""
    findings, files = doctor.examine_tables(services.database)
    assert findings + [each for each in doctor.examine_files(services.store, files) if each is not None] == []
