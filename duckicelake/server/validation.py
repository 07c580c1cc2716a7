"""Pydantic's findings as one sentence for the person who wrote the request."""

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.nul import holds_nul

_SHOWN = 5
_LONGEST_INPUT = 60

Model = TypeVar("Model", bound=BaseModel)


def parse_body(model: type[Model], body: bytes) -> Model:
    """The JSON body as a value of the model.

    Raises InvalidRequest naming line and column where it isn't JSON, and each wrong field otherwise. No text may hold
    a NUL character: Postgres has none.
    """
    if holds_nul(body):
        raise InvalidRequest("Invalid request: the body holds a NUL character (\\u0000), which can't be stored")
    try:
        return model.model_validate_json(body)
    except ValidationError as invalid:
        raise InvalidRequest(explain(invalid.errors(include_url=False))) from invalid


def explain(findings: Sequence[Any]) -> str:
    """The first few findings (dicts as of `ValidationError.errors()`), each with its field and what is right there."""
    shown = "; ".join(_explain_one(finding) for finding in findings[:_SHOWN])
    hidden = len(findings) - _SHOWN
    return f"Invalid request: {shown}" + (f"; and {hidden} more" if hidden > 0 else "")


def _explain_one(finding: Any) -> str:
    message = str(finding["msg"]).removeprefix("Value error, ")
    if finding["type"] == "json_invalid":
        return f"the body is not JSON: {message.removeprefix('Invalid JSON: ')}"
    place = _place(finding["loc"])
    if finding["type"] == "extra_forbidden":
        return f"{place}: there is no such field"
    given = "" if finding["type"] == "missing" else _given(finding.get("input"))
    return f"{place}: {message}{given}" if place else f"the body: {message}{given}"


def _place(location: Sequence[int | str]) -> str:
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def _given(value: object) -> str:
    if isinstance(value, dict | list):
        return ""
    text = repr(value)
    return f" (got {text if len(text) <= _LONGEST_INPUT else text[:_LONGEST_INPUT] + '…'})"
