"""What queries over HTTP take beside DuckDB that has attached the same lake itself, in turn, over 1 GB of Parquet.

Both answer as Arrow: the route by its client over a socket, DuckDB in this process, with as many threads. CPU is of all
processes: client, server, query process, Postgres. Then: until the first bytes of a warm query's answer, what the
processes of queries hold when they are idle, and what a row filter and masks of two columns cost, by turns.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from statistics import median
from typing import Final

import duckdb
import httpx
import pyarrow as pa
from duckdb_extensions import import_extension

import duckicelake
from duckicelake.client.lake import Lake
from duckicelake.query.processes import WORKER
from scripts.bench_job.paired_loads import connect_postgres, turn_policies
from scripts.bench_job.results import Result, Target, options_of, p50, p99, report
from scripts.bench_job.servers import Bench, child_seconds, running_bench

ROWS_PER_FILE: Final = 1_000_000
FILES: Final = 20
"""Together 1.0 GB."""
QUERIES: Final = {
    "scan and aggregate": "SELECT region, count(*) AS n, sum(amount) AS a, avg(quantity) AS q FROM lake.sales.orders "
    "GROUP BY region ORDER BY region",
    "a filter that prunes to one file of {files}": "SELECT count(*) AS n, max(note) AS last FROM lake.sales.orders "
    "WHERE day = DATE '2026-01-04' AND amount > 500",
    "join": "SELECT c.segment, sum(o.amount) AS a FROM lake.sales.orders o JOIN lake.sales.customers c "
    "ON o.customer = c.id GROUP BY c.segment ORDER BY c.segment",
    "top 100": "SELECT * FROM lake.sales.orders ORDER BY amount DESC, id LIMIT 100",
    "a wide result of {rows:,} rows": "SELECT * FROM lake.sales.orders WHERE id < {rows}",
}
MASKS: Final = {6: "replace-with-null", 7: "show-last-4"}
"""Of quantity and note."""
SMALL: Final = "SELECT id FROM lake.sales.customers WHERE id < 10"
_CREATE: Final = (
    "CREATE SCHEMA lake.sales",
    "CREATE TABLE lake.sales.customers AS SELECT i AS id, 'segment ' || i % 10 AS segment FROM range(100000) r(i)",
    """CREATE TABLE lake.sales.orders (id BIGINT, day DATE, customer BIGINT, region VARCHAR, amount DOUBLE,
    quantity INTEGER, note VARCHAR)""",
)
_FILL: Final = (
    "INSERT INTO lake.sales.orders SELECT {n} * {rows} + i, DATE '2026-01-01' + {n}, floor(random() * 100000)::BIGINT, "
    "'region ' || i % 7, round(random() * 1000, 6), (random() * 50)::INTEGER, md5(i::VARCHAR || '{n}') "
    "FROM range({rows}) r(i)"
)


def main() -> None:
    options = options_of(__doc__, pairs=(7, "how often each is measured"))
    rows, pairs = (ROWS_PER_FILE // 10, 3) if options.quick else (ROWS_PER_FILE, options.pairs)
    settings = {"DUCKICELAKE_QUERY_ROWS": "10000000", "DUCKICELAKE_QUERY_SECONDS": "300"}
    with running_bench(auth=False, settings=settings) as bench, _attach(bench) as duck:
        size = _fill(duck, rows)
        lake = duckicelake.connect(bench.uri)
        results = [
            result
            for name, sql in QUERIES.items()
            for result in _compare(
                name.format(files=FILES, rows=2 * rows), sql.format(rows=2 * rows), duck, lake, pairs
            )
        ]
        results += [*_measure_first_rows(bench, 10 * pairs), _measure_after_leaving(bench, 3 * pairs)]
        results += [*_measure_idle(bench, lake), *_measure_policies(bench, lake, rows, pairs)]
        report(f"Queries over {size / 1e9:.2f} GB of Parquet", results, options)


@contextmanager
def _attach(bench: Bench) -> Iterator[duckdb.DuckDBPyConnection]:
    for name in ("ducklake", "postgres_scanner"):
        import_extension(name)
    with duckdb.connect() as duck:
        duck.execute("LOAD ducklake; LOAD postgres_scanner")
        duck.execute(f"ATTACH '{bench.ducklake_attach}' AS lake")
        yield duck


def _fill(duck: duckdb.DuckDBPyConnection, rows: int) -> int:
    """Make the tables; return the bytes of their files."""
    for statement in (*_CREATE, *(_FILL.format(n=number, rows=rows) for number in range(FILES))):
        duck.execute(statement)
    ((size,),) = duck.execute("SELECT sum(file_size_bytes) FROM ducklake_table_info('lake')").fetchall()
    return int(size)


def _compare(name: str, sql: str, duck: duckdb.DuckDBPyConnection, lake: Lake, pairs: int) -> Iterator[Result]:
    """Measure one query by both, in turn; the first time of each isn't counted."""
    ways: dict[str, Callable[[], pa.Table]] = {
        "duckdb": lambda: duck.execute(sql).to_arrow_table(),
        "route": lambda: lake.sql(sql).to_arrow(),
    }
    tables = {way: run() for way, run in ways.items()}
    assert tables["duckdb"].num_rows == tables["route"].num_rows
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for pair in range(pairs):
        for way in sorted(ways, reverse=bool(pair % 2)):
            found[way].append(_measure(ways[way]))
    for what, column, target in (("", 0, Target("≤", 1.3, "ratio")), (", CPU", 1, None)):
        reference = median(seconds[column] for seconds in found["duckdb"])
        ratios = [ours[column] / theirs[column] for ours, theirs in zip(found["route"], found["duckdb"], strict=True)]
        yield Result(f"{name}{what}", 1000 * reference * median(ratios), "ms", target, 1000 * reference, "DuckDB")


