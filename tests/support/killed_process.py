"""Server processes that are killed by SIGKILL, or frozen by SIGSTOP, at their k-th I/O that leaves something behind.

These are COMMITs, before and after, and what is done to the file system. A death while the server only reads is the
same as one after what it wrote before. One process has everything imported and forks one server for each request, so
that hundreds of deaths take no time. It answers each line of JSON, a `Work`, with how that ended.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final
from uuid import UUID

from duckicelake.catalog import tables
from duckicelake.catalog.context.commit_queue import CommitQueue
from duckicelake.catalog.context.idempotency import Once
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.catalog.tables import commit_transaction
from duckicelake.delta.import_.importer import DeltaImport, import_table
from duckicelake.delta.import_.sync import find_source, sync
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.errors import UnavailableError
from duckicelake.file_lake import importer
from duckicelake.file_lake.catalog_file import open_catalog_file
from duckicelake.iceberg.rest import CommitTransactionRequest
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import prepare_catalog
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import UpkeepTask
from duckicelake.materialized_views.refreshes import refresh_view
from duckicelake.materialized_views.view_rows import MaterializedQuery, Schedule
from duckicelake.materialized_views.views import NewView, create_view
from duckicelake.query.processes import QueryLimits
from duckicelake.rewrites.actions import compact
from duckicelake.rewrites.metadata_files import rewrite_deletes
from duckicelake.rewrites.statistics import compute_statistics
from duckicelake.storage.policy import LocationPolicy
from duckicelake.storage.registry import open_store
from duckicelake.upkeep.worker import Worker, WorkerLimits
from tests.support.client import NS, Client
from tests.support.seams import Fuse, fused

FINGERPRINT: Final = b"the request"
NEVER: Final = 10**9
IMPORTED_BEFORE: Final = (rewrite_deletes, compute_statistics)
"""Actions of workers, which import them for their first task: a child would write what it compiles."""
_VIEW_LIMITS: Final = QueryLimits(1, 256 * 1024**2, 256 * 1024**2, 60.0, 0)
_OF_DATABASE: Final = {"before COMMIT", "after COMMIT", "after a statement"}
_OF_FILES: Final = {"os.link", "os.remove", "os.mkdir", "os.rename"}
"""What Python tells its audit hooks before it does it."""
CREATING: Final = "creating a file"


@dataclass(frozen=True, slots=True)
class Work:
    """A request, and after how many lasting steps its server dies; one that isn't alone has seen others commit."""

    act: str
    steps: int = NEVER
    name: str = "t"
    body: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    alone: bool = True
    is_frozen: bool = False
    """Whether it is frozen at the step instead of killed."""
    statement_seconds: float = 0


@dataclass(frozen=True, slots=True)
class Ending:
    """Whether the server came to an answer, and the steps that it took; a frozen one hasn't yet."""

    answered: bool
    log: Sequence[str]


