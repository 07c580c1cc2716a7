"""Lists in messages, and full names of tables."""

from collections.abc import Sequence

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, parse_schema_name


def summarize(things: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    more = len(things) - most
    return ", ".join(things[:most]) + (f" and {more} more" if more > 0 else "")


def parse_full_name(text: str) -> tuple[Namespace, str]:
    """The namespace and the name of a table, from both joined by dots; InvalidRequestError."""
    schema, _, table = text.rpartition(".")
    if not schema or not table:
        raise InvalidRequestError(f"{text!r} isn't the full name of a table: write it as sales.orders")
    return parse_schema_name(schema), parse_schema_name(table)[0]
