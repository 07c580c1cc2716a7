"""CHECK constraints: what can be said, and what bounds prove or refute, beside DuckDB evaluating the same."""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckicelake.constraints.definition import (
    copy_marks,
    find_unverified,
    parse_constraint,
    read_constraints,
)
from duckicelake.constraints.duckdb_check import render_condition
from duckicelake.constraints.metrics_check import judge_file
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.values import to_bytes
from duckicelake.lake.state import FileRow
from duckicelake.properties import add_unverified
from tests.support.examples import count_examples

TYPES = {
    "i": "int",
    "l": "long",
    "d": "double",
    "f": "float",
    "m": "decimal(9, 2)",
    "s": "string",
    "b": "boolean",
    "day": "date",
    "t": "timestamp",
    "z": "timestamptz",
}
SCHEMA = Schema.model_validate(
    {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            *(
                {"id": n, "name": name, "type": kind, "required": False}
                for n, (name, kind) in enumerate(TYPES.items(), 1)
            ),
            {"id": 20, "name": "we ird", "type": "long", "required": False},
            {"id": 21, "name": "u", "type": "uuid", "required": False},
            {
                "id": 22,
                "name": "p",
                "required": False,
                "type": {"type": "struct", "fields": [{"id": 23, "name": "x", "type": "int", "required": False}]},
            },
        ],
    }
)
ARROW = {
    "i": pa.int32(),
    "l": pa.int64(),
    "d": pa.float64(),
    "f": pa.float32(),
    "m": pa.decimal128(9, 2),
    "s": pa.string(),
    "b": pa.bool_(),
    "day": pa.date32(),
    "t": pa.timestamp("us"),
    "z": pa.timestamp("us", "UTC"),
}
LITTLE = st.integers(-4, 4)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": LITTLE | st.sampled_from([2**31 - 1, -(2**31)]),
    "l": LITTLE | st.sampled_from([2**63 - 1, -(2**63), 2**62]),
    "d": st.sampled_from([-1.5, -0.0, 0.0, 0.5, 2.0, math.nan, math.inf, -math.inf, 0.1]),
    "f": st.sampled_from([-1.5, -0.0, 0.0, 0.5, 2.0, math.nan, math.inf]),
    "m": st.sampled_from([Decimal(text) for text in ("-1.25", "0.00", "0.01", "3.50", "9999999.99")]),
    "s": st.sampled_from(["", "a", "ab", "abc", "b", "é", "a" * 20, "a" * 16 + "zz", "\U0001f600" * 17]),
    "b": st.booleans(),
    "day": st.sampled_from([date(1969, 12, 31), date(2020, 1, 1), date(2020, 2, 29)]),
    "t": st.sampled_from([datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 1)]),
    "z": st.sampled_from([datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 2, tzinfo=UTC)]),
}
CONSTANTS = {
    "i": ["0", "1", "-2", "2147483647", "2147483648"],
    "l": ["0", "-1", "4", "9223372036854775807"],
    "d": ["0", "0.5", "0.1", "-1e0", "1e300"],
    "f": ["0", "0.5", "-1.5"],
    "m": ["0", "0.01", "3.5", "-1.255"],
    "s": ["'a'", "'ab'", "''", "'é'", "'aaaaaaaaaaaaaaaaz'"],
    "b": ["TRUE", "FALSE"],
    "day": ["'2020-01-01'", "DATE '2020-02-28'"],
    "t": ["'2020-01-01 00:00:00'", "TIMESTAMP '2020-01-01 00:00:00.000001'", "'2020-01-01'"],
    "z": ["'2020-01-01 00:00:00Z'", "'2020-01-01 01:00:00+00:00'", "'2020-01-01 03:00:00+02:00'"],
}
COLUMNS = st.sampled_from(sorted(TYPES))
WHOLE_CONSTANTS = st.sampled_from(["0", "1", "-3", "4611686018427387904"])
WHOLE = st.sampled_from(["i", "l", "length(s)", "abs(l)", "abs(i)", "coalesce(i, 0)"])
SIGNS = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    column = draw(COLUMNS)
    constant = draw(st.sampled_from(CONSTANTS[column]))
    if draw(st.booleans()):
        return f"{constant} {draw(SIGNS)} {column}" if draw(st.booleans()) else f"{column} {draw(SIGNS)} {constant}"
    other = draw(st.sampled_from(CONSTANTS[column]))
    if draw(st.booleans()):
        return f"({column} {draw(SIGNS)} {constant} OR {column} IS NULL)"
    many = [
        f"{column} IN ({constant}, {other})",
        f"{column} BETWEEN {constant} AND {other}",
        f"{column} <=> {constant}",
    ]
    return draw(
        st.sampled_from(
            [*many, f"coalesce({column}, {constant}) = {other}", f"{column} IS NULL", f"{column} = {column}"]
        )
    )


