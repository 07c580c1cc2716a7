"""Trace requests through a server and print how many files and functions each one passes, in order if asked.

    scripts/walk                    one line per request
    scripts/walk append --steps     every function that a commit passes, file by file
    scripts/walk --json             the figures and the files

The server runs in this process, with one worker and without logins. A walk is the calls of duckicelake's functions from
the first byte of a request to the last of its answer, in the server's event loop and in the threads that work for it.
A move is a call into another file than that of the call before. Python reports a coroutine or generator that goes on as
a call, too: such moves are counted, and named apart, since a reader of the code doesn't make them.
"""

import argparse
import dis
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import duckdb
from duckdb_extensions import import_extension

from duckicelake.cli.serve.server import serve_lake
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import read_settings
from scripts.bench_job.client import NAMESPACE, Appender, LocalFiles, Rest

PACKAGE: Final = f"{Path(__file__).parents[2] / 'duckicelake'}{os.sep}"
WORKER_THREADS: Final = ("AnyIO worker thread", "ThreadPoolExecutor", "asyncio_")
"""Names of threads that work for requests; others work in the background."""
PATH: Final = f"/namespaces/{NAMESPACE}/tables/t"
CONNECT_SECONDS: Final = 0.5
_RESUME: Final = dis.opmap["RESUME"]


@dataclass(frozen=True, slots=True)
class Step:
    """A call of a function: its file within the package, and its name."""

    file: str
    function: str
    goes_on: bool = False
    """Whether a coroutine or generator goes on here, which began before."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What one request passes, in order."""

    name: str
    steps: Sequence[Step]

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(step.file for step in self.steps))

    @property
    def functions(self) -> int:
        return len({(step.file, step.function) for step in self.steps})

    @property
    def moves(self) -> int:
        return sum(one.file != other.file for one, other in pairwise(self.steps))

    @property
    def moves_back(self) -> int:
        """How many of the moves are into a coroutine or generator that goes on."""
        return sum(one.file != other.file and other.goes_on for one, other in pairwise(self.steps))


class Recorder:
    """Hears every call in the process; keeps those of the package's functions while it records."""

    def __init__(self) -> None:
        self._steps: list[Step] | None = None
        self._known: dict[tuple[CodeType, bool], Step | None] = {}
        self._instructions: dict[CodeType, bytes] = {}

    def install(self) -> None:
        """Hear this thread, and those that start from now on."""
        threading.setprofile(self._hear)
        sys.setprofile(self._hear)

    @contextmanager
    def walk(self, name: str, walks: list[Walk]) -> Iterator[None]:
        """Record until the block ends, and add the walk."""
        steps = self._steps = []
        try:
            yield
        finally:
            self._steps = None
            walks.append(Walk(name, steps))

    def _hear(self, frame: FrameType, event: str, _: Any) -> None:
        steps = self._steps
        if event != "call" or steps is None:
            return
        code = frame.f_code
        if code not in self._instructions:
            self._instructions[code] = code.co_code
        call = (code, _goes_on(self._instructions[code], frame.f_lasti))
        if call not in self._known:
            self._known[call] = _step_of(*call)
        step = self._known[call]
        if step is not None and _works_for_requests():
            steps.append(step)


def _goes_on(instructions: bytes, at: int) -> bool:
    """Whether the instruction of a call is RESUME after `yield` or `await`, instead of at the start."""
    return instructions[at] == _RESUME and instructions[at + 1] & 3 != 0


def _step_of(code: CodeType, goes_on: bool) -> Step | None:
    """The function of a code object; None for other packages', and for what is no function, as a comprehension."""
    is_own = code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")
    return Step(code.co_filename.removeprefix(PACKAGE), code.co_qualname, goes_on) if is_own else None


def _works_for_requests() -> bool:
    thread = threading.current_thread()
    return thread is threading.main_thread() or thread.name.startswith(WORKER_THREADS)


@dataclass(frozen=True, slots=True)
class Stage:
    """What the requests find: a served lake with a table of one file, and DuckDB attached to it."""

    recorder: Recorder
    walks: list[Walk]
    rest: Rest
    appender: Appender
    duck: duckdb.DuckDBPyConnection

    def load(self) -> None:
        self.rest.load("t")

    def warm(self) -> None:
        """Load until the response is cached, and the event loop has its own connection to Postgres."""
        for _ in range(3):
            self.load()
            time.sleep(CONNECT_SECONDS)

    def trace(self, name: str, act: Callable[[], object]) -> None:
        with self.recorder.walk(name, self.walks):
            act()


def _load_again(stage: Stage) -> None:
    stage.warm()
    stage.trace("load: the same bytes again", stage.load)


