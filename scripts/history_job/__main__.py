"""python -m scripts.history_job: let clients use a new lake while all around them fails, and judge its history."""

import argparse
import random
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic
from typing import Final

from rich.console import Console
from rich.progress import Progress

from scripts.history_job import closing, upkeep
from scripts.history_job.client import ACTIVE, Client, Session, now
from scripts.history_job.faults import Faults, api_plan, store_plan
from scripts.history_job.history import Anomaly, History
from scripts.history_job.native import Native, install, opening
from scripts.history_job.proxy import Proxy, running
from scripts.history_job.report import report
from scripts.history_job.served import Served, serving
from scripts.history_job.stores import Storage, local_files, s3
from scripts.history_job.verdict import judge
from scripts.history_job.workload import Worker, create_tables

WIDTH: Final = 160
OPERATIONS_PER_TABLE: Final = 120
"""So that histories stay so short that a load isn't all that clients do."""
SPOILT: Final = 0.12
"""Of clients' requests."""
SPOILT_IN_STORE: Final = 0.02
FLUSH_ROWS: Final = "40"
"""From when on the server flushes a table by itself."""

EPILOG = """sizes:
  small    --clients 4 --operations 25
  medium   --clients 8 --operations 125 --kill-every 25
  large    --clients 16 --operations 750 --kill-every 100

With the seed of another run, clients choose by the same random numbers and the same requests are spoilt; what they
meet is up to the machine. The lake of a run with anomalies is kept, with all logs and the history as lines of JSON."""


