"""Posted rows are what DuckDB would have written for the same INSERT: both sides read them, and DuckDB goes on."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import duckdb
import pytest

from duckicelake.catalog.context.idempotency import Once
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.inserts import PostedRows, RowsAnswer, append_rows, read_last_applied
from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import DamagedTableError, InvalidRequestError, NoSuchTableError, TxnAlreadyAppliedError
from duckicelake.lake.txn import TxnId
from tests.catalog.commit.test_group_commits import Ears, sent_together
from tests.support.client import Client
from tests.support.killed_process import Work, mortal
from tests.support.lakes import Lake, iceberg_rows
from tests.support.seams import fresh

Rows = Sequence[dict[str, Any]]
Post = Callable[..., RowsAnswer]
KEY = UUID("01999999-0000-7000-8000-000000000001")
SETUPS = {
    "plain": "",
    "identity": "ALTER TABLE lake.t SET PARTITIONED BY (kind)",
    "bucket and month": "ALTER TABLE lake.t SET PARTITIONED BY (bucket(3, id), month(made))",
    "sorted": "ALTER TABLE lake.t SET SORTED BY (id DESC)",
}


@pytest.fixture
def lake(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    ducklake.execute("CREATE TABLE lake.t (id BIGINT NOT NULL, kind VARCHAR, made TIMESTAMP, x DOUBLE)")
    return Lake(services, ducklake)


def post(lake: Lake, rows: Rows, table: str = "t", **more: Any) -> RowsAnswer:
    services = more.pop("services", lake.services)
    body = json.dumps(rows).encode()
    return append_rows(services, PostedRows(("main",), table, body, "application/json", **more))


def rows_of(first: int, count: int) -> list[dict[str, Any]]:
    kinds = ["k'0\"", "k'1\"", "", "ü", None]
    return [
        {"id": n, "kind": kinds[n % 5], "made": f"2026-{n % 3 + 1:02d}-03T04:05:06.7", "x": n / 4}
        for n in range(first, first + count)
    ]


def assert_same(lake: Lake, count: int, table: str = "t") -> None:
    """Both sides read the same rows, so many, each id once; and nothing is wrong with the lake."""
    found = lake.duck_rows(table)
    assert iceberg_rows(lake.static(table)) == found
    assert len({row[0] for row in found}) == len(found) == count
    assert [finding for finding in diagnose(lake.services.database) if not finding.ok] == []


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("setup", SETUPS)
def test_both_sides_read_posted_rows_and_duckdb_goes_on_after_them(lake: Lake, setup: str, version: int) -> None:
    if SETUPS[setup]:
        lake.run(SETUPS[setup])
    lake.upgrade(version)
    assert post(lake, rows_of(0, 5)) == RowsAnswer(lake.newest(), 5, 0)
    assert_same(lake, 5)
    lake.run("INSERT INTO lake.t VALUES (100, 'duck', TIMESTAMP '2026-01-01', 1), (101, NULL, NULL, NULL)")
    assert post(lake, rows_of(5, 30)) == RowsAnswer(lake.newest(), 30, 7)
    assert_same(lake, 37)
    # DuckDB's flush doubles updated inlined rows of partitioned tables, its own ones, too: there it is rows of files.
    updated, deleted = (20, 21) if "PARTITIONED" in SETUPS[setup] else (1, 2)
    lake.run(f"UPDATE lake.t SET x = -x WHERE id IN ({updated}, 22)", f"DELETE FROM lake.t WHERE id IN ({deleted}, 23)")
    post(lake, rows_of(35, 3))
    assert_same(lake, 38)
    lake.run("CALL ducklake_flush_inlined_data('lake')", "ALTER TABLE lake.t ADD COLUMN more INTEGER DEFAULT 7")
    post(lake, [*rows_of(38, 2), {"id": 40, "more": None}])
    assert_same(lake, 41)
    lake.run("CHECKPOINT lake")
    post(lake, rows_of(41, 11))
    assert_same(lake, 52)
    assert lake.one("SELECT count(*), sum(id), count(more), max(x) FROM lake.t") == (52, 1527 - deleted - 23, 51, 12.75)
    assert len({row[0] for row in lake.duck.execute("SELECT rowid FROM lake.t").fetchall()}) == 52


def test_catalog_holds_what_duckdb_writes_for_the_same_rows(lake: Lake) -> None:
    lake.run("CREATE TABLE lake.u (id BIGINT NOT NULL, kind VARCHAR, made TIMESTAMP, x DOUBLE)")
    batches = [rows_of(4, 3), rows_of(0, 1), [{"id": -7, "x": 1e300}], rows_of(7, 10)]
    for batch in batches:
        post(lake, batch)
        values = [row.get(name) for row in batch for name in ("id", "kind", "made", "x")]
        lake.duck.execute(f"INSERT INTO lake.u VALUES {', '.join(['(?, ?, ?, ?)'] * len(batch))}", values)
    ours, theirs = (_catalog(lake, name) for name in ("t", "u"))
    assert ours == theirs
    assert [changes for _, _, changes in ours["snapshots"]] == ["inlined_insert"] * 4


def _catalog(lake: Lake, name: str) -> dict[str, list[Any]]:
    """What DuckLake keeps of the table's rows, without ids and times that differ for certain."""
    ((table_id, inlined),) = lake.sql(
        "SELECT table_id, i.table_name FROM ducklake_table t JOIN ducklake_inlined_data_tables i USING (table_id) "
        "WHERE t.table_name = %s",
        name,
    )
    mark = f":{table_id}"
    return {
        "stats": lake.sql("SELECT record_count, next_row_id, file_size_bytes FROM ducklake_table_stats "
                          "WHERE table_id = %s", table_id),
        "columns": lake.sql("SELECT column_id, contains_null, contains_nan IS TRUE, min_value, max_value, extra_stats "
                            "FROM ducklake_table_column_stats WHERE table_id = %s ORDER BY 1", table_id),
        "rows": lake.sql(f"SELECT row_id, end_snapshot, id, kind, made, x FROM {inlined} ORDER BY row_id"),
        "snapshots": lake.sql(
            "SELECT schema_version, next_file_id - lag(next_file_id) OVER (ORDER BY snapshot_id) > 0, "
            "       replace(changes_made, %s, '') "
            "FROM ducklake_snapshot JOIN ducklake_snapshot_changes USING (snapshot_id) "
            "WHERE changes_made LIKE %s ORDER BY snapshot_id",
            mark, f"inlined_insert{mark}",
        ),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "files"),
    [("", 1), ("'data_inlining_row_limit', 20", 0), ("'data_inlining_row_limit', 0, table_name => 't'", 2)],
)
def test_batches_beyond_the_limit_become_files(lake: Lake, options: str, files: int) -> None:
    post(lake, rows_of(0, 1))
    if options:
        lake.run(f"CALL lake.set_option({options})")
    post(lake, rows_of(1, 10))
    post(lake, rows_of(11, 11))
    assert lake.sql("SELECT count(*) FROM ducklake_data_file") == [(files,)]
    assert_same(lake, 22)


