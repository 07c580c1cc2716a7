"""What many warehouses take of one server: each is created, gets a table, and is closed when idle.

Measured is what the server has for them afterwards: memory, connections to Postgres, threads, CPU; and how long a
server takes to start and to open one. A server with the default of open warehouses, and one worker.
"""

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import psycopg

from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import Bench
from scripts.demo_job.server import RunningLake, running_lake

SCHEMA: Final = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
IDLE_SECONDS: Final = 5
QUIET_SECONDS: Final = 10
OPENED: Final = 30
MAX_CONNECTIONS: Final = 8 + 2 + 3 * 9
"""As docs/warehouses.md says of one worker and 8 open warehouses."""
SETTINGS: Final = {
    "DUCKICELAKE_LOG_FORMAT": "json",
    "DUCKICELAKE_POOL_SIZE": "8",
    "DUCKICELAKE_WAREHOUSE_IDLE_SECONDS": str(IDLE_SECONDS),
}


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server has at a moment. memory: bytes."""

    memory: int
    threads: int
    connections: int
    open: int


def main() -> None:
    options = options_of(__doc__, warehouses=(1000, "how many warehouses"))
    count = 20 if options.quick else options.warehouses
    with tempfile.TemporaryDirectory(prefix="duckicelake-bench-", ignore_cleanup_errors=True) as place:
        report(f"{count} warehouses", list(measure(Path(place), count)), options)


def measure(place: Path, count: int) -> Iterator[Result]:
    folder, log = place / "lake", place / "server.log"
    with running_lake(folder, log, SETTINGS) as lake, httpx.Client(base_url=lake.uri, timeout=120) as http:
        use(http, "")
        before = look(lake, http)
        begun, busiest = time.perf_counter(), before
        names = [f"w{number}" for number in range(count)]
        with ThreadPoolExecutor(2) as threads:
            for number, _ in enumerate(threads.map(partial(create, http), names)):
                if number % 20 == 0:
                    busiest = max(busiest, look(lake, http), key=lambda usage: usage.connections)
        created = time.perf_counter() - begun
        wait_until_closed(http)
        after = look(lake, http)
        cpu = measure_cpu(lake)
    yield Result("created, each with a table", count / created, "warehouses/s")
    per_idle = (after.memory - before.memory) / count
    yield Result("memory for each idle warehouse", per_idle / 1024, "kB", Target("≤", 1024))
    yield Result("connections to Postgres while all are created", busiest.connections, "", Target("≤", MAX_CONNECTIONS))
    yield Result("connections to Postgres when all are idle", after.connections, "", None, before.connections, "before")
    yield Result("threads when all are idle", after.threads, "", None, before.threads, "before")
    yield Result("CPU while all are idle", cpu * 100, "% of a core", Target("≤", 10))
    begun = time.perf_counter()
    with running_lake(folder, log, SETTINGS) as lake, httpx.Client(base_url=lake.uri, timeout=120) as http:
        yield Result("start of a server that has them", time.perf_counter() - begun, "s")
        opened = [time_first_load(http, names[number]) for number in range(0, count, max(1, count // OPENED))]
        yield Result("first load of a closed warehouse", p50(opened), "ms", None, p50=p50(opened), p99=p99(opened))


def use(http: httpx.Client, prefix: str) -> None:
    for path, body in (
        ("namespaces", {"namespace": ["ns"]}),
        ("namespaces/ns/tables", {"name": "t", "schema": SCHEMA}),
    ):
        http.post(f"/v1/{prefix}{path}", json=body).raise_for_status()
    http.get(f"/v1/{prefix}namespaces/ns/tables/t").raise_for_status()


def create(http: httpx.Client, name: str) -> None:
    http.post("/management/v1/warehouses", json={"name": name}).raise_for_status()
    use(http, f"{name}/")


def time_first_load(http: httpx.Client, name: str) -> float:
    begun = time.perf_counter()
    http.get(f"/v1/{name}/namespaces/ns/tables/t").raise_for_status()
    return (time.perf_counter() - begun) * 1000


def wait_until_closed(http: httpx.Client) -> None:
    until = time.monotonic() + 6 * IDLE_SECONDS
    while count_open(http) and time.monotonic() < until:
        time.sleep(0.5)


def count_open(http: httpx.Client) -> int:
    lines = http.get("/metrics").text.splitlines()
    return int(float(next(line for line in lines if line.startswith("duckicelake_warehouses_open")).split()[1]))


def look(lake: RunningLake, http: httpx.Client) -> Usage:
    server = Bench(lake.uri, lake.folder, lake.ducklake_attach)
    process = server.processes()[0]
    with psycopg.connect(lake.ducklake_attach.removeprefix("ducklake:postgres:")) as connection:
        ((connections,),) = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        ).fetchall()
    return Usage(server.memory(), process.num_threads(), connections, count_open(http))


def measure_cpu(lake: RunningLake) -> float:
    """Measure the share of a core that the server takes while no one asks."""
    server = Bench(lake.uri, lake.folder, lake.ducklake_attach)
    before = server.cpu_seconds()
    time.sleep(QUIET_SECONDS)
    return (server.cpu_seconds() - before) / QUIET_SECONDS


if __name__ == "__main__":
    main()
