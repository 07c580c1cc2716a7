"""What manifests promise against the rows, whoever wrote them: no client may skip or delete a row by it.

PyIceberg's own evaluators decide, and Java's as `tests.support.java_metrics` has them.
"""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotNaN,
    NotNull,
)
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.types import PrimitiveType

from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.server.app import create_app
from tests.support import java_metrics as java
from tests.support.lakes import Lake, assert_same_rows
from tests.support.servers import running

NAN, INFINITY = float("nan"), float("inf")
MAIN = ("main",)
COLUMNS: dict[str, tuple[str, pa.DataType, tuple[Any, ...]]] = {
    "x": ("DOUBLE", pa.float64(), (NAN, INFINITY, -INFINITY, -0.0, 0.0, 1.0, 7.0)),
    "f": ("FLOAT", pa.float32(), (NAN, -0.0, 0.0, 0.5, -INFINITY)),
    "n": ("INTEGER", pa.int32(), (-(2**31), -1, 0, 7)),
    "v": ("VARCHAR", pa.string(), ("", "z" * 300, "a", "\U0001f600" * 20, "\uffff" * 20)),
    "u": ("UUID", pa.uuid(), tuple(UUID(f"{c}fffffff-0000-4000-{d}000-000000000001") for c in "078f" for d in "08")),
    "d": ("DATE", pa.date32(), (date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31))),
    "t": ("TIMESTAMP", pa.timestamp("us"), (datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 2, 29))),
    "c": ("DECIMAL(9, 2)", pa.decimal128(9, 2), (Decimal("-1.50"), Decimal("0.00"), Decimal("10.25"))),
    "b": ("BLOB", pa.binary(), (b"", b"ab", b"AB", b"\xab", b"61", b"\xff" * 20)),
}
PAIR = pa.struct([("f", pa.float64()), ("i", pa.int32())])
ARROW = pa.schema(
    [*((name, kind) for name, (_, kind, _) in COLUMNS.items()), ("s", PAIR), ("l", pa.list_(pa.float64()))]
)
DEFINED = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
CREATE = f"CREATE TABLE t ({DEFINED}, s STRUCT(f DOUBLE, i INTEGER), l DOUBLE[])"
SCHEMA_LESS = "INSERT INTO t FROM given"
PYICEBERG: dict[str, Callable[..., BooleanExpression]] = {
    "=": EqualTo, "!=": NotEqualTo, "<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan, ">=": GreaterThanOrEqual,
    "is null": lambda name, _: IsNull(name), "not null": lambda name, _: NotNull(name),
    "is nan": lambda name, _: IsNaN(name), "not nan": lambda name, _: NotNaN(name),
}  # fmt: skip


def batch(seed: random.Random, count: int) -> pa.Table:
    """Rows of few different values each column, so that bounds are tight; a column may be all null, or all NaN."""
    data: dict[str, list[Any]] = {}
    for name, (_, _, values) in COLUMNS.items():
        some = seed.sample([*values, None], seed.randint(1, 3))
        data[name] = [seed.choice(some) for _ in range(count)]
    floats, numbers = COLUMNS["x"][2], COLUMNS["n"][2]
    pairs = [None, *({"f": seed.choice([*floats, None]), "i": seed.choice([*numbers, None])} for _ in range(2))]
    some = seed.sample(pairs, seed.randint(1, 3))
    data["s"] = [seed.choice(some) for _ in range(count)]
    data["l"] = [seed.choice([None, [], [NAN], [1.0, None]]) for _ in range(count)]
    return pa.table(data, schema=ARROW)


def insert(lake: Lake, rows: pa.Table) -> None:
    lake.duck.register("given", rows)
    lake.run(SCHEMA_LESS)


def in_files(lake: Lake, seed: random.Random, tmp_path: Path) -> None:
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    for _ in range(6):
        insert(lake, batch(seed, seed.randint(1, 4)))


def inlined(lake: Lake, seed: random.Random, tmp_path: Path) -> None:
    for _ in range(4):
        insert(lake, batch(seed, seed.randint(1, 4)))
        lake.static()


def flushed(lake: Lake, seed: random.Random, tmp_path: Path) -> None:
    for _ in range(4):
        insert(lake, batch(seed, seed.randint(1, 4)))
        flush_rows(lake.services, MAIN, "t")


def merged(lake: Lake, seed: random.Random, tmp_path: Path) -> None:
    in_files(lake, seed, tmp_path)
    lake.static()
    lake.run("CALL ducklake_merge_adjacent_files('lake')")


