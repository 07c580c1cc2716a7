"""Deliver row changes to a topic of Kafka exactly once: rows and position are in one transaction.

The position is the metadata of an offset that the transaction commits for a consumer group of the table's own. So Kafka
has the rows and the position, or neither, whenever a run is killed. A run begins by fencing off the one before it.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from duckicelake.errors import BadInputError, DeliveryError, JobConflictError, MissingExtraError
from duckicelake.extras import DeferredModule
from duckicelake.rest.retry import RetryPolicy
from duckicelake.row_changes.position import find_position
from duckicelake.row_changes.sinks import FollowedTable, SinkOptions

confluent_kafka: Any = DeferredModule("confluent_kafka")

MAX_TRANSACTION_ROWS: Final = 10_000
_TRANSACTION_MILLISECONDS: Final = 600_000
"""For which brokers may be away in the middle of a transaction. The next run ends one that a killed run has left."""
_MAX_ASK_SECONDS: Final = 30.0
_FLUSH_ROWS: Final = 1_000
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CLIENT_LOG: Final = logging.getLogger(__name__)
"""The client's own log, which is disabled: each error has the facts."""
_CLIENT_LOG.addHandler(logging.NullHandler())
_CLIENT_LOG.propagate = False
_CONFLICTS: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "FENCED_INSTANCE_ID"})
_HOPELESS: Final = frozenset(
    {
        *("MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"),
        *("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "TOPIC_EXCEPTION"),
        *("CLUSTER_AUTHORIZATION_FAILED", "UNSUPPORTED_VERSION", "INVALID_TRANSACTION_TIMEOUT", "INVALID_CONFIG"),
        *("_INVALID_ARG", "_UNKNOWN_PARTITION"),
    }
)
"""Errors that waiting doesn't end."""


class KafkaSink:
    """Writes rows to a topic; the position is in the transaction of the rows before it."""

    def __init__(self, options: SinkOptions) -> None:
        self._url = str(options.url)
        self._brokers, self._topic = _parse_url(self._url)
        self._key, self._state = options.key, options.state
        name = f"duckicelake.{options.table}.{self._topic}"
        self._config = {
            "bootstrap.servers": self._brokers,
            "client.id": "duckicelake",
            "group.id": name,
            "transactional.id": name,
            "transaction.timeout.ms": str(_TRANSACTION_MILLISECONDS),
            **_parse_settings(options.kafka),
        }
        self._retry_seconds = options.retry_seconds
        self._ask_seconds = min(_MAX_ASK_SECONDS, max(1.0, options.retry_seconds))
        self._is_in_transaction = False
        self._rows = 0
        self._kept: str | None = None
        self._trouble = ""
        self._producer: Any = None

    def connect(self) -> None:
        """Connect, and end an earlier run. Raises BadInputError, DeliveryError, JobConflictError."""
        retry = RetryPolicy(self._retry_seconds)
        while True:
            try:
                self._producer = confluent_kafka.Producer(self._build_config(("group.id",), linger__ms="20"))
                self._producer.init_transactions(self._ask_seconds)
            except confluent_kafka.KafkaException as error:
                pause = None if _is_final(error) else retry.pause()
                if pause is None:
                    raise self._explain(error) from error
                time.sleep(pause)
            else:
                return

    def find_place(self) -> FollowedTable:
        """Find where to go on: Kafka's position; a file of state has it, too, after Kafka has forgotten its own."""
        consumer = confluent_kafka.Consumer(
            self._build_config(("transactional.id",), isolation__level="read_committed")
        )
        try:
            (found,) = consumer.committed([confluent_kafka.TopicPartition(self._topic, 0)], self._ask_seconds)
        except confluent_kafka.KafkaException as error:
            raise self._explain(error) from error
        finally:
            consumer.close()
        if found.offset < 0 or not found.metadata:
            return FollowedTable() if self._state is None else self._state.read()
        try:
            kept = json.loads(found.metadata)
            place = FollowedTable(str(kept["table-uuid"]), str(kept["position"]))
        except (ValueError, KeyError, TypeError):
            place = FollowedTable()
        if find_position(place.position or "") is None:
            raise BadInputError(
                f"Group {self._config['group.id']} of {self._url} is another program's: name one by --kafka group.id=…"
            )
        self._kept = place.position
        return place

    def take(self, line: bytes, row: Mapping[str, Any], place: FollowedTable) -> None:
        """Send a row; so many are a transaction. Raises BadInputError for one without a key."""
        key = self._find_key(row)
        self._begin()
        headers = [("duckicelake-position", str(place.position).encode())]
        value = line.rstrip(b"\n")
        try:
            while True:
                try:
                    self._producer.produce(self._topic, value, key, headers=headers)
                    break
                except BufferError:
                    self._producer.poll(1.0)
        except confluent_kafka.KafkaException as error:
            raise self._explain(error) from error
        self._rows += 1
        if self._rows % _FLUSH_ROWS == 0:
            self._producer.poll(0)
        if self._rows == MAX_TRANSACTION_ROWS:
            self.keep(place)

    def keep(self, place: FollowedTable) -> None:
        """Commit the rows with the position behind them."""
        position = place.change
        if position is None or place.position == self._kept:
            return
        self._begin()
        metadata = json.dumps({"table-uuid": place.table_uuid, "position": place.position})
        offset = confluent_kafka.TopicPartition(self._topic, 0, position.snapshot_id, metadata)
        consumer = confluent_kafka.Consumer(self._build_config(("transactional.id",)))
        try:
            group = consumer.consumer_group_metadata()
            self._repeat(lambda: self._producer.send_offsets_to_transaction([offset], group, self._ask_seconds))
            self._commit()
        finally:
            consumer.close()
        self._is_in_transaction, self._rows, self._kept = False, 0, place.position
        if self._state is not None:
            self._state.write(place)

    def close(self) -> None:
        """Give up rows without a position; the next run begins before them."""
        if self._is_in_transaction:
            with suppress(confluent_kafka.KafkaException):
                self._producer.purge()
                self._producer.abort_transaction(self._ask_seconds)

    def _begin(self) -> None:
        if not self._is_in_transaction:
            self._repeat(self._producer.begin_transaction)
            self._is_in_transaction = True

    def _commit(self) -> None:
        """Commit the transaction."""
        self._repeat(lambda: self._producer.commit_transaction(self._ask_seconds))

    def _repeat(self, act: Any) -> None:
        """Repeat a step of the transaction while the client says that it may be. Raises DeliveryError."""
        retry = RetryPolicy(self._retry_seconds)
        while True:
            try:
                act()
            except confluent_kafka.KafkaException as error:
                pause = retry.pause() if error.args[0].retriable() else None
                if pause is None:
                    raise self._explain(error) from error
                time.sleep(pause)
            else:
                return

    def _find_key(self, row: Mapping[str, Any]) -> bytes:
        """Find the key of a row: its changes come to one partition, in order. Raises BadInputError for one without."""
        left_out = [name for name in self._key if name not in row]
        if left_out:
            raise BadInputError(f"A message's key is that of --key: --columns leaves {', '.join(left_out)} out")
        if self._key:
            return json.dumps([row[name] for name in self._key]).encode()
        if row["_changed_row_id"] is None:
            raise BadInputError("A policy hides the row ids of the table, which are the messages' keys: name --key")
        return str(row["_changed_row_id"]).encode()

    def _build_config(self, left_out: tuple[str, ...], **more: str) -> dict[str, Any]:
        given = {name: value for name, value in self._config.items() if name not in left_out}
        own = {name.replace("__", "."): value for name, value in more.items()}
        return {"logger": _CLIENT_LOG, "error_cb": self._note, **own, **given}

    def _note(self, error: Any) -> None:
        self._trouble = str(error.str())

    def _explain(self, error: Any) -> Exception:
        """Explain an error of the client, without its settings."""
        found = error.args[0]
        name, text = found.name(), found.str()
        if name in _CONFLICTS:
            return JobConflictError(f"Another run has taken over {self._config['transactional.id']} of {self._url}")
        why = f"{text} ({self._trouble})" if self._trouble and self._trouble != text else text
        if name in {"_INVALID_ARG", "INVALID_CONFIG"}:
            return BadInputError(f"{self._url} can't be used: {why}")
        return DeliveryError(f"{self._url} hasn't taken the changes: {why}; the next run goes on where its position is")


@contextmanager
def open_kafka_sink(options: SinkOptions) -> Iterator[KafkaSink]:
    """Open a topic for the block. Raises MissingExtraError."""
    if find_spec("confluent_kafka") is None:
        raise MissingExtraError("Topics of Kafka need confluent_kafka: pip install 'duckicelake[kafka]'")
    sink = KafkaSink(options)
    sink.connect()
    try:
        yield sink
    finally:
        sink.close()


def _is_final(error: Any) -> bool:
    return error.args[0].name() in _HOPELESS | _CONFLICTS


def _parse_url(url: str) -> tuple[str, str]:
    """Parse kafka://broker:9092,broker2:9092/topic. Raises BadInputError."""
    parts = urlsplit(url)
    topic = parts.path.removeprefix("/")
    if not parts.netloc or "@" in parts.netloc or not _TOPIC.fullmatch(topic) or parts.query or parts.fragment:
        raise BadInputError(f"Invalid sink {url!r}: expected kafka://<broker>:<port>,<broker2>:<port>/<topic>")
    return parts.netloc.replace(";", ","), topic


def _parse_settings(text: str | None) -> dict[str, str]:
    """Parse librdkafka's settings. Raises BadInputError, without their values."""
    pairs = [pair.strip().partition("=") for pair in (text or "").split(",") if pair.strip()]
    if not all(name and value for name, _, value in pairs):
        raise BadInputError("Invalid --kafka: expected <name>=<value>,<name2>=<value2> with librdkafka's settings")
    return {name.strip(): value.strip() for name, _, value in pairs}
