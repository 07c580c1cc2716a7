"""Structured logs: one JSON object, or one coloured line on a terminal, per event."""

import logging
from typing import Any, Literal, TextIO

import orjson
import structlog
from structlog.typing import FilteringBoundLogger, Processor

LogFormat = Literal["auto", "json", "console"]


def make_logger(stream: TextIO, log_format: LogFormat = "auto") -> FilteringBoundLogger:
    """A logger that writes to the stream; `auto` means console on a terminal and JSON elsewhere."""
    console = stream.isatty() if log_format == "auto" else log_format == "console"
    renderers = [_console(colors=stream.isatty())] if console else _JSON
    logger: FilteringBoundLogger = structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[structlog.processors.add_log_level, structlog.processors.TimeStamper("iso", utc=True), *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        context_class=dict,
        cache_logger_on_first_use=True,
    )
    return logger


def forward_standard_logging(logger: FilteringBoundLogger) -> None:
    """Send what libraries log through the standard module to the same place, from warnings up."""
    root = logging.getLogger()
    root.handlers = [_Forward(logger)]
    root.setLevel(logging.WARNING)


class _Forward(logging.Handler):
    def __init__(self, logger: FilteringBoundLogger) -> None:
        super().__init__()
        self._logger = logger

    def emit(self, record: logging.LogRecord) -> None:
        self._logger.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None)


def _console(*, colors: bool) -> Processor:
    """Tracebacks without local variables, which may hold what nobody may read."""
    return structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)


def _dump(event: Any, **_: Any) -> str:
    return orjson.dumps(event, default=repr).decode()


_JSON: list[Processor] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_dump)]
