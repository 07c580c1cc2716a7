"""Filters of rows as texts of SQL: DuckDB finds the rows that the specification says, in columns of every type."""

import json
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.expressions import collect_tests, parse_predicate
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.rows.columns import RowColumn
from duckicelake.rows.filters import FilterColumn, bind_filter, format_filter, write_condition
from duckicelake.sql_dialects.filters import parse_row_filter
from duckicelake.sql_dialects.placeholders import DUCKDB, format_type_name
from tests.support.equality_cases import TYPES
from tests.support.filter_cases import COLUMNS, Filters, Row, holds

KINDS = {name: PrimitiveType.parse(kind) for name, kind in COLUMNS.items()}
IDS = {name: number for number, name in enumerate(COLUMNS, 10)}
ROW_COLUMNS = [RowColumn(IDS[name], name, kind, required=False, declared="") for name, kind in KINDS.items()]
FILTER_COLUMNS = {IDS[name]: FilterColumn(kind, name, format_type_name(DUCKDB, kind)) for name, kind in KINDS.items()}


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def make_rows(filters: Filters, count: int) -> list[Row]:
    def choose(name: str) -> Any:
        return None if filters.random.random() < 0.2 else filters.value(name)

    return [{"id": number, **{name: choose(name) for name in COLUMNS}} for number in range(count)]


def load(duck: duckdb.DuckDBPyConnection, rows: list[Row]) -> None:
    arrays = {"id": pa.array([row["id"] for row in rows], pa.int64())}
    for name, kind in COLUMNS.items():
        values = [row[name].bytes if row[name] is not None and kind == "uuid" else row[name] for row in rows]
        arrays[name] = pa.array(values, TYPES[kind][0])
    found = pa.table(arrays)  # noqa: F841 - DuckDB reads it
    duck.execute("CREATE OR REPLACE TABLE t AS FROM found")


@pytest.mark.parametrize("seed", range(4))
def test_condition_finds_the_rows_of_the_specification(duck: duckdb.DuckDBPyConnection, seed: int) -> None:
    """As it is written, and once it has been stored as JSON by field id."""
    filters = Filters(seed, 3)
    rows = make_rows(filters, 60)
    load(duck, rows)
    found = stored_filters = 0
    for _ in range(150):
        json_filter = filters.predicate()
        bound = bind_filter(parse_predicate(json_filter), ROW_COLUMNS)
        wanted = [row["id"] for row in rows if holds(json_filter, row)]
        condition = write_condition(bound, FILTER_COLUMNS)
        assert select(duck, condition) == wanted, json_filter
        found += 0 < len(wanted) < len(rows)
        if "Infinity" in json.dumps(json_filter):  # which has no form in Iceberg's JSON
            continue
        stored = json.loads(json.dumps(format_filter(bound, {IDS[name]: kind for name, kind in KINDS.items()})))
        again = bind_filter(parse_predicate(stored), ROW_COLUMNS)
        assert write_condition(again, FILTER_COLUMNS) == condition
        assert all(isinstance(test.column, int) for test in collect_tests(parse_predicate(stored)))
        stored_filters += 1
    assert min(found, stored_filters) > 50


def select(duck: duckdb.DuckDBPyConnection, condition: str) -> list[int]:
    return [number for (number,) in duck.execute(f"SELECT id FROM t WHERE {condition} ORDER BY id").fetchall()]


SAME_IN_SQL = [
    "c0",
    "c1 BETWEEN 0 AND 5 OR c12 LIKE 'a%'",
    "c12 <> 'a' AND c5 >= -0.01",
    "NOT (c12 = 'a' OR c7 > DATE '1970-01-01')",
    "c12 IS NULL OR c12 NOT IN ('a', 'A')",
    "NOT isnan(c4)",
    "c9 = TIMESTAMP '2020-01-01' OR c10 < '2020-01-01 00:00:00+00:00'",
]


@pytest.mark.parametrize("condition", SAME_IN_SQL)
def test_condition_of_a_person_finds_the_rows_that_it_finds_in_duckdb(
    duck: duckdb.DuckDBPyConnection, condition: str
) -> None:
    load(duck, make_rows(Filters(7, 3), 200))
    fields = [{"id": IDS[n], "name": n, "type": kind, "required": False} for n, kind in COLUMNS.items()]
    schema = Schema.model_validate({"type": "struct", "fields": fields})
    bound = bind_filter(parse_row_filter(condition, schema), ROW_COLUMNS)
    found = select(duck, write_condition(bound, FILTER_COLUMNS))
    assert found == select(duck, condition)
    assert found


def test_constants_are_no_sql(duck: duckdb.DuckDBPyConnection) -> None:
    load(duck, make_rows(Filters(1, 3), 10))
    for text in ("' OR true --", "\0' OR true", "'';", "\\'", "$1", "\n"):
        bound = bind_filter(parse_predicate({"type": "eq", "term": "c12", "value": text}), ROW_COLUMNS)
        assert select(duck, write_condition(bound, FILTER_COLUMNS)) == []
    with pytest.raises(InvalidRequestError, match="c1 is compared with"):
        bind_filter(parse_predicate({"type": "eq", "term": "c1", "value": "0) OR (true"}), ROW_COLUMNS)
