"""Explanations of scans: sums that hold beside DuckDB's rows, snapshots, deletes, and no file opened."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from duckicelake.catalog.context.scan_cache import ScanCache
from duckicelake.catalog.scan_explanation import ExplainQuery, ScanExplanation, explain_table_scan
from duckicelake.errors import InvalidRequestError, NotFoundError
from duckicelake.server.app import create_app
from tests.support.lakes import Lake
from tests.support.servers import Serve

CONDITIONS = [
    "day = DATE '2026-11-02'",
    "day = DATE '2026-11-02' AND id < 40",
    "id BETWEEN 100 AND 120 OR name = 'n7'",
    "NOT (id > 50)",
    "name LIKE 'n1%' AND day <> DATE '2026-11-01'",
    "name IS NULL",
    "x IN (0.5, 1.5) AND id >= 0",
    "ts < '2026-11-01 05:30'",
    "flag AND day IS NOT NULL",
    "NOT flag",
    "id < 0",
]


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """A lake with table t: 3 partitions of 6 files each, whose ids overlap and whose times don't, and one of nulls."""
    lake.run(
        "CREATE TABLE t (id INTEGER, day DATE, name VARCHAR, x DOUBLE, ts TIMESTAMP, flag BOOLEAN)",
        "ALTER TABLE t SET PARTITIONED BY (day)",
        "CALL lake.set_option('data_inlining_row_limit', 0)",
        *(
            f"INSERT INTO t SELECT i * 7 + {n}, DATE '2026-11-01' + (i % 3)::INTEGER, 'n' || i, i / 2, "
            f"TIMESTAMP '2026-11-01' + INTERVAL {n} HOUR, i % 2 = 0 FROM range(60) r(i)"
            for n in range(6)
        ),
        "INSERT INTO t VALUES (NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    return lake


def explained(lake: Lake, where: str | None = None, **more: Any) -> ScanExplanation:
    return explain_table_scan(lake.services, ("main",), "t", ExplainQuery(where, **more))


@pytest.mark.parametrize("condition", CONDITIONS)
def test_no_row_of_the_answer_is_in_a_pruned_file(filled: Lake, condition: str) -> None:
    found = explained(filled, condition)
    rows, files = filled.one(f"SELECT count(*), count(DISTINCT filename) FROM t WHERE {condition}")
    assert found.total.files == 19
    assert found.total.rows == 361
    assert found.read.rows >= rows >= found.whole.rows
    assert found.read.files >= files >= found.whole.files
    pruned = found.pruned
    assert found.read.files + pruned.by_partition + pruned.by_bounds + pruned.empty == found.total.files
    listed = [cost.read for cost in found.partitions]
    assert sum(cost.files for cost in listed) == found.read.files
    assert sum(cost.bytes for cost in listed) == found.read.bytes
    assert len(listed) == found.partitions_read <= found.partitions_total == 4
    assert found.ignored == ()


def test_an_explanation_says_what_prunes_and_what_would(filled: Lake) -> None:
    found = explained(filled, "day = DATE '2026-11-02' AND id = 42 AND ts >= '2026-11-01 04:00' AND length(name) = 2")
    assert (found.pruned.by_partition, found.pruned.by_bounds, found.pruned.partition_fields) == (13, 4, ("day",))
    assert [(cost.partition, cost.read.files, cost.total.files) for cost in found.partitions] == [
        ({"day": "2026-11-02"}, 2, 6)
    ]
    day, number, moment = found.columns
    assert (day.name, day.is_worth_sorting_by) == ("day", False)
    assert (number.name, number.type, number.pruned, number.of_files) == ("id", "int", 0, 6.0)
    assert number.overlap > 5
    assert number.is_worth_sorting_by
    assert (moment.name, moment.pruned, moment.overlap, moment.is_worth_sorting_by) == ("ts", 4, 1.0, False)
    assert [text.lower() for text in found.ignored] == ["length(name) = 2"]
    assert found.whole.files == 0, "a condition that is left out may fail for rows of any file"


def test_files_all_of_whose_rows_pass_are_counted(filled: Lake) -> None:
    assert explained(filled, "day >= DATE '2026-11-02'").whole.files == 12
    assert explained(filled).whole == explained(filled).read == explained(filled).total


def test_a_deleted_row_adds_a_delete_file_to_the_scan(filled: Lake) -> None:
    assert explained(filled, "day = DATE '2026-11-01'").delete_files == 0
    filled.run("DELETE FROM t WHERE id = 0")
    assert explained(filled, "day = DATE '2026-11-01'").delete_files == 1
    assert explained(filled, "day = DATE '2026-11-02'").delete_files == 0


def test_an_older_state_is_explained_with_its_own_names(filled: Lake) -> None:
    before = explained(filled, "id < 30")
    filled.commit({"action": "set-snapshot-ref", "ref-name": "then", "type": "tag", "snapshot-id": before.snapshot_id})
    filled.run("ALTER TABLE t RENAME COLUMN id TO number", "DELETE FROM t WHERE day = DATE '2026-11-01'")
    for at in ("then", str(before.snapshot_id)):
        assert explained(filled, "id < 30", at=at) == before
    assert explained(filled, "number < 30").total.files < before.total.files
    with pytest.raises(InvalidRequestError, match="Cannot find column 'id'"):
        explained(filled, "id < 30")
    with pytest.raises(NotFoundError):
        explained(filled, "number < 30", at="999999")


def test_an_empty_table_reads_nothing(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id INTEGER)")
    found = explained(lake, "id = 1")
    assert (found.snapshot_id, found.total.files, found.partitions) == (None, 0, ())


def test_no_file_is_opened(filled: Lake) -> None:
    before = explained(filled, CONDITIONS[1])
    metadata = filled.metadata()
    folders = {Path(metadata.location.removeprefix("file://"))}
    with filled.services.database.reading() as cursor:
        paths = cursor.execute("SELECT path FROM duckicelake_file").fetchall()
    folders |= {Path(path.removeprefix("file://")).parent for (path,) in paths}
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    forgetful = Lake(replace(filled.services, scans=ScanCache()), filled.duck)
    assert explained(forgetful, CONDITIONS[1]) == before


def test_the_route_answers_the_same(filled: Lake, serve: Serve) -> None:
    http = serve(create_app(filled.services))
    path = "/v1/namespaces/main/tables/t/explain"
    found = explained(filled, "day = DATE '2026-11-02'")
    answer = http.post(path, json={"where": "day = DATE '2026-11-02'"})
    assert answer.status_code == 200
    assert ScanExplanation.model_validate(answer.json()) == found
    same = http.post(path, json={"filter": {"type": "eq", "term": "day", "value": "2026-11-02"}})
    assert same.json() == answer.json()
    nulls = http.post(path, json={"where": "day IS NULL"}).json()
    assert nulls["partitions"][0]["partition"] == {"day": None}
    assert http.post(path, json={}).json()["read"] == found.total.to_json()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"where": "nme = 1"}, "Cannot find column 'nme'"),
        ({"where": "id = 'x'"}, "id is a int"),
        ({"where": " "}, "The condition is empty"),
        ({"where": "id = 1", "filter": True}, "send one"),
        ({"filter": {"type": "what"}}, "Invalid predicate"),
        ({"wher": "id = 1"}, "wher"),
        ({"at": "never"}, "'never' is no branch or tag"),
    ],
)
def test_what_is_wrong_is_refused_with_its_name(lake: Lake, serve: Serve, body: dict[str, Any], reason: str) -> None:
    lake.run("CREATE TABLE t (id INTEGER)", "INSERT INTO t VALUES (1)")
    answer: httpx.Response = serve(create_app(lake.services)).post("/v1/namespaces/main/tables/t/explain", json=body)
    assert answer.status_code == 400
    assert reason in answer.json()["error"]["message"]
