"""The process of rewrites: kept between tasks, ended after a while and after errors; what it says of its memory."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from subprocess import DEVNULL, PIPE
from threading import Event
from typing import Any

import duckdb
import pytest

import duckicelake
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import QueryMemoryError, UnavailableError
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.query.processes import QueryProcess, _build_error, remove_left_folders
from duckicelake.rewrites import processes
from duckicelake.rewrites.actions import compact, sort
from duckicelake.rewrites.catalog_copy import describe_copy
from duckicelake.rewrites.processes import open_process
from duckicelake.rewrites.rows import NewFile, RewriteProcess
from duckicelake.rewrites.source import RewrittenTable
from tests.rewrites.test_histories import Control
from tests.support.waits import wait_until

MB = 1024 * 1024
CONTROL = Control()
ONE = {"query": "SELECT 1", "parameters": {}}


def use_process(services: Services, control: Control = CONTROL) -> tuple[int, Path]:
    """Ask a process something; return its pid and folder."""
    with open_process(services, control, ("main",), "t") as opened:
        assert opened._ask(b"F", ONE) == [[1]]
        return opened.process.pid, opened.process.folder


def test_a_process_does_one_task_after_another(services: Services) -> None:
    first, folder = use_process(services)
    assert use_process(services) == (first, folder)
    other, _ = use_process(services, Control(memory_bytes=128 * MB))
    assert other != first, "it has other limits"
    assert not folder.exists(), "one process is kept alone"


def test_a_process_ends_without_a_task(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "KEPT_SECONDS", 0.2)
    first, folder = use_process(services)
    deadline = time.monotonic() + 30
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not folder.exists()
    assert use_process(services)[0] != first


def fail(opened: RewriteProcess) -> None:
    opened._ask(b"F", ONE)
    raise RuntimeError("stopped")


def test_a_process_whose_task_failed_is_not_kept(services: Services) -> None:
    with pytest.raises(RuntimeError, match="stopped"), open_process(services, CONTROL, ("main",), "t") as opened:
        fail(opened)
    assert not opened.process.is_alive
    assert not opened.process.folder.exists()


def test_a_task_without_a_question_keeps_no_process(services: Services) -> None:
    with open_process(services, CONTROL, ("main",), "t") as opened:
        pass
    assert not opened.process.is_alive


def test_a_process_imports_no_library_that_it_does_not_need(services: Services) -> None:
    with open_process(services, CONTROL, ("main",), "t") as opened:
        opened._ask(b"F", ONE)
        mapped = Path(f"/proc/{opened.process.pid}/maps").read_text()
    assert "_duckdb" in mapped
    assert not [name for name in ("pandas", "numpy", "arrow") if f"/{name}" in mapped or f"lib{name}" in mapped]


def read_state(pid: int) -> str:
    """Read what Linux says of a process: R runs, S sleeps, T is stopped, Z has ended."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_process_rests_while_there_are_writers_alone(services: Services) -> None:
    control = Control()
    with open_process(services, control, ("main",), "t") as opened:
        assert opened._ask(b"F", ONE) == [[1]]
        pid = opened.process.pid
        for _ in range(100):
            assert read_state(pid) != "T"
            time.sleep(0.005)
        control.share = 0.1
        wait_until(lambda: read_state(pid) == "T")
        wait_until(lambda: read_state(pid) != "T")
        assert opened._ask(b"F", ONE) == [[1]]
    assert read_state(pid) != "T", "a process that is kept for the next task doesn't rest"


def test_a_process_does_not_rest_while_it_copies_the_catalog(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE TABLE lake.main.t AS FROM range(10)")
    version = load_current_table(services, ("main",), "t")
    control, states, is_over = Control(), list[str](), Event()
    control.share = 0.02
    with open_process(services, control, ("main",), "t") as opened, ThreadPoolExecutor(1) as pool:
        opened._ask(b"F", ONE)
        ask = opened._ask

        def look() -> None:
            while not is_over.wait(0.002):
                states.append(read_state(opened.process.pid))

        def watch(_self: RewriteProcess, kind: bytes, order: dict[str, Any]) -> Any:
            looking = pool.submit(look)
            answer = ask(kind, order)
            is_over.set()
            looking.result()
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RewriteProcess, "_ask", watch)
            opened.read_copy(describe_copy(services, version))
    assert len(states) > 3
    assert "T" not in states


