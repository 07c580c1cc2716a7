"""Structured logs: one JSON object, or one coloured line on a terminal, per event."""

import json
import logging
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

_FromInfoUp: type[Any] = structlog.make_filtering_bound_logger(logging.INFO)
LogFormat = Literal["auto", "json", "console"]
_REQUEST_FIELDS: Final = frozenset({"method", "path", "status", "ms"})
_SHOWN_FIELDS: Final = ("principal", "warehouse", "conflict", "error")
"""What else the line of a request says for people, where it has it; of failed ones also the id."""


def make_logger(stream: TextIO, log_format: LogFormat = "auto") -> FilteringBoundLogger:
    """Make a logger that writes to the stream; `auto` means console on a terminal and JSON elsewhere."""
    console = stream.isatty() if log_format == "auto" else log_format == "console"
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(cast("TextIO", _SafeStream(stream))),
        processors=_build_console_processors(colors=stream.isatty() and not os.environ.get("NO_COLOR"))
        if console
        else [_encode_json],
        wrapper_class=_FromInfoUp if console else _JsonLines,
        context_class=dict,
    ).bind()  # else every line would look the logger up
    return logger


def forward_standard_logging(logger: FilteringBoundLogger) -> None:
    """Send what libraries log through the standard module to the same place, from warnings up."""
    root = logging.getLogger()
    root.handlers = [_ForwardHandler(logger)]
    root.setLevel(logging.WARNING)


class _SafeStream:
    """Drop what can't be written, so that a full disk fails no request."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


class _ForwardHandler(logging.Handler):
    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None)


def _build_console_processors(*, colors: bool) -> list[Processor]:
    """Build processors whose tracebacks have no local variables, because those may hold secrets."""
    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper("iso", utc=True),
        _ConsoleLines(structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)),
    ]


class _ConsoleLines:
    """Write a request as `GET /v1/config 200 3 ms`, and all else as structlog does."""

    def __init__(self, render: Processor) -> None:
        self._render = render

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> Any:
        if event.get("event") != "request" or not event.keys() >= _REQUEST_FIELDS or "exc_info" in event:
            return self._render(logger, method, event)
        what = f"{event['timestamp']} {event['method']} {event['path']} {event['status']} {event['ms']:.0f} ms"
        more = {name: value for name, value in event.items() if name in _SHOWN_FIELDS}
        if event["status"] >= 400:
            more["request_id"] = event.get("request_id")
        return " ".join((what, *(f"{name}={value}" for name, value in more.items())))


class _JsonLines(_FromInfoUp):  # type: ignore[misc]  # structlog makes the class when asked
    """Encode a line in one step. Every request writes one."""

    def info(self, event: str, *args: Any, **fields: Any) -> Any:
        if args or "exc_info" in fields:
            return super().info(event, *args, **fields)
        fields = {**self._context, **fields} if self._context else fields
        fields["event"] = event
        return self._logger.info(_encode_json(self._logger, "info", fields))


def _encode_json(logger: WrappedLogger, method: str, event: EventDict) -> str:
    event["level"], event["timestamp"] = method, datetime.now(UTC)
    if "exc_info" in event:
        event = structlog.processors.format_exc_info(logger, method, event)
    try:
        return orjson.dumps(event, default=repr, option=orjson.OPT_UTC_Z).decode()
    except TypeError:  # a name of a file that is no UTF-8
        return json.dumps(event, default=str)
