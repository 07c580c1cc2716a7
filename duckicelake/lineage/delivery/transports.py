"""Deliver to HTTP, files and the console: one try for each event, with what came of it."""

import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast

import requests
import urllib3
from openlineage.client.client import Event as ClientEvent
from openlineage.client.transport.console import ConsoleConfig, ConsoleTransport
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpCompression, HttpConfig, HttpTransport

from duckicelake.errors import InvalidSettingsError
from duckicelake.lineage.delivery.kafka import KafkaOutlet
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

_ONCE: Final = {"total": 0, "connect": 0, "read": 0, "status_forcelist": []}
_AWAY: Final = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses of a receiver that takes nothing now; of the others from 500 on, another event may be taken."""
_ANSWER_BYTES: Final = 65536
_EXCERPT: Final = 300


def open_outlet(receiver: Receiver) -> LineageOutlet:
    """Open an outlet; InvalidSettingsError if it can't be used at all."""
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
    """Return the client's transports take dicts as well as its classes, and write the same."""
    return cast("ClientEvent", dict(event))


class _Session(requests.Session):
    """Leaves redirects alone: requests makes a GET of a POST, whose answer would look like a delivery. No .netrc."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _keep_request
        self.answer = b""

    def get_redirect_target(self, _: requests.Response) -> None:
        return None

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send the request, and read some of the body, for a while: the status decides, so a slow body can't block."""
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
            return DeliveryFailure("away", reason, status, _parse_retry_after(answer.headers.get("Retry-After")))
        return DeliveryFailure("refused" if status < 500 else "later", reason, status)

    def _mask(self, text: str) -> str:
        """Return some of a text, on one line, without the key, which a receiver may repeat."""
        text = " ".join("".join(character if character.isprintable() else " " for character in text).split())
        return (text.replace(self._key, "…") if self._key else text)[:_EXCERPT].strip()


def _find_cause(error: BaseException) -> str:
    """Return what happened, past the layers of libraries that wrapped it."""
    while error.args and isinstance(error.args[-1], BaseException):
        error = error.args[-1]
    inner = getattr(error, "reason", None)
    return str(inner if isinstance(inner, BaseException) else error) or type(error).__name__


def _parse_retry_after(retry_after: str | None) -> float | None:
    """Return how long to wait by a header: seconds, or a date."""
    if retry_after is None:
        return None
    with suppress(ValueError, OverflowError):
        if retry_after.strip().isdigit():
            return float(retry_after)
        moment = parsedate_to_datetime(retry_after)
        return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    return None


class _FileOutlet:
    """Lines of JSON, each whole: what was written of one in vain is taken away again, or ended by who comes next."""

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
        """Raise what else would be printed and forgotten."""
        raise  # noqa: PLE0704 - logging calls this where it handles one


class _ConsoleOutlet:
    """OpenLineage's console is a logger; here it writes the events, and nothing else, to standard output."""

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
