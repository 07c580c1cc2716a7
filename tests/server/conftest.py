"""Apps are tested over real HTTP: uvicorn in a thread as the command runs it, on a free port of loopback."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from uvicorn import Server

from duckicelake.cli.service.edge import config_of
from duckicelake.settings import Settings

Serve = Callable[[Any], httpx.Client]


@contextmanager
def running(app: Any) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(config_of(Settings(), app))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(app: Any) -> httpx.Client:
            return stack.enter_context(httpx.Client(base_url=stack.enter_context(running(app)), timeout=60))

        yield start
