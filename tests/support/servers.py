"""Apps are tested over real HTTP: uvicorn in a thread as the command runs it, on a free port of loopback."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from uvicorn import Server

from duckicelake.cli.serve.edge import build_config
from duckicelake.settings.model import Settings

Serve = Callable[[Any], httpx.Client]


class PromptServer(Server):
    """Uvicorn's, which takes 0.2 s to end: it looks ten times a second. Most tests would wait longer than they work."""

    async def main_loop(self) -> None:
        ticking = asyncio.create_task(super().main_loop())
        while not self.should_exit:
            await asyncio.sleep(0.005)
        ticking.cancel()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in self.servers:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0.005)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)


@contextmanager
def in_a_thread(server: Server) -> Iterator[tuple[str, int]]:
    """Its address, on a free port of loopback."""
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def running(app: Any) -> Iterator[str]:
    with in_a_thread(PromptServer(build_config(Settings(), app))) as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(app: Any) -> httpx.Client:
            return stack.enter_context(httpx.Client(base_url=stack.enter_context(running(app)), timeout=60))

        yield start