class Mortal:
    """Servers of a lake that die on command, one after the other."""

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] = os.environ) -> None:
        command = [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(
            command,
            cwd=Path(__file__).parents[2],
            stdin=PIPE,
            stdout=PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def serve(self, work: Work) -> Ending:
        ending = self._ask(json.dumps(asdict(work)))
        assert ending.answered or len(ending.log) == work.steps + 1, ending
        return ending

    def thaw(self) -> Ending:
        """Let a frozen server go on to its end."""
        return self._ask("")

    def _ask(self, line: str) -> Ending:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return Ending(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def mortal(services: Services) -> Iterator[Mortal]:
    server = Mortal("tests.support.killed_process", services.database.url, services.policy.warehouse)
    try:
        yield server
    finally:
        server.close()


def main() -> None:
    url, warehouse = sys.argv[1:]
    serve_in_children(lambda work, log: _serve_and_exit(url, warehouse, work, log))


def serve_in_children(serve: Callable[[Work, int], None]) -> None:
    """Serve each work of stdin in a process of its own. serve: gets a descriptor to log its steps to, and exits."""
    while line := sys.stdin.readline():
        print(json.dumps(asdict(_serve_in_child(serve, Work(**json.loads(line))))), flush=True)


def _serve_in_child(serve: Callable[[Work, int], None], work: Work) -> Ending:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        serve(work, writing)
    os.close(writing)
    if work.is_frozen and _is_stopped(child):
        log = os.read(reading, 2**16).decode().splitlines()
        print(json.dumps(asdict(Ending(False, log))), flush=True)
        sys.stdin.readline()
        os.kill(child, signal.SIGCONT)
    with os.fdopen(reading) as steps:
        log = steps.read().splitlines()
    _, status = os.waitpid(child, 0)
    if status not in (0, signal.SIGKILL):
        raise RuntimeError(f"the server ended with {status} after {log}: its message stands above")
    return Ending(status == 0, log)


def _is_stopped(child: int) -> bool:
    """Wait until a process is stopped or has ended."""
    found = os.waitid(os.P_PID, child, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    return found is not None and found.si_code == os.CLD_STOPPED


def _serve_and_exit(url: str, warehouse: str, work: Work, log: int) -> None:
    """End this process, by its own hand if it doesn't come to the step at which it dies."""
    services = Services(
        open_lake_database(url, 4, work.statement_seconds),
        open_store(warehouse),
        LocationPolicy(warehouse),
        "client",
        lambda: time.time_ns() // 1_000_000,
    )
    if not work.alone:
        services = replace(services, commits=CommitQueue(expected_commits=0))
    if work.key is not None:
        services = replace(services, once=Once(UUID(work.key), FINGERPRINT))
    _do(fused(services, light_fuse(work, log)), work)
    os._exit(0)


def light_fuse(work: Work, log: int) -> Fuse:
    """Make the fuse that kills this process after the lasting steps of a work; it sees those on files by itself."""
    kind, act = (_OwnSteps, _freeze_once) if work.is_frozen else (_LastingSteps, _die)
    fuse = kind(work.steps, act, _Pipe(log))
    sys.addaudithook(lambda event, arguments: fuse.burn(_step(event, arguments)))
    return fuse


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@cache
def _freeze_once() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _step(event: str, arguments: tuple[Any, ...]) -> str:
    return CREATING if event == "open" and arguments[2] & os.O_CREAT else event


class _LastingSteps(Fuse):
    """A fuse that burns down with what leaves something behind."""

    def burn(self, step: str) -> None:
        if step in _OF_DATABASE or step in _OF_FILES or step == CREATING:
            Fuse.burn(self, step)


class _OwnSteps(_LastingSteps):
    """A fuse that burns down by what the main thread does, so that this is at a step of its own when it is frozen."""

    def burn(self, step: str) -> None:
        if threading.current_thread() is threading.main_thread():
            _LastingSteps.burn(self, step)


class _Pipe(list[str]):
    """A log that outlives the process."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor

    def append(self, step: str) -> None:
        os.write(self.descriptor, f"{step}\n".encode())


def _do(services: Services, work: Work) -> None:
    client = Client(services)
    match work.act:
        case "commit":
            client.commit(work.body, work.name)
        case "append rows":
            rows = json.dumps(work.body["rows"]).encode()
            append_rows(services, PostedRows(NS, work.name, rows, "application/json"))
        case "commit to two":
            commit_transaction(services, CommitTransactionRequest.model_validate(work.body))
        case "create":
            client.create(work.name)
        case "load":
            client.load(work.name)
        case "flush":
            flush_rows(services, NS, work.name)
        case "compact":
            _compact(services, work.name)
        case "upkeep":
            with suppress(UnavailableError) if work.is_frozen else nullcontext():  # then workers go on with the next
                assert Worker(WorkerLimits(256 * 2**20, 2**30, 1)).work(services)
        case "import":
            import_table(services, DeltaImport(work.body["root"], NS, work.name))
        case "sync":
            source = find_source(services, f"main.{work.name}")
            sync(services, source, DeltaLog(services.store, source.root))
        case "import a file":
            _import_file(services, Path(work.body["file"]))
        case "refresh a view":
            refresh_view(services, ("main",), work.name, limits=_VIEW_LIMITS)
        case "create a view":
            query = MaterializedQuery(work.body["query"], ("main",), {})
            create_view(services, NewView(("main",), work.name, query, Schedule(), {}), _VIEW_LIMITS)
        case "purge":
            tables.drop_table(services, NS, work.name, purge=True)
        case _:
            raise ValueError(work.act)


@dataclass(frozen=True, slots=True)
class FreeControl:
    """A task's control that stops nothing."""

    memory_bytes: int = 256 * 2**20
    scratch_bytes: int = 2**30
    share: float = 1.0

    def check(self) -> None: ...

    def report(self, counts: Mapping[str, int]) -> None: ...


def _compact(services: Services, name: str) -> None:
    policy = parse_policy({"maintenance.compaction.min-files": "2"})
    task = UpkeepTask("compact", NS, name, "asked for", policy, 128 * 2**20)
    assert compact(services, task, FreeControl()).result == "done"


def _import_file(services: Services, file: Path) -> None:
    """Do as `duckicelake import-lake`, in parts of a few rows."""
    importer.PART_ROWS = 20  # type: ignore[misc]
    with closing(open_catalog_file(file)) as source:
        importer.import_catalog(services.database, source, importer.plan_import(source), lambda _: None)
    prepare_catalog(services.database, services.policy.data_path, creates=False)


if __name__ == "__main__":
    main()