def test_batches_that_wait_share_a_snapshot_and_fail_each_by_itself(lake: Lake) -> None:
    lake.run("CREATE TABLE lake.u (id BIGINT NOT NULL, kind VARCHAR, made TIMESTAMP, x DOUBLE)")
    post(lake, rows_of(0, 1), txn=TxnId("a", 7))
    ears: Any = Ears()
    heard = replace(lake.services, meter=ears)
    first = lake.newest()
    works = [
        partial(post, lake, rows_of(1, 2), services=heard),
        partial(post, lake, rows_of(3, 3), "u"),
        partial(post, lake, rows_of(99, 2), txn=TxnId("a", 7)),
        partial(post, lake, rows_of(6, 12)),
        partial(post, lake, rows_of(18, 1), txn=TxnId("a", 8)),
    ]
    *written, refused = sorted(sent_together(lake.services, works), key=lambda each: isinstance(each, Exception))
    assert isinstance(refused, TxnAlreadyAppliedError)
    assert {answer.snapshot_id for answer in written} == {lake.newest()} == {first + 1}
    assert_same(lake, 16)
    assert_same(lake, 3, "u")
    ids = [id_ for each in written if each.rows != 3 for id_ in range(each.first_row_id, each.first_row_id + each.rows)]
    assert sorted(ids) == list(range(1, 16))
    ((changes,),) = lake.sql("SELECT changes_made FROM ducklake_snapshot_changes WHERE snapshot_id = %s", first + 1)
    assert sorted(token.partition(":")[0] for token in changes.split(",")) == [
        "inlined_insert", "inlined_insert", "inserted_into_table"
    ]  # fmt: skip


