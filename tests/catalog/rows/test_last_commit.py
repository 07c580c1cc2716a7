"""Rows written by what is remembered of the lake: whatever others did since, they are as if it had been read."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from uuid import UUID

import duckdb
import pytest

from duckicelake.catalog.context.idempotency import Once
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.deletes import DeleteRequest, delete_rows
from duckicelake.catalog.rows.inserts import PostedRows, RowsAnswer, append_rows
from duckicelake.errors import NoSuchTableError, TxnAlreadyAppliedError
from duckicelake.lake.inlined.last_commit import STABLE_AFTER_COMMITS
from duckicelake.lake.txn import TxnId
from tests.catalog.commit.test_group_commits import sent_together
from tests.support.lakes import Lake, iceberg_rows


def posted(*ids: int, table: str = "t") -> PostedRows:
    return PostedRows(("main",), table, json.dumps([{"id": id_} for id_ in ids]).encode(), "application/json")


@pytest.fixture
def lake(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    """One that no one else has written to for a while."""
    lake = Lake(services, ducklake)
    lake.run("CREATE TABLE lake.t (id BIGINT)", "CREATE TABLE lake.u (id BIGINT)")
    for id_ in range(STABLE_AFTER_COMMITS + 2):
        append_rows(services, posted(id_, table="tu"[id_ % 2]))
    assert services.commits._last._successive >= STABLE_AFTER_COMMITS
    return lake


def post(lake: Lake, *ids: int) -> RowsAnswer:
    return append_rows(lake.services, posted(*ids))


def repair(lake: Lake) -> None:
    with lake.services.database.statement() as cursor:
        cursor.execute("UPDATE ducklake_table_stats SET next_row_id = 50 WHERE table_id = 1")


def delete(lake: Lake, table: str, id_: int) -> None:
    """Commit to a table as Iceberg clients do: in another group than rows."""
    body = json.dumps({"keys": [{"id": id_}]}).encode()
    assert delete_rows(lake.services, DeleteRequest(("main",), table, body, ("id",))).snapshot_id is not None


BETWEEN: dict[str, Callable[[Lake], object]] = {
    "nothing": lambda _: None,
    "own_commit": lambda lake: delete(lake, "t", 0),
    "own_commit_elsewhere": lambda lake: delete(lake, "u", 1),
    "duckdb_inserts": lambda lake: lake.run("INSERT INTO lake.t VALUES (100), (101)"),
    "duckdb_inserts_elsewhere": lambda lake: lake.run("INSERT INTO lake.u VALUES (100)"),
    "duckdb_deletes": lambda lake: lake.run("DELETE FROM lake.t WHERE id = 0"),
    "duckdb_flushes": lambda lake: lake.run("CALL ducklake_flush_inlined_data('lake')"),
    "duckdb_adds_a_column": lambda lake: lake.run("ALTER TABLE lake.t ADD COLUMN v INTEGER"),
    "somebody_reads": lambda lake: lake.metadata(),
    "sizes_are_repaired": repair,
}


@pytest.mark.parametrize("between", BETWEEN)
def test_rows_follow_what_others_did(lake: Lake, between: str) -> None:
    BETWEEN[between](lake)
    ((next_row_id,),) = lake.sql("SELECT next_row_id FROM ducklake_table_stats WHERE table_id = 1")
    newest = lake.newest()
    written = [post(lake, id_, id_ + 1) for id_ in (200, 202)]
    assert [each.snapshot_id for each in written] == [newest + 1, newest + 2]
    assert [each.first_row_id for each in written] == [next_row_id, next_row_id + 2]
    assert [row[0] for row in lake.duck_rows() if row[0] >= 200] == [200, 201, 202, 203]
    assert iceberg_rows(lake.static()) == lake.duck_rows()
    statistics = "SELECT min_value, max_value FROM ducklake_table_column_stats WHERE table_id = 1 AND column_id = 1"
    assert lake.sql(statistics) == [("0", "203")]
    assert lake.sql("SELECT FROM ducklake_snapshot_changes WHERE snapshot_id > %s AND author IS NULL", newest) == []


def test_own_commit_to_one_table_leaves_the_state_of_others_known(lake: Lake) -> None:
    """Rows go on without asking, and so do commits after rows."""
    for id_ in (0, 2):
        delete(lake, "t", id_)
    last = lake.services.commits._last
    assert last._state is not None
    assert (last._state.snapshot.snapshot_id, set(last._state.tables)) == (lake.newest(), {2})
    assert last._successive >= STABLE_AFTER_COMMITS
    post(lake, 200)
    assert last._successive > STABLE_AFTER_COMMITS
    assert iceberg_rows(lake.static()) == lake.duck_rows()


def test_options_hold_from_the_next_batch_on(lake: Lake) -> None:
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0)")
    post(lake, 200)
    assert lake.sql("SELECT record_count FROM ducklake_data_file") == [(1,)]


def test_tables_that_are_gone_are_missed(lake: Lake) -> None:
    lake.run("DROP TABLE lake.t")
    with pytest.raises(NoSuchTableError):
        post(lake, 200)


def test_key_that_comes_again_has_the_same_answer(lake: Lake) -> None:
    once = Once(UUID("01890000-0000-7000-8000-000000000000"), b"x")
    services = replace(lake.services, once=once)
    first = append_rows(services, posted(200))
    post(lake, 201)
    assert append_rows(services, posted(200)) == first
    assert [row[0] for row in lake.duck_rows() if row[0] >= 200] == [200, 201]


def test_sequence_that_was_applied_is_refused(lake: Lake) -> None:
    for sequence in (1, 2):
        append_rows(lake.services, replace(posted(200 + sequence), txn=TxnId("app", sequence)))
    with pytest.raises(TxnAlreadyAppliedError):
        append_rows(lake.services, replace(posted(203), txn=TxnId("app", 2)))
    assert [row[0] for row in lake.duck_rows() if row[0] >= 200] == [201, 202]


def test_batches_of_one_group_share_a_snapshot(lake: Lake) -> None:
    works = [partial(append_rows, lake.services, posted(200 + n, table="tu"[n % 2])) for n in range(4)]
    answers = sent_together(lake.services, works)
    assert len({answer.snapshot_id for answer in answers}) == 1
    assert [row[0] for table in "tu" for row in lake.duck_rows(table) if row[0] >= 200] == [200, 202, 201, 203]


def test_what_is_known_of_a_snapshot_that_a_failover_lost_is_forgotten(lake: Lake) -> None:
    """Another one has its id by now, and the sequence that came with it isn't applied."""
    append_rows(lake.services, replace(posted(201), txn=TxnId("app", 1)))
    memory = lake.services.commits._last
    lost = memory._state
    assert lost is not None
    memory._state = replace(lost, txn_versions=dict.fromkeys(lost.txn_versions, 7))
    with lake.services.database.transaction() as cursor:
        cursor.execute(
            "UPDATE ducklake_snapshot SET snapshot_time = snapshot_time + interval '1 ms' WHERE snapshot_id = %s",
            [lake.newest()],
        )
    memory._successive = 0
    for id_ in range(202, 204 + STABLE_AFTER_COMMITS):
        post(lake, id_)
    append_rows(lake.services, replace(posted(300), txn=TxnId("app", 2)))
    assert [row[0] for row in lake.duck_rows() if row[0] >= 200] == [*range(201, 204 + STABLE_AFTER_COMMITS), 300]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_rows_wait_for_a_client_that_holds_the_next_snapshot(lake: Lake, end: str) -> None:
    newest = lake.newest()
    with lake.services.database.transaction() as cursor, ThreadPoolExecutor(1) as pool:
        cursor.execute(
            "INSERT INTO ducklake_snapshot SELECT snapshot_id + 1, now(), schema_version, next_catalog_id, next_file_id"
            " FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1"
        )
        cursor.execute("INSERT INTO ducklake_snapshot_changes (snapshot_id) VALUES (%s)", [newest + 1])
        waiting = pool.submit(post, lake, 200)
        while not lake.sql("SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"):
            pass
        cursor.execute(end)
        answer = waiting.result()
    assert answer.snapshot_id == newest + (2 if end == "COMMIT" else 1)
    assert (200,) in lake.duck_rows()
