"""PURE. Bodies of requests as batches of rows that fit a table."""

from typing import Final

from duckicelake.errors import InvalidRequest
from duckicelake.rows.arrow_rows import read_stream
from duckicelake.rows.batch import Batch
from duckicelake.rows.json_parsing import parse_array, parse_lines
from duckicelake.rows.json_rows import read_objects
from duckicelake.rows.layout import Layout
from duckicelake.rows.problems import OnUnknown

ARROW: Final = "application/vnd.apache.arrow.stream"
JSON: Final = "application/json"
JSON_LINES: Final = ("application/x-ndjson", "application/jsonl")
CONTENT_TYPES: Final = (ARROW, JSON, *JSON_LINES)


def read_batch(body: bytes, content_type: str, layout: Layout, *, on_unknown: OnUnknown = "reject") -> Batch:
    """The rows of a body, complete with defaults; all or nothing.

    Raises:
        InvalidRequest: another content type, a body that isn't of it, or rows that don't fit; the first few are named.

    """
    match content_type.partition(";")[0].strip().lower():
        case "application/vnd.apache.arrow.stream":
            return read_stream(body, layout, on_unknown)
        case "application/json":
            return read_objects(parse_array(body, layout), layout, on_unknown)
        case kind if kind in JSON_LINES:
            return read_objects(parse_lines(body, layout), layout, on_unknown)
        case kind:
            raise InvalidRequest(f"Rows can't be read from {kind!r}: send {', '.join(CONTENT_TYPES)}")