def test_schema_that_changes_between_planning_and_writing_has_the_batch_planned_again(lake: Lake) -> None:
    post(lake, rows_of(0, 1))
    commits = lake.services.commits
    write, changes = commits.write, iter(["ALTER TABLE lake.t DROP COLUMN kind", "ALTER TABLE lake.t RENAME TO v"])

    def superseded(*arguments: Any) -> Any:
        lake.run(*[each for each in [next(changes, None)] if each])
        return write(*arguments)

    commits.write = superseded  # type: ignore[method-assign,assignment]
    with pytest.raises(InvalidRequestError, match="kind"):
        post(lake, rows_of(1, 1))
    with pytest.raises(NoSuchTableError):
        post(lake, [{"id": 2}])
    assert post(lake, [{"id": 3}], "v").rows == 1
    assert_same(lake, 2, "v")


@pytest.mark.parametrize("damage", ["DROP COLUMN end_snapshot", "DROP COLUMN kind", "RENAME TO elsewhere"])
def test_rows_go_into_a_file_where_the_known_table_of_inlined_rows_is_damaged(lake: Lake, damage: str) -> None:
    post(lake, rows_of(0, 1))
    ((name,),) = lake.sql("SELECT table_name FROM ducklake_inlined_data_tables")
    with lake.services.database.transaction() as cursor:
        cursor.execute(f'ALTER TABLE "{name}" {damage}')
    assert post(lake, rows_of(1, 1)).rows == 1
    assert lake.sql("SELECT record_count FROM ducklake_data_file") == [(1,)]
    with pytest.raises(DamagedTableError, match=name):
        lake.static()


def test_bad_rows_are_named_and_nothing_is_written(lake: Lake) -> None:
    before = lake.newest()
    with pytest.raises(InvalidRequestError, match="row 1, column id"):
        post(lake, [{"id": 1}, {"id": None}])
    with pytest.raises(InvalidRequestError, match="nope"):
        post(lake, [{"id": 1, "nope": 2}])
    assert post(lake, []) == RowsAnswer(None, 0, None)
    assert lake.newest() == before
    assert post(lake, [{"id": 1, "nope": 2}], on_unknown="ignore").rows == 1


def test_producer_is_reported_how_far_it_has_come(lake: Lake) -> None:
    assert read_last_applied(lake.services, ("main",), "t", "a") is None
    written = post(lake, rows_of(0, 2), txn=TxnId("a", 5))
    with pytest.raises(TxnAlreadyAppliedError, match="latest: 5"):
        post(lake, rows_of(0, 2), txn=TxnId("a", 5))
    post(lake, rows_of(2, 1), txn=TxnId("b", 1))
    found = read_last_applied(lake.services, ("main",), "t", "a")
    assert found is not None
    assert (found.version, found.snapshot_id) == (5, written.snapshot_id)
    with pytest.raises(NoSuchTableError):
        read_last_applied(lake.services, ("main",), "u", "a")
    assert_same(lake, 3)


def test_request_sent_again_with_its_key_gets_its_answer_and_has_no_more_effect(lake: Lake) -> None:
    services = replace(lake.services, once=Once(KEY, b"the request"))
    first = post(lake, rows_of(0, 2), services=services)
    assert post(lake, rows_of(0, 2), services=services) == first
    assert_same(lake, 2)


@pytest.mark.parametrize("count", [2, pytest.param(20, marks=pytest.mark.crash)])
def test_server_killed_at_any_step_leaves_all_rows_or_none(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, count: int
) -> None:
    client.create()
    answered, step, known = False, 0, 0
    with mortal(services) as server:
        while not answered:
            rows = [{"id": step * 100 + n, "name": f"n{n}"} for n in range(count)]
            ending = server.serve(Work("append rows", steps=step, body={"rows": rows}))
            found = [row[0] for row in ducklake.execute("SELECT id FROM lake.ns.t ORDER BY id").fetchall()]
            new = len(found) - known
            assert new == (count if ending.answered or "after COMMIT" in ending.log else 0) or new in (0, count)
            assert new == count or not ending.answered
            answered, step, known = ending.answered, step + 1, len(found)
    lake = Lake(fresh(services), ducklake)
    assert iceberg_rows(lake.static("t", "ns")) == lake.duck_rows("ns.t")
    assert known % count == 0
    assert step > 2


