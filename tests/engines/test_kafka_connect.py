"""Iceberg's sink for Kafka Connect makes, fills and widens tables, and has each message once, whoever is killed."""

import json
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog

from scripts.demo_job.server import RunningLake
from scripts.engines_job.kafka_connect import KafkaConnect, running_kafka_connect
from tests.support.documents import snippets
from tests.support.kafka import run_kafka, send_messages

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_kafka(tmp_path_factory.mktemp("kafka")) as found:
        yield found


@pytest.fixture
def worker(broker: str, tmp_path: Path) -> Iterator[KafkaConnect]:
    with running_kafka_connect(broker, tmp_path) as running:
        yield running


def add(worker: KafkaConnect, lake: RunningLake, topic: str, table: str) -> None:
    """Add the sink of docs/clients.md, for a lake in a folder."""
    [snippet] = [found for found in snippets("docs/clients.md") if found.name == "kafka_connect"]
    properties = dict(line.split("=", 1) for line in snippet.code.splitlines())
    ours = {key: value for key, value in properties.items() if not key.startswith("iceberg.catalog.")}
    catalog = {"type": "rest", "uri": lake.uri, **lake.backend.catalog}
    placed = {"topics": topic, "iceberg.tables": table, **{f"iceberg.catalog.{key}": catalog[key] for key in catalog}}
    worker.add(topic, ours | placed)


def send(broker: str, topic: str, records: list[dict[str, Any]]) -> None:
    send_messages(broker, topic, [json.dumps(record).encode() for record in records])


def test_the_sink_makes_a_table_appends_and_adds_columns(
    worker: KafkaConnect,
    broker: str,
    lake: RunningLake,
    catalog: Catalog,
    duck: duckdb.DuckDBPyConnection,
    namespace: str,
) -> None:
    table, topic = f"{namespace}.birds", f"birds_{namespace}"
    send(broker, topic, [{"id": 1, "name": "duck"}, {"id": 2, "name": "Kōkako"}])
    add(worker, lake, topic, table)
    worker.wait_for(topic, lambda: catalog.table_exists(table) and len(catalog.load_table(table).snapshots()) > 0)
    assert duck.sql(f"SELECT id, name FROM lake.{table} ORDER BY id").fetchall() == [(1, "duck"), (2, "Kōkako")]
    duck.execute(f"INSERT INTO lake.{table} (id, name) VALUES (3, 'by DuckDB')")
    send(broker, topic, [{"id": 4, "name": "ostrich", "legs": 2, "seen": {"year": 2026}}])
    worker.wait_for(topic, lambda: "seen" in duck.sql(f"FROM lake.{table} LIMIT 0").columns and count(duck, table) == 4)
    assert duck.sql(f"SELECT id, name, legs, seen.year FROM lake.{table} ORDER BY id").fetchall() == [
        (1, "duck", None, None),
        (2, "Kōkako", None, None),
        (3, "by DuckDB", None, None),
        (4, "ostrich", 2, 2026),
    ]


def test_each_message_is_there_once_whenever_the_worker_is_killed(
    worker: KafkaConnect,
    broker: str,
    lake: RunningLake,
    catalog: Catalog,
    duck: duckdb.DuckDBPyConnection,
    namespace: str,
) -> None:
    table, topic = f"{namespace}.events", f"events_{namespace}"
    duck.execute(f"CREATE TABLE lake.{table} (id BIGINT, sent DOUBLE)")
    seeded, sent = random.Random(3), 0
    for _ in range(2):
        add(worker, lake, topic, table)
        sent += send_events(broker, topic, sent)
        worker.wait_for(topic, partial(has_more, duck, table, count(duck, table)))
        for _ in range(3):  # what is on its way when the worker ends
            sent += send_events(broker, topic, sent)
            time.sleep(seeded.uniform(0, 0.8))
        worker.kill()
        worker.start()
    add(worker, lake, topic, table)
    worker.wait_for(topic, partial(has_more, duck, table, sent - 1))
    time.sleep(5)  # more commits, which would bring what is written twice
    assert duck.sql(f"SELECT count(*), count(DISTINCT id), min(id), max(id) FROM lake.{table}").fetchall() == [
        (sent, sent, 0, sent - 1)
    ]


def send_events(broker: str, topic: str, first: int) -> int:
    """Send some events with numbers from `first` on; return how many."""
    send(broker, topic, [{"id": first + number, "sent": time.time()} for number in range(500)])
    return 500


def has_more(duck: duckdb.DuckDBPyConnection, table: str, before: int) -> bool:
    return count(duck, table) > before


def count(duck: duckdb.DuckDBPyConnection, table: str) -> int:
    [(found,)] = duck.sql(f"SELECT count(*) FROM lake.{table}").fetchall()
    return int(found)
