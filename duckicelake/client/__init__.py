"""Write rows into tables from any Python program: in small batches, in order, each batch once.

    from duckicelake.client import Connection, Writer

    with Writer("zoo.visits", Connection("http://localhost:8181")) as writer:
        writer.append({"visitor": "Ann", "tickets": 2})

Appending Arrow or pandas needs pyarrow. Other rows need urllib3 alone. Nothing of the server is needed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from duckicelake.client.batch import Batching
    from duckicelake.client.stream import Progress
    from duckicelake.client.writer import AsyncWriter, Writer
    from duckicelake.errors import RowsNotWrittenError
    from duckicelake.errors import RowsNotWrittenError as RowsNotWritten
    from duckicelake.rest.connection import Connection

__all__ = ["AsyncWriter", "Batching", "Connection", "Progress", "RowsNotWritten", "RowsNotWrittenError", "Writer"]
_PLACES: Final = {
    "AsyncWriter": "client.writer",
    "Batching": "client.batch",
    "Connection": "rest.connection",
    "Progress": "client.stream",
    "RowsNotWrittenError": "errors",
    "Writer": "client.writer",
}
_FORMER_NAMES: Final = {"RowsNotWritten": "RowsNotWrittenError"}
"""For programs that catch it."""


def __getattr__(name: str) -> Any:
    """Import a name when it is used: `duckicelake ls` needs neither asyncio nor writers."""
    now = _FORMER_NAMES.get(name, name)
    if now not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"duckicelake.{_PLACES[now]}"), now)
