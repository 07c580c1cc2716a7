"""Whatever both sides write, with any metrics and in any order: DuckDB answers as a scan of all rows would."""

import random
from collections.abc import Iterator
from itertools import product

import duckdb
import pytest

from tests.lake.statistics_cases import ENDLESS, Writers, quoted
from tests.support.lakes import Lake

OPERATORS = ("=", "<", ">", "<=", ">=", "IN", "<>")
ALWAYS = ("text", "precise")
DEFAULT_CASES = {(0, True, 3)}
"""(Seed, is frank, format version) of what is run always; the suite `model` has the others."""
MISREAD = {"real": ("<>",), "precise": ("<>",), "bytes": OPERATORS}
"""What DuckDB itself answers wrong from statistics of its own: <> where there are NaN, comparisons of bytes."""


def queries(writers: Writers) -> Iterator[str]:
    """Questions about some columns that statistics may answer, or rule files out for; each has one answer as text."""
    yield "SELECT count(*)::VARCHAR FROM t"
    columns = {**writers.columns, "pair.a": ("INTEGER", ("-5", "0", "1")), "pair.b": ("VARCHAR", ("'x'", "''"))}
    for name in sorted({*ALWAYS, *writers.random.sample(sorted(columns), 6)}):
        type_, values = columns[name]
        column = quoted(name)
        yield f"SELECT (min({column})::VARCHAR, max({column})::VARCHAR)::VARCHAR FROM t"
        yield f"SELECT count({column})::VARCHAR FROM t"
        yield f"SELECT count(*)::VARCHAR FROM t WHERE {column} IS NULL"
        yield f"SELECT count(*)::VARCHAR FROM t WHERE {column} IS NOT NULL"
        known = [*values, *([ENDLESS[name]] if name in ENDLESS else [])]
        operators = [operator for operator in OPERATORS if operator not in MISREAD.get(name, ())]
        for value in writers.random.sample(known, 2 if operators else 0):
            operator = writers.random.choice(operators)
            compared = [value, known[0]] if operator == "IN" else [value]
            others = ", ".join(f"CAST({each} AS {type_})" for each in compared)
            yield f"SELECT count(*)::VARCHAR FROM t WHERE {column} {operator} ({others})"


def answers(duck: duckdb.DuckDBPyConnection, asked: list[str]) -> dict[str, str]:
    parts = (f"SELECT {number}, ({query})" for number, query in enumerate(asked))
    found = dict(duck.sql(" UNION ALL ".join(parts)).fetchall())
    return {query: str(found[number]).replace("-0.0", "0.0") for number, query in enumerate(asked)}


def assert_answers_of_all_rows(writers: Writers) -> None:
    """DuckDB's answers from the lake equal those from its rows, read without a question and kept elsewhere."""
    writers.memory.execute(f"CREATE OR REPLACE TABLE t AS {writers.all_rows()}")
    asked = list(queries(writers))
    lakes, truth = answers(writers.lake.duck, asked), answers(writers.memory, asked)
    wrong = {query: (answer, truth[query]) for query, answer in lakes.items() if answer != truth[query]}
    assert not wrong, writers.log


@pytest.mark.parametrize(
    ("seed", "frank", "format_version"),
    [
        pytest.param(*case, marks=() if case in DEFAULT_CASES else pytest.mark.model)
        for case in product((0, 1), (True, False), (2, 3))
    ],
)
def test_duckdb_answers_from_statistics_as_from_all_rows(
    lake: Lake, seed: int, frank: bool, format_version: int
) -> None:
    writers = Writers(lake, random.Random(seed), frank)
    writers.create(format_version)
    for _ in range(12):
        writers.act()
        assert_answers_of_all_rows(writers)
