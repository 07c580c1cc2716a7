"""Writers against a served lake: order, back-pressure, retries, crashes, refusals."""

import asyncio
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from duckicelake.client.batch import Batching
from duckicelake.client.writer import AsyncWriter, Writer
from duckicelake.errors import (
    BadCredentialsError,
    BadInputError,
    CatalogUnreachableError,
    JobConflictError,
    MissingTableError,
    PipelineError,
    RowsNotWrittenError,
)
from duckicelake.rest.connection import Connection
from tests.cli.test_commands import serving
from tests.client.conftest import LiveLake

ONE_BY_ONE = Batching(max_rows=1)
SMALL = Batching(max_rows=3, max_waiting=500)
SECRET = "secret-of-the-writers"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def rows(first: int, after: int) -> list[dict[str, int]]:
    return [{"id": number} for number in range(first, after)]


def test_rows_of_all_kinds_arrive_once_and_in_their_order(live: LiveLake) -> None:
    with Writer(live.table, live.connection, Batching(max_rows=7)) as writer:
        writer.append({"id": 0, "name": "ö"})
        writer.append({"id": number} for number in range(1, 20))
        writer.append(pa.table({"id": list(range(20, 40)), "name": [None] * 19 + ["x"]}))
        writer.append(pd.DataFrame({"id": [40, 41]}, index=[7, 9]))
        writer.append(b'{"id": 42}\n{"id": 43, "name": "y"}\n')
    assert live.ids() == list(range(44))
    assert (0, "ö") in live.rows()
    progress = writer.progress
    assert (progress.appended, progress.written, progress.skipped, progress.retries) == (44, 44, 0, 0)
    assert progress.batches == 9  # of 1, 7, 7, 5 rows of JSON; 7, 7, 6 of Arrow; 2 of pandas, of another schema; 2


def test_rows_go_when_they_are_old_enough(live: LiveLake) -> None:
    with Writer(live.table, live.connection, Batching(max_age=0.2)) as writer:
        writer.append(rows(0, 3))
        until(lambda: writer.progress.written == 3)
        assert live.ids() == [0, 1, 2]


def test_append_waits_while_too_many_bytes_do(live: LiveLake) -> None:
    sent: list[int] = []

    def send() -> None:
        for number in range(200):
            writer.append({"id": number, "name": "x" * 100})
            sent.append(number)

    with Writer(live.table, live.connection, Batching(max_rows=10, max_waiting=2_000)) as writer:
        writer.append({"id": -1})
        writer.flush()
        live.served.process.send_signal(signal.SIGSTOP)
        sender = threading.Thread(target=send)
        try:
            sender.start()
            sender.join(2)
            assert sender.is_alive()
            assert len(sent) < 20  # of 120 bytes each
        finally:
            live.served.process.send_signal(signal.SIGCONT)
        sender.join(60)
    assert live.ids() == list(range(-1, 200))


def test_refused_batch_ends_the_writer_and_is_reported_with_all_behind_it(live: LiveLake) -> None:
    writer = Writer(live.table, live.connection, Batching(max_rows=2, max_age=60))
    writer.append(rows(0, 4))
    writer.flush()
    writer.append([{"id": 4}, {"id": "five"}, {"id": 6}, {"id": 7}, {"id": 8}])
    with pytest.raises(RowsNotWrittenError) as refused:
        writer.flush()
    failure = refused.value
    assert isinstance(failure.reason, BadInputError)
    assert str(failure).startswith("Nothing was stored, as not all rows fit: row 1, column id: 'five': write")
    assert (failure.first, failure.rows) == (4, [{"id": 4}, {"id": "five"}])
    for again in (lambda: writer.append({"id": 9}), writer.flush, writer.close):
        with pytest.raises(RowsNotWrittenError):
            again()
    assert live.ids() == [0, 1, 2, 3]
    with Writer(live.table, live.connection) as writer:
        writer.append(failure.rows[0])
        for portion in failure.unsent:
            writer.append(portion)
    assert live.ids() == [0, 1, 2, 3, 4, 6, 7, 8]


def test_unknown_columns_are_left_out_if_that_is_wanted(live: LiveLake) -> None:
    with Writer(live.table, live.connection, on_unknown="ignore") as writer:
        writer.append({"id": 1, "colour": "red"})
    assert live.rows() == [(1, None)]


def test_stream_goes_on_where_it_was(live: LiveLake) -> None:
    first = Writer(live.table, live.connection, Batching(max_rows=10), app_id="s/1")
    first.append(rows(0, 25))
    first.flush()
    first.abandon()
    with Writer(live.table, live.connection, Batching(max_rows=20), app_id="s/1") as writer:
        writer.append(rows(0, 50))
    assert live.ids() == list(range(50))
    assert (writer.progress.skipped, writer.progress.written) == (25, 25)


