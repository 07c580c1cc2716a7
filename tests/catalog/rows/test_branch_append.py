"""Rows posted to a branch, in the partitions that PyIceberg computes; main and DuckLake get them when main is moved."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import httpx
import pytest
from fastapi import FastAPI
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

import duckicelake
from duckicelake.catalog.context.services import Services
from duckicelake.client.table import Table as LakeTable
from duckicelake.lake.side_tables.audit import AuditFilter, read_entries
from duckicelake.rest.http import create_request_key
from duckicelake.server.app import create_app

COLUMNS = "id long not null, t timestamp, d date, r string, a decimal(9, 2), l list<int>, f float, u uuid"
ROWS = [
    {
        "id": i,
        "t": f"2026-11-{1 + i % 3:02d}T0{i % 7}:00:00",
        "d": f"202{i % 3}-01-01",
        "r": None if i % 5 == 0 else f"r{i}",
        "a": f"{i}.50",
        "l": [i, None],
        "f": i / 4,
        "u": f"00000000-0000-4000-8000-{i:012d}",
    }
    for i in range(40)
]
PATH = "/v1/namespaces/ns/tables/t"


@pytest.fixture
def http(services: Services, serve: Callable[[FastAPI], httpx.Client]) -> httpx.Client:
    client = serve(create_app(services))
    client.timeout = httpx.Timeout(60)
    return client


def make(http: httpx.Client, partition_by: str, **options: Any) -> LakeTable:
    lake = duckicelake.connect(str(http.base_url))
    lake.create_namespace("ns")
    table = lake.create_table("ns.t", COLUMNS, partition_by=partition_by, **options)
    assert http.post(f"{PATH}/rows", json=ROWS[:1]).status_code == 200
    table.set_ref("mine", "branch", table.resolve_snapshot())
    return table


def load(http: httpx.Client) -> Table:
    return load_catalog("lake", type="rest", uri=str(http.base_url)).load_table("ns.t")


def count_by_partition(table: Table, branch: str) -> Counter[tuple[Any, ...]]:
    """Rows of the files that lie in each partition."""
    found: Counter[tuple[Any, ...]] = Counter()
    for task in table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).plan_files():
        if "inlined" not in task.file.file_path:
            found[tuple(task.file.partition)] += task.file.record_count
    return found


def transform_rows(table: Table, rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows of each partition, as PyIceberg's transforms say."""
    schema = table.schema()
    fields = [(schema.find_field(field.source_id), field.transform) for field in table.spec().fields]
    internal = {
        "t": lambda text: datetime_to_micros(datetime.fromisoformat(text)),
        "d": lambda text: date_to_days(date.fromisoformat(text)),
        "a": Decimal,
    }
    found: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        values = [
            None if row[field.name] is None else internal.get(field.name, lambda value: value)(row[field.name])
            for field, _ in fields
        ]
        pairs = zip(fields, values, strict=True)
        found[tuple(transform.transform(field.field_type)(value) for (field, transform), value in pairs)] += 1
    return found


@pytest.mark.parametrize(
    "partition_by",
    [
        "",
        "day(t)",
        "bucket(4, id)",
        "bucket(3, r), month(d)",
        "truncate(2, r)",
        "r",
        "d",
        "hour(t), truncate(10, id)",
        "a",
    ],
)
def test_files_of_a_branch_lie_in_the_partitions_of_pyiceberg(http: httpx.Client, partition_by: str) -> None:
    make(http, partition_by)
    answer = http.post(f"{PATH}/rows?branch=mine", json=ROWS)
    assert answer.status_code == 200, answer.text
    table = load(http)
    main = table.scan().to_arrow()
    mine = table.scan(snapshot_id=table.metadata.refs["mine"].snapshot_id).to_arrow()
    assert (main.num_rows, mine.num_rows) == (1, 41)
    assert answer.json() == {
        "snapshot-id": table.metadata.refs["mine"].snapshot_id,
        "rows": 40,
        "row-ids": {"first": None, "count": 40},
    }
    assert count_by_partition(table, "mine") == transform_rows(table, ROWS)
    snapshot_id = table.metadata.refs["mine"].snapshot_id
    conditions = {"id = 7": 1, "r = 'r7'": 1, "d = '2021-01-01'": 13, "a > 30": 10, "r is null": 9}
    for condition, count in conditions.items():
        assert table.scan(row_filter=condition, snapshot_id=snapshot_id).to_arrow().num_rows == count


