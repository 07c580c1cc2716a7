"""Servers that send events of lineage, as processes: what they tell when they can't, and that a kill loses no event."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from duckicelake.lineage.graph.store import record_events
from duckicelake.postgres.database import Database
from tests.cli.serve.test_resilience import SCHEMA
from tests.cli.test_commands import lake, serving
from tests.support.commands import invoke
from tests.support.lineage_events import event, table
from tests.support.receiver import Answer, Receiver, number_of, receiving

__all__ = ["lake"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def number(database: Database, numbers: range) -> None:
    """Record START and COMPLETE of runs on five tables in turn."""
    kinds = ("START", "COMPLETE")
    report = [event(each, kind, outputs=(table(f"t{each % 5}"),)) for each in numbers for kind in kinds]
    with database.transaction() as cursor:
        record_events(cursor, report, origin="catalog")


@pytest.mark.crash
def test_kill_during_deliveries_loses_no_event(
    lake: Path, database: Database, database_url: str, warehouse: Path, receiver: Receiver
) -> None:
    settings = {
        "DUCKICELAKE_DATABASE_URL": database_url,
        "DUCKICELAKE_WAREHOUSE": str(warehouse),
        "DUCKICELAKE_LINEAGE_TRANSPORTS": receiver.uri,
        "DUCKICELAKE_LINEAGE": "off",
    }
    receiver.behaviour = lambda _: Answer(delay=0.003)
    with serving(lake, **settings) as served:
        number(database, range(200))
        receiver.until_taken(150)
        served.end(signal.SIGKILL)
    assert len(seen(receiver)) < 400
    number(database, range(200, 300))
    with serving(lake, **settings):
        receiver.until(lambda: len(seen(receiver)) == 600)
    assert len(receiver.tries) < 900
    for name in range(5):
        first_tries = dict.fromkeys((run, kind) for run, kind in report(receiver) if run % 5 == name)
        assert list(first_tries) == [(run, kind) for run in range(name, 300, 5) for kind in ("START", "COMPLETE")]


def report(receiver: Receiver) -> list[tuple[int, str]]:
    return [(number_of(body), body["eventType"]) for body in list(receiver.taken)]


def seen(receiver: Receiver) -> set[tuple[int, str]]:
    return set(report(receiver))


@pytest.mark.crash
def test_commits_arrive_as_events_and_a_receiver_that_hangs_holds_up_no_end(lake: Path, receiver: Receiver) -> None:
    settings = {
        "DUCKICELAKE_LINEAGE_TRANSPORTS": f"console,{receiver.uri}",
        "DUCKICELAKE_LINEAGE_API_KEYS": "geheim",
        "DUCKICELAKE_LINEAGE_FLUSH_SECONDS": "0.5",
    }
    with serving(lake, **settings) as served:
        create_table(served.uri, "t")
        receiver.until(lambda: any("/t" in name for name in written(receiver)))
        receiver.behaviour = lambda _: Answer(hang=60)
        create_table(served.uri, "u")
        tries = len(receiver.tries)
        receiver.until(lambda: len(receiver.tries) > tries)
        began = time.monotonic()
        assert served.end(signal.SIGTERM) == 0
    assert time.monotonic() - began < 10
    assert {headers["Authorization"] for headers in receiver.headers} == {"Bearer geheim"}
    assert '"eventType": ' in served.printed
    assert "geheim" not in served.printed


def written(receiver: Receiver) -> list[str]:
    return [dataset["name"] for body in receiver.taken for dataset in body["outputs"]]


def create_table(uri: str, name: str) -> None:
    httpx.post(f"{uri}/v1/namespaces/main/tables", json={"name": name, "schema": SCHEMA}).raise_for_status()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"DUCKICELAKE_LINEAGE_TRANSPORTS": "file:///none/at/all"}, "file:/none/at/all can't be written: "),
        (
            {"DUCKICELAKE_LINEAGE_TRANSPORTS": "kafka://b:1/t", "DUCKICELAKE_LINEAGE_KAFKA": "a.b=secret"},
            "kafka://b:1/t",
        ),
    ],
)
def test_receiver_that_cannot_be_used_is_reported_at_the_start(lake: Path, settings: dict[str, str], said: str) -> None:
    refused = invoke("serve", "--lake", str(lake), "--port", "0", **settings)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert "secret" not in refused.stderr