def test_second_writer_of_a_stream_is_reported(live: LiveLake) -> None:
    writer = Writer(live.table, live.connection, app_id="one")
    writer.append(rows(0, 3))
    writer.flush()
    with Writer(live.table, live.connection, app_id="one") as other:
        other.append(rows(0, 6))
    writer.append(rows(3, 6))
    with pytest.raises(RowsNotWrittenError) as refused:
        writer.flush()
    assert isinstance(refused.value.reason, JobConflictError)
    assert "another writer has the stream 'one'" in str(refused.value)
    assert live.ids() == list(range(6))


def test_closed_writer_takes_nothing(live: LiveLake) -> None:
    writer = Writer(live.table, live.connection)
    writer.append({"id": 1})
    writer.close()
    assert writer.close().written == 1
    with pytest.raises(PipelineError, match="the writer is closed"):
        writer.append({"id": 2})


def test_missing_table_is_reported(live: LiveLake) -> None:
    with pytest.raises(RowsNotWrittenError) as refused, Writer("main.nowhere", live.connection) as writer:
        writer.append({"id": 1})
    assert isinstance(refused.value.reason, MissingTableError)


def test_async_writer_leaves_the_loop_free(live: LiveLake) -> None:
    async def write() -> int:
        ticks = 0
        async with AsyncWriter(live.table, live.connection, Batching(max_rows=5, max_waiting=100)) as writer:
            appending = asyncio.create_task(_append(writer))
            while not appending.done():
                ticks += 1
                await asyncio.sleep(0)
            await appending
            assert (await writer.flush()).written == 100
        return ticks

    async def _append(writer: AsyncWriter) -> None:
        for number in range(100):
            await writer.append({"id": number})

    assert asyncio.run(write()) > 20
    assert live.ids() == list(range(100))


def test_async_writer_shows_what_was_refused(live: LiveLake) -> None:
    async def write() -> None:
        async with AsyncWriter(live.table, live.connection) as writer:
            await asyncio.gather(writer.append({"id": 1}), writer.append({"id": None}))

    with pytest.raises(RowsNotWrittenError, match="row 1, column id"):
        asyncio.run(write())


def test_no_one_there_is_reported_after_retries() -> None:
    with (
        pytest.raises(RowsNotWrittenError, match=r"127\.0\.0\.1:9 .*gave up after \d attempts$") as refused,
        Writer("main.t", Connection("http://127.0.0.1:9"), retry_seconds=0.5) as writer,
    ):
        writer.append(rows(0, 2))
    assert isinstance(refused.value.reason, CatalogUnreachableError)
    assert refused.value.rows == [{"id": 0}, {"id": 1}]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@pytest.mark.crash
def test_killed_server_loses_and_doubles_nothing(folder: Path, extensions: None) -> None:
    """Killed twice while batches go, and away until it is started again; with a stream's counter, and without."""
    port, tables, threads, writers = free_port(), ("main.plain", "main.counted"), [], []

    in_step = threading.Barrier(2, timeout=240)

    def send(writer: Writer) -> None:
        for number in range(1200):
            if number % 100 == 0:
                in_step.wait()  # else one may be done before the other has written enough for the next kill
            writer.append({"id": number})

    for kill in (1, 2):
        with serving(folder, "--port", str(port)) as served:
            if not writers:
                for table, app_id in zip(tables, (None, "stream"), strict=True):
                    LiveLake(folder, served, table).with_table()
                    writers.append(Writer(table, Connection(served.uri), SMALL, app_id=app_id))
                    threads.append(threading.Thread(target=send, args=(writers[-1],)))
                    threads[-1].start()
            until(lambda: all(writer.progress.written >= 200 * kill for writer in writers))  # noqa: B023
            served.end(signal.SIGKILL)
        until(lambda: all(writer.progress.trouble for writer in writers))
    with serving(folder, "--port", str(port)) as served:
        for writer, thread, table in zip(writers, threads, tables, strict=True):
            thread.join(120)
            writer.close()
            assert LiveLake(folder, served, table).ids() == list(range(1200))
            assert writer.progress.retries >= 2
            assert writer.progress.trouble is None


@pytest.mark.commands
def test_limits_and_logins(folder: Path, extensions: None) -> None:
    """429 is waited out; a token that has run out is renewed; a wrong secret is told."""
    settings = {
        "DUCKICELAKE_ROWS_REQUESTS_PER_SECOND": "4",
        "DUCKICELAKE_OAUTH_CLIENTS": f"etl:{SECRET}|*",
        "DUCKICELAKE_OAUTH_TOKEN_SECONDS": "2",
    }
    with serving(folder, **settings) as served:
        lake = LiveLake(folder, served, "main.t", f"etl:{SECRET}").with_table()
        with Writer("main.t", lake.connection, ONE_BY_ONE) as writer:
            writer.append(rows(0, 12))
        assert lake.ids() == list(range(12))
        assert writer.progress.retries > 0
        with (
            pytest.raises(RowsNotWrittenError) as refused,
            Writer("main.t", Connection(served.uri, "etl:no")) as writer,
        ):
            writer.append({"id": 1})
        assert isinstance(refused.value.reason, BadCredentialsError)