@pytest.mark.parametrize("version", ["2", "3"])
def test_duckdb_reads_a_branch_once_main_is_moved_to_it(
    http: httpx.Client, ducklake: duckdb.DuckDBPyConnection, services: Services, version: str
) -> None:
    table = make(http, "day(t)", properties={"format-version": version})
    for part in (ROWS[:20], ROWS[20:]):
        assert http.post(f"{PATH}/rows?branch=mine", json=part).status_code == 200
    assert ducklake.execute("SELECT count(*) FROM ns.t").fetchone() == (1,)
    table.fast_forward("main", "mine")
    expected = (41, sum(row["id"] for row in ROWS), 41 - sum(row["r"] is None for row in ROWS) - 1)
    assert ducklake.execute("SELECT count(*), sum(id), count(r) FROM ns.t").fetchone() == expected
    ids = ducklake.execute("SELECT count(DISTINCT rowid) FROM ns.t").fetchone()
    assert ids == (41,)
    with services.database.reading() as cursor:
        entries = read_entries(cursor, AuditFilter(operation="append_rows"), 100)
    assert [one.detail for one in entries][1:] == [{"rows": 20, "branch": "mine"}] * 2


def test_appends_to_one_branch_at_once_are_all_there(http: httpx.Client) -> None:
    make(http, "")
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda row: http.post(f"{PATH}/rows?branch=mine", json=[row]), ROWS[:12]))
    assert {answer.status_code for answer in answers} == {200}
    table = load(http)
    assert table.scan(snapshot_id=table.metadata.refs["mine"].snapshot_id).to_arrow().num_rows == 13


def test_request_that_is_repeated_by_its_key_appends_once(http: httpx.Client) -> None:
    make(http, "")
    headers = {"Idempotency-Key": str(create_request_key())}
    answers = [http.post(f"{PATH}/rows?branch=mine", json=ROWS[:3], headers=headers).json() for _ in range(2)]
    assert answers[0] == answers[1]
    table = load(http)
    assert table.scan(snapshot_id=table.metadata.refs["mine"].snapshot_id).to_arrow().num_rows == 4


@pytest.mark.parametrize(
    ("query", "body", "status", "said"),
    [
        ("branch=nowhere", ROWS[:1], 400, "no branch 'nowhere'"),
        ("branch=a-tag", ROWS[:1], 400, "no branch 'a-tag'"),
        ("branch=", ROWS[:1], 400, "branch"),
        ("branch=mine&mode=upsert", ROWS[:1], 400, "mode=append"),
        ("branch=mine&app-id=x&sequence=1", ROWS[:1], 400, "app-id"),
        ("branch=mine", [{"id": "x"}], 400, "column id"),
        ("branch=mine", [{"id": 1, "wings": 2}], 400, "wings"),
        ("branch=mine", [], 200, ""),
    ],
)
def test_wrong_rows_or_branches_change_nothing(
    http: httpx.Client, query: str, body: Any, status: int, said: str
) -> None:
    table = make(http, "")
    table.set_ref("a-tag", "tag", table.resolve_snapshot())
    before = table.load().refs
    answer = http.post(f"{PATH}/rows?{query}", json=body)
    assert answer.status_code == status
    assert said in answer.text
    assert table.load().refs == before


def test_branch_called_main_is_main(http: httpx.Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    make(http, "")
    assert http.post(f"{PATH}/rows?branch=main", json=ROWS[1:3]).json()["row-ids"] == {"first": 1, "count": 2}
    assert ducklake.execute("SELECT count(*) FROM ns.t").fetchone() == (3,)
