"""The change stream, beside DuckLake's own `table_changes` and beside the rows of each snapshot."""

import io
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from pyspark.sql import SparkSession

from duckicelake.errors import BadColumnError, BadInputError
from duckicelake.pipeline.changes import (
    Bookmark,
    ChangesRequest,
    JsonLinesOutlet,
    follow_changes,
    open_change_table,
    read_changes,
    send_changes,
)
from duckicelake.pipeline.destination import Target
from duckicelake.pipeline.main_history import SnapshotStep
from duckicelake.pipeline.progress import SILENT
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.demo_job.server import RunningLake
from tests.engines import engines as steps
from tests.engines.engines import Engines

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

Change = tuple[Any, ...]
DUCKLAKES = {
    "INSERT": "insert",
    "DELETE": "delete",
    "UPDATE_BEFORE": "update_preimage",
    "UPDATE_AFTER": "update_postimage",
}


@pytest.fixture
def client(lake: RunningLake) -> CatalogClient:
    return CatalogClient(Connection(lake.uri, credential=lake.backend.catalog.get("credential")))


def told(spark: SparkSession, client: CatalogClient, request: ChangesRequest) -> list[Counter[Change]]:
    """(snapshot, kind, the row as text) of each step."""
    return [
        Counter((row[2], row[0], repr(tuple(row[3:]))) for row in rows.collect())
        for _, rows in read_changes(spark, client, request)
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_changes_of_a_table_that_duckdb_alone_writes_are_what_ducklake_shows(
    spark: SparkSession, client: CatalogClient, duck: duckdb.DuckDBPyConnection, namespace: str, version: int
) -> None:
    table = f"lake.{namespace}.t"
    spark.sql(
        f"CREATE TABLE {table} (id int, v string, tags map<string, int>) TBLPROPERTIES ('format-version' = '{version}')"
    )
    rowid = "rowid, " if version == 3 else ""
    native: list[Change] = []
    for statement in (
        f"INSERT INTO {table} SELECT range, 'v' || range, MAP {{'a': 1}} FROM range(100)",
        f"INSERT INTO {table} VALUES (100, NULL, NULL), (101, 'inlined', MAP {{'b': 2}})",
        f"DELETE FROM {table} WHERE id IN (3, 100)",
        f"UPDATE {table} SET v = 'new' WHERE id IN (5, 6, 101)",
        f"UPDATE {table} SET v = 'newer' WHERE id > 90",
        f"DELETE FROM {table} WHERE id IN (5, 7)",
        f"BEGIN; DELETE FROM {table} WHERE id = 8; INSERT INTO {table} VALUES (108, 'v8', NULL); COMMIT",
    ):
        duck.execute(statement)
        client.load_table((namespace,), "t")
        newest = duck.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()[0][0]
        native += duck.execute(
            f"SELECT snapshot_id, change_type, {rowid}id, v, tags "
            f"FROM ducklake_table_changes('lake', '{namespace}', 't', {newest}, {newest})"
        ).fetchall()
    for maintenance in (  # DuckLake takes rows that it has rewritten for new ones
        "CALL ducklake_flush_inlined_data('lake')",
        f"CALL ducklake_merge_adjacent_files('lake', 't', schema => '{namespace}')",
        f"CALL ducklake_rewrite_data_files('lake', 't', schema => '{namespace}', delete_threshold => 0)",
    ):
        duck.execute(maintenance)
        client.load_table((namespace,), "t")
    keys = ("ID",) if version == 2 else ()
    found = [
        (snapshot, DUCKLAKES[kind], row)
        for step in told(spark, client, ChangesRequest((namespace,), "t", keys=keys))
        for snapshot, kind, row in step.elements()
    ]
    assert len(native) > 130
    assert sorted(found) == sorted((row[0], row[1], repr(row[2:])) for row in native)


COLUMNS = 4
"""Of the table at its end: id, p, w (which was v), more."""
HISTORY = (
    steps.duck("INSERT INTO {t} SELECT range, range % 3, 'v' || range FROM range(60)"),
    steps.spark("INSERT INTO {t} VALUES (60, 0, NULL), (61, 1, 'x'), (62, NULL, 'y')"),
    steps.spark("DELETE FROM {t} WHERE id IN (3, 4, 61)"),
    steps.spark("UPDATE {t} SET v = 'spark' WHERE id IN (5, 60, 62)"),
    steps.spark("ALTER TABLE {t} CREATE BRANCH other"),
    steps.spark("INSERT INTO {t}.branch_other VALUES (1000, 0, 'of another branch')"),
    steps.duck("DELETE FROM {t} WHERE id IN (6, 7)"),
    steps.duck("UPDATE {t} SET v = 'duck' WHERE id IN (5, 8)"),
    steps.append((70, 0, "appended"), (71, 2, "appended")),
    steps.spark("ALTER TABLE {t} RENAME COLUMN v TO w"),
    steps.spark("ALTER TABLE {t} ADD COLUMN more int"),
    steps.spark(
        "CALL lake.system.rewrite_data_files(table => '{namespace}.{table}', options => map('rewrite-all', 'true'))"
    ),
    steps.spark(
        "ALTER TABLE {t} SET TBLPROPERTIES ('write.update.mode'='copy-on-write', 'write.delete.mode'='copy-on-write')"
    ),
    steps.spark("UPDATE {t} SET w = 'copied', more = id WHERE id IN (9, 10)"),
    steps.pyiceberg(lambda table: table.delete("id == 11"), ""),
    steps.spark(
        "MERGE INTO {t} USING (SELECT * FROM VALUES (12, 'merged'), (80, 'new') s(id, w)) s ON {t}.id = s.id "
        "WHEN MATCHED THEN UPDATE SET w = s.w WHEN NOT MATCHED THEN INSERT (id, p, w, more) VALUES (s.id, 1, s.w, 0)"
    ),
    steps.duck("INSERT INTO {t} VALUES (90, 0, NULL, 1), (91, 2, 'inlined', NULL)"),
    steps.duck("BEGIN; UPDATE {t} SET w = 'again' WHERE id = 90; DELETE FROM {t} WHERE id = 91; COMMIT"),
    steps.spark("INSERT OVERWRITE {t} PARTITION (p = 1) VALUES (1, 'instead', 5), (92, 'instead', 5)"),
)  # fmt: skip


@pytest.mark.usefixtures("pyiceberg_v3")
@pytest.mark.parametrize("version", [2, 3])
def test_changes_of_a_mixed_history_lead_from_the_rows_of_each_snapshot_to_those_of_the_next(
    engines: Engines, lake: RunningLake, client: CatalogClient, namespace: str, version: int
) -> None:
    """Spark's job says them, and so does the server, which reads them without Spark."""
    engines.spark.sql(
        f"CREATE TABLE lake.{namespace}.t (id int, p int, v string) PARTITIONED BY (p) TBLPROPERTIES ("
        f"'format-version' = '{version}', 'write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')"
    )
    for step in HISTORY:
        engines.do(step, f"{namespace}.t")
        client.load_table((namespace,), "t")
    request = ChangesRequest((namespace,), "t", keys=("id",) if version == 2 else ())
    at, expected = None, []
    line = main_of(client, namespace)
    for snapshot in line:
        before, at = states(engines.spark, namespace, at, version), snapshot
        expected.append(difference(before, states(engines.spark, namespace, at, version)))
    steps_of_spark = [rows.collect() for _, rows in read_changes(engines.spark, client, request)]
    found = [Counter((row[0], tuple(row[-COLUMNS:])) for row in rows) for rows in steps_of_spark]
    assert found == expected
    numbers = numbers_of(client, namespace)
    of_server = read_from_server(lake, namespace, version)
    assert {numbers[snapshot] for snapshot, step in zip(line, steps_of_spark, strict=True) if step} == {*of_server}
    for snapshot, rows in zip(line, steps_of_spark, strict=True):
        row_ids = [row[3] if version == 3 else None for row in rows]
        said = Counter((row[0], row_id, tuple(row[-COLUMNS:])) for row, row_id in zip(rows, row_ids, strict=True))
        assert of_server.get(numbers[snapshot], Counter()) == said, numbers[snapshot]
    assert [len(step) for step in found[:4]] == [60, 3, 3, 6]
    assert found[-2] == Counter(
        {
            ("UPDATE_BEFORE", (90, 0, None, 1)): 1,
            ("UPDATE_AFTER", (90, 0, "again", 1)): 1,
            ("DELETE", (91, 2, "inlined", None)): 1,
        }
    )


def read_from_server(lake: RunningLake, namespace: str, version: int) -> dict[int, Counter[Change]]:
    """Read `/changes` of the same table: by DuckLake's number of each snapshot, the kind, the row id and the row."""
    found: dict[int, Counter[Change]] = {}
    position, is_complete = "0.0.0", False
    while not is_complete:
        query = {"from": position, "limit": "50", **({"key": "id"} if version == 2 else {})}
        answer = httpx.get(
            f"{lake.uri}/v1/namespaces/{namespace}/tables/t/changes", params=query, headers=lake.login(), timeout=60
        )
        assert answer.status_code == 200, answer.text
        *rows, end = map(json.loads, answer.text.splitlines())
        position, is_complete = end["_position"], end["_is_complete"]
        for kind, _, number, row_id, *values in (row.values() for row in rows):
            key = kind, row_id if version == 3 else None, tuple(values)
            found.setdefault(number, Counter())[key] += 1
    return found


def numbers_of(client: CatalogClient, namespace: str) -> dict[int, int]:
    """DuckLake's number of each snapshot."""
    metadata = client.load_table((namespace,), "t")["metadata"]
    return {one["snapshot-id"]: int(one["summary"]["ducklake.snapshot-id"]) for one in metadata["snapshots"]}


def main_of(client: CatalogClient, namespace: str) -> list[int]:
    metadata = client.load_table((namespace,), "t")["metadata"]
    parents = {each["snapshot-id"]: each.get("parent-snapshot-id") for each in metadata["snapshots"]}
    line, at = [], metadata["current-snapshot-id"]
    while at in parents:
        line.append(at)
        at = parents[at]
    return line[::-1]


def states(spark: SparkSession, namespace: str, snapshot: int | None, version: int) -> Mapping[int, Change]:
    """The rows by their row id, or in version 2 by `id`, with all columns that there will be."""
    if snapshot is None:
        return {}
    identity = "_row_id" if version == 3 else "id"
    rows = spark.sql(f"SELECT {identity} AS identity, * FROM lake.{namespace}.t VERSION AS OF {snapshot}").collect()
    found = {row[0]: (*row[1:], *(None,) * (COLUMNS + 1 - len(row))) for row in rows}
    assert len(found) == len(rows)
    return found


def difference(before: Mapping[int, Change], after: Mapping[int, Change]) -> Counter[Change]:
    both = [each for each in before.keys() & after.keys() if before[each] != after[each]]
    return Counter(
        [("DELETE", before[each]) for each in before.keys() - after.keys()]
        + [("INSERT", after[each]) for each in after.keys() - before.keys()]
        + [("UPDATE_BEFORE", before[each]) for each in both]
        + [("UPDATE_AFTER", after[each]) for each in both]
    )


def test_rows_without_ids_and_keys_are_deleted_and_inserted_and_those_copied_are_left_out(
    spark: SparkSession, client: CatalogClient, namespace: str
) -> None:
    table = f"lake.{namespace}.t"
    spark.sql(f"CREATE TABLE {table} (id int NOT NULL, v map<string, int>)")
    spark.sql(f"INSERT INTO {table} VALUES (1, map('a', 1)), (1, map('a', 1)), (2, NULL), (3, NULL)")
    spark.sql(f"UPDATE {table} SET v = map('b', 2) WHERE id = 2")
    last = "MERGE INTO {t} USING (SELECT 1 AS id) s ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET v = NULL"
    spark.sql(last.replace("{t}", table))
    request = ChangesRequest((namespace,), "t", after=main_of(client, namespace)[0])

    def kinds(keys: tuple[str, ...] = ()) -> list[list[tuple[str, int]]]:
        asked = ChangesRequest(request.namespace, "t", request.after, keys=keys)
        return [sorted((row[0], row.id) for row in rows.collect()) for _, rows in read_changes(spark, client, asked)]

    assert kinds() == [[("DELETE", 2), ("INSERT", 2)], [("DELETE", 1)] * 2 + [("INSERT", 1)] * 2]
    updates = [[("UPDATE_AFTER", 2), ("UPDATE_BEFORE", 2)], [("UPDATE_AFTER", 1)] * 2 + [("UPDATE_BEFORE", 1)] * 2]
    assert kinds(("ID",)) == updates
    spark.sql(f"ALTER TABLE {table} SET IDENTIFIER FIELDS id")
    assert kinds() == updates
    with pytest.raises(BadColumnError, match="--key nope"):
        kinds(("nope",))


def test_follower_goes_on_where_its_bookmark_is_though_what_was_reported_has_expired(
    spark: SparkSession, client: CatalogClient, namespace: str, tmp_path: Path
) -> None:
    table, request = f"{namespace}.t", ChangesRequest((namespace,), "t")
    spark.sql(f"CREATE TABLE lake.{table} (id int) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    uuid = client.load_table((namespace,), "t")["metadata"]["table-uuid"]
    compact = f"CALL lake.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
    meanwhile = [f"INSERT INTO lake.{table} VALUES (3)", compact, f"INSERT INTO lake.{table} VALUES (1), (2)"]

    def wait() -> None:
        if not meanwhile:
            raise KeyboardInterrupt
        spark.sql(meanwhile.pop())

    def expire_all_but_the_newest() -> None:
        old = ", ".join(map(str, main_of(client, namespace)[:-1]))
        spark.sql(f"CALL lake.system.expire_snapshots(table => '{table}', snapshot_ids => array({old}))")

    def lines() -> JsonLinesOutlet:
        return JsonLinesOutlet(io.StringIO(), Bookmark(tmp_path / "state", uuid))

    with pytest.raises(KeyboardInterrupt):
        follow_changes(spark, client, request, following := lines(), SILENT, wait)
    first, _, third = main_of(client, namespace)
    assert read(following) == {(0, "INSERT", first, 1), (0, "INSERT", first, 2), (1, "INSERT", third, 3)}
    spark.sql(compact)
    expire_all_but_the_newest()
    spark.sql(f"DELETE FROM lake.{table} WHERE id = 2")
    send_changes(spark, client, request, again := lines(), SILENT)
    assert read(again) == {(2, "DELETE", main_of(client, namespace)[-1], 2)}
    spark.sql(f"DELETE FROM lake.{table} WHERE id = 1")
    spark.sql(f"DELETE FROM lake.{table} WHERE id = 3")
    expire_all_but_the_newest()
    (oldest,) = main_of(client, namespace)
    with pytest.raises(BadInputError, match=f"the oldest from which changes are known is {oldest}"):
        send_changes(spark, client, request, lines(), SILENT)
    with pytest.raises(BadInputError, match="is of another table"):
        JsonLinesOutlet(io.StringIO(), Bookmark(tmp_path / "state", "another"))


def read(lines: JsonLinesOutlet) -> set[Change]:
    out = lines._out
    assert isinstance(out, io.StringIO)
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    found = {(each["_change_ordinal"], each["_change_type"], each["_commit_snapshot_id"], each["id"]) for each in told}
    assert len(found) == len(told) == lines.counts["changes"]
    return found


def test_table_of_changes_has_each_once_and_the_columns_that_come(
    engines: Engines, client: CatalogClient, namespace: str
) -> None:
    table, target = f"lake.{namespace}.t", Target((namespace,), "log")
    request = ChangesRequest((namespace,), "t")
    engines.spark.sql(f"CREATE TABLE {table} (id int, v string) TBLPROPERTIES ('format-version' = '3')")
    uuid = client.load_table((namespace,), "t")["metadata"]["table-uuid"]

    def opened() -> Any:
        return open_change_table(engines.spark, client, "t", uuid, target)

    engines.duck.execute(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    with opened() as one, opened() as other:
        for outlet in (one, other):
            send_changes(engines.spark, client, request, outlet, SILENT)
    engines.spark.sql(f"ALTER TABLE {table} ADD COLUMN more int")
    engines.duck.execute(f"UPDATE {table} SET v = 'c', more = 7 WHERE id = 2")
    for _ in range(2):
        with opened() as outlet:
            send_changes(engines.spark, client, request, outlet, SILENT)
    first, second = main_of(client, namespace)
    found = engines.duck.execute(
        "SELECT _change_ordinal, _commit_snapshot_id, _change_type, _changed_row_id, id, v, more "
        f"FROM lake.{namespace}.log ORDER BY ALL"
    ).fetchall()
    assert found == [
        (0, first, "INSERT", 0, 1, "a", None),
        (0, first, "INSERT", 1, 2, "b", None),
        (1, second, "UPDATE_AFTER", 1, 2, "c", 7),
        (1, second, "UPDATE_BEFORE", 1, 2, "b", None),
    ]
    jobs = [(job["result"], job["counts"]) for job in client.jobs(namespace=namespace, kind="changes")]
    assert jobs[0] == ("unchanged", {})
    assert jobs[1] == ("done", {"changes": 2, "snapshots": 1})
    assert len(jobs) == 4


def test_lines_of_json_lose_neither_nulls_nor_microseconds(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT NULL AS nothing, TIMESTAMP '2024-01-01 10:00:00.000001Z' AS at, "
        "TIMESTAMP_NTZ '2024-01-01 10:00:00.000002' AS there, 9007199254740993 AS large, array(NULL, 0.10BD) AS listed"
    )
    JsonLinesOutlet(out := io.StringIO()).take(SnapshotStep(1, None), rows)
    assert out.getvalue() == (
        '{"nothing":null,"at":"2024-01-01T10:00:00.000001Z","there":"2024-01-01T10:00:00.000002",'
        '"large":9007199254740993,"listed":[null,0.10]}\n'
    )
