"""PURE. JSON texts as rows, exactly: no name twice in an object, no digit lost, no NaN that JSON doesn't have."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import orjson

from duckicelake.errors import InvalidRequest
from duckicelake.rows.batch import check_count
from duckicelake.rows.bounds import check_text
from duckicelake.rows.layout import Layout

_COLON = b"\\u003"
"""Begins an escape that may be a colon's."""
_CONTAINERS = {dict, list}
_SPACED_COLONS = (b" :", b"\t:", b"\n:", b"\r:")
_SURROGATE = b"\\ud"
"""Begins an escape of half a character."""


def parse_array(body: bytes, layout: Layout) -> list[Any]:
    """The elements of a JSON array, numbers as exact as the layout wants them. InvalidRequest."""
    check_text(body)
    rows = _parse(body, "the body", layout.exact_numbers)
    if type(rows) is not list:
        raise InvalidRequest("The body is no JSON array: write [{...}, {...}], or send application/x-ndjson")
    return rows


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object; numbers with a point are Decimals. InvalidRequest."""
    check_text(body)
    value = _parse(body, "the body", exact=True)
    if type(value) is not dict:
        raise InvalidRequest("The body is no JSON object: write {...}")
    return value


def parse_lines(body: bytes, layout: Layout) -> list[Any]:
    """The values of newline-delimited JSON; empty lines are left out, but count for the limit. InvalidRequest."""
    check_text(body)
    check_count(body.count(b"\n"), layout)
    lines, exact = body.split(b"\n"), layout.exact_numbers
    return [_parse(line, f"line {number}", exact) for number, line in enumerate(lines) if line.strip()]


def _parse(text: bytes, where: str, exact: bool) -> Any:
    if not exact:
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest(f"The rows can't be read: {where} isn't JSON: {error}") from error
        if _has_no_name_twice(text, value):
            return value
    return _parse_exactly(text, where)


def _has_no_name_twice(text: bytes, value: Any) -> bool:
    """Whether that is certain: as many colons are in the text as there are in the values, and between them."""
    if type(value) is list and all(type(row) is dict for row in value) and _names(text) == sum(map(len, value)):
        return True
    try:
        return _COLON not in text and text.count(b":") == _colons(value)
    except RecursionError:
        return False


def _names(text: bytes) -> int | None:
    """How many names there are at most in its objects; None where they can't be told by the colon at their end."""
    return None if any(each in text for each in _SPACED_COLONS) else text.count(b'":')


def _colons(value: Any) -> int:
    """The colons of an object's or array's text, if no name came twice and none is escaped."""
    if type(value) not in _CONTAINERS:
        return value.count(":") if type(value) is str else 0
    is_object = type(value) is dict
    own, parts = (len(value) + "".join(value).count(":"), value.values()) if is_object else (0, value)
    texts = "".join([part for part in parts if type(part) is str])
    nested = [part for part in parts if type(part) in _CONTAINERS]
    return own + texts.count(":") + (sum(map(_colons, nested)) if nested else 0)


def _parse_exactly(text: bytes, where: str) -> Any:
    try:
        value = _EXACT.decode(text.decode())
        if _SURROGATE in text.lower():
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The rows can't be read: {where} isn't JSON: {error}") from error
    except ArithmeticError as error:
        raise InvalidRequest(f"The rows can't be read: {where} has a number whose exponent no type holds") from error
    return value


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise ValueError(f"the name {twice!r} comes twice in one object")
    return found


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON number: write it as a text")


_EXACT = json.JSONDecoder(object_pairs_hook=_object, parse_float=Decimal, parse_constant=_constant)
