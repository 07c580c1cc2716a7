"""What users wait for, by this checkout's server and by another checkout's, in turn.

    git worktree add /tmp/before main~20 && /tmp/before/scripts/setup
    scripts/bench/against /tmp/before

Both servers run at once, each on a lake of its own, and one of them works at a time; the first of a pair changes. Each
line is a median of pairs: this checkout's rate to the other's. The brackets have the interval that holds the median of
all pairs with a probability of at least 95 %. CPU is that of the server and its Postgres: other work on the machine
moves it less than it moves rates.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import duckdb
import orjson
import psutil  # type: ignore[import-untyped]

from scripts.bench_job.client import NAMESPACE, Appender, LocalFiles, Rest
from scripts.bench_job.load import loaded
from scripts.bench_job.posts import post
from scripts.bench_job.results import Result, Target, parser_of, report
from scripts.bench_job.servers import Bench, running_bench
from scripts.bench_job.wrk import wrk

PAIRS: Final = 11
TABLE: Final = "t"
CONNECTIONS: Final = 32
APPENDS: Final = 60
TARGET: Final = Target("≥", 0.95, "ratio")
Turn = Callable[["Side"], int]
"""Does some work at one server; how many times it did it."""


@dataclass(slots=True)
class Side:
    """One of the two servers, with what clients keep."""

    bench: Bench
    duck: duckdb.DuckDBPyConnection
    rest: Rest
    etag: str = ""
    made: int = 0

    @property
    def table(self) -> str:
        return f"{self.bench.uri}/v1/namespaces/{NAMESPACE}/tables/{TABLE}"

    def cpu_seconds(self) -> float:
        """What the server's processes and those of its Postgres have used."""
        folder = str(self.bench.folder)
        found = {each for each in psutil.process_iter() if folder in " ".join(_command(each))}
        whole = found | {child for each in found for child in each.children(recursive=True)}
        return sum(_cpu_seconds(each) for each in whole)

    def reconnect(self) -> None:
        """Open a new connection: a server closes what is idle for seconds."""
        self.rest.close()
        self.rest = Rest(self.bench.uri, self.bench.headers)

    def close(self) -> None:
        self.rest.close()

    def next_name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}{self.made}"


@dataclass(frozen=True, slots=True)
class Took:
    """What a turn took for each time that something was done."""

    seconds: float
    cpu: float


def main() -> None:
    options = parse()
    pairs = 3 if options.quick else options.pairs
    program = str(options.checkout.resolve() / ".venv/bin/duckicelake")
    with ExitStack() as stack:
        sides = [open_side(stack, None), open_side(stack, program)]
        results = [
            line
            for name, turn in TURNS.items()
            if not options.only or name in options.only
            for line in compared(name, turn, sides, pairs)
        ]
    report(f"This checkout against {options.checkout}, {pairs} pairs", results, options)


def parse() -> argparse.Namespace:
    parser = parser_of(__doc__, pairs=(PAIRS, "how many pairs"))
    parser.add_argument("checkout", type=Path, help="a folder with another checkout, set up")
    parser.add_argument("only", nargs="*", metavar="NAME", help=f"of {', '.join(TURNS)}; default: all")
    return parser.parse_args()


def open_side(stack: ExitStack, program: str | None) -> Side:
    bench = stack.enter_context(running_bench(program=program))
    duck = stack.enter_context(duckdb.connect())
    duck.execute(f"ATTACH '{bench.ducklake_attach}' AS lake")
    rest = Rest(bench.uri, bench.headers)
    rest.create_namespace()
    rest.create_table(TABLE, columns=78)
    side = Side(bench, duck, rest)
    stack.callback(side.close)
    _, side.etag = loaded(side.table, bench.headers)
    duck.execute(f"CREATE TABLE lake.{NAMESPACE}.posted (id BIGINT, name VARCHAR, amount DOUBLE)")
    duck.execute(f"CREATE TABLE lake.{NAMESPACE}.inserted (id BIGINT, name VARCHAR)")
    return side