@st.composite
def calculations(draw: st.DrawFn) -> str:
    sign, left, right = draw(st.sampled_from("+-*%")), draw(WHOLE), draw(WHOLE | WHOLE_CONSTANTS)
    value = f"{left} % 3" if sign == "%" else f"({left} {sign} {right})"
    return f"{value} {draw(SIGNS)} {draw(WHOLE_CONSTANTS)}"


OTHER_TEXTS = [
    "s LIKE 'a%'",
    "s NOT LIKE 'aa%'",
    "s LIKE 'ab'",
    "s LIKE '_b%'",
    "b",
    "b IS TRUE",
    "abs(d) <= 2",
    "d * 2 > 1",
    "-i < 3",
    "d + d < 9",
]
OTHERS = st.sampled_from(OTHER_TEXTS)
LEAVES = comparisons() | calculations() | OTHERS
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})")
        | inner.map(lambda text: f"NOT ({text})")
    ),
    max_leaves=3,
)
TABLES = st.fixed_dictionaries(
    {name: st.lists(st.none() | value, min_size=3, max_size=3) for name, value in VALUES.items()}
)


def stored(kind: str, value: Any) -> Any:
    """A value in memory as `iceberg.values` has it."""
    match value:
        case datetime():
            return (value.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1)
        case date():
            return (value - date(1970, 1, 1)).days
    return value


def bounds(name: str, values: list[Any]) -> tuple[bytes | None, bytes | None]:
    """As writers give them: of texts up to 16 characters, the upper one rounded up."""
    kind = SCHEMA.fields[list(TYPES).index(name)].type
    present = [stored(TYPES[name], value) for value in values if value is not None and value == value]
    if not present:
        return None, None
    low, high = min(present), max(present)
    if isinstance(low, str):
        low = low[:16]
        if len(high) > 16:
            cut = high[:16]
            high = cut[:-1] + chr(ord(cut[-1]) + 1)
    return to_bytes(kind, low), to_bytes(kind, high)


