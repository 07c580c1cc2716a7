"""Write rows into tables from any Python program: in small batches, in order, each batch once.

    from duckicelake.client import Connection, Writer

    with Writer("zoo.visits", Connection("http://localhost:8181")) as writer:
        writer.append({"visitor": "Ann", "tickets": 2})

Appending Arrow or pandas needs pyarrow. Other rows need urllib3 alone. Nothing of the server is needed.
"""

from duckicelake.client.batch import Batching
from duckicelake.client.stream import Progress
from duckicelake.client.writer import AsyncWriter, Writer
from duckicelake.errors import RowsNotWrittenError
from duckicelake.rest.connection import Connection

__all__ = ["AsyncWriter", "Batching", "Connection", "Progress", "RowsNotWritten", "RowsNotWrittenError", "Writer"]

RowsNotWritten = RowsNotWrittenError
"""The error's former name, for programs that catch it."""
