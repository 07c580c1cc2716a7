"""The rows that a query answered."""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
QUERY_SECONDS: Final = 3600.0
"""How long a client waits for an answer; the server ends a query sooner."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The answer of a query, as Arrow's stream."""

    stream: bytes = field(repr=False)

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`."""
        return import_module("pyarrow").ipc.open_stream(self.stream).read_all()

    def to_pandas(self) -> Any:
        """Return a data frame of pandas, which must be installed."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """Return a data frame of Polars, which must be installed."""
        return import_module("polars").from_arrow(self.to_arrow())

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows, each a dictionary."""
        found: list[dict[str, Any]] = self.to_arrow().to_pylist()
        return found
