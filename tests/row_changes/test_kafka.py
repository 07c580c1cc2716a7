"""Row changes are delivered to a real broker of Kafka exactly once, whoever is killed in the middle."""

import json
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.row_changes.conftest import Changes
from tests.row_changes.killed_follower import KAFKA_STEPS
from tests.support.change_sinks import deliver, follow_and_kill, following, list_arguments, make_history, start
from tests.support.kafka import count_messages, read_topic, run_kafka

pytestmark = [pytest.mark.spark, pytest.mark.more_engines, pytest.mark.timeout(600)]


@pytest.fixture
def history(changes: Changes) -> Changes:
    return make_history(changes)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_kafka(tmp_path_factory.mktemp("kafka")) as found:
        yield found


def test_kafka_has_each_change_once_whoever_is_killed(history: Changes, broker: str) -> None:
    arguments = list_arguments(history, f"kafka://{broker}/killed", None)
    follow_and_kill(arguments, history, lambda: count_messages(broker, "killed"), random.Random(2))
    assert start(arguments).wait(120) == 0
    messages = read_topic(broker, "killed")
    found = sorted((json.loads(message.value()) for message in messages), key=_find_order)
    assert found == sorted(history.read()[0], key=_find_order)
    for message in messages:
        assert message.key() == str(json.loads(message.value())["_changed_row_id"]).encode()
        assert [name for name, _ in message.headers()] == ["duckicelake-position"]


@pytest.mark.parametrize("step", KAFKA_STEPS)
def test_each_step_of_a_killed_transaction_is_made_good(history: Changes, broker: str, step: str) -> None:
    """Rows and position are committed together: each row is there once."""
    topic = step.replace(" ", "-")
    arguments = list_arguments(history, f"kafka://{broker}/{topic}", None)
    with following(arguments, killed_at=step) as process:
        while process.poll() is None and count_messages(broker, topic) == 0:
            time.sleep(0.1)
        history.duck.execute("INSERT INTO t SELECT i, 'more' FROM range(1000, 1040) r(i)")
        assert process.wait(120) == -9
    assert start(arguments).wait(120) == 0
    found = sorted((json.loads(message.value()) for message in read_topic(broker, topic)), key=_find_order)
    assert found == sorted(history.read()[0], key=_find_order)


def test_a_second_run_into_the_topic_ends_the_first(history: Changes, broker: str) -> None:
    arguments = list_arguments(history, f"kafka://{broker}/fenced", None)
    with following(arguments) as first:
        while count_messages(broker, "fenced") == 0:
            assert first.poll() is None
            time.sleep(0.1)
        assert start(arguments).wait(120) == 0
        history.duck.execute("INSERT INTO t VALUES (8, 'eight')")
        assert first.wait(120) == 6
    assert start(arguments).wait(120) == 0
    assert len(read_topic(broker, "fenced")) == len(history.read()[0])


def test_brokers_that_are_away_are_named(history: Changes) -> None:
    result = deliver(history, "kafka://127.0.0.1:1/t", None, "--retry-seconds", "1")
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output
    assert len(result.output.splitlines()) == 1


def _find_order(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["_commit_snapshot_id"], row["_changed_row_id"], row["_change_type"] == "UPDATE_AFTER"