def main() -> int:
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    folder = options.lake.absolute() if options.lake else Path(mkdtemp(prefix="duckicelake-history-"))
    found: Sequence[Anomaly] | None = None
    try:
        console.print(f"seed {options.seed}: the lake and all logs are in {folder}", highlight=False, soft_wrap=True)
        found = run(options, folder, console)
    except KeyboardInterrupt:
        console.print("[red]interrupted[/]: everything that the check started is stopped")
        return 130
    finally:
        if found == [] and not options.lake:
            shutil.rmtree(folder)
    return 1 if found else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/history-check",
        description="Let clients use a lake while everything around them fails; then check its whole history.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--clients", type=int, default=4, metavar="K", help="how many at a time (default 4)")
    parser.add_argument("--operations", type=int, default=30, metavar="M", help="of each client (default 30)")
    parser.add_argument("--workers", type=int, default=2, metavar="W", help="of the server (default 2)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), metavar="S", help="of all random numbers")
    parser.add_argument("--store", choices=("local", "s3"), default="local", help="a folder, or MinIO (default local)")
    parser.add_argument("--kill-every", type=int, default=10, help="operations between kills (default 10; 0: none)")
    parser.add_argument("--spoilt", type=float, default=SPOILT, help=f"share of spoilt requests (default {SPOILT})")
    parser.add_argument("--upkeep", type=int, default=0, metavar="N", help="processes that keep tables (default 0)")
    parser.add_argument("--servers", type=int, choices=(1, 2), default=1, help="of the lake (default 1)")
    parser.add_argument("--lake", type=Path, metavar="DIR", help="the folder of the new lake; it is kept")
    options = parser.parse_args(arguments)
    if min(options.clients, options.operations, options.workers) < 1:
        parser.error("--clients, --operations and --workers are at least 1")
    if options.lake and options.lake.exists() and any(options.lake.iterdir()):
        parser.error(f"{options.lake} is not empty; name a new folder")
    return options


def run(options: argparse.Namespace, folder: Path, console: Console) -> list[Anomaly]:
    """Everything that is wrong in the whole history."""
    history, started, is_over = History(), monotonic(), threading.Event()
    lake = folder / "lake"
    lake.mkdir(parents=True)
    folder.chmod(0o755)  # as root, Postgres runs as somebody else
    install()
    with ExitStack() as stack:
        storage = stack.enter_context(opened_storage(options, folder, is_over))
        proxy = stack.enter_context(running(Proxy(api_plan(options.seed, options.spoilt, is_over))))
        settings = {
            **storage.settings,
            "DUCKICELAKE_WORKERS": str(options.workers),
            "DUCKICELAKE_LOG_FORMAT": "json",
            "DUCKICELAKE_FLUSH_ROWS": FLUSH_ROWS,
        }
        settings |= upkeep.SETTINGS if options.upkeep else {}
        served = stack.enter_context(serving(Served(lake, folder, settings, proxy)))
        beside = Beside(options, folder, is_over)
        stack.enter_context(beside.running(served))
        total = options.clients * options.operations
        tables = [f"t{number}" for number in range(max(ACTIVE, total // OPERATIONS_PER_TABLE))]
        keyed = [f"k{number}" for number in range(len(tables) // 2)]
        session = Session(proxy.uri, history, storage.store, tables, keyed, total)
        session.other_uri = beside.uri
        session.expiring = frozenset([*tables[::2], *keyed[::2]] if options.upkeep else ())
        worked = use(options, session, storage, served, console, is_over, beside)
        facts = close(options, session, storage, served)
        facts |= beside.judge(history, served)
        spoilt = Counter({str(kind): times for kind, times in proxy.spoilt.items()})
        if storage.proxy:
            spoilt.update({f"store: {kind}": times for kind, times in storage.proxy.spoilt.items()})
    found = judge(history)
    facts = {"seed": options.seed, **facts, "seconds of work": round(worked), "seconds": round(monotonic() - started)}
    history.write(folder / "history.jsonl", {**facts, "anomalies": [f"{each.kind}: {each.text}" for each in found]})
    report(console, history, spoilt, facts, found)
    return found


@contextmanager
def opened_storage(options: argparse.Namespace, folder: Path, is_over: threading.Event) -> Iterator[Storage]:
    if options.store == "local":
        with local_files(folder / "lake") as storage:
            yield storage
    else:
        with s3(folder / "minio", store_plan(options.seed, SPOILT_IN_STORE, is_over)) as storage:
            yield storage


def use(
    options: argparse.Namespace,
    session: Session,
    storage: Storage,
    served: Served,
    console: Console,
    is_over: threading.Event,
    others: "Beside",
) -> float:
    """Clients, DuckDB and faults side by side, until the clients are done; how many seconds that took."""
    is_over.set()
    with closed(Client("setup", session, random.Random(options.seed))) as setup:
        create_tables(setup)
    if options.upkeep:
        upkeep.set_policies(served.proxy.target)
    is_over.clear()
    ended, started = threading.Event(), monotonic()
    native = Native(session, opening(served.attach, storage.duckdb), random.Random(f"{options.seed}/native"), ended)
    has_local_files = options.store == "local"
    faults = Faults(
        served,
        session,
        random.Random(f"{options.seed}/faults"),
        ended,
        options.kill_every,
        has_local_files,
        others.list_faults(served, random.Random(f"{options.seed}/upkeep")),
    )
    beside = [threading.Thread(target=native.run, name="duckdb")]
    if options.kill_every > 0:
        beside.append(threading.Thread(target=faults.run, name="faults"))
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("Operations", total=session.total)
        session.progressed = lambda: progress.advance(task)
        for thread in beside:
            thread.start()
        try:
            with ThreadPoolExecutor(options.clients) as pool, setting_if_interrupted(ended):
                list(pool.map(lambda number: work(options, session, storage, number, ended), range(options.clients)))
        finally:
            ended.set()
            is_over.set()
            for thread in beside:
                thread.join()
    return monotonic() - started


@dataclass(slots=True)
class Beside:
    """What runs beside the first server: a second one, and a machine that does tasks of upkeep."""

    options: argparse.Namespace
    folder: Path
    is_over: threading.Event
    second: Served | None = None
    machine: upkeep.Machine | None = None

    @property
    def uri(self) -> str | None:
        return None if self.second is None else self.second.proxy.uri

    @contextmanager
    def running(self, served: Served) -> Iterator[None]:
        with ExitStack() as stack:
            if self.options.servers > 1:
                plan = api_plan(self.options.seed + 1, self.options.spoilt, self.is_over)
                proxy = stack.enter_context(running(Proxy(plan)))
                settings = {
                    "DUCKICELAKE_WAREHOUSE": str(served.folder / "warehouse"),
                    **served.settings,
                    "DUCKICELAKE_DATABASE_URL": served.database_url,
                }
                self.second = Served(served.folder, self.folder, settings, proxy, "second-server")
                stack.enter_context(serving(self.second))
            if self.options.upkeep:
                machine = upkeep.Machine(served, self.options.upkeep, self.folder / "work.log")
                self.machine = stack.enter_context(upkeep.working(machine))
            yield

    def list_faults(self, served: Served, chance: random.Random) -> dict[str, Callable[[], None]]:
        found: dict[str, Callable[[], None]] = {}
        if self.second is not None:
            found["second server killed"] = self._kill_second
        if self.machine is not None:
            servers = [server for server in (served, self.second) if server is not None]
            faults = upkeep.UpkeepFaults(self.machine, servers, chance)
            found |= {
                "upkeep killed": faults.kill_one,
                "upkeep killed again": faults.kill_one,
                "lease outlived": faults.outlive_lease,
            }
        return found

    def judge(self, history: History, served: Served) -> dict[str, object]:
        """Note what is wrong with the others; return facts."""
        if self.second is not None and self.second.ended():
            text = f"the second server ended by itself: {self.second.last_words()}"
            history.anomalies.append(Anomaly("server ended", text))
        if self.machine is None:
            return {}
        history.anomalies.extend(self.machine.judge_end())
        facts, wrong = upkeep.count_tasks(served.database_url)
        history.anomalies.extend(wrong)
        return facts

    def _kill_second(self) -> None:
        assert self.second is not None
        self.second.kill(with_postgres=False)
        self.second.start()


@contextmanager
def setting_if_interrupted(ended: threading.Event) -> Iterator[None]:
    try:
        yield
    except BaseException:
        ended.set()
        raise


def work(options: argparse.Namespace, session: Session, storage: Storage, number: int, ended: threading.Event) -> None:
    with closed(Client(f"c{number}", session, random.Random(f"{options.seed}/client/{number}"))) as client:
        worker = Worker(client, storage.pyiceberg)
        for _ in range(options.operations):
            if ended.is_set():
                return
            worker.step()


def close(options: argparse.Namespace, session: Session, storage: Storage, served: Served) -> dict[str, object]:
    """Settle, read and examine; what that came to."""
    if served.ended():
        session.history.anomalies.append(Anomaly("server ended", "the server ended by itself at the end"))
    served.stop()  # so that no request is under way any more
    served.start()
    with closed(Client("closing", session, random.Random(f"{options.seed}/closing"))) as client:
        settled = closing.settle(session, client)
        repeated = closing.repeat(session, client, client.random)
        since = now()
        closing.read_everything(session, client, served, storage.pyiceberg)
        closing.read_as_duckdb(session, opening(served.attach, storage.duckdb))
    session.history.anomalies.extend(closing.readers_disagree(session, since))
    session.history.anomalies.extend(closing.examine(served))
    return {
        "settled by their keys": settled,
        "acknowledged, sent again": repeated,
        "observations": len(session.history.observations),
        "reads without an answer": session.unread,
        "tables": len(session.lasting_tables()),
        "starts of the server": served.starts,
    }


@contextmanager
def closed(client: Client) -> Iterator[Client]:
    try:
        yield client
    finally:
        client.close()


if __name__ == "__main__":
    sys.exit(main())