def _load_refs(stage: Stage) -> None:
    stage.warm()
    stage.trace("load: cached table, first time with refs only", lambda: stage.rest.load("t", query="?snapshots=refs"))


def _load_native(stage: Stage) -> None:
    stage.warm()
    stage.duck.execute(f"INSERT INTO lake.{NAMESPACE}.t (c1) SELECT range FROM range(100)")
    stage.trace("load: one insert of DuckDB's to catch up with", stage.load)


def _append(stage: Stage) -> None:
    for _ in range(2):
        stage.appender.metadata = stage.rest.load("t")
        stage.appender.append()
    request = stage.appender.prepare()
    request.pop("identifier")
    stage.trace("append: a commit of one file", lambda: stage.rest.ask("POST", PATH, request))


def _rows(stage: Stage) -> None:
    for _ in range(2):
        stage.rest.ask("POST", f"{PATH}/rows", [{"c1": 1}])
    stage.trace("rows: one row posted", lambda: stage.rest.ask("POST", f"{PATH}/rows", [{"c1": 1}]))


WALKS: Final[Mapping[str, Callable[[Stage], None]]] = {
    "append": _append,
    "again": _load_again,
    "refs": _load_refs,
    "native": _load_native,
    "rows": _rows,
}
"""The requests of a server that is warm; `serve` and `cold` are those of one that isn't."""
NAMES: Final = ("serve", "cold", *WALKS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "walks", nargs="*", choices=[[], *NAMES], metavar="WALK", help=f"of {', '.join(NAMES)}; default: all"
    )
    parser.add_argument("--steps", action="store_true", help="print every function, in order")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="duckicelake-walk-") as folder:
        walks = trace(Path(folder), options.walks or NAMES)
    if options.json:
        print(json.dumps([_as_json(walk) for walk in walks], indent=2))
        return
    for walk in walks:
        sizes = f"{len(walk.files):4} files {walk.functions:4} functions {walk.moves:4} moves"
        print(f"{walk.name:48} {sizes}, {walk.moves_back} of them back")
        if options.steps:
            _print_steps(walk)


def trace(folder: Path, names: Sequence[str]) -> list[Walk]:
    """Serve a lake in a folder twice: to make it, and to trace requests to a server that has read nothing yet."""
    settings = read_settings({"lake": folder / "lake", "port": 0})
    recorder, walks = Recorder(), list[Walk]()
    recorder.install()
    try:
        with ExitStack() as stack:
            if "serve" in names:
                stack.enter_context(recorder.walk("serve: until a new lake is served", walks))

            def make_table(_: Settings, uri: str) -> None:
                stack.close()
                _make_table(uri)

            _serve(settings, make_table)
        _serve(settings, lambda complete, uri: _trace_requests(recorder, walks, complete, uri, names))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walks


def _serve(settings: Settings, act: Callable[[Settings, str], None]) -> None:
    """Serve in this thread while another one acts, and then ends the server."""
    failures: list[BaseException] = []

    def run(complete: Settings, uri: str) -> None:
        sys.setprofile(None)
        try:
            act(complete, uri)
        except BaseException as error:  # noqa: BLE001 - raised in the other thread
            failures.append(error)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with suppress(SystemExit):
        serve_lake(settings, lambda *found: threading.Thread(target=run, args=found).start(), creates=True)
    if failures:
        raise failures[0]


def _make_table(uri: str) -> None:
    rest = Rest(uri)
    rest.create_namespace()
    Appender(rest, LocalFiles(), "t", rest.create_table("t")).append()


def _trace_requests(recorder: Recorder, walks: list[Walk], settings: Settings, uri: str, names: Sequence[str]) -> None:
    import_extension("ducklake")
    import_extension("postgres_scanner")
    rest = Rest(uri)
    rest.ask("GET", "/config")
    with duckdb.connect(config={"threads": 1}) as duck:
        duck.execute("LOAD ducklake; LOAD postgres_scanner")
        duck.execute(build_duckdb_attach(settings.database_url or ""))
        stage = Stage(recorder, walks, rest, Appender(rest, LocalFiles(), "t", {}), duck)
        if "cold" in names:
            stage.trace("load: nothing in memory", stage.load)
        for name in names:
            if name in WALKS:
                WALKS[name](stage)
    rest.close()


def _as_json(walk: Walk) -> dict[str, object]:
    return {
        "name": walk.name,
        "files": walk.files,
        "functions": walk.functions,
        "moves": walk.moves,
        "moves_back": walk.moves_back,
    }


def _print_steps(walk: Walk) -> None:
    file = None
    for step in walk.steps:
        if step.file != file:
            file = step.file
            print(f"  {file}")
        print(f"    {step.function}")


if __name__ == "__main__":
    main()
