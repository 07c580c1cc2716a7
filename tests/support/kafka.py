"""A broker of Kafka in KRaft mode, on a folder of its own."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.backends_job.processes import free_port
from scripts.engines_job.packages import kafka_jars
from tests.support.waits import wait_until

confluent_kafka = pytest.importorskip("confluent_kafka", reason="the extra `kafka` isn't installed")
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
log.dirs={folder}/logs
num.partitions=3
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
_NO_LEADER = frozenset({"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART"})


@contextmanager
def run_kafka(folder: Path) -> Iterator[str]:
    """Run a broker in the block, and yield its host and port."""
    broker = controller = free_port()
    while controller == broker:
        controller = free_port()
    settings = folder / "server.properties"
    settings.write_text(SETTINGS.format(broker=broker, controller=controller, folder=folder))
    java = [str(shutil.which("java")), "-Xmx256m", "-cp", f"{kafka_jars()}/*"]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(settings)],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    log = folder / "kafka.log"
    with (
        log.open("wb") as said,
        subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=said, stderr=said, cwd=folder) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None or _answers(broker), seconds=180)
            assert process.poll() is None, log.read_text()
            yield f"127.0.0.1:{broker}"
        finally:
            process.kill()


def send_messages(broker: str, topic: str, messages: Sequence[bytes]) -> None:
    """Send messages to the partitions of a topic in turn."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker, "acks": "all"})
    for number, message in enumerate(messages):
        producer.produce(topic, message, key=str(number).encode())
        producer.poll(0)
    assert producer.flush(60) == 0


def read_topic(broker: str, topic: str) -> list[Any]:
    """Read all committed messages of a topic, partition by partition."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": "tests",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in partitions])
    found, ended = [], set[int]()
    while len(ended) < len(partitions):
        message = consumer.poll(60)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            ended.add(message.partition())
    consumer.close()
    return found


def count_messages(broker: str, topic: str) -> int:
    """Count what a topic has, whether it is committed or not."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker, "group.id": "count"})
    try:
        known = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        ends = [_find_end(consumer, confluent_kafka.TopicPartition(topic, one)) for one in known]
    finally:
        consumer.close()
    return sum(ends)


def _find_end(consumer: Any, partition: Any) -> int:
    """Find where a partition ends; one of a topic that has just been made may have no leader yet."""
    ends = time.monotonic() + 60
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, 60)[1])
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() not in _NO_LEADER or time.monotonic() > ends:
                raise
        time.sleep(0.1)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