def compared(name: str, turn: Turn, sides: Sequence[Side], pairs: int) -> Iterator[Result]:
    for side in sides:
        timed(turn, side)
    found: list[list[Took]] = [[], []]
    for pair in range(pairs):
        for which in (0, 1) if pair % 2 else (1, 0):
            found[which].append(timed(turn, sides[which]))
    now, then = found
    rates = [other.seconds / own.seconds for own, other in zip(now, then, strict=True)]
    costs = [other.cpu / own.cpu for own, other in zip(now, then, strict=True)]
    before = 1 / median(took.seconds for took in then)
    yield Result(f"{name} {interval(rates)}", before * median(rates), "/s", TARGET, before, "before")
    cpu = 1000 * median(took.cpu for took in then)
    yield Result(f"{name}, CPU before to now {interval(costs)}", cpu, "ms before", None, cpu / median(costs), "ms now")


def timed(turn: Turn, side: Side) -> Took:
    side.reconnect()
    cpu, begun = side.cpu_seconds(), time.perf_counter()
    times = turn(side)
    return Took((time.perf_counter() - begun) / times, (side.cpu_seconds() - cpu) / times)


def interval(ratios: Sequence[float]) -> str:
    """An interval that holds the median with a probability of at least 95 %: between two of the sorted ratios."""
    count, cut = len(ratios), 0
    outside = 0.0
    while cut < count // 2:
        outside += 2 * math.comb(count, cut) / 2**count
        if outside > 0.05:
            break
        cut += 1
    ordered = sorted(ratios)
    lowest = max(0, cut - 1)
    return f"[{ordered[lowest]:.2f} to {ordered[-1 - lowest]:.2f}]"


def load(side: Side) -> int:
    return round(wrk(side.table, headers=side.bench.headers, connections=CONNECTIONS, seconds=1).per_second)


def load_unchanged(side: Side) -> int:
    headers = {**side.bench.headers, "If-None-Match": side.etag}
    return round(wrk(side.table, headers=headers, connections=CONNECTIONS, seconds=1).per_second)


def list_tables(side: Side) -> int:
    url = f"{side.bench.uri}/v1/namespaces/{NAMESPACE}/tables"
    return round(wrk(url, headers=side.bench.headers, connections=CONNECTIONS, seconds=1).per_second)


def append(side: Side) -> int:
    """Append to a new table, so that no turn has more snapshots than another."""
    name = side.next_name("appended")
    appender = Appender(side.rest, LocalFiles(), name, side.rest.create_table(name))
    for _ in range(APPENDS):
        appender.append()
    return APPENDS


def set_property(side: Side) -> int:
    path, table = f"/namespaces/{NAMESPACE}/tables/{TABLE}", {"namespace": [NAMESPACE], "name": TABLE}
    for _ in range(100):
        updates = [{"action": "set-properties", "updates": {"turn": side.next_name("p")}}]
        side.rest.ask("POST", path, {"identifier": table, "requirements": [], "updates": updates})
    return 100


def create_and_drop(side: Side) -> int:
    for _ in range(30):
        name = side.next_name("made")
        side.rest.create_table(name)
        side.rest.ask("DELETE", f"/namespaces/{NAMESPACE}/tables/{name}")
    return 30


def post_rows(side: Side) -> int:
    batches = [orjson.dumps([{"id": n, "name": "x", "amount": n / 7} for n in range(10)])] * 1000
    post(side.bench.uri, f"/v1/namespaces/{NAMESPACE}/tables/posted/rows", batches, 16, side.bench.headers)
    return len(batches)


def catch_up(side: Side) -> int:
    """Insert by DuckDB, and load; DuckDB's own time is in it."""
    for number in range(20):
        side.duck.execute(f"INSERT INTO lake.{NAMESPACE}.inserted VALUES ({number}, 'x')")
        side.rest.load("inserted", query="?snapshots=refs")
    return 20


def load_first(side: Side) -> int:
    """Create tables with rows by DuckDB, and load each for the first time; DuckDB's own time is in it."""
    for _ in range(15):
        name = side.next_name("first")
        side.duck.execute(f"CREATE TABLE lake.{NAMESPACE}.{name} AS SELECT i, 'x' AS name FROM range(100) r(i)")
        side.rest.load(name)
    return 15


TURNS: Final[dict[str, Turn]] = {
    "warm-load": load,
    "unchanged-load": load_unchanged,
    "list-tables": list_tables,
    "append": append,
    "set-property": set_property,
    "create-and-drop": create_and_drop,
    "post-rows": post_rows,
    "catch-up": catch_up,
    "first-load": load_first,
}


def _cpu_seconds(process: psutil.Process) -> float:
    try:
        return float(sum(process.cpu_times()[:2]))
    except psutil.Error:
        return 0.0


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


if __name__ == "__main__":
    main()
