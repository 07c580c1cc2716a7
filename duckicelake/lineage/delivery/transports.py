"""Send events by OpenLineage's transports, to Kafka, files and HTTP."""

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import requests
import urllib3
from openlineage.client.client import Event as ClientEvent
from openlineage.client.serde import Serde
from openlineage.client.transport.console import ConsoleConfig, ConsoleTransport
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpCompression, HttpConfig, HttpTransport
from openlineage.client.transport.kafka import KafkaConfig, KafkaTransport

from duckicelake.errors import InvalidSettingsError
from duckicelake.lineage.delivery.receivers import (
    ConsoleReceiver,
    DeliveryFailure,
    Event,
    FileReceiver,
    HttpReceiver,
    KafkaReceiver,
    LineageOutlet,
    Receiver,
)
from duckicelake.rest.retry import parse_retry_after

_IS_INSTALLED: Final = find_spec("confluent_kafka") is not None
if TYPE_CHECKING or _IS_INSTALLED:
    from confluent_kafka import KafkaError, KafkaException

_CLIENT_LOG: Final = logging.getLogger(__name__)
"""The client's own log, which is disabled: each failure has the facts."""
_CLIENT_LOG.addHandler(logging.NullHandler())
_CLIENT_LOG.propagate = False
_MILLISECONDS: Final = 5000
"""Milliseconds after which the client gives up an unacknowledged message."""
_DEFAULTS: Final[Mapping[str, Any]] = {
    "acks": "all",
    "enable.idempotence": "true",
    "linger.ms": "0",
    "message.timeout.ms": str(_MILLISECONDS),
    "client.id": "duckicelake",
    "logger": _CLIENT_LOG,
}
_REFUSED: Final = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_MSG", "INVALID_MSG_SIZE", "INVALID_RECORD"})
"""Faults of a message that no broker will ever accept."""


class KafkaOutlet:
    """Sends events to Kafka. InvalidSettingsError: the client isn't installed, or doesn't know a setting."""

    def __init__(self, receiver: KafkaReceiver) -> None:
        self.name = receiver.name
        if not _IS_INSTALLED:
            raise InvalidSettingsError(
                f"lineage_transports has {receiver.name}, and Kafka's client isn't installed: "
                "pip install 'duckicelake[kafka]'"
            )
        try:
            self._transport = _Transport(receiver)
            self._transport.close()  # opened again when needed: only one of several workers sends
        except KafkaException as error:
            raise InvalidSettingsError(f"{receiver.name} can't be used: {_read_text(error.args[0])}") from error

    def send(self, event: Event) -> DeliveryFailure | None:
        return self._transport.send_and_wait(event)

    def settle(self) -> None:
        pass

    def close(self) -> None:
        self._transport.close(timeout=0)


class _Transport(KafkaTransport):
    """OpenLineage's transport for Kafka, which waits for delivery reports and takes dicts.

    OpenLineage's own only logs the reports, and has keys for its classes alone.
    """

    def __init__(self, receiver: KafkaReceiver) -> None:
        self._trouble = ""
        config = {**_DEFAULTS, "error_cb": self._hear, **receiver.config}
        super().__init__(KafkaConfig(config, receiver.topic, flush=False))

    def _hear(self, error: object) -> None:
        self._trouble = _read_text(error)

    def send_and_wait(self, event: Event) -> DeliveryFailure | None:
        """Send an event, and wait for the brokers' report."""
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
        self.producer = None  # drops its unsent messages
        kind: Literal["refused", "away"] = "refused" if _read_name(wrong) in _REFUSED else "away"
        return DeliveryFailure(kind, f"{_read_text(wrong)} ({self._trouble})" if self._trouble else _read_text(wrong))


def find_partition_key(event: Event) -> str:
    """Find the partition key, by OpenLineage's rules.

    Runs of one job, or of one parent, stay in order.
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


_ONCE: Final = {"total": 0, "connect": 0, "read": 0, "status_forcelist": []}
_AWAY: Final = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses of a receiver that accepts nothing now. With others from 500 on, it may accept another event."""
_ANSWER_BYTES: Final = 65536
_EXCERPT: Final = 300


def open_outlet(receiver: Receiver) -> LineageOutlet:
    """Open an outlet; InvalidSettingsError: it can't be used."""
    match receiver:
        case HttpReceiver():
            return _HttpOutlet(receiver)
        case FileReceiver():
            return _FileOutlet(receiver)
        case ConsoleReceiver():
            return _ConsoleOutlet(receiver)
        case KafkaReceiver():
            return KafkaOutlet(receiver)


def convert_event(event: Event) -> ClientEvent:
    """Convert an event for the client's transports, which also take dicts, and write the same."""
    return cast("ClientEvent", dict(event))


