"""What the lake and its tables are called in Spark: table `t` of namespace `ns` is `lake.ns.t`."""

from typing import Final

from duckicelake.rest.names import Namespace, quoted

CATALOG: Final = "lake"


def sql_name(namespace: Namespace, table: str) -> str:
    """A table of the catalog in Spark's SQL."""
    return quoted(CATALOG, *namespace, table)
