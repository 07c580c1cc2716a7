"""What the server writes for DuckDB's deletes is written at once, before any row names it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.derived_files import open_background_writer
from duckicelake.catalog.table.load import load_current_table
from tests.support.client import NS, Client, assert_whole, duckdb_rows, local, pyiceberg_rows
from tests.support.seams import Distant, Fuse, Killed, fresh, fused

ROWS = tuple((number, "x") for number in range(40))
DELETES = 5


@pytest.fixture
def behind(client: Client, ducklake: duckdb.DuckDBPyConnection) -> Client:
    """The client of a table from whose one file DuckDB has deleted rows by several commits that no one has seen."""
    client.create()
    client.append(*ROWS)
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for number in range(DELETES):
        ducklake.execute(f"DELETE FROM lake.ns.t WHERE id = {number}")
    return client


def delete_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("metadata/*") if path.name.endswith(("-deletes.parquet", "-dv.puffin"))]


@pytest.mark.parametrize("version", [2, 3])
def test_delete_files_of_many_commits_are_written_at_once(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, version: int
) -> None:
    client.create(properties={"format-version": str(version)})
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute(f"INSERT INTO lake.ns.t SELECT i, 'x' FROM range({len(ROWS)}) r(i)")
    load_current_table(services, NS, "t")
    for number in range(DELETES):
        ducklake.execute(f"DELETE FROM lake.ns.t WHERE id = {number}")
    distant: Any = Distant(services.store)
    table = load_current_table(fresh(replace(services, store=distant)), NS, "t")
    assert distant.written == [DELETES]
    assert len(delete_files(local(table.metadata.location))) == DELETES
    answer = client.load()
    history = [snapshot["snapshot-id"] for snapshot in answer["metadata"]["snapshots"]]
    assert [len(pyiceberg_rows(answer, snapshot)) for snapshot in history] == [*range(40, 34, -1)]
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake) == [*ROWS[DELETES:]]
    assert_whole(answer)


def test_server_killed_between_files_and_rows_leaves_a_table_that_the_next_catches_up(
    services: Services, behind: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    for steps in range(200):
        fuse = Fuse(steps)
        dying = fused(services, fuse)
        with pytest.raises(Killed):
            load_current_table(dying, NS, "t")
        assert duckdb_rows(ducklake) == [*ROWS[DELETES:]]
        if "before COMMIT" in fuse.log:  # manifests that threads write meanwhile may be told after it
            break
    before = [step for step in fuse.log if step.endswith("writing .parquet")]
    assert before == ["before writing .parquet", "after writing .parquet"] * DELETES
    answer = Client(fresh(services)).load()
    assert len(delete_files(local(answer["metadata"]["location"]))) == DELETES
    assert pyiceberg_rows(answer) == [*ROWS[DELETES:]]
    assert_whole(answer)


def test_large_files_are_not_gathered(services: Services, client: Client) -> None:
    client.create()
    metadata = load_current_table(services, NS, "t").metadata
    distant: Any = Distant(services.store)
    with open_background_writer(replace(services, store=distant)) as beside:
        beside.add(metadata, "{}-small", b"x")
        assert distant.written == []
        beside.add(metadata, "{}-large", bytes(16 * 1024 * 1024))
        beside.begin()  # waits for what has begun
        assert distant.written == [2]
        path = beside.add(metadata, "{}-later", b"y")
        assert beside.add(metadata, "{}-later", b"y") == path
        assert beside.add(metadata, "{}-later", b"y", "another source") != path
    assert distant.written == [2, 2]
    assert local(path).read_bytes() == b"y"


def test_files_of_work_that_fails_are_not_written(services: Services, client: Client) -> None:
    client.create()
    metadata = load_current_table(services, NS, "t").metadata
    distant: Any = Distant(services.store)

    def fail() -> None:
        with open_background_writer(replace(services, store=distant)) as beside:
            beside.add(metadata, "{}", b"x")
            raise Killed

    with pytest.raises(Killed):
        fail()
    assert distant.written == []
