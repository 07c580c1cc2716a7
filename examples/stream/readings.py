"""Stream the readings of a plant's sensors into the lake. Killed and started again, it doubles none and loses none.

Each line of the plant is a task with a writer of its own. The source can be read from its beginning again, as a topic
of Kafka can: the writer's `app_id` names it, and the server counts how many of its rows are in the table.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from duckicelake.client import AsyncWriter, Batching, Connection
from duckicelake.client.async_lake import connect_async
from duckicelake.errors import JobConflictError

URI = os.environ.get("DUCKICELAKE_CLIENT_URI", "http://localhost:8181")
LINES = ("assembly", "paint", "press")
START = datetime(2026, 11, 28, 12, tzinfo=UTC)
COLUMNS = "line string not null, number long not null, at timestamptz not null, celsius double"


async def read_sensor(line: str, readings: int) -> AsyncIterator[dict[str, Any]]:
    """Yield a line's readings from the first one on, a hundred every 50 milliseconds."""
    for number in range(readings):
        if number % 100 == 0:
            await asyncio.sleep(0.05)
        at = START + timedelta(milliseconds=10 * number)
        yield {"line": line, "number": number, "at": at, "celsius": 20 + number % 7}


async def write_line(line: str, readings: int) -> str:
    """Write a line's readings. `append` waits where the server is slower than the source."""
    batching = Batching(max_rows=500, max_age=0.2)
    async with AsyncWriter("plant.readings", Connection(URI), batching, app_id=line) as writer:
        async for reading in read_sensor(line, readings):
            await writer.append(reading)
    return f"{line}: {writer.progress.written} written, {writer.progress.skipped} were there"


async def main(readings: int) -> None:
    async with connect_async(URI) as lake:
        with suppress(JobConflictError):  # an earlier run made it
            await lake.create_namespace("plant")
        with suppress(JobConflictError):
            await lake.create_table("plant.readings", COLUMNS, partition_by="line")
    for written in await asyncio.gather(*(write_line(line, readings) for line in LINES)):
        print(written)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