def test_types_and_names_of_all_kinds_are_read_by_both_sides(lake: Lake) -> None:
    lake.run(
        'CREATE TABLE lake.u ("Id" INTEGER, "two words" VARCHAR, b BOOLEAN, f FLOAT, d DATE, t TIME, tz TIMESTAMPTZ, '
        "n DECIMAL(12, 3), u UUID, bin BLOB, l INTEGER[], s STRUCT(a VARCHAR, b INTEGER[]), m MAP(VARCHAR, DOUBLE), "
        "small TINYINT, big UBIGINT)"
    )
    full = {
        "Id": 1,
        "two words": 'it\'s "quoted" \\ and {braces}, NULL\u0000ü',
        "b": True,
        "f": 0.5,
        "d": "2026-02-03",
        "t": "04:05:06.000007",
        "tz": "2026-02-03T04:05:06.7+02:00",
        "n": "-123456.789",
        "u": "0191b6a0-0000-7000-8000-000000000001",
        "bin": "0001FF27",
        "l": [1, None, 3],
        "s": {"a": "o'clock, [1]", "b": []},
        "m": {"k'1": 1.5, "": None},
        "small": -128,
        "big": 2**64 - 1,
    }
    post(lake, [full, {"Id": 2}], "u")
    lake.run("CALL lake.set_option('data_inlining_row_limit', 0, table_name => 'u')")
    inlined = lake.duck_rows("u")
    post(lake, [full, {"Id": 2}], "u")
    found = lake.duck_rows("u")
    assert sorted([*inlined, *inlined], key=repr) == found
    assert iceberg_rows(lake.static("u")) == found


@pytest.mark.parametrize("kind", ["JSON[]", "STRUCT(f JSON[])", "MAP(INTEGER, JSON[])"])
def test_lists_of_json_are_never_inlined_where_duckdb_would_die_of_reading_them(lake: Lake, kind: str) -> None:
    texts = ['{"a": 1}', None, "null"]
    posted: dict[str, Any] = {"JSON[]": texts, "STRUCT(f JSON[])": {"f": texts}}
    lake.run(f"CREATE TABLE lake.l (id BIGINT, v {kind})")
    post(lake, [{"id": 1, "v": posted.get(kind, {"keys": [7], "values": [texts]})}], "l")
    read = {"JSON[]": texts, "STRUCT(f JSON[])": {"f": texts}, "MAP(INTEGER, JSON[])": {7: texts}}
    assert lake.duck.execute("FROM lake.l").fetchall() == [(1, read[kind])]
    assert lake.static("l").scan().to_arrow().num_rows == 1


def test_posting_while_duckdb_inserts_and_flushes_loses_nothing(lake: Lake, attach: Any) -> None:
    other = attach()
    batches, size, natives = 40, 5, 15

    def native() -> None:
        for n in range(natives):
            other.execute(f"INSERT INTO lake.t VALUES ({10_000 + n}, 'duck', NULL, 1)")
            if n % 5 == 2:
                other.execute("CALL ducklake_flush_inlined_data('lake')")

    with ThreadPoolExecutor(5) as pool:
        duck = pool.submit(native)
        works = [partial(post, lake, rows_of(n * size, size)) for n in range(batches)]
        answers = [future.result() for future in [pool.submit(work) for work in works]]
        duck.result()
    assert_same(lake, batches * size + natives)
    ids = [(each.first_row_id or 0) + n for each in answers for n in range(each.rows)]
    assert len(set(ids)) == batches * size


def test_requests_of_one_key_that_come_together_write_their_rows_once(lake: Lake) -> None:
    once = replace(lake.services, once=Once(KEY, b"same"))
    post(lake, rows_of(0, 1))
    works = [partial(post, lake, rows_of(1, 2), services=once) for _ in range(3)]
    works.append(partial(post, lake, rows_of(3, 1)))
    first, *again, other = sent_together(lake.services, works)
    assert again == [first, first] == [RowsAnswer(lake.newest(), 2, first.first_row_id)] * 2
    assert other.rows == 1
    assert_same(lake, 4)


def test_table_that_many_post_to_for_the_first_time_is_read_by_one_of_them(lake: Lake) -> None:
    """A table of DuckDB's own is caught up with, which they would do one after the other."""
    ears: Any = Phases()
    services = replace(lake.services, meter=ears)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: post(lake, rows_of(n, 1), services=services), range(4)))
    assert sorted(answer.first_row_id or 0 for answer in answers) == [0, 1, 2, 3]
    assert ears.heard.count("catch_up") == 1
    assert_same(lake, 4)


class Phases(Ears):
    """A meter that remembers the phases."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def phase(self, phase: str) -> Any:
        self.heard.append(phase)
        return super().phase(phase)
