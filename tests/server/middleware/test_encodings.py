"""Bodies that are sent with a Content-Encoding."""

import gzip
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest
from fastapi import FastAPI
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.transport.http import HttpCompression, HttpConfig, HttpTransport

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import Edge, create_app
from tests.support.client import new_client

ROWS = "/v1/namespaces/ns/tables/t/rows"
LIMIT = 2_000_000
LINES = b"".join(b'{"id": %d, "name": "%x"}\n' % (n, random.Random(n).getrandbits(400)) for n in range(9000))
compress = partial(gzip.compress, mtime=0)
"""Without the time, so that each process of a run names the cases alike."""
ZIPPED = compress(LINES)

Serve = Callable[[FastAPI], httpx.Client]


@pytest.fixture
def http(services: Services, serve: Serve) -> httpx.Client:
    new_client(services).create()
    return serve(create_app(services, edge=Edge(max_body_bytes=LIMIT)))


def post(http: httpx.Client, content: bytes, encoding: str = "gzip") -> httpx.Response:
    return http.post(
        ROWS, content=content, headers={"Content-Type": "application/x-ndjson", "Content-Encoding": encoding}
    )


@pytest.mark.parametrize("content", [ZIPPED, compress(LINES[:-72]) + compress(LINES[-72:])])
def test_gzip_is_read_as_what_it_was_made_of(http: httpx.Client, content: bytes) -> None:
    assert 1_000_000 < len(LINES) < LIMIT
    assert post(http, content).json()["rows"] == 9000
    assert post(http, LINES, "identity").json()["rows"] == 9000


@pytest.mark.parametrize(
    ("content", "encoding", "status", "words"),
    [
        (ZIPPED, "br", 415, "Content-Encoding br isn't read by this server: send the body with gzip, or without"),
        (compress(ZIPPED), "gzip, gzip", 415, "gzip, gzip"),
        (ZIPPED[:-10], "gzip", 400, "it ends too early"),
        (LINES, "gzip", 400, "incorrect header check"),
        (ZIPPED + b"more", "gzip", 400, "incorrect header check"),
    ],
)
def test_what_is_no_gzip_is_refused(http: httpx.Client, content: bytes, encoding: str, status: int, words: str) -> None:
    check_refused(http, content, encoding, status, words)


def test_gzip_of_very_much_is_refused(http: httpx.Client) -> None:
    check_refused(http, compress(bytes(500 * LIMIT), compresslevel=1), "gzip", 413, f"larger than {LIMIT} bytes")


def check_refused(http: httpx.Client, content: bytes, encoding: str, status: int, words: str) -> None:
    answer = post(http, content, encoding)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, status)
    assert words in answer.json()["error"]["message"]
    assert (answer.headers.get("accept-encoding") == "gzip") == (status == 415)


def test_events_that_openlineage_sends_with_gzip_are_taken(http: httpx.Client) -> None:
    transport = HttpTransport(HttpConfig(str(http.base_url), compression=HttpCompression.GZIP))
    run = Run(runId="01999999-0000-7000-8000-000000000001")
    OpenLineageClient(transport=transport).emit(
        RunEvent(eventTime="2026-08-01T00:00:00Z", run=run, job=Job("tools", "load"), eventType=RunState.COMPLETE)
    )
    assert http.get("/api/v1/jobs").json()["totalCount"] == 1


def test_bodies_of_all_requests_share_one_budget_however_well_they_pack(services: Services, serve: Serve) -> None:
    """Each holds what it unpacks to: of those that come together some are refused, and all of it is given back."""
    new_client(services).create()
    http = serve(create_app(services, edge=Edge(max_body_bytes=8_000_000, max_bodies_bytes=8_000_000)))
    bomb = compress(b" " * 7_900_000, 9)
    assert len(bomb) < 10_000
    assert post(http, bomb).json()["rows"] == 0

    with ThreadPoolExecutor(8) as pool:
        until, refused = time.monotonic() + 60, list[httpx.Response]()
        while not refused:
            assert time.monotonic() < until
            answers = list(pool.map(lambda _: post(http, bomb), range(8)))
            refused = [answer for answer in answers if answer.status_code == 429]
            assert len(refused) < len(answers)

    assert "DUCKICELAKE_MAX_BODIES_BYTES" in refused[0].json()["error"]["message"]
    assert refused[0].headers["retry-after"] == "1"
    assert post(http, bomb).json()["rows"] == 0
    assert post(http, compress(LINES[:72])).status_code != 429
