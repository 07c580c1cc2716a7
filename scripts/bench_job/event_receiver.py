"""A receiver of lineage events that takes all of them at once, or takes them and never answers.

    python -m scripts.bench_job.event_receiver [hang]

It prints its URI, and a line with the number of events whenever that is asked for by a line of standard input.
"""

import asyncio
import sys
from typing import Final

_ANSWER: Final = b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
_LENGTH: Final = b"content-length:"
_HEAD_END: Final = b"\r\n\r\n"


class _Connection(asyncio.Protocol):
    taken = 0

    def __init__(self, *, answers: bool) -> None:
        self._answers = answers
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(_HEAD_END)) >= 0:
            head = self._received[:end].lower()
            length = int(head.partition(_LENGTH)[2].partition(b"\r\n")[0])
            last = end + len(_HEAD_END) + length
            if len(self._received) < last:
                return
            self._received = self._received[last:]
            _Connection.taken += 1
            if self._answers:
                self._transport.write(_ANSWER)


async def serve(*, answers: bool) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(answers=answers), "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(_Connection.taken, flush=True)


if __name__ == "__main__":
    asyncio.run(serve(answers="hang" not in sys.argv[1:]))
