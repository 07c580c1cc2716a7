"""Full names of tables, as people write them."""

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.names import Namespace, namespace_of


def parse_full_name(text: str) -> tuple[Namespace, str]:
    """The namespace and the name of a table, from both joined by dots; InvalidRequest."""
    schema, _, table = text.rpartition(".")
    if not schema or not table:
        raise InvalidRequest(f"{text!r} isn't the full name of a table: write it as sales.orders")
    return namespace_of(schema), namespace_of(table)[0]
