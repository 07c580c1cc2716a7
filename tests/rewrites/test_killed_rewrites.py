"""A worker is killed at each step of a rewrite: no row is lost or doubled, and what it leaves behind is gc's."""

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from tests.catalog.commit.test_crashes import COMMITTING, assert_whole_catalog, deaths
from tests.support.client import Client, assert_whole, data_files, duckdb_rows, pyiceberg_rows
from tests.support.killed_process import Work, mortal
from tests.support.seams import fresh

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]
ROWS = "SELECT rowid, id, name FROM lake.ns.t ORDER BY ALL"


def test_compaction_killed_at_any_step_happens_or_not(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")

    def work(step: int) -> Work:
        for number in range(2):
            ducklake.execute(f"INSERT INTO lake.ns.t SELECT {100 * step} + range * 2 + {number}, 'n' FROM range(20)")
        ducklake.execute(f"DELETE FROM lake.ns.t WHERE id = {100 * step}")
        before.append(ducklake.execute(ROWS).fetchall())
        return Work("compact")

    before: list[list[tuple[int, int, str]]] = []
    with mortal(services) as server:
        for _, ending in deaths(server, work):
            answer = Client(fresh(services)).load()
            assert ducklake.execute(ROWS).fetchall() == before[-1], ending.log
            assert pyiceberg_rows(answer) == duckdb_rows(ducklake), ending.log
            assert_whole(answer)
            assert len(data_files(answer["metadata"])) == 1 or not ending.answered
    assert set(ending.log) >= COMMITTING
    assert_whole_catalog(services)
    assert ducklake.execute(ROWS).fetchall() == before[-1]
