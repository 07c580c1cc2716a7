"""Of a long history only what is new is read, made and encoded; what comes of it is what reading all gives."""

from collections.abc import Callable

import duckdb
import orjson
import pytest

from duckicelake.bridge.project import project_metadata
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.catch_up import ADVANCE_AFTER
from duckicelake.catalog.table.load import load_current_table
from duckicelake.iceberg.manifest.reader import read_manifest_list
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import TableState
from duckicelake.postgres.queries import Transaction
from tests.support.client import NS, Client, append, local, pyiceberg_rows, set_properties
from tests.support.engine import drop_ref, expire, point, then
from tests.support.seams import fresh

Act = Callable[[Client, duckdb.DuckDBPyConnection], None]


def appended(client: Client, _: duckdb.DuckDBPyConnection) -> None:
    client.commit(append(client.metadata(), (100, "new")))
    client.commit(append(client.metadata(), (101, "newer")))


def inserted_by_duckdb(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    ducklake.execute("INSERT INTO lake.ns.t SELECT i, 'x' FROM range(200, 240) r(i)")
    client.load()


def rolled_back(client: Client, _: duckdb.DuckDBPyConnection) -> None:
    client.commit(point("main", ids(client)[1])(client.metadata()))


def expired_oldest(client: Client, _: duckdb.DuckDBPyConnection) -> None:
    client.commit(expire(ids(client)[2:])(client.metadata()))
    client.commit(append(client.metadata(), (100, "new")))


def expired_in_the_midst(client: Client, _: duckdb.DuckDBPyConnection) -> None:
    first, second, _third, *rest = ids(client)
    client.commit(expire([first, second, *rest])(client.metadata()))
    client.commit(append(client.metadata(), (100, "new")))


def left_main(client: Client, _: duckdb.DuckDBPyConnection) -> None:
    """Main goes, and all of the log with it."""
    client.commit(then(point("old", ids(client)[-1]), drop_ref("main"))(client.metadata()))


def given_a_property(client: Client, _: duckdb.DuckDBPyConnection) -> None:
    client.commit(set_properties(a="b"))


def ids(client: Client) -> list[int]:
    return [each["snapshot-id"] for each in client.metadata()["snapshots"]]


@pytest.mark.parametrize(
    "act",
    [appended, inserted_by_duckdb, rolled_back, expired_oldest, expired_in_the_midst, left_main, given_a_property],
)
def test_state_that_goes_on_from_an_older_one_is_the_one_that_is_read_whole(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, act: Act
) -> None:
    client.create()
    for number in range(5):
        client.append((number, None))
    before = load_current_table(services, NS, "t")
    act(Client(fresh(services)), ducklake)
    whole, resumed = read_twice(services, before.row.table_id, before.state)
    assert resumed == whole
    known, listed = before.state.snapshots, {row.snapshot_id for row in whole.snapshots}
    kept = [row for row in known if row.snapshot_id in listed]
    only_oldest_left = kept == list(known[len(known) - len(kept) :])
    shared_rows = [row for row in kept if any(row is each for each in resumed.snapshots)]
    assert shared_rows == (kept if only_oldest_left else [])
    metadata = project_metadata(resumed, (before.state, before.metadata))
    assert metadata == project_metadata(whole)
    assert metadata.encode() == orjson.dumps(project_metadata(whole).to_json())
    shared = {id(snapshot) for snapshot in before.metadata.snapshots}
    assert sum(id(snapshot) in shared for snapshot in metadata.snapshots) == len(shared_rows)


def read_twice(services: Services, table_id: int, before: TableState) -> tuple[TableState, TableState]:
    """(read whole, read on from the older state), in one transaction."""

    def row_of(cursor: Transaction) -> reader.TableRow:
        row = reader.read_table_row(cursor, table_id)
        assert row is not None
        return row

    with services.database.reading() as cursor:
        row = row_of(cursor)
        return reader.read_table_state(cursor, row), reader.read_table_state(cursor, row, before)


def test_another_worker_goes_on_from_what_it_knows_and_answers_the_same(services: Services, client: Client) -> None:
    other = Client(fresh(services))
    client.create()
    client.append((1, "one"))
    assert other.load() == client.load()
    for number in range(3):
        client.append((number, None))
        assert other.load() == Client(fresh(services)).load() == client.load()


def test_many_native_commits_between_two_loads_list_few_manifests(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((0, None))
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for number in range(1, 45):
        ducklake.execute(f"INSERT INTO lake.ns.t VALUES ({number}, NULL)")
    answer = client.load()
    lists = [read_manifest_list(local(each["manifest-list"]).read_bytes()) for each in answer["metadata"]["snapshots"]]
    assert len(lists) == 45
    assert max(map(len, lists)) <= 16
    assert (
        sum(line.added_rows_count or 0 for line in lists[-1]) + sum(line.existing_rows_count or 0 for line in lists[-1])
        == 45
    )
    assert pyiceberg_rows(answer) == [(number, None) for number in range(45)]
    assert Client(fresh(services)).load() == answer


def test_table_that_others_leave_behind_notes_that_nothing_concerns_it(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((0, None))
    before = client.load()
    with services.database.transaction() as cursor:
        cursor.execute(
            """INSERT INTO ducklake_snapshot
               SELECT snapshot_id + i, now(), schema_version, next_catalog_id, next_file_id
               FROM (SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1) s, generate_series(1, %s) i""",
            [ADVANCE_AFTER],
        )
        cursor.execute(
            """INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made)
               SELECT snapshot_id, 'inserted_into_table:99' FROM ducklake_snapshot ORDER BY 1 DESC LIMIT %s""",
            [ADVANCE_AFTER],
        )
    assert Client(fresh(services)).load() == before
    with services.database.reading() as cursor:
        progress = cursor.execute(
            "SELECT caught_up_to, version, (SELECT max(snapshot_id) FROM ducklake_snapshot) FROM duckicelake_table"
        ).fetchall()
    ((caught_up_to, version, newest),) = progress
    assert (caught_up_to, version) == (newest, 1)
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, NULL)")
    assert pyiceberg_rows(client.load()) == [(0, None), (1, None)]
