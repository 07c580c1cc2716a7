"""What is noted of reads: how often, how much of it, for how long, and what it is good for."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duckicelake.catalog.context.caller import Caller, Principal
from duckicelake.catalog.context.hooks import PlannedRead
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.reports import MetricsReport
from duckicelake.lineage.events import read_rows
from duckicelake.lineage.events import reads as catalog_reads
from duckicelake.lineage.events.inference import INFERENCE_WINDOW, LIVES, ApplicationWrite, InferredInput
from duckicelake.lineage.events.reads import (
    MAX_BATCH_READS,
    MAX_WAITING_READS,
    SESSION,
    ReadLog,
    build_load,
    find_inputs,
    record_reads_in_background,
)
from duckicelake.postgres.database import Database
from tests.support.client import NS, new_client
from tests.support.waits import wait_until

ETL = Caller(Principal("etl", ()), client={SESSION: "0123456789abcdef"})
SPARK = {"engine-name": "spark", "app-id": "local-1"}


@pytest.fixture
def log(services: Services) -> ReadLog:
    """Of a server with tables a, b and c; no one writes what it notes but the test."""
    client = new_client(services)
    for name in "abc":
        client.create(name)
    noting = ReadLog()
    noting.is_on = True
    return noting


def scan(columns: tuple[str, ...] = ("id",), **more: Any) -> MetricsReport:
    said = {"report-type": "scan-report", "projected-field-names": columns, "metadata": SPARK, **more}
    return MetricsReport.model_validate(said)


def rows(database: Database) -> list[tuple[Any, ...]]:
    with database.statement() as cursor:
        found = cursor.execute("SELECT kind, table_name, session, application FROM duckicelake_read ORDER BY id")
        return found.fetchall()


def table_id(database: Database, name: str) -> int:
    with database.statement() as cursor:
        row = cursor.execute("SELECT table_id FROM ducklake_table WHERE table_name = %s", [name]).fetchone()
    assert row is not None
    return int(row[0])


def inferred(database: Database, application: str | None = "spark local-1", output: str = "c") -> list[InferredInput]:
    """Of a write that is made now."""
    outputs = frozenset({table_id(database, output)})
    with database.transaction() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
        assert row is not None
        return find_inputs(
            cursor,
            ApplicationWrite(row[0], "etl", ETL.client[SESSION], application, outputs, "append"),
            INFERENCE_WINDOW,
        )


def test_a_read_becomes_the_input_of_what_is_written_then(log: ReadLog, database: Database) -> None:
    log.note_report(ETL, NS, "a", scan(("id", "name"), filter={"type": "gt", "term": "id", "value": "(1-digit-int)"}))
    log.write(database)
    (only,) = inferred(database)
    assert (only.table, only.table_id, only.confidence) == ("ns.a", table_id(database, "a"), 0.9)
    assert (tuple(only.projected), tuple(only.filtered)) == (("id", "name"), ("id",))


@pytest.mark.parametrize("application", [None, "spark local-1"])
def test_a_planned_scan_becomes_the_input_of_what_its_session_writes(
    log: ReadLog, database: Database, application: str | None
) -> None:
    log.note_plan(ETL, NS, "a", PlannedRead(7, ("id", "name"), ("name",)))
    log.note_plan(Caller(ETL.principal, client={SESSION: "another"}), NS, "b", PlannedRead(8, ("id",), ()))
    log.note_plan(Caller(ETL.principal), NS, "b", PlannedRead(9, ("id",), ()))
    log.write(database)
    assert rows(database) == [("plan", "ns.a", ETL.client[SESSION], None), ("plan", "ns.b", "another", None)]
    (only,) = inferred(database, application)
    assert (only.table, only.snapshot_id, only.confidence) == ("ns.a", 7, 0.6)
    assert (tuple(only.projected), tuple(only.filtered)) == (("id", "name"), ("name",))


def test_a_write_uses_up_what_was_read_before_it(log: ReadLog, database: Database) -> None:
    log.note_report(ETL, NS, "a", scan())
    log.write(database)
    assert [each.table for each in inferred(database, output="b")] == ["ns.a"]
    log.note_report(ETL, NS, "b", scan())
    log.write(database)
    assert [(each.table, each.confidence) for each in inferred(database)] == [("ns.b", 0.9)]
    assert [(each.table, each.confidence) for each in inferred(database)] == [("ns.a", 0.27), ("ns.b", 0.27)]


def test_loads_in_a_session_are_inputs_but_for_the_output(log: ReadLog, database: Database) -> None:
    for name in ("a", "c"):
        log.note_load(ETL, NS, name, is_lookup=False)
    log.write(database)
    assert [(each.table, each.confidence) for each in inferred(database, None)] == [("ns.a", 0.4)]


@pytest.mark.parametrize("application", [None, "spark local-1"])
def test_commits_of_an_application_do_not_add_up(log: ReadLog, database: Database, application: str | None) -> None:
    reader = read_rows.ReadingApplication("etl", ETL.client[SESSION], application)
    for _ in range(3):
        log.note_load(ETL, NS, "c", is_lookup=False)
        log.note_write(ETL.client[SESSION])
        log.write(database)
        assert inferred(database, application) == []
    assert [row[0] for row in rows(database)] == ["load"] * 3, "no write is noted where there is no input"
    log.note_report(ETL, NS, "a", scan(metadata=SPARK if application else {}))
    for _ in range(3):
        log.write(database)
        assert [each.table for each in inferred(database, application)] == ["ns.a"]
    with database.statement() as cursor:
        found = read_rows.list_reads(
            cursor, reader, {table_id(database, "c")}, datetime.now(UTC) + timedelta(minutes=1), INFERENCE_WINDOW
        )
    assert [row.kind for row in found] == ["scan", "write"], "of three writes the last, and no loads of the output"


def test_what_comes_again_at_once_is_one_row(log: ReadLog, database: Database) -> None:
    for _ in range(5):
        log.note_load(ETL, NS, "a", is_lookup=False)
    log.write(database)
    log.note_load(ETL, NS, "a", is_lookup=False)
    log.note_load(ETL, NS, "a", is_lookup=True)
    log.write(database)
    assert [row[0] for row in rows(database)] == ["load", "lookup"]
    assert log.statistics() == {"recorded": 2, "dropped": 0}


def test_what_comes_again_after_a_write_is_another_row(log: ReadLog, database: Database) -> None:
    for _ in range(3):
        log.note_load(ETL, NS, "a", is_lookup=False)
        log.note_write(ETL.client[SESSION])
        log.note_write("somebody-else's")
    log.write(database)
    assert [row[0] for row in rows(database)] == ["load"] * 3


def test_what_is_too_much_is_dropped_and_counted(log: ReadLog, database: Database) -> None:
    for number in range(MAX_WAITING_READS + 7):
        log.note(build_load("etl", f"{number:016}", ("ns", "a"), is_lookup=False))
    log.write(database)
    assert log.statistics() == {"recorded": MAX_BATCH_READS, "dropped": MAX_WAITING_READS + 7 - MAX_BATCH_READS}


def test_what_cannot_be_written_is_dropped_and_counted(log: ReadLog, database: Database) -> None:
    log.note(replace(build_load("etl", "0" * 16, ("ns", "a"), is_lookup=False), snapshot_id=2**63))
    with pytest.raises(Exception, match="out of range"):
        log.write(database)
    assert log.statistics() == {"recorded": 0, "dropped": 1}


def test_reads_of_tables_that_have_gone_are_left_out(log: ReadLog, database: Database) -> None:
    log.note_load(ETL, NS, "gone", is_lookup=False)
    log.write(database)
    assert rows(database) == []


@pytest.mark.parametrize("kind", ["never-heard-of", "plan-report"])
def test_other_reports_say_nothing_of_reads(log: ReadLog, database: Database, kind: str) -> None:
    log.note_report(ETL, NS, "a", MetricsReport.model_validate({"report-type": kind}))
    log.write(database)
    assert rows(database) == []


def test_nothing_is_noted_that_no_one_writes() -> None:
    log = ReadLog()
    log.note_load(ETL, NS, "a", is_lookup=False)
    assert log.statistics() == {"recorded": 0, "dropped": 0}


def test_old_reads_are_forgotten_later_those_of_applications_with_a_name(log: ReadLog, database: Database) -> None:
    now = datetime.now(UTC)
    with database.statement() as cursor:
        for application, ago in ((None, 2), (None, 0.5), ("spark 1", 2), ("spark 2", LIVES + 1)):
            reader = read_rows.ReadingApplication("etl", "0" * 16, application)
            read_rows.mark_read(cursor, reader, 1, now - ago * INFERENCE_WINDOW)
        assert read_rows.prune_reads(cursor, INFERENCE_WINDOW, LIVES * INFERENCE_WINDOW) == 2
    assert {row[3] for row in rows(database)} == {None, "spark 1"}


def test_more_rows_than_are_kept_are_forgotten(
    log: ReadLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_rows, "KEEP_READS", 3)
    with database.statement() as cursor:
        for number in range(5):
            read_rows.mark_read(
                cursor, read_rows.ReadingApplication("etl", "0" * 16, f"spark {number}"), 1, datetime.now(UTC)
            )
        assert read_rows.prune_reads(cursor, INFERENCE_WINDOW, INFERENCE_WINDOW) == 2
    assert [row[3] for row in rows(database)] == ["spark 2", "spark 3", "spark 4"]


@contextmanager
def recorded(log: ReadLog, database: Database) -> Iterator[list[Exception]]:
    failures: list[Exception] = []
    with record_reads_in_background(log, database, failures.append):
        yield failures


def test_the_thread_writes_and_goes_on_after_a_failure(
    log: ReadLog, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog_reads, "RETRY_SECONDS", 0.01)
    with recorded(log, database) as failures:
        log.note(replace(build_load("etl", "0" * 16, ("ns", "a"), is_lookup=False), snapshot_id=2**63))
        wait_until(lambda: bool(failures))
        log.note_load(ETL, NS, "a", is_lookup=False)
        wait_until(lambda: len(rows(database)) == 1)
        log.note_load(ETL, NS, "b", is_lookup=False)
    assert [row[1] for row in rows(database)] == ["ns.a", "ns.b"], "the last ones are written at its end"


def test_a_window_of_the_settings_bounds_what_counts(log: ReadLog, database: Database) -> None:
    log.note_load(ETL, NS, "a", is_lookup=False)
    log.write(database)
    outputs = frozenset({table_id(database, "c")})
    with database.transaction() as cursor:
        row = cursor.execute("SELECT at + interval '2 minutes' FROM duckicelake_read").fetchone()
        assert row is not None
        write = ApplicationWrite(row[0], "etl", ETL.client[SESSION], None, outputs, "append")
        assert find_inputs(cursor, write, timedelta(minutes=1)) == []
        assert len(find_inputs(cursor, write, timedelta(minutes=3))) == 1
