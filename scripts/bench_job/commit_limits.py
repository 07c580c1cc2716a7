"""What a commit is made of without us: what the same exchange, statements and files take, each by itself.

The same client sends the same request to a bare Starlette route that gives the same answer; bare psycopg has as many
statements write as much in one round trip; and the same files are encoded, hashed, and written under names of their
own. A commit does more than that: it reads what was uploaded, checks it, and plans.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from pathlib import Path
from time import process_time
from typing import Final

import orjson
import psycopg

from duckicelake.iceberg.manifest.reader import read_manifest_list
from duckicelake.iceberg.manifest.writer import write_manifest_list
from duckicelake.postgres.embedded import EmbeddedPostgres
from scripts.bench_job.client import Json, Rest, milliseconds, timed
from scripts.bench_job.limits import encoder
from scripts.bench_job.results import Result, p50, p99
from scripts.bench_job.servers import child_seconds, running_starlette

STATEMENTS: Final = 13
WAL_BYTES: Final = 19_000
"""What a commit of one file has Postgres run and write, by its log of statements and `pg_current_wal_lsn`."""
COLUMNS: Final = 10


@dataclass(frozen=True, slots=True)
class Exchange:
    """A commit as a client sees it: its request, the answer, and the manifest list of the new snapshot."""

    request: Json
    answer: bytes
    manifest_list: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """What one part takes each time. cpu: seconds of it on average, without the client's."""

    name: str
    seconds: list[float]
    cpu: float

    def result(self) -> Result:
        took = milliseconds(self.seconds)
        return Result(self.name, p50(took), "ms", p50=p50(took), p99=p99(took))


def limits(exchange: Exchange, times: int) -> Iterator[Part]:
    yield Part("HTTP alone: a bare Starlette route", *http(exchange, times))
    yield Part(f"Postgres alone: 1 round trip, {STATEMENTS} statements, {WAL_BYTES / 1000:.0f} kB of WAL", *sql(times))
    encode = encoding(exchange)
    yield Part("encoding alone: Avro, JSON and their SHA-256", *timed_with_cpu(encode, times, process_time))
    yield Part("files alone: three", *files(encode(), times))


def timed_with_cpu(act: Callable[[], object], times: int, clock: Callable[[], float]) -> tuple[list[float], float]:
    """(seconds of each call, seconds of CPU on average by a clock)."""
    before = clock()
    seconds = timed(act, times)
    return seconds, (clock() - before) / times


def http(exchange: Exchange, times: int) -> tuple[list[float], float]:
    with running_starlette(exchange.answer) as uri:
        rest = Rest(uri)
        found = timed_with_cpu(lambda: rest.ask("POST", "/commit", exchange.request), times, child_seconds)
        rest.close()
    return found


def sql(times: int) -> tuple[list[float], float]:
    """All goes with COMMIT. The CPU is Postgres's and that of psycopg, which a server has, too."""
    ids, body = count(), os.urandom(WAL_BYTES // STATEMENTS)
    insert = "INSERT INTO written VALUES (%s, %s)"
    with (
        tempfile.TemporaryDirectory(prefix="duckicelake-bench-") as folder,
        EmbeddedPostgres(Path(folder)) as server,
        psycopg.connect(server.url) as connection,
    ):
        connection.execute("CREATE TABLE written (id bigint PRIMARY KEY, body bytea)")
        connection.commit()

        def commit() -> None:
            with connection.pipeline():
                for _ in range(STATEMENTS):
                    connection.execute(insert, [next(ids), body], prepare=True)
                connection.commit()

        return timed_with_cpu(commit, times, lambda: process_time() + child_seconds())


def encoding(exchange: Exchange) -> Callable[[], tuple[bytes, ...]]:
    """Encodes a manifest of one file, the manifest list and metadata.json; and the answer, which is JSON, too.

    Each file has its hash in its name.
    """
    answer, manifests = orjson.loads(exchange.answer), read_manifest_list(exchange.manifest_list)
    manifest = encoder(COLUMNS, 1)

    def encode() -> tuple[bytes, ...]:
        listed = write_manifest_list(
            format_version=2, snapshot_id=1, parent_snapshot_id=None, sequence_number=1, manifests=manifests
        )
        orjson.dumps(answer)
        made = manifest(), listed, orjson.dumps(answer["metadata"])
        for content in made:
            sha256(content).digest()
        return made

    return encode


def files(contents: tuple[bytes, ...], times: int) -> tuple[list[float], float]:
    with tempfile.TemporaryDirectory(prefix="duckicelake-bench-") as folder:
        names = count()

        def write() -> None:
            for content in contents:
                path = Path(f"{folder}/{next(names)}")
                path.with_suffix(".tmp").write_bytes(content)
                path.with_suffix(".tmp").rename(path)

        return timed_with_cpu(write, times, process_time)
