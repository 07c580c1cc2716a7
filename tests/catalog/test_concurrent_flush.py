"""Rows with sequence numbers come, change and go while the server and others flush: none is lost, doubled, reverted.

DuckDB's own flush drops tables of older schema versions under its readers, which die of it (duckdb/ducklake#1413): it
runs where no one changes the schema.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event
from time import monotonic

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.flush import flush_rows
from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import UnavailableError
from tests.conftest import Attach
from tests.support.client import NS, Client, assert_whole, pyiceberg_rows
from tests.support.seams import fresh

SECONDS = 5
MORE_SECONDS = 40
WRITERS = 3
Known = dict[int, int | None]
"""By the id of a row the number of its last change; None once it is deleted."""


def for_a_while(raced: Event) -> Iterator[int]:
    """Until the others have won a race, too: on a slow machine DuckDB's flush loses many in a row."""
    until = monotonic() + SECONDS
    for number in count():
        if monotonic() >= (until if raced.is_set() else until + MORE_SECONDS):
            return
        yield number


def acknowledged(duck: duckdb.DuckDBPyConnection, statement: str) -> bool:
    """Whether DuckDB did it; what it loses to others is not done."""
    try:
        duck.execute(statement)
    except duckdb.Error as error:
        if "INTERNAL" in str(error) or "FATAL" in str(error):
            raise
        return False
    return True


def write(attach: Attach, raced: Event, writer: int) -> Known:
    """Insert, update and delete rows of one's own; what of it was acknowledged."""
    duck, known = attach(), Known()
    for number in for_a_while(raced):
        id_ = writer + WRITERS * number
        if acknowledged(duck, f"INSERT INTO lake.ns.t (id, name) VALUES ({id_}, '0')"):
            known[id_] = 0
        older = [each for each, value in known.items() if value is not None][-7:]
        if (
            number % 3 == 1
            and older
            and acknowledged(duck, f"UPDATE lake.ns.t SET name = '{number}' WHERE id IN ({older[0]}, {older[-1]})")
        ):
            known |= {older[0]: number, older[-1]: number}
        if (
            number % 4 == 3
            and older
            and acknowledged(duck, f"DELETE FROM lake.ns.t WHERE id = {older[len(older) // 2]}")
        ):
            known[older[len(older) // 2]] = None
    return known


def note(raced: Event, done: int) -> None:
    if done:
        raced.set()


def alter(attach: Attach, raced: Event) -> int:
    duck, done = attach(), 0
    for number in for_a_while(raced):
        done += acknowledged(duck, f"ALTER TABLE lake.ns.t ADD COLUMN c{number} INTEGER DEFAULT {number}")
        note(raced, done)
        Event().wait(0.4)
    return done


def flush_in_duckdb(attach: Attach, raced: Event) -> int:
    duck, done = attach(), 0
    for _ in for_a_while(raced):
        done += acknowledged(duck, "CALL ducklake_flush_inlined_data('lake', schema_name => 'ns', table_name => 't')")
        note(raced, done)
        Event().wait(0.3)
    return done


def flush_here(services: Services, raced: Event) -> int:
    done = 0
    for _ in for_a_while(raced):
        try:
            done += flush_rows(fresh(services), NS, "t").snapshot_id is not None
        except UnavailableError:
            continue
    return done


@pytest.mark.parametrize("other", [pytest.param(alter, marks=pytest.mark.model), flush_in_duckdb])
def test_flushes_beside_writers_lose_double_and_revert_nothing(
    services: Services, client: Client, attach: Attach, other: Callable[[Attach, Event], int]
) -> None:
    client.create()
    attach().execute("CALL lake.set_option('data_inlining_row_limit', 1000)")
    raced = Event()
    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(write, attach, raced, number) for number in range(WRITERS)]
        flushing, others = pool.submit(flush_here, services, raced), pool.submit(other, attach, raced)
        known = {id_: value for each in writers for id_, value in each.result().items()}
        assert flushing.result() > 0
        assert others.result() > 0
    wanted = sorted((id_, str(value)) for id_, value in known.items() if value is not None)
    assert attach().sql("SELECT id, name FROM lake.ns.t ORDER BY ALL").fetchall() == wanted
    answer = Client(fresh(services)).load()
    assert pyiceberg_rows(answer) == wanted
    assert_whole(answer)
    damage, _ = examine_tables(services.database)
    assert [finding for finding in (*diagnose(services.database), *damage) if not finding.ok] == []
