"""Loads of one cached table a second, by one worker that asks who comes, against a bare Starlette route.

The reference sends the same bytes on the same uvicorn, without a catalog, a log or a login; it takes turns with what is
held against it, and of each the middle turn counts. The body is about 6 kB, on 32 connections. One connection is for
scale: there nothing is shared.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from scripts.backends_job.stack import new_lake, running_backends
from scripts.bench_job.client import NAMESPACE, Rest
from scripts.bench_job.paired_loads import measure_grants, measure_labels, measure_policies
from scripts.bench_job.results import Result, Target, options_of, report
from scripts.bench_job.servers import Bench, running_bench, running_starlette
from scripts.bench_job.wrk import Load, wrk
from scripts.demo_job.backend import on_servers

TABLE: Final = "t"
COLUMNS: Final = 78
"""Of which the answer gets about 6 kB."""
TURNS: Final = 3
VENDED: Final = {"X-Iceberg-Access-Delegation": "vended-credentials"}


def main() -> None:
    options = options_of(__doc__, connections=(32, "connections of wrk"))
    seconds = 1 if options.quick else 3
    results = [*plain(options.connections, seconds), *vended(options.connections, seconds)]
    pairs = 3 if options.quick else 9
    results += measure_grants(TABLE, COLUMNS, options.connections, seconds, pairs)
    results += measure_labels(COLUMNS, options.connections, seconds, pairs)
    results += measure_policies(COLUMNS, options.connections, seconds, pairs)
    report("LoadTable, cache hit, one worker, auth on", results, options)


def plain(connections: int, seconds: float) -> Iterator[Result]:
    with running_bench() as bench:
        url = made(bench)
        body, etag = loaded(url, bench.headers)
        unchanged = {**bench.headers, "If-None-Match": etag}
        with running_starlette(body, etag) as bare:
            for many, target in ((connections, 0.6), (1, None)):
                name = f"200, {len(body)} bytes, {many} connection{'s' * (many > 1)}"
                yield held(name, target, f"{bare}/body", url, bench.headers, many, seconds)
            name = f"304, {connections} connections"
            yield held(name, 0.7, f"{bare}/unchanged", url, unchanged, connections, seconds)


def vended(connections: int, seconds: float) -> Iterator[Result]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duckicelake-bench-")))
        backends = stack.enter_context(running_backends(folder))
        bench = stack.enter_context(running_bench(backend=on_servers(new_lake(folder, backends, "bench"))))
        url = made(bench)
        asking = {**bench.headers, **VENDED}
        body, etag = loaded(url, asking)
        bare = stack.enter_context(running_starlette(body, etag))
        name = f"200, {len(body)} bytes with keys for S3, {connections} connections"
        yield held(name, 0.5, f"{bare}/body", url, asking, connections, seconds)


def held(
    name: str, target: float | None, bare: str, url: str, headers: Mapping[str, str], connections: int, seconds: float
) -> Result:
    """What both answer, by turns."""
    turns = [
        (
            wrk(bare, connections=connections, seconds=seconds),
            wrk(url, headers=headers, connections=connections, seconds=seconds),
        )
        for _ in range(TURNS)
    ]
    same, hit = (middle(each) for each in zip(*turns, strict=True))
    wanted = None if target is None else Target("≥", target, "ratio")
    return Result(
        f"LoadTable {name}", hit.per_second, "loads/s", wanted, same.per_second, "bare route", hit.p50, hit.p99
    )


def middle(loads: Sequence[Load]) -> Load:
    return sorted(loads, key=lambda load: load.per_second)[len(loads) // 2]


def made(bench: Bench) -> str:
    """The URL of a new table."""
    rest = Rest(bench.uri, bench.headers)
    rest.create_namespace()
    rest.create_table(TABLE, columns=COLUMNS)
    rest.close()
    return f"{bench.uri}/v1/namespaces/{NAMESPACE}/tables/{TABLE}"


def loaded(url: str, headers: Mapping[str, str]) -> tuple[bytes, str]:
    """(the answer to a load, its entity tag), the second time that it is asked for."""
    for _ in range(2):
        with urlopen(Request(url, headers=dict(headers)), timeout=60) as answer:
            body, etag = answer.read(), answer.headers["ETag"]
    return body, etag


if __name__ == "__main__":
    main()
