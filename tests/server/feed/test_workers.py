"""The change feed of a server as people run it, with several workers."""

import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.cli.test_commands import lake, serving
from tests.server.feed.test_events import Stream

__all__ = ["lake"]

STREAMS = 12
"""Enough that each worker has some."""


@pytest.mark.commands
def test_streams_are_reported_on_each_worker_and_end_with_the_server(lake: Path) -> None:
    with serving(lake, "--workers", "2") as served:
        streams = [Stream(served.uri) for _ in range(STREAMS)]
        httpx.post(f"{served.uri}/v1/namespaces", json={"namespace": ["a"]}, timeout=30).raise_for_status()
        for stream in streams:
            assert stream.until(2).brief == [("create-namespace", "main"), ("create-namespace", "a")]
        begun = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        for stream in streams:
            assert stream.ended().end == {"reason": "shutdown", "position": stream.report.positions[-1]}
        assert time.monotonic() - begun < 10
        assert served.end(signal.SIGTERM) == 0
