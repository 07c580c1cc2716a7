"""PURE. Receivers of lineage events as settings name them, and the outlet protocol."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol
from urllib.parse import SplitResult, parse_qsl, urlsplit

from duckicelake.errors import InvalidSettingsError

Event = Mapping[str, Any]
ENDPOINT: Final = "/api/v1/lineage"
"""The path at which OpenLineage's receivers, such as Marquez, accept events."""
TIMEOUT_SECONDS: Final = 5.0
_EXAMPLES: Final = (
    "write https://<host>[:<port>][/<path>], file:///<path>, console or kafka://<broker>:<port>/<topic>, "
    "several with commas between them"
)
_KEY: Final = re.compile(r"[\x21-\x7e]+")
_TOPIC: Final = re.compile(r"/[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class DeliveryFailure:
    """The failure of a delivery. kind: refused (for ever), later (it may succeed), away (nothing is taken now).

    reason: without secrets. status: HTTP's. wait: seconds that the receiver asks for.
    """

    kind: Literal["refused", "later", "away"]
    reason: str
    status: int | None = None
    wait: float | None = None


class LineageOutlet(Protocol):
    """Sends events to a receiver, in one thread. It tries once, for a few seconds at most."""

    name: str

    def send(self, event: Event) -> DeliveryFailure | None:
        """Deliver the event; None if the receiver has it."""

    def settle(self) -> None:
        """Make sure that delivered events survive a crash; OSError."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class HttpReceiver:
    """A receiver by http. name: for messages and settings."""

    name: str
    host: str
    url: str
    timeout: float = TIMEOUT_SECONDS
    is_compressed: bool = False
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class FileReceiver:
    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class ConsoleReceiver:
    name: str = "console"


@dataclass(frozen=True, slots=True)
class KafkaReceiver:
    """A Kafka topic. config: librdkafka's settings, with `bootstrap.servers`."""

    name: str
    topic: str
    config: Mapping[str, str] = field(default_factory=dict, repr=False)


Receiver = HttpReceiver | FileReceiver | ConsoleReceiver | KafkaReceiver


def parse_receivers(written: Sequence[str], api_keys: str | None = None, kafka: str | None = None) -> list[Receiver]:
    """Parse the receivers; InvalidSettingsError says what is expected.

    api_keys: the key of the one receiver that is reached by http, or `host=key,host2=key2`.
    kafka: librdkafka's settings for all brokers, `name=value,name2=value2`.
    """
    config = dict(_parse_pair(pair) for pair in (kafka or "").split(",") if pair.strip())
    if not all(config.values()):
        raise InvalidSettingsError("lineage_kafka must be <name>=<value>,<name2>=<value2> with librdkafka's settings")
    found = [_parse_receiver(text, config) for text in written]
    for number, receiver in enumerate(found):
        if receiver.name in {earlier.name for earlier in found[:number]}:
            raise InvalidSettingsError(f"lineage_transports has {receiver.name} twice")
    if config and not any(isinstance(receiver, KafkaReceiver) for receiver in found):
        raise InvalidSettingsError("lineage_kafka is set, but lineage_transports names no kafka://…")
    return _add_api_keys(found, api_keys)


def _parse_receiver(written: str, config: Mapping[str, str]) -> Receiver:
    try:
        url = urlsplit(written)
        has_host = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError as error:
        raise InvalidSettingsError(f"lineage_transports: {error}; {_EXAMPLES}") from error
    if written == "console":
        return ConsoleReceiver()
    if url.username is not None or url.password is not None:
        raise InvalidSettingsError("lineage_transports: secrets belong into lineage_api_keys or lineage_kafka")
    if has_host:
        return _parse_http(url)
    if url.scheme == "file" and url.netloc in {"", "localhost"} and url.path.strip("/") and not url.query:
        return FileReceiver(f"file:{url.path}", Path(url.path))
    if url.scheme == "kafka" and url.netloc and _TOPIC.fullmatch(url.path) and not url.query:
        brokers = url.netloc.replace(";", ",")
        return KafkaReceiver(f"kafka://{url.netloc}{url.path}", url.path[1:], {"bootstrap.servers": brokers, **config})
    raise InvalidSettingsError(f"lineage_transports: invalid receiver {written!r}; {_EXAMPLES}")


def _parse_http(url: SplitResult) -> HttpReceiver:
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    unknown = sorted(set(options) - {"timeout", "compression"})
    place = f"{url.scheme}://{url.netloc}"
    path = url.path if url.path.strip("/") else ENDPOINT
    name = place if path == ENDPOINT else place + path
    if unknown or url.fragment:
        raise InvalidSettingsError(
            f"lineage_transports: {name} has options besides timeout=<seconds> and compression=gzip"
        )
    if options.get("compression", "gzip") != "gzip":
        raise InvalidSettingsError(f"lineage_transports: the compression of {name} can only be gzip")
    try:
        timeout = float(options.get("timeout", TIMEOUT_SECONDS))
    except ValueError:
        timeout = 0
    if not 0 < timeout <= 600:
        raise InvalidSettingsError(f"lineage_transports: the timeout of {name} must be seconds, as 5, and 600 at most")
    return HttpReceiver(name, url.netloc.lower(), place + path, timeout, "compression" in options)


def _add_api_keys(found: list[Receiver], api_keys: str | None) -> list[Receiver]:
    reached = [receiver for receiver in found if isinstance(receiver, HttpReceiver)]
    if not api_keys:
        return found
    pairs = [_parse_pair(pair) for pair in api_keys.split(",") if pair.strip()]
    hosts = {receiver.host for receiver in reached}
    if len(hosts) == 1 and not {host for host, _ in pairs} & hosts:
        pairs = [(host, api_keys.strip()) for host in hosts]
    keys = dict(pairs)
    strangers = sorted(set(keys) - hosts)
    if strangers:
        raise InvalidSettingsError(
            "lineage_api_keys must be the key of the one receiver that lineage_transports reaches by http, "
            f"or <host>=<key>,… with {', '.join(sorted(hosts)) or 'no'} as hosts"
        )
    if not all(_KEY.fullmatch(key) for key in keys.values()):
        raise InvalidSettingsError("lineage_api_keys has a key with characters that no header can have")
    return [
        replace(receiver, api_key=keys.get(receiver.host)) if isinstance(receiver, HttpReceiver) else receiver
        for receiver in found
    ]


def _parse_pair(text: str) -> tuple[str, str]:
    name, _, value = text.strip().partition("=")
    return name.strip(), value.strip()