def _measure(run: Callable[[], pa.Table]) -> tuple[float, float]:
    """Return seconds, and seconds of CPU of all processes."""
    cpu = time.process_time() + child_seconds()
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun, time.process_time() + child_seconds() - cpu


def _measure_first_rows(bench: Bench, times: int) -> Iterator[Result]:
    found = []
    with httpx.Client(base_url=bench.uri, timeout=60) as http:
        for _ in range(times):
            begun = time.perf_counter()
            with http.stream("POST", "/sql/v1/query", json={"sql": SMALL}) as answer:
                pieces = answer.iter_raw()
                next(pieces)
                found.append(1000 * (time.perf_counter() - begun))
                for _ in pieces:
                    pass
    yield Result("first row of a warm query", p50(found), "ms", Target("≤", 100), p50=p50(found), p99=p99(found))


def _measure_after_leaving(bench: Bench, times: int) -> Result:
    """Measure a small query after each one that its client left before the end of the answer."""
    found = []
    with httpx.Client(base_url=bench.uri, timeout=60) as http:
        for _ in range(times):
            with http.stream("POST", "/sql/v1/query", json={"sql": "SELECT * FROM lake.sales.orders"}) as answer:
                next(answer.iter_raw())
            begun = time.perf_counter()
            http.post("/sql/v1/query", json={"sql": SMALL}).raise_for_status()
            found.append(1000 * (time.perf_counter() - begun))
    return Result("a query after one that its client left", p50(found), "ms", p50=p50(found), p99=p99(found))


def _measure_idle(bench: Bench, lake: Lake) -> Iterator[Result]:
    """Measure the processes after a large query, as they wait for the next."""
    lake.sql(QUERIES["scan and aggregate"])
    server = bench.processes()[0]
    used = sorted(
        child.memory_full_info().uss / 1e6
        for child in server.children(recursive=True)
        if str(WORKER) in " ".join(child.cmdline())
    )
    yield Result("memory of an idle query process, the largest of them", max(used), "MB", Target("≤", 200))
    yield Result("memory of all idle query processes of a worker", sum(used), "MB")


def _measure_policies(bench: Bench, lake: Lake, rows: int, pairs: int) -> Iterator[Result]:
    """Compare queries of a table with policies, which all its rows pass, with the same queries without policies."""
    queries = {name: sql.replace("lake.", "").format(rows=2 * rows) for name, sql in QUERIES.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in queries}
    with closing(connect_postgres(bench)) as connection:
        for pair in range(pairs):
            seconds: dict[bool, dict[str, float]] = {}
            for is_on in (False, True) if pair % 2 else (True, False):
                turn_policies(connection, "orders", MASKS if is_on else {})
                seconds[is_on] = {}
                for name, sql in queries.items():
                    lake.sql(sql).to_arrow()
                    seconds[is_on][name] = 1000 * _measure(lambda sql=sql: lake.sql(sql).to_arrow())[1]  # type: ignore[misc]
            for name in queries:
                found[name].append((seconds[False][name], seconds[True][name]))
    for name, times in found.items():
        reference = median(off for off, _ in times)
        ratio = median(on / off for off, on in times)
        what = f"{name.format(files=FILES, rows=2 * rows)}, with policies, CPU"
        yield Result(what, reference * ratio, "ms", None, reference, "without")


if __name__ == "__main__":
    main()
