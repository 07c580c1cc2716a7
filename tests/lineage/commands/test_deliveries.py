"""What `duckicelake lineage deliveries` tells and has done."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from duckicelake.cli.main import app
from duckicelake.lineage.delivery import outbox
from duckicelake.lineage.graph.store import record_events
from duckicelake.postgres.database import Database
from tests.support.lineage_events import event

MARQUEZ, OTHER = "http://marquez:5000", "console"


@pytest.fixture
def filled(database: Database) -> Database:
    """Ten events, of which one receiver has had six, refused the third, and another has had none."""
    outbox.register_receivers(database, [MARQUEZ, OTHER])
    with database.transaction() as cursor:
        record_events(cursor, [event(number) for number in range(10)], origin="catalog")
        ((id_, text),) = outbox.read_events(cursor, 2, 3, 10)
        outbox.record_dead_letter(cursor, MARQUEZ, (id_, text), 400, "400 Bad Request: no \x1b[31m", 1)
        assert outbox.move_position(cursor, MARQUEZ, 0, 6, delivered=5, dropped=0)
    return database


@pytest.fixture
def environment(database_url: str, warehouse: Path) -> dict[str, str]:
    return {"DUCKICELAKE_DATABASE_URL": database_url, "DUCKICELAKE_WAREHOUSE": str(warehouse)}


def command(environment: dict[str, str], *arguments: str) -> Result:
    return CliRunner().invoke(app, ["lineage", "deliveries", *arguments], env=environment)


def test_each_receiver_has_a_line(filled: Database, environment: dict[str, str]) -> None:
    heading, first, second = command(environment).stdout.splitlines()
    assert " ".join(heading.split()) == "receiver delivered up to delivered waiting oldest dropped dead again"
    assert first.split()[:4] == [OTHER, "0", "0", "10"]
    assert first.split()[-3:] == ["0", "0", "0"]
    assert second.split()[:4] == [MARQUEZ, "6", "5", "4"]
    assert second.split()[-3:] == ["0", "1", "0"]


def test_programs_get_json_of_one_receiver(filled: Database, environment: dict[str, str]) -> None:
    found = json.loads(command(environment, MARQUEZ, "--json").stdout)
    assert (found["transport"], found["waiting"], found["dead"]) == (MARQUEZ, 4, 1)


def test_refused_events_are_listed_with_reasons_that_steer_no_terminal(
    filled: Database, environment: dict[str, str]
) -> None:
    _, line = command(environment, "--dead").stdout.splitlines()
    assert line.split()[2:4] == [MARQUEZ, "3"]
    assert "400 Bad Request: no" in line
    assert "\x1b" not in line
    assert json.loads(command(environment, "--dead", "--json").stdout)["body"] == event(2)
    assert command(environment, OTHER, "--dead", "--json").stdout == ""


def test_refused_events_are_retried_and_all_are_replayed(filled: Database, environment: dict[str, str]) -> None:
    assert command(environment, "--retry-dead").stdout == "to be tried once more as soon as a server runs: 1\n"
    assert "is tried again" in command(environment, "--dead").stdout
    assert "gets all events once more" in command(environment, MARQUEZ, "--replay").stdout
    found = json.loads(command(environment, MARQUEZ, "--json").stdout)
    assert (found["event_id"], found["waiting"], found["dead"], found["again"]) == (0, 10, 0, 1)


def test_receiver_is_forgotten_with_what_it_refused(filled: Database, environment: dict[str, str]) -> None:
    assert command(environment, MARQUEZ, "--forget").stdout == f"{MARQUEZ} is forgotten\n"
    assert len(command(environment).stdout.splitlines()) == 2
    assert command(environment, "--dead", "--json").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--replay"], "Name the receiver: --replay and --forget work on one"),
        (["http://b", "--replay"], f"Unknown receiver 'http://b': there is {OTHER}, {MARQUEZ}"),
        (["http://b", "--forget"], "Unknown receiver 'http://b'"),
        (["http://b"], "Unknown receiver 'http://b'"),
    ],
)
def test_what_cannot_be_is_one_line(
    filled: Database, environment: dict[str, str], arguments: list[str], said: str
) -> None:
    refused = command(environment, *arguments)
    assert refused.exit_code == 2
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