def rewritten(lake: Lake, seed: random.Random, tmp_path: Path) -> None:
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    for _ in range(3):
        insert(lake, batch(seed, 4))
    lake.run(
        "DELETE FROM t WHERE n IS NULL OR n < 0", "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)"
    )


def readable(tmp_path: Path) -> Path:
    """A folder in the warehouse, where the server may read what DuckDB adds."""
    folder = tmp_path / "warehouse" / "added"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def added(lake: Lake, seed: random.Random, tmp_path: Path) -> None:
    for number in range(4):
        rows, path = batch(seed, 3), readable(tmp_path) / f"{number}.parquet"
        if number % 2:
            pq.write_table(rows, path)
        else:
            lake.duck.register("given", rows)
            lake.run(f"COPY given TO '{path}'")
        lake.run(f"CALL ducklake_add_data_files('lake', 't', '{path}')")


def posted(lake: Lake, seed: random.Random, tmp_path: Path) -> None:
    for count in (3, 40, 2):
        rows, sink = batch(seed, count), pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_table(rows)
        body = sink.getvalue().to_pybytes()
        append_rows(lake.services, PostedRows(MAIN, "t", body, "application/vnd.apache.arrow.stream"))
        lake.static()


def appended(lake: Lake, seed: random.Random, tmp_path: Path) -> None:
    with running(create_app(lake.services)) as uri, RestCatalog("lake", uri=uri) as catalog:
        table = catalog.load_table("main.t")
        for count in (2, 5):
            table.append(batch(seed, count).cast(table.schema().as_arrow()))


WRITERS = (appended, in_files, inlined, flushed, merged, rewritten, added, posted)


@dataclass(frozen=True)
class Rows:
    """A file of a manifest, and the values of a column in it."""

    file: DataFile
    name: str
    kind: PrimitiveType
    column: java.Column
    values: list[Any]
    literals: list[Any]


def files_of(static: StaticTable) -> Iterator[DataFile]:
    snapshot = static.current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(static.io):
        for entry in manifest.fetch_manifest_entry(static.io):
            if entry.data_file.content == 0:
                yield entry.data_file


def plain(values: pa.ChunkedArray) -> list[Any]:
    """Values as bounds are decoded: days, microseconds."""
    casts = {pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64()}
    return list(values.cast(casts.get(values.type, values.type)).to_pylist())


def columns_of(static: StaticTable) -> Iterator[Rows]:
    schema = static.schema()
    ids = {schema.find_column_name(field_id) or "": field_id for field_id in schema.field_ids}
    for file in files_of(static):
        table = pq.read_table(re.sub("^file:(//)?", "", file.file_path), partitioning=None)
        values = {name: plain(table[name]) for name in COLUMNS}
        for part in ("f", "i"):
            values[f"s.{part}"] = [None if pair is None else pair[part] for pair in table["s"].to_pylist()]
        for name, found in values.items():
            kind = schema.find_type(ids[name])
            assert isinstance(kind, PrimitiveType)
            pool = COLUMNS[{"s.f": "x", "s.i": "n"}.get(name, name)]
            literals = plain(pa.chunked_array([pa.array(pool[2], pool[1])]))
            known = [value for value in literals if value == value]
            yield Rows(file, name, kind, column_of(file, ids[name], kind, "." in name), found, known)


def column_of(file: DataFile, field_id: int, kind: PrimitiveType, nested: bool) -> java.Column:
    bounds = [(each or {}).get(field_id) for each in (file.lower_bounds, file.upper_bounds)]
    lower, upper = (None if bound is None else from_bytes(kind, bound) for bound in bounds)
    counts = ((each or {}).get(field_id) for each in (file.value_counts, file.null_value_counts, file.nan_value_counts))
    return java.Column(nested, *counts, lower, upper)


def python_order(value: Any) -> Any:
    """As PyIceberg and Arrow compare: NaN with nothing, both zeros as one."""
    return value.bytes if isinstance(value, UUID) else value.encode() if isinstance(value, str) else value


def assert_sound(rows: Rows, schema: Schema) -> None:
    for operator in java.OPERATORS:
        if operator.endswith("nan") and not rows.name.endswith(("x", "f")):
            continue
        for literal in rows.literals if operator in {"=", "!=", "<", "<=", ">", ">="} else [None]:
            assert_java_sound(rows, operator, literal)
            if is_known_to_pyiceberg(rows.name, literal):
                assert_pyiceberg_sound(rows, schema, operator, literal)


