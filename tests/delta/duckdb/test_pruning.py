"""Which files `read_delta` opens: opening one that is gone fails."""

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from duckicelake.delta.duckdb.connection import DeltaConnection, DeltaMacros
from tests.delta.duckdb.in_place import plain, rows
from tests.delta.logs import HandMade, add, metadata, protocol


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
    condition: str, count: int, duck: DeltaConnection, pruned: HandMade
) -> None:
    """Opening one of them would fail."""
    query = f"SELECT id FROM read_delta('{pruned.folder}') WHERE {condition}"
    assert len(duck.execute(query).fetchall()) == count
    with pytest.raises(duckdb.IOException, match=r"1\.parquet"):
        duck.execute(f"SELECT id FROM read_delta('{pruned.folder}')")


def test_what_asks_for_all_files_opens_all(duck: DeltaConnection, pruned: HandMade) -> None:
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


def test_passing_files_over_changes_no_answer(duck: DeltaConnection, tmp_path: Path) -> None:
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


def test_literals_that_look_like_filters_rule_nothing_out(duck: DeltaConnection, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    words = ["x\ndelta_0_0>99\ny", "optional: a", "a AND b", "delta_0_mark>0", "it's\n"]
    for word in words:
        write_deltalake(path, pa.table({"id": [1], "word": [word]}), mode="append")
    for word in words:
        assert rows(duck, f"FROM read_delta('{path}') WHERE word = $1 AND id = 1", [word]) == [(1, word)]
        assert rows(duck, f"FROM read_delta('{path}') WHERE word IN ($1, 'other')", [word]) == [(1, word)]


def test_files_are_passed_over_however_a_statement_is_put(
    duck: DeltaConnection, pruned: HandMade, tmp_path: Path
) -> None:
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
    duck = DeltaConnection(raw, DeltaMacros(raw, lambda: next(ticks)))
    query = f"FROM read_delta('{pruned.folder}') WHERE day = '2024-01-02'"
    with pytest.raises(duckdb.IOException, match="No files found"):
        duck.execute(query)
    assert len(duck.execute(query).fetchall()) == 10


def test_files_without_statistics_are_read(duck: DeltaConnection, tmp_path: Path) -> None:
    table = HandMade(tmp_path / "t")
    bare = {"add": {**table.rows("b.parquet", 1, 1)["add"], "stats": None}}
    table.begin(table.rows("a.parquet", 0, 1), bare, {"add": {**table.rows("c.parquet", 5, 1)["add"], "stats": "{}"}})
    assert rows(duck, f"FROM read_delta('{table.folder}') WHERE id >= 1") == [(1,), (5,)]
    assert rows(duck, f"FROM read_delta('{table.folder}') WHERE id IS NULL") == []
