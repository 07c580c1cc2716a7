"""Plans of scans by `duckicelake serve`, one worker: CPU by the number of clients, memory, commits beside."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import Any, Final

import psutil  # type: ignore[import-untyped]

from scripts.bench_job.client import Appender, LocalFiles, Rest
from scripts.bench_job.embedded import Embedded
from scripts.bench_job.results import Result, Target, p50
from scripts.demo_job.server import PROGRAM, own_environment, start, stop, wait_until_ready

CLIENTS: Final = 16
PLANS: Final = 480
PAIRS: Final = 5
COMMITS: Final = 60
PLANS_A_SECOND: Final = 10
WARM_VALUES: Final = 8
_numbers = count()


class PlanServer:
    """A server of the embedded lake, of whose table the column `c2` has so many values in a thousand files each."""

    def __init__(self, process: psutil.Process, uri: str, values: int) -> None:
        self.process = process
        self.uri = uri
        self._values = values

    def plan(self, rest: Rest) -> bytes:
        """Send a request that the server doesn't know, for files that it knows: no answer of it is kept."""
        number = next(_numbers)
        columns = [f"c{2 + number % 29}", f"c{2 + number // 29 % 29}"]
        return _plan(rest, number % WARM_VALUES, columns)

    def repeat(self, rest: Rest) -> bytes:
        """Send one request that the server knows."""
        return _plan(rest, 0, ["c2"])

    def plan_new(self, rest: Rest) -> bytes:
        """Send a request for files that no plan has named."""
        return _plan(rest, self._values - 1 - next(_numbers) % (self._values - WARM_VALUES), ["c2"])

    def cpu_ms(self, act: Callable[[Rest], object], clients: int, times: int) -> float:
        """CPU of the server for one of so many acts, by clients with a connection each."""
        with ThreadPoolExecutor(clients) as pool:
            rests = [Rest(self.uri) for _ in range(clients)]

            def repeat(rest: Rest) -> None:
                for _ in range(times // clients):
                    act(rest)

            list(pool.map(act, rests))
            before = self.cpu_seconds()
            list(pool.map(repeat, rests))
        return (self.cpu_seconds() - before) / (times // clients * clients) * 1e3

    def cpu_seconds(self) -> float:
        return float(sum(self.process.cpu_times()[:2]))


def _plan(rest: Rest, value: int, columns: Sequence[str]) -> bytes:
    wanted = {"filter": {"type": "eq", "term": "c2", "value": value}, "select": columns}
    return rest.ask("POST", "/namespaces/main/tables/big/plan", wanted)


@contextmanager
def peak_memory(process: int) -> Iterator[list[float]]:
    """MB that a process took at the peak of the block, beyond what it had: the list's one element after it.

    Linux forgets the peak until now when 5 is written to `clear_refs`.
    """
    Path(f"/proc/{process}/clear_refs").write_text("5")
    before, found = _read_peak(process), list[float]()
    yield found
    found.append(_read_peak(process) - before)


def _read_peak(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))


@contextmanager
def plan_server(lake: Embedded, folder: Path, values: int) -> Iterator[PlanServer]:
    """Serve the lake by one worker until the block ends."""
    folder.mkdir()
    process = start(folder, folder / "server.log", _environment(lake))
    try:
        uri = wait_until_ready(process, folder / "server.log")
        yield PlanServer(psutil.Process(process.pid), uri, values)
    finally:
        stop(process)


def _environment(lake: Embedded) -> dict[str, str]:
    warehouse = Path(lake.services.policy.warehouse).as_uri()
    return own_environment({"DUCKICELAKE_DATABASE_URL": lake.url, "DUCKICELAKE_WAREHOUSE": warehouse})


def measure_server(lake: Embedded, folder: Path, values: int) -> Iterator[Result]:
    """values: see PlanServer."""
    with plan_server(lake, folder, values) as server:
        rest = Rest(server.uri)
        yield Result("over HTTP: files that no plan has named before", server.cpu_ms(server.plan_new, 1, 64), "ms CPU")
        for line, act in (
            ("over HTTP: unclustered filter", server.plan),
            ("the same request again and again", server.repeat),
        ):
            server.cpu_ms(act, 1, PLANS)
            alone, crowded = (server.cpu_ms(act, clients, PLANS) for clients in (1, CLIENTS))
            target = Target("≤", 1.2, "ratio")
            yield Result(f"{line}, {CLIENTS} clients at once, a plan", crowded, "ms CPU", target, alone, "ms CPU alone")
        before = server.cpu_seconds()
        with peak_memory(server.process.pid) as taken:
            pages = read_all(rest)
        yield Result(f"full scan, {pages} pages", server.cpu_seconds() - before, "s CPU")
        yield Result("memory that it took of the server", taken[0], "MB", Target("≤", 200))
        yield commits_beside(server)
    yield from explain(lake, folder)


def read_all(rest: Rest) -> int:
    """Plan a scan of all files, and fetch its pages one after another; how many there are."""
    answer: dict[str, Any] = json.loads(rest.ask("POST", "/namespaces/main/tables/big/plan", {"filter": True}))
    tokens, pages = list(answer.get("plan-tasks", [])), 1
    while tokens:
        page = rest.ask("POST", "/namespaces/main/tables/big/tasks", {"plan-task": tokens.pop()})
        tokens += json.loads(page).get("plan-tasks", []) if b'"plan-tasks"' in page else []
        pages += 1
    return pages


def commits_beside(server: PlanServer) -> Result:
    """Commits of one client, by turns alone and beside plans at a fixed rate; the medians of all of either."""
    rest = Rest(server.uri)
    rest.create_namespace()
    created = rest.create_table("beside", columns=30, properties={"ducklake.max-listed-snapshots": "20"})
    appender = Appender(rest, LocalFiles(), "beside", created)
    _append(appender)
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(PAIRS):
        found[0].extend(_append(appender))
        with _planning(server):
            found[1].extend(_append(appender))
    alone, beside = (1e3 * p50(seconds) for seconds in found)
    line = f"a commit, beside {PLANS_A_SECOND} plans a second of the unclustered filter"
    return Result(line, beside, "ms", Target("≤", 1.05, "ratio"), alone, "ms alone")


def _append(appender: Appender) -> Sequence[float]:
    for _ in range(COMMITS):
        appender.append()
    return appender.seconds[-COMMITS:]


@contextmanager
def _planning(server: PlanServer) -> Iterator[None]:
    is_over, rest = Event(), Rest(server.uri)

    def work() -> None:
        while not is_over.wait(1 / PLANS_A_SECOND):
            server.plan(rest)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        try:
            yield
        finally:
            is_over.set()
        done.result()


def explain(lake: Embedded, folder: Path) -> Iterator[Result]:
    """`duckicelake explain` as users run it: a process that reads all it needs from Postgres."""
    command = [PROGRAM, "explain", "main.big", "--where", "c2 = 7", "--json", "--lake", str(folder)]
    started = perf_counter()
    with subprocess.Popen(command, cwd=folder, env=_environment(lake), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        answer = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert json.loads(answer)["read"]["files"] > 0
    yield Result("duckicelake explain, its process", usage.ru_utime + usage.ru_stime, "s CPU", Target("≤", 5))
    yield Result("… from start to end", perf_counter() - started, "s")