class _Session(requests.Session):
    """An HTTP session without redirects and .netrc.

    After a redirect requests would send a GET, whose answer would look like a delivery.
    """

    def __init__(self) -> None:
        super().__init__()
        self.auth = _keep_request
        self.answer = b""

    def get_redirect_target(self, _: requests.Response) -> None:
        return None

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send the request, and read part of the body for some time: the status decides."""
        self.answer = b""
        deadline = monotonic() + options["timeout"]
        response = super().send(request, **{**options, "stream": True})
        with suppress(requests.RequestException, urllib3.exceptions.HTTPError, OSError):
            for piece in response.iter_content(8192):
                self.answer += piece
                if len(self.answer) >= _ANSWER_BYTES or monotonic() > deadline:
                    break
        return response


def _keep_request(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


class _HttpOutlet:
    def __init__(self, receiver: HttpReceiver) -> None:
        self.name = receiver.name
        self._key = receiver.api_key
        self._session = _Session()
        scheme, _, rest = receiver.url.partition("://")
        host, _, path = rest.partition("/")
        config = HttpConfig(
            url=f"{scheme}://{host}",
            endpoint=f"/{path}",
            timeout=receiver.timeout,
            compression=HttpCompression.GZIP if receiver.is_compressed else None,
            session=self._session,
            custom_headers={"User-Agent": "duckicelake"},
            retry=_ONCE,
        )
        if self._key is not None:
            config.auth = ApiKeyTokenProvider({"api_key": self._key})
        self._transport = HttpTransport(config)

    def send(self, event: Event) -> DeliveryFailure | None:
        try:
            answer = self._transport.emit(convert_event(event))
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            if not isinstance(error, requests.HTTPError) or error.response is None:
                return DeliveryFailure("away", self._mask(_find_cause(error)))
            answer = error.response
        if 200 <= answer.status_code < 300:
            return None
        return self._failure(answer)

    def settle(self) -> None:
        pass

    def close(self) -> None:
        self._transport.close()

    def _failure(self, answer: requests.Response) -> DeliveryFailure:
        status = answer.status_code
        said = self._session.answer.decode(errors="replace")
        if 300 <= status < 400:
            said = f"it is at {answer.headers.get('Location')}; set that"
        reason = self._mask(f"{status} {answer.reason or ''}: {said}" if said else f"{status} {answer.reason or ''}")
        if status in _AWAY or status < 400:
            return DeliveryFailure("away", reason, status, parse_retry_after(answer.headers.get("Retry-After")))
        return DeliveryFailure("refused" if status < 500 else "later", reason, status)

    def _mask(self, text: str) -> str:
        """Shorten a text to one line, without the key, which a receiver may repeat."""
        text = " ".join("".join(character if character.isprintable() else " " for character in text).split())
        return (text.replace(self._key, "…") if self._key else text)[:_EXCERPT].strip()


def _find_cause(error: BaseException) -> str:
    """Find the innermost cause of an error that libraries have wrapped."""
    while error.args and isinstance(error.args[-1], BaseException):
        error = error.args[-1]
    inner = getattr(error, "reason", None)
    return str(inner if isinstance(inner, BaseException) else error) or type(error).__name__


class _FileOutlet:
    """Writes whole lines of JSON. A partly written line is removed again, or ended by the next writer."""

    def __init__(self, receiver: FileReceiver) -> None:
        self.name = receiver.name
        self._path = receiver.path
        self._transport = FileTransport(FileConfig(str(receiver.path), append=True))
        try:
            _end_line(self._path)
        except OSError as error:
            raise InvalidSettingsError(f"lineage_transports: {self.name} can't be written: {error}") from error

    def send(self, event: Event) -> DeliveryFailure | None:
        try:
            size = self._path.stat().st_size if self._path.exists() else 0
        except OSError as error:
            return DeliveryFailure("away", str(error))
        try:
            self._transport.emit(convert_event(event))
        except RuntimeError as error:
            with suppress(OSError):
                os.truncate(self._path, size)
            return DeliveryFailure("away", str(error))
        return None

    def settle(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)  # it may have been moved away
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        pass


def _end_line(path: Path) -> None:
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")


class _Lines(logging.StreamHandler[Any]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - logging's name
        """Raise errors that logging would print and ignore."""
        raise  # noqa: PLE0704 - logging calls this where it handles one


class _ConsoleOutlet:
    """OpenLineage's console outlet, which is a logger. This one writes only the events, to standard output."""

    def __init__(self, receiver: ConsoleReceiver) -> None:
        self.name = receiver.name
        self._transport = ConsoleTransport(ConsoleConfig())
        logger = logging.getLogger(ConsoleTransport.__module__)
        logger.handlers = [_Lines(sys.stdout)]
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def send(self, event: Event) -> DeliveryFailure | None:
        try:
            self._transport.emit(convert_event(event))
        except (OSError, ValueError) as error:  # ValueError: it is closed
            return DeliveryFailure("away", str(error))
        return None

    def settle(self) -> None:
        pass

    def close(self) -> None:
        pass