def test_a_task_holds_no_transaction_in_postgres(services: Services, ducklake: duckdb.DuckDBPyConnection) -> None:
    """What others change meanwhile is cleaned up: a row that each batch changes gets no longer."""
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("CREATE TABLE lake.main.t AS FROM range(3_000_000)")
    version = load_current_table(services, ("main",), "t")
    table = RewrittenTable(("main",), "t", version.metadata, version.lake_snapshot, "zstd")
    others = "SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()"
    counts = []
    with open_process(services, Control(), ("main",), "t") as opened:
        opened.read_copy(describe_copy(services, version))
        query = {"query": f"SELECT bit_xor(hash(t.range, i)) FROM {table.source}, range(100) o(i)", "parameters": {}}
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(opened._ask, b"F", query)
            while not asked.done():
                with services.database.statement(only_reads=True) as cursor:
                    counts += cursor.execute(others).fetchall()
                time.sleep(0.05)
            assert asked.result()
    assert len(counts) > 5
    assert counts.count((0,)) > len(counts) / 2


def test_a_process_that_rests_ends_with_its_server() -> None:
    """The server is killed at once after a rest has begun, when threads of the process may not have stopped yet."""
    program = (
        "import os, signal; from duckicelake.query.processes import QueryProcess\n"
        "from duckicelake.rewrites.processes import _WORKER\n"
        "process = QueryProcess(_WORKER)\n"
        "try: process.parse('SELECT 1')\n"
        "except Exception: pass\n"
        "with process.pause():\n"
        "    print(process.pid, process.folder, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    for _ in range(10):
        killed = subprocess.run([sys.executable, "-c", program], stdout=PIPE, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL
        pid, folder = killed.stdout.split()
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists() or read_state(int(pid)) == "Z")  # type: ignore[misc]
        assert not Path(folder).exists()


@pytest.mark.parametrize("program", ["query/worker.py", "query/content_worker.py", "rewrites/worker.py"])
def test_a_program_run_by_hand_removes_no_folder(tmp_path: Path, program: str) -> None:
    kept = tmp_path / "kept"
    kept.touch()
    path = Path(duckicelake.__path__[0], program)
    ended = subprocess.run([sys.executable, "-I", str(path)], cwd=tmp_path, stdin=DEVNULL, stderr=DEVNULL, check=False)
    assert ended.returncode
    assert kept.exists()


def test_too_little_memory_names_the_setting(
    services: Services, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute(
        "CREATE TABLE lake.main.t AS SELECT range AS id, repeat(md5(range::VARCHAR), 20) n FROM range(60000)"
    )
    wanted = UpkeepTask("sort", ("main",), "t", "asked for", parse_policy({"maintenance.sort.order": "n"}), 128 * MB)
    control = Control(memory_bytes=16 * MB)
    with pytest.raises(QueryMemoryError, match="raise DUCKICELAKE_UPKEEP_MEMORY_BYTES"):
        sort(services, wanted, control)


@pytest.mark.parametrize(
    "text",
    [
        "Failed to get data file list from DuckLake: server closed the connection unexpectedly",
        'Unable to connect to Postgres: connection to server at "127.0.0.1", port 1 failed: Connection refused',
        "Failed to execute query: FATAL:  the database system is shutting down",
    ],
)
def test_a_postgres_that_is_away_is_no_fault_of_the_statement(text: str) -> None:
    """A task would be blocked, as if its table couldn't be read; DuckDB says this of a Postgres that was killed."""
    assert isinstance(_build_error({"kind": "TransactionException", "message": text}), UnavailableError)


def test_a_refused_login_is_not_repeated() -> None:
    text = 'IO Error: Unable to connect to Postgres at "host=h password=secret": connection refused'
    error = _build_error({"kind": "IOException", "message": text})
    assert isinstance(error, UnavailableError)
    assert "secret" not in str(error)


def test_a_sort_of_more_rows_than_memory_spills(
    services: Services, ducklake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    text = " || ".join(f"md5(concat(range, {at}))" for at in range(5))
    ducklake.execute(f"CREATE TABLE lake.main.t AS SELECT range AS id, {text} AS n FROM range(700000)")
    sums = "SELECT count(*), bit_xor(hash(rowid, id, n)) FROM lake.main.t"
    before = ducklake.execute(sums).fetchall()
    wanted = UpkeepTask("sort", ("main",), "t", "asked for", parse_policy({"maintenance.sort.order": "n"}), 64 * MB)
    assert sort(services, wanted, Control(memory_bytes=128 * MB)).result == "done"
    assert ducklake.execute(sums).fetchall() == before
    lines = "SELECT n < lag(n) OVER (ORDER BY filename, file_row_number) AS is_wrong FROM lake.main.t"
    assert ducklake.execute(f"SELECT count(*) FROM ({lines}) WHERE is_wrong").fetchall() == [(0,)]


@pytest.mark.parametrize("kind", [compact, sort])
def test_rows_too_wide_for_two_threads_are_rewritten_by_one(
    services: Services, ducklake: duckdb.DuckDBPyConnection, kind: Callable[..., TaskOutcome]
) -> None:
    """DuckDB holds a row group of each thread: of such rows 100 MB, where it has 256 MB."""
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    text = " || ".join(f"md5(concat(range, ' {at}'))" for at in range(26))
    ducklake.execute("CREATE TABLE lake.main.t (id BIGINT, n VARCHAR)")
    for start in range(0, 240_000, 40_000):
        ducklake.execute(f"INSERT INTO lake.main.t SELECT range, {text} FROM range({start}, {start + 40_000})")
    sums = "SELECT count(*), bit_xor(hash(rowid, id, n)) FROM lake.main.t"
    before = ducklake.execute(sums).fetchall()
    policy = parse_policy({"maintenance.sort.order": "id"} if kind is sort else {})
    wanted = UpkeepTask(kind.__name__, ("main",), "t", "asked for", policy, 1024 * MB)
    assert kind(services, wanted, Control(memory_bytes=256 * MB)).result == "done"
    assert ducklake.execute(sums).fetchall() == before


def test_a_sort_goes_on_with_one_thread_where_it_was(
    services: Services, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was sorted and committed before memory ran out isn't sorted again."""
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("CREATE TABLE lake.main.t (id BIGINT, k BIGINT); ALTER TABLE lake.main.t SET PARTITIONED BY (k)")
    ducklake.execute("INSERT INTO lake.main.t SELECT range, range % 2 FROM range(10)")
    write, calls = RewriteProcess.write_group, list[bool]()

    def run_short(self: RewriteProcess, *arguments: Any) -> list[NewFile]:
        calls.append(self.has_wide_rows)
        if len(calls) == 2:
            raise QueryMemoryError("Out of Memory Error")
        return write(self, *arguments)

    monkeypatch.setattr(RewriteProcess, "write_group", run_short)
    wanted = UpkeepTask("sort", ("main",), "t", "asked for", parse_policy({"maintenance.sort.order": "id"}), 64 * MB)
    outcome = sort(services, wanted, Control())
    assert calls == [False, False, True]
    assert (outcome.result, len(outcome.snapshot_ids), outcome.counts["rewritten files"]) == ("done", 2, 2)
    assert ducklake.execute("SELECT count(*), sum(id) FROM lake.main.t").fetchall() == [(10, 45)]


def test_folder_of_a_process_that_was_killed_with_its_worker_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = (
        "from duckicelake.query.processes import QueryProcess; p = QueryProcess(); print(p.pid, flush=True); input()"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], stdin=PIPE, stdout=PIPE, env=environment) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        (left,) = tmp_path.glob("duckicelake-process-*")
        os.kill(pid, signal.SIGSTOP)  # so that it doesn't see that the worker is gone
        worker.kill()
    remove_left_folders(0, 0)
    assert left.exists(), "its process lives"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}/fd").exists() or not [*Path(f"/proc/{pid}/fd").iterdir()])
    live = QueryProcess()
    try:
        remove_left_folders(0)
        assert left.exists(), "it is too young"
        remove_left_folders(0, 0)
        assert (left.exists(), live.folder.exists()) == (False, True)
    finally:
        live.kill()
    assert not live.folder.exists()


def test_a_process_that_is_killed_twice_closes_no_file_of_others() -> None:
    """A descriptor's number is given away again at once: to a connection, in a server."""
    process = QueryProcess()
    process.kill()
    with ExitStack() as opened:
        others = [opened.enter_context(Path(__file__).open()) for _ in range(20)]
        process.kill()
        assert all(os.fstat(other.fileno()).st_size for other in others)