def is_known_to_pyiceberg(name: str, literal: Any) -> bool:
    """Not nested columns, nor UUIDs; an infinity compared with a FLOAT it takes for greater than all of them."""
    return "." not in name and name != "u" and not (name == "f" and literal in {INFINITY, -INFINITY})


def assert_java_sound(rows: Rows, operator: str, literal: Any) -> None:
    matching = [java.holds(java.spark_order, operator, value, literal) for value in rows.values]
    case = (rows.name, operator, literal, rows.column, rows.values)
    assert java.might_match(rows.column, operator, literal) or not any(matching), case
    if operator == "!=":  # to Iceberg null is unequal to all
        matching = [found or value is None for found, value in zip(matching, rows.values, strict=True)]
    assert not java.must_match(rows.column, operator, literal) or all(matching), case


def assert_pyiceberg_sound(rows: Rows, schema: Schema, operator: str, literal: Any) -> None:
    expression = PYICEBERG[operator](rows.name, literal)
    matching = [java.holds(python_order, operator, value, literal) for value in rows.values]
    case = (rows.name, operator, literal, rows.column, rows.values)
    assert _InclusiveMetricsEvaluator(schema, expression).eval(rows.file) or not any(matching), case
    if operator == "!=":
        matching = [found or value is None for found, value in zip(matching, rows.values, strict=True)]
    assert not _StrictMetricsEvaluator(schema, expression).eval(rows.file) or all(matching), case


def assert_aggregates(rows: Rows) -> None:
    """What Spark answers of a file without reading it; of texts, whose bounds may be cut, it counts only."""
    present = [value for value in rows.values if value is not None]
    truth = {"count": len(present)}
    if rows.name not in {"v", "b"}:
        truth |= {"min": min(present, key=java.spark_order, default=None)}
        truth |= {"max": max(present, key=java.spark_order, default=None)}
    for aggregate, expected in truth.items():
        answered, answer = java.pushed_down(rows.column, aggregate)
        same = answer == expected if None in (answer, expected) else order(answer) == order(expected)
        assert not answered or same, (aggregate, rows.name, rows.column, rows.values)


order = java.spark_order


@pytest.mark.parametrize("limit", [0, 10])
def test_nan_that_duckdb_inserted_outlives_a_delete_of_all_numbers(lake: Lake, catalog: Catalog, limit: int) -> None:
    lake.run(
        f"CALL lake.set_option('data_inlining_row_limit', {limit})",
        "CREATE TABLE t (id INTEGER, x DOUBLE)",
        "INSERT INTO t VALUES (1, 'NaN'), (2, 7), (3, 1)",
    )

    catalog.load_table("main.t").delete("x < 10")

    assert lake.one("SELECT id, x::VARCHAR FROM t") == (1, "nan")
    assert_same_rows(lake)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("seed", range(2))
def test_no_client_skips_or_deletes_a_row_by_the_metrics(
    lake: Lake, tmp_path: Path, writer: Callable[[Lake, random.Random, Path], None], seed: int
) -> None:
    lake.run(CREATE)
    writer(lake, random.Random(seed), tmp_path)

    found = list(columns_of(lake.static()))

    assert found
    schema = lake.static().schema()
    for rows in found:
        assert_sound(rows, schema)
        assert_aggregates(rows)
    assert any(rows.column.lower is not None for rows in found if rows.name in {"n", "d"})


def test_entries_can_be_inspected_whatever_is_known_of_files(lake: Lake, tmp_path: Path) -> None:
    lake.run("CREATE TABLE t (i INTEGER, x DOUBLE)", "INSERT INTO t VALUES (1, 'NaN')")
    lake.static()
    path = readable(tmp_path) / "f.parquet"
    pq.write_table(pa.table({"i": pa.array([1], pa.int32()), "x": [NAN]}), path, write_statistics=False)
    lake.run(f"CALL ducklake_add_data_files('lake', 't', '{path}')", "DELETE FROM t WHERE i = 1")
    lake.static()
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)", "INSERT INTO t VALUES (2, 1)")

    inspect = lake.static().inspect
    tables = (inspect.entries, inspect.files, inspect.all_files, inspect.data_files, inspect.delete_files)
    assert [len(table().to_pylist()) > 0 for table in tables] == [True] * 5
    assert all(file.column_sizes is not None for file in files_of(lake.static()))
