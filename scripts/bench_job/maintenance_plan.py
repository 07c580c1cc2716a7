"""The maintenance plan of 10,000 tables with 10 files and snapshots each, over HTTP: as `maintain --dry-run` makes it.

The rows are made in Postgres; a tenth of the tables has small files to merge, some have policies of their own. The
reference is the list of the same tables' names, by Iceberg's own route.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.pipeline.maintenance import MaintainRequest, build_plan
from duckicelake.postgres.embedded import build_embedded_url
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.bench_job.plans import ROWS, TABLES
from scripts.bench_job.results import Result, Target, options_of, report
from scripts.bench_job.servers import Bench, running_bench

T = TypeVar("T")

FILES: Final = 10
TRIES: Final = 3
METADATA: Final = """
UPDATE duckicelake_table SET current_snapshot_id = table_id, metadata = json_build_object(
    'properties', json_build_object('owner', 'bench', 'write.target-file-size-bytes', '100000'),
    'refs', json_build_object('main', json_build_object('snapshot-id', table_id, 'type', 'branch')),
    'schemas', repeat('x', 3000));
UPDATE ducklake_data_file SET file_size_bytes = 1000 WHERE table_id %% 10 = 0;
"""


def main() -> None:
    options = options_of(__doc__, tables=(10_000, "how many tables"))
    tables = options.tables // 10 if options.quick else options.tables
    with running_bench(auth=False) as bench:
        make(bench, tables)
        client = CatalogClient(Connection(bench.uri))
        names, listing = timed(lambda: list(client.tables(("main",))))
        assert len(names) == tables
        before = bench.cpu_seconds()
        planned, took = timed(lambda: build_plan(client, MaintainRequest(), time.time_ns() // 1_000_000))
        cpu = (bench.cpu_seconds() - before) / TRIES
    kinds = Counter(job.kind for job in planned.jobs)
    assert kinds["compact"] == tables // 10
    line = f"plan of {tables:,} tables, {len(planned.jobs):,} jobs"
    results = [
        Result(line, took, "s", Target("≤", 2.0), listing, "s for their names"),
        Result(f"{line}: CPU of the server, Postgres not counted", cpu, "s"),
    ]
    report("Maintenance plan", results, options)


def make(bench: Bench, tables: int) -> None:
    database = open_lake_database(build_embedded_url(bench.folder), 2)
    with database.transaction() as cursor:
        for statement in (TABLES + ROWS + METADATA).split(";\n"):
            if statement.strip():
                cursor.execute(statement, {"tables": tables, "each": FILES})
    with database.statement() as cursor:
        cursor.execute("VACUUM ANALYZE")
    database.close()


def timed(act: Callable[[], T]) -> tuple[T, float]:
    """What it gives, and the least of some times."""
    found = []
    for _ in range(TRIES):
        began = time.perf_counter()
        answer = act()
        found.append(time.perf_counter() - began)
    return answer, min(found)


if __name__ == "__main__":
    main()
