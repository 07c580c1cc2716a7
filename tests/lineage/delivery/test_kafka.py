"""Events go to Kafka by its own client, to brokers that the client brings for tests: they speak the real protocol."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from duckicelake.errors import InvalidSettingsError
from duckicelake.lineage.delivery.receivers import LineageOutlet, parse_receivers
from duckicelake.lineage.delivery.transports import find_partition_key, open_outlet
from tests.support.lineage_events import dataset_event, event, facet, job_event, table

confluent_kafka = pytest.importorskip("confluent_kafka", reason="the extra `kafka` isn't installed")
TOPIC = "lineage"


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    cluster = confluent_kafka.Producer({"test.mock.num.brokers": "1", "log_level": "0"})
    found = cluster.list_topics(timeout=10).brokers.values()
    yield ";".join(f"{broker.host}:{broker.port}" for broker in found)
    cluster.flush(0)


def outlet(brokers: str, settings: str | None = None) -> LineageOutlet:
    (receiver,) = parse_receivers([f"kafka://{brokers}/{TOPIC}"], kafka=settings)
    return open_outlet(receiver)


def consumed(brokers: str, count: int) -> list[Any]:
    settings = {"bootstrap.servers": brokers.replace(";", ","), "group.id": "tests", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    partitions = consumer.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, 0) for partition in partitions])
    found: list[Any] = []
    deadline = time.monotonic() + 20
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    consumer.close()
    return found


def test_events_arrive_in_order_with_keys_of_their_jobs(brokers: str) -> None:
    found, sent = outlet(brokers), [event(number) for number in range(5)]
    assert [found.send(each) for each in sent] == [None] * 5
    messages = consumed(brokers, 5)
    assert [json.loads(message.value()) for message in messages] == sent
    assert {message.key() for message in messages} == {b"run:tests/job"}
    found.close()


def test_too_large_an_event_is_refused_and_the_next_is_taken(brokers: str) -> None:
    found = outlet(brokers, "message.max.bytes=2000")
    failure = found.send(event(1, job="j" * 3000))
    assert failure is not None
    assert (failure.kind, "too large" in failure.reason) == ("refused", True)
    assert found.send(event(2)) is None
    found.close()


def test_no_one_there_is_away_and_says_why() -> None:
    failure = outlet("127.0.0.1:1", "message.timeout.ms=500").send(event(1))
    assert failure is not None
    assert (failure.kind, "refused" in failure.reason) == ("away", True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("sasl.usr=me", r'kafka://127\.0\.0\.1:1/lineage can\'t be used: No such configuration property: "sasl\.usr"'),
        ("acks=1,sasl.password=geheim", "`acks` must be set to `all`"),
    ],
)
def test_settings_that_cannot_be_are_refused_at_once(settings: str, said: str) -> None:
    with pytest.raises(InvalidSettingsError, match=said) as caught:
        outlet("127.0.0.1:1", settings)
    assert "geheim" not in str(caught.value)


def test_keys_follow_openlineages_rule() -> None:
    parent = facet(run={"runId": "p"}, job={"namespace": "n", "name": "parent"})
    root = {**parent, "root": {"run": {"runId": "r"}, "job": {"namespace": "n", "name": "root"}}}
    report = [event(1), event(1, parent=parent), event(1, parent=root), dataset_event(1, table("a")), job_event(1, "j")]
    assert [find_partition_key(each) for each in report] == [
        "run:tests/job",
        "run:n/parent",
        "run:n/root",
        "dataset:file//lake/a",
        "job:tests/j",
    ]
