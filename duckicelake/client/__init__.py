"""Rows into tables, from any Python program: small batches, in order, each of them once.

    from duckicelake.client import Connection, Writer

    with Writer("zoo.visits", Connection("http://localhost:8181")) as writer:
        writer.append({"visitor": "Ann", "tickets": 2})

It needs pyarrow for who appends Arrow or pandas, else no library, and nothing of the server.
"""

from duckicelake.client.batch import Batching
from duckicelake.client.stream import Progress
from duckicelake.client.writer import AsyncWriter, Writer
from duckicelake.errors import RowsNotWritten
from duckicelake.rest.connection import Connection

__all__ = ["AsyncWriter", "Batching", "Connection", "Progress", "RowsNotWritten", "Writer"]
