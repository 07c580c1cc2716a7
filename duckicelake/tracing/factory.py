"""Open a tracer if the settings or OpenTelemetry's variables name a collector."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from duckicelake.errors import InvalidSettingsError

if TYPE_CHECKING:
    from duckicelake.tracing.spans import OtelTracer

_ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@contextmanager
def open_tracer(endpoint: str | None, environment: Mapping[str, str] = os.environ) -> "Iterator[OtelTracer | None]":
    """Yield a tracer for the collector that the endpoint or OpenTelemetry's variables name; None if neither names one.

    The remaining spans are sent after the block.

    Raises:
        InvalidSettingsError: the libraries of the extra `otel` aren't installed.

    """
    variable = next((name for name in _ENDPOINT_VARIABLES if environment.get(name)), None)
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true" or not (endpoint or variable):
        yield None
        return
    spans = _load_tracer(endpoint, "DUCKICELAKE_OTLP_ENDPOINT" if endpoint else str(variable))
    try:
        yield spans
    finally:
        spans.close()


def _load_tracer(endpoint: str | None, asked_by: str) -> "OtelTracer":
    try:
        from duckicelake.tracing.spans import OtelTracer  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as missing:
        raise InvalidSettingsError(
            f"{asked_by} asks for traces, but {missing.name} isn't installed: install duckicelake[otel], "
            "or unset the variable"
        ) from missing
    return OtelTracer(endpoint)