def file_of(table: dict[str, list[Any]], left_out: frozenset[str] = frozenset()) -> FileRow:
    """A data file with these rows and all their metrics, but for those of some columns."""
    metrics: dict[str, dict[str, Any]] = {
        key: {} for key in ("null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
    }
    for number, (name, values) in enumerate(table.items(), 1):
        if name in left_out:
            continue
        key = str(SCHEMA.fields[list(TYPES).index(name)].id)
        assert number
        metrics["null_value_counts"][key] = values.count(None)
        metrics["nan_value_counts"][key] = sum(value is not None and value != value for value in values)
        low, high = bounds(name, values)
        if low is not None and high is not None:
            metrics["lower_bounds"][key], metrics["upper_bounds"][key] = low.hex(), high.hex()
    count = len(next(iter(table.values())))
    return FileRow(1, 0, "file.parquet", "PARQUET", 0, [], count, 100, metrics, 1, 1, 1)


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def violations(duck: duckdb.DuckDBPyConnection, text: str, table: dict[str, list[Any]]) -> int:
    r = pa.table({name: pa.array(values, ARROW[name]) for name, values in table.items()})
    sql = render_condition(parse_constraint("c", text, SCHEMA).condition)
    with duck.cursor() as cursor:
        cursor.register("rows_of_it", r)
        found = cursor.execute(f"SELECT count(*) FROM rows_of_it r WHERE ({sql}) IS NOT TRUE").fetchone()
    assert found is not None
    return int(found[0])


@settings(max_examples=count_examples(400), deadline=None)
@given(text=CONDITIONS, table=TABLES, left_out=st.frozensets(COLUMNS, max_size=2))
def test_bounds_never_prove_what_a_row_violates_nor_refute_what_all_keep(
    duck: duckdb.DuckDBPyConnection, text: str, table: dict[str, list[Any]], left_out: frozenset[str]
) -> None:
    verdict = judge_file(parse_constraint("c", text, SCHEMA), file_of(table, left_out), {})
    found = violations(duck, text, table)
    assert not (verdict.holds and found), f"{text} was proved"
    assert not (verdict.problem and not found), f"{text} was refuted: {verdict.problem}"


def one(name: str, *values: Any) -> FileRow:
    return file_of({name: list(values)})


@pytest.mark.parametrize(
    ("text", "file", "expected"),
    [
        ("l > 0", one("l", 1, 5), True),
        ("l > 0", one("l", -5, 5), "has a row whose l is -5"),
        ("l > 0", one("l", -5, -1), "no row of file.parquet keeps it: l is from -5 to -1"),
        ("l > 0", one("l", 1, None), "has a row whose l is null"),
        ("l > 0 OR l IS NULL", one("l", 1, None), True),
        ("l <> 3", one("l", 1, 5), None),
        ("l % 2 = 0", one("l", 2, 4), None),
        ("d >= 0", one("d", 0.5, math.nan), True),
        ("d < 10", one("d", 0.5, math.nan), "has a row whose d is NaN"),
        ("s LIKE 'ab%'", one("s", "ab", "abz"), True),
        ("s < 'b'", one("s", "a" * 20), True),
        ("s <> 'aaaaaaaaaaaaaaaa'", one("s", "a" * 20, "a" * 19), None),
        ("day >= '2020-01-01'", one("day", date(2020, 1, 1)), True),
        ("m < 100.5", one("m", Decimal("3.50")), True),
        ("z < '2020-01-01 00:00:00Z'", one("z", datetime(2020, 1, 1, tzinfo=UTC)), "no row"),
        ("i = i", one("i", 1, 2), None),
        ("i + 1 > i", one("i", 1, 1), True),
        ("p.x > 0", one("i", 1), None),
    ],
)
def test_bounds_prove_and_refute_what_they_can(text: str, file: FileRow, expected: bool | str | None) -> None:
    verdict = judge_file(parse_constraint("c", text, SCHEMA), file, {})
    if isinstance(expected, str):
        assert expected in (verdict.problem or "")
    else:
        assert (verdict.holds, verdict.problem) == (bool(expected), None)


def test_rows_that_may_be_deleted_refute_nothing() -> None:
    verdict = judge_file(parse_constraint("c", "l > 0", SCHEMA), one("l", -5, 5), {}, may_refute=False)
    assert (verdict.holds, verdict.problem) == (False, None)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nope > 1", "the column nope, which the table doesn't have"),
        ("p.y > 1", "the column p.y"),
        ("i.x > 1", "i is no struct"),
        ("u = 'a'", "whose type uuid"),
        ('s = "a"', "double quote"),
        (r"s = 'a\n'", "backslash"),
        ("lower(s) = 'a'", r"lower\(\)"),
        ("s RLIKE 'a'", "RLIKE|REGEXP"),
        ("l IN (SELECT 1)", "IN without a list"),
        ("f > 0.1", "a float doesn't hold"),
        ("z > '2020-01-01'", "with its offset"),
        ("day > 'yesterday'", "write the date as"),
        ("i > d", "double beside whole"),
        ("m * 2 > 1", "arithmetic of decimal"),
        ("l / 2 > 1", "DIV"),
        ("l = NULL", "NULL"),
        ("l + 1", "a condition that isn't one"),
        ("1 < 2", "a constant without a column"),
        ("TRUE", "names no column"),
        ("l > 0; DROP TABLE t", "one query"),
        ("l > ", "does not read"),
        ("rand() > 0.5", r"rand\(\)"),
        ("m > 1e5", "up to 38 digits"),
        ("l > 0 AND " * 900 + "l > 0", "more than"),
        ("(" * 60 + "l > 0" + ")" * 60, "nested"),
        ("CASE WHEN b THEN TRUE END", "CASE"),
        ("b > i", "beside"),
    ],
)
def test_what_engines_might_take_in_different_ways_is_refused_and_named(text: str, named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        parse_constraint("c", text, SCHEMA)


def test_names_are_found_in_any_case_and_in_backticks() -> None:
    found = parse_constraint("c", "`WE IRD` > 1 AND P.X > 0", SCHEMA)
    assert {column.path for column in found.columns} == {("we ird",), ("p", "x")}
    assert render_condition(found.condition) == (
        """((CAST('1' AS BIGINT) < r."we ird") AND (CAST('0' AS BIGINT) < r."p"."x"))"""
    )


def test_properties_say_what_is_unverified_and_since_when() -> None:
    properties = {"constraint.a": "i > 0", "constraint.b": "l > 0", "constraint-unverified.gone": "3", "x": "y"}
    assert [each.name for each in read_constraints(properties, SCHEMA)] == ["a", "b"]
    marked = add_unverified(add_unverified(properties, ["b"], 7), ["b", "a"], 8)
    assert find_unverified(marked) == {"b": "7", "a": "8"}
    assert copy_marks(marked, {"a", "b"}).keys() == marked.keys() - {"constraint-unverified.gone"}
