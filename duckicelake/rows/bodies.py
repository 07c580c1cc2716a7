"""PURE. Read request bodies as batches of rows: JSON arrays, JSON lines, Arrow."""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import chain, compress, repeat
from operator import itemgetter
from typing import Any, Final

import orjson

from duckicelake.errors import InvalidRequestError
from duckicelake.rows.arrow_rows import read_arrow_stream
from duckicelake.rows.json_columns import JsonColumn, check_names
from duckicelake.rows.layout import Layout
from duckicelake.rows.limits import check_nested_count, check_text_size, count_nested_json
from duckicelake.rows.problems import (
    MAX_NAMED_ROWS,
    MISSING,
    MisfitError,
    OnUnknown,
    RowProblem,
    make_problem,
    refuse_problems,
)
from duckicelake.rows.row_batch import Batch, check_row_count

_COLON = b"\\u003"
"""The begin of an escape that may be a colon's."""
_CONTAINERS = {dict, list}
_SPACED_COLONS = (b" :", b"\t:", b"\n:", b"\r:")
_SURROGATE = b"\\ud"
"""The begin of an escape of half a character."""
ARROW: Final = "application/vnd.apache.arrow.stream"
JSON: Final = "application/json"
JSON_LINES: Final = ("application/x-ndjson", "application/jsonl")
CONTENT_TYPES: Final = (ARROW, JSON, *JSON_LINES)


def parse_array(body: bytes, layout: Layout) -> list[Any]:
    """Parse a JSON array, with numbers as exact as the layout needs. InvalidRequestError: it is none."""
    check_text_size(body)
    rows = _parse_json(body, "the body", layout.exact_numbers)
    if type(rows) is not list:
        raise InvalidRequestError(
            "Invalid JSON body: expected an array [{...}, {...}], or an object a line as application/x-ndjson"
        )
    return rows


def parse_object(body: bytes, where: str = "the body") -> dict[str, Any]:
    """Parse a JSON object. Numbers with a point become Decimals. InvalidRequestError: it is none."""
    check_text_size(body)
    value = _parse_json(body, where, exact=True)
    if type(value) is not dict:
        raise InvalidRequestError(f"Invalid JSON: {where} isn't an object {{...}}")
    return value


def parse_lines(body: bytes, layout: Layout) -> list[Any]:
    """Parse newline-delimited JSON. Empty lines are skipped, but count for the limit.

    Raises InvalidRequestError.
    """
    check_text_size(body)
    check_row_count(body.count(b"\n"), layout)
    lines, exact = body.split(b"\n"), layout.exact_numbers
    return [_parse_json(line, f"line {number}", exact) for number, line in enumerate(lines) if line.strip()]


def _parse_json(text: bytes, where: str, exact: bool) -> Any:
    if not exact:
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise InvalidRequestError(f"Invalid JSON: {where} isn't JSON: {error}") from error
        if _has_no_name_twice(text, value):
            return value
    return _parse_exactly(text, where)


def _has_no_name_twice(text: bytes, value: Any) -> bool:
    """Return whether certainly no object has a name twice: then text and values have the same number of colons."""
    if type(value) is list and all(type(row) is dict for row in value) and _count_names(text) == sum(map(len, value)):
        return True
    try:
        return _COLON not in text and text.count(b":") == _count_colons(value)
    except RecursionError:
        return False


def _count_names(text: bytes) -> int | None:
    """Count the names in a text's objects, at most.

    None if the count of colons is no bound for it.
    """
    return None if any(colon in text for colon in _SPACED_COLONS) else text.count(b'":')


def _count_colons(value: Any) -> int:
    """Count the colons in the text of a value, if no name comes twice and none is escaped."""
    if type(value) not in _CONTAINERS:
        return value.count(":") if type(value) is str else 0
    is_object = type(value) is dict
    own, parts = (len(value) + "".join(value).count(":"), value.values()) if is_object else (0, value)
    texts = "".join([part for part in parts if type(part) is str])
    nested = [part for part in parts if type(part) in _CONTAINERS]
    return own + texts.count(":") + (sum(map(_count_colons, nested)) if nested else 0)


def _parse_exactly(text: bytes, where: str) -> Any:
    try:
        value = _EXACT.decode(text.decode())
        if _SURROGATE in text.lower():
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"Invalid JSON: {where} isn't JSON: {error}") from error
    except ArithmeticError as error:
        raise InvalidRequestError(f"Invalid JSON: {where} has a number whose exponent no type holds") from error
    return value


def _build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise ValueError(f"the name {twice!r} comes twice in one object")
    return found


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"Invalid JSON number {text}: write it as a text")


_EXACT = json.JSONDecoder(object_pairs_hook=_build_object, parse_float=Decimal, parse_constant=_refuse_constant)


def read_objects(rows: Sequence[Any], layout: Layout, on_unknown: OnUnknown) -> Batch:
    """Read objects as rows of the layout; InvalidRequestError names what doesn't fit."""
    check_row_count(len(rows), layout)
    columns = layout.json_columns(on_unknown)
    problems: list[RowProblem] = []
    _check_objects(rows, columns, on_unknown, problems)
    refuse_problems(problems)
    for column in layout.widening:
        check_nested_count(chain.from_iterable(count_nested_json(row.get(column.name), column) for row in rows))
    pairs = zip(columns.values(), _gather_columns(rows, columns), strict=True)
    read = [column.read_all(values, problems) for column, values in pairs]
    refuse_problems(problems)
    return Batch(layout, len(rows), values=list(compress(read, layout.is_stored)))


def _check_objects(
    rows: Sequence[Any], columns: Mapping[str, JsonColumn], on_unknown: OnUnknown, problems: list[RowProblem]
) -> None:
    """Find rows that are no objects, and names that are no columns."""
    names = columns.keys()
    for index, row in enumerate(rows):
        if type(row) is dict and row.keys() <= names:
            continue
        try:
            _check_object(row, columns, on_unknown)
        except MisfitError as misfit:
            problems.append(make_problem(index, None, misfit))
            if len(problems) > MAX_NAMED_ROWS:
                return


def _check_object(row: Any, columns: Mapping[str, JsonColumn], on_unknown: OnUnknown) -> None:
    if type(row) is not dict:
        raise MisfitError(row, "write an object, of names and values")
    check_names(row, columns, on_unknown)


def _gather_columns(rows: Sequence[dict[str, Any]], columns: Mapping[str, JsonColumn]) -> list[Sequence[Any]]:
    """Collect the values of each column."""
    if not rows:
        return [()] * len(columns)
    names = list(columns)
    if len(names) > 1:
        try:
            return list(zip(*map(itemgetter(*names), rows), strict=True))
        except KeyError:
            pass
    return [list(map(dict.get, rows, repeat(name), repeat(MISSING))) for name in names]


def read_batch(body: bytes, content_type: str, layout: Layout, *, on_unknown: OnUnknown = "reject") -> Batch:
    """Read a body's rows, all or none, with defaults filled in.

    Raises:
        InvalidRequestError: another content type, a body that isn't of it, or rows that don't fit; the first few are
            named.

    """
    match content_type.partition(";")[0].strip().lower():
        case "application/vnd.apache.arrow.stream":
            return read_arrow_stream(body, layout, on_unknown)
        case "application/json":
            return read_objects(parse_array(body, layout), layout, on_unknown)
        case kind if kind in JSON_LINES:
            return read_objects(parse_lines(body, layout), layout, on_unknown)
        case kind:
            raise InvalidRequestError(f"Rows can't be read from {kind!r}: send {', '.join(CONTENT_TYPES)}")
