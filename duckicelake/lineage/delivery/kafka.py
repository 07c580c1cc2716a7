"""Deliver to Kafka. Its client is an optional extra, `duckicelake[kafka]`."""

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from openlineage.client.serde import Serde
from openlineage.client.transport.kafka import KafkaConfig, KafkaTransport

from duckicelake.errors import InvalidSettingsError
from duckicelake.lineage.delivery.receivers import DeliveryFailure, Event, KafkaReceiver

_IS_INSTALLED: Final = find_spec("confluent_kafka") is not None
if TYPE_CHECKING or _IS_INSTALLED:
    from confluent_kafka import KafkaError, KafkaException

_CLIENT_LOG: Final = logging.getLogger(__name__)
"""The client's own log, which stays silent: each failure carries what matters."""
_CLIENT_LOG.addHandler(logging.NullHandler())
_CLIENT_LOG.propagate = False
_MILLISECONDS: Final = 5000
"""After which the client gives up a message that no broker has acknowledged."""
_DEFAULTS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": "true",
    "linger.ms": "0",
    "message.timeout.ms": str(_MILLISECONDS),
    "client.id": "duckicelake",
    "logger": _CLIENT_LOG,
}
_REFUSED: Final = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD"})
"""What is wrong with a message that no broker will ever take."""


class KafkaOutlet:
    """Raises InvalidSettingsError if the client isn't installed, or doesn't know a setting."""

    def __init__(self, receiver: KafkaReceiver) -> None:
        self.name = receiver.name
        if not _IS_INSTALLED:
            raise InvalidSettingsError(
                f"lineage_transports has {receiver.name}, and Kafka's client isn't installed: "
                "pip install 'duckicelake[kafka]'"
            )
        try:
            self._transport = _Transport(receiver)
            self._transport.close()  # until it is needed: of several workers only one sends
        except KafkaException as error:
            raise InvalidSettingsError(f"{receiver.name} can't be used: {_read_text(error.args[0])}") from error

    def send(self, event: Event) -> DeliveryFailure | None:
        return self._transport.send_and_wait(event)

    def settle(self) -> None:
        pass

    def close(self) -> None:
        self._transport.close(timeout=0)


class _Transport(KafkaTransport):
    """OpenLineage's logs what brokers say, and has keys for its own classes only; this one listens, and takes dicts."""

    def __init__(self, receiver: KafkaReceiver) -> None:
        self._trouble = ""
        config = {**_DEFAULTS, "error_cb": self._hear, **receiver.config}
        super().__init__(KafkaConfig(config, receiver.topic, flush=False))

    def _hear(self, error: object) -> None:
        self._trouble = _read_text(error)

    def send_and_wait(self, event: Event) -> DeliveryFailure | None:
        """Wait for the brokers' word."""
        if self.producer is None:
            self._setup_producer(self.kafka_config.config)
        assert self.producer is not None
        said: list[Any] = []
        try:
            value = Serde.to_json(event).encode()
            self.producer.produce(
                self.topic, value, find_partition_key(event), on_delivery=lambda wrong, _: said.append(wrong)
            )
            self.producer.flush(2 * _MILLISECONDS / 1000)
        except (KafkaException, BufferError) as error:
            said = [error.args[0]]
        wrong = said[0] if said else "no broker has answered"
        if wrong is None:
            self._trouble = ""
            return None
        self.producer = None  # with what it may still want to send
        kind: Literal["refused", "away"] = "refused" if _read_name(wrong) in _REFUSED else "away"
        return DeliveryFailure(kind, f"{_read_text(wrong)} ({self._trouble})" if self._trouble else _read_text(wrong))


def find_partition_key(event: Event) -> str:
    """Return what decides about the partition, by OpenLineage's rules.

    Runs of one job, or of one parent's, stay in order.
    """
    if event.get("dataset"):
        return f"dataset:{_format_key(event['dataset'])}"
    if not event.get("run"):
        return f"job:{_format_key(event['job'])}"
    parent = (event["run"].get("facets") or {}).get("parent") or {}
    root = parent.get("root") or parent
    return f"run:{_format_key(root.get('job') or event['job'])}"


def _format_key(thing: Mapping[str, Any]) -> str:
    return f"{thing.get('namespace')}/{thing.get('name')}"


def _read_name(error: object) -> str:
    return error.name() if isinstance(error, KafkaError) else ""


def _read_text(error: object) -> str:
    return str(error.str()) if isinstance(error, KafkaError) else str(error)
