"""Tables that delta-rs writes."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from tests.delta.corpus.registry import Making, by_delta_rs

ROWS = {"n": pa.array([1, 2, 3], pa.int32()), "v": pa.array(["a", None, "c"]), "p": pa.array(["x", "y y", None])}


def _write(t: Making, columns: dict[str, Any], **options: Any) -> None:
    write_deltalake(str(t.root), pa.table(columns), **options)


def _row(n: int, v: str | None, p: str | None) -> dict[str, Any]:
    return {"n": pa.array([n], pa.int32()), "v": pa.array([v], pa.string()), "p": pa.array([p], pa.string())}


@by_delta_rs("all types, by delta-rs")
def rust_types(t: Making) -> None:
    when = dt.datetime(2024, 2, 29, 12, 34, 56, 789123, tzinfo=dt.UTC)
    _write(
        t,
        {
            "b": pa.array([True, None]),
            "i8": pa.array([-128, 127], pa.int8()),
            "i16": pa.array([-32768, 32767], pa.int16()),
            "i32": pa.array([-(2**31), None], pa.int32()),
            "i64": pa.array([-(2**63), 2**63 - 1], pa.int64()),
            "f": pa.array([1.5, float("nan")], pa.float32()),
            "d": pa.array([1e300, float("-inf")], pa.float64()),
            "dec": pa.array([Decimal("-1.25"), None], pa.decimal128(38, 10)),
            "s": pa.array(["ünï🦆", ""]),
            "bin": pa.array([b"\x00\xff", None]),
            "day": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
            "at": pa.array([when, None], pa.timestamp("us", "UTC")),
            "ntz": pa.array([when.replace(tzinfo=None), None], pa.timestamp("us")),
            "st": pa.array([{"a": 1, "l": [1, None]}, None], pa.struct({"a": pa.int32(), "l": pa.list_(pa.int64())})),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        },
    )


@by_delta_rs("partitions, overwriting of some and deletes, by delta-rs")
def rust_partitioned(t: Making) -> None:
    _write(t, ROWS, partition_by=["p"])
    _write(t, _row(4, "d", "a/b=c%"), mode="append")
    _write(t, _row(5, "e", "x"), mode="overwrite", predicate="p = 'x'")
    DeltaTable(str(t.root)).delete("n = 2")


@by_delta_rs("DELETE, UPDATE and MERGE, by delta-rs")
def rust_rewritten(t: Making) -> None:
    _write(t, ROWS)
    DeltaTable(str(t.root)).delete("n = 1")
    DeltaTable(str(t.root)).update({"v": "'U'"}, predicate="n = 2")
    source = pa.concat_tables([pa.table(_row(3, "M", "m")), pa.table(_row(9, "new", None))])
    merging = DeltaTable(str(t.root)).merge(source, "t.n = s.n", source_alias="s", target_alias="t")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


@by_delta_rs("schemas merged and overwritten, by delta-rs")
def rust_schemas(t: Making) -> None:
    _write(t, ROWS)
    _write(t, {**_row(4, "d", "x"), "late": pa.array([4.5])}, mode="append", schema_mode="merge")
    _write(t, {"n": pa.array(["text"]), "w": pa.array([True])}, mode="overwrite", schema_mode="overwrite")


@by_delta_rs("compaction, z-order and VACUUM, by delta-rs")
def rust_maintained(t: Making) -> None:
    for n in range(4):
        _write(t, _row(n, f"v{n}", "x"), mode="append")
    DeltaTable(str(t.root)).optimize.compact()
    DeltaTable(str(t.root)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    _write(t, _row(9, "after", "x"), mode="append")
    DeltaTable(str(t.root)).optimize.z_order(["n"])


@by_delta_rs("a checkpoint by delta-rs, without the commits before it")
def rust_checkpointed(t: Making) -> None:
    for n in range(3):
        _write(t, _row(n, f"v{n}", "x"), mode="append")
    DeltaTable(str(t.root)).create_checkpoint()
    _write(t, _row(9, "after", "x"), mode="append")
    for version in range(2):
        (t.log / f"{version:020}.json").unlink()


@by_delta_rs("compacted commits, by delta-rs")
def rust_log_compacted(t: Making) -> None:
    for n in range(5):
        _write(t, _row(n, f"v{n}", "x"), mode="append")
    DeltaTable(str(t.root)).delete("n = 1")
    DeltaTable(str(t.root)).compact_logs(1, 4)


@by_delta_rs("RESTORE, constraints, transactions and user metadata, by delta-rs")
def rust_told(t: Making) -> None:
    _write(t, ROWS, name="named", description="told", configuration={"delta.appendOnly": "false"})
    DeltaTable(str(t.root)).alter.add_constraint({"positive": "n > 0"})
    told = CommitProperties(custom_metadata={"why": "because"}, app_transactions=[Transaction("loader", 7)])
    _write(t, _row(4, "d", "x"), mode="append", commit_properties=told)
    DeltaTable(str(t.root)).restore(1)
