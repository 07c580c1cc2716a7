"""The commands as people run them: real processes, a real embedded Postgres, signals."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from duckicelake.postgres.embedded import build_embedded_url
from scripts.backends_job.stack import Backends
from tests.support.backends import Bucket
from tests.support.clusters import place_cluster
from tests.support.collector import Collector
from tests.support.commands import run_here

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "duckicelake.cli.main"]
SECONDS = 120
"""What a busy machine may take for anything."""


def environment(**settings: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DUCKICELAKE_")}
    paths = [str(ROOT), *filter(None, [inherited.get("PYTHONPATH")])]
    return inherited | {"PYTHONPATH": os.pathsep.join(paths), "DUCKICELAKE_UPKEEP_WORKERS": "0"} | settings


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=tempfile.gettempdir(),
        env=environment(**settings),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@dataclass
class Served:
    process: subprocess.Popen[bytes]
    output: Path
    uri: str

    @property
    def printed(self) -> str:
        return self.output.read_text()

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(SECONDS)


@contextmanager
def serving(lake: Path, *arguments: str, **settings: str) -> Iterator[Served]:
    output = lake.parent / "printed"
    if not lake.exists() and "DUCKICELAKE_DATABASE_URL" not in settings:
        place_cluster(lake)
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [*COMMAND, "serve", "--lake", str(lake), "--port", "0", *arguments],
            cwd=lake.parent,
            env=environment(**settings),
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Served(process, output, printed_uri(process, output))
    finally:
        process.terminate()
        process.wait(SECONDS)


def printed_uri(process: subprocess.Popen[bytes], output: Path) -> str:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"https?://127\.0\.0\.1:\d+", output.read_text())
        if found:
            return found.group()
        time.sleep(0.02)
    raise AssertionError(output.read_text())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_ended(processes: list[int]) -> None:
    deadline = time.monotonic() + SECONDS
    while alive := [pid for pid in processes if is_alive(pid)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def postgres_pid(lake: Path) -> int:
    return int((lake / "postgres" / "postmaster.pid").read_text().split()[0])


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]


@pytest.fixture
def lake() -> Iterator[Path]:
    # Not below pytest's folder: Postgres runs as another user where the tests run as root.
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-cli-"))
    folder.chmod(0o755)
    yield folder / "lake"
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(one, marks=pytest.mark.commands) for one in (signal.SIGINT, signal.SIGHUP))],
)
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.commands)])
def test_serve_answers_until_the_signal_and_leaves_nothing_behind(lake: Path, number: int, workers: str) -> None:
    with serving(lake, "--workers", workers) as served:
        assert httpx.get(f"{served.uri}/readyz", timeout=30).json() == {"status": "ok"}
        processes = [postgres_pid(lake), *children(served.process.pid)]
        assert len(processes) >= int(workers)
        assert served.end(number) == 0
        wait_until_ended(processes)
        assert not (lake / ".server.json").exists()
        assert "Traceback" not in served.printed


@pytest.mark.commands
def test_serve_prints_snippets_that_name_its_uri_and_database(lake: Path) -> None:
    with serving(lake) as served:
        assert f"spark.sql.catalog.lake.uri={served.uri}" in served.printed
        assert f'load_catalog("lake", type="rest", uri="{served.uri}")' in served.printed
        assert (
            f"ATTACH 'ducklake:postgres:user=postgres dbname=postgres host={lake}/postgres' AS lake" in served.printed
        )


@pytest.mark.commands
def test_served_lake_is_the_same_after_a_restart(lake: Path) -> None:
    with serving(lake) as served:
        httpx.post(f"{served.uri}/v1/namespaces", json={"namespace": ["kept"]}, timeout=30).raise_for_status()
    with serving(lake) as served:
        assert httpx.get(f"{served.uri}/v1/namespaces/kept", timeout=30).status_code == 200


@pytest.mark.commands
def test_server_answers_in_little_memory(lake: Path) -> None:
    assert run_here("init", "--lake", str(lake)).returncode == 0
    with serving(lake) as served:
        httpx.get(f"{served.uri}/readyz", timeout=30).raise_for_status()
        status = Path(f"/proc/{served.process.pid}/status").read_text()
    resident = int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024
    assert resident < 250


@pytest.mark.commands
def test_second_server_on_a_lake_is_refused_naming_the_first(lake: Path) -> None:
    with serving(lake) as served:
        refused = run("serve", "--lake", str(lake), "--port", "0")
        assert refused.returncode == 2
        assert f"process {served.process.pid}, holds the lake" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        assert httpx.get(f"{served.uri}/readyz", timeout=30).status_code == 200


@pytest.mark.commands
def test_busy_port_is_one_clear_line_and_makes_no_postgres(lake: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        refused = run("serve", "--lake", str(lake), "--port", port)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"duckicelake: port {port} of 127.0.0.1 is in use; "
        "choose another with --port, or let --port 0 find a free one\n"
    )
    assert not (lake / "postgres").exists()


@pytest.mark.commands
def test_server_with_a_database_of_its_own_leaves_the_lake_in_the_folder_alone(
    lake: Path, empty_database_url: str, tmp_path: Path
) -> None:
    external = {"DUCKICELAKE_DATABASE_URL": empty_database_url, "DUCKICELAKE_WAREHOUSE": f"{tmp_path}/warehouse"}
    with serving(lake) as served:
        with serving(lake, "--create", **external):
            assert json.loads(run("info", "--lake", str(lake), "--json").stdout)["uri"] == served.uri
        assert json.loads(run("info", "--lake", str(lake), "--json").stdout)["uri"] == served.uri


@pytest.mark.commands
def test_killed_worker_is_replaced(lake: Path) -> None:
    with serving(lake, "--workers", "2") as served:
        httpx.get(f"{served.uri}/readyz", timeout=30).raise_for_status()
        before = worker_pids(served.process.pid)
        assert len(before) == 2
        os.kill(before[0], signal.SIGKILL)
        deadline = time.monotonic() + SECONDS
        while not set(worker_pids(served.process.pid)) - set(before):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert httpx.get(f"{served.uri}/readyz", timeout=30).status_code == 200
        assert served.end(signal.SIGTERM) == 0


def worker_pids(parent: int) -> list[int]:
    return [pid for pid in children(parent) if b"spawn_main" in command_line(pid)]


def command_line(pid: int) -> bytes:
    """Of a process that may end at any time; empty then."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


@pytest.mark.commands
def test_workers_end_when_their_supervisor_is_killed(lake: Path) -> None:
    with serving(lake, "--workers", "2") as served:
        httpx.get(f"{served.uri}/readyz", timeout=30).raise_for_status()
        workers = worker_pids(served.process.pid)
        postgres = postgres_pid(lake)
        served.end(signal.SIGKILL)
        wait_until_ended(workers)
    os.kill(postgres, signal.SIGTERM)
    wait_until_ended([postgres])


@pytest.mark.commands
def test_server_after_a_killed_one_takes_over_its_postgres_and_stops_it(lake: Path) -> None:
    with serving(lake) as served:
        httpx.post(f"{served.uri}/v1/namespaces", json={"namespace": ["kept"]}, timeout=30).raise_for_status()
        served.end(signal.SIGKILL)
    postgres = postgres_pid(lake)
    with serving(lake) as served:
        assert httpx.get(f"{served.uri}/v1/namespaces/kept", timeout=30).status_code == 200
        assert served.end(signal.SIGTERM) == 0
    wait_until_ended([postgres])


@pytest.mark.commands
def test_any_worker_shows_the_metrics_of_all_that_live(lake: Path) -> None:
    def wait_for(line: str) -> None:
        deadline = time.monotonic() + SECONDS
        while line not in httpx.get(f"{served.uri}/metrics", timeout=30).text:
            assert time.monotonic() < deadline, line
            time.sleep(0.05)

    with serving(lake, "--workers", "2") as served:
        for _ in range(20):
            httpx.get(f"{served.uri}/v1/config", timeout=30)
        wait_for('route="/v1/config",status="2xx"} 20.0')
        wait_for("duckicelake_pool_max 16.0")
        os.kill(worker_pids(served.process.pid)[0], signal.SIGKILL)
        wait_for("duckicelake_pool_max 8.0")
        wait_for("duckicelake_pool_max 16.0")


@pytest.mark.commands
def test_workers_take_of_a_principal_what_it_may_send_to_all_of_them(lake: Path) -> None:
    def post() -> int:
        """The status; the connection is another one each time, and so the worker may be."""
        return httpx.post(f"{served.uri}/v1/namespaces/a/tables/none/rows", content=b"[]", timeout=30).status_code

    with serving(lake, "--workers", "2", DUCKICELAKE_ROWS_REQUESTS_PER_SECOND="0.001") as served:
        assert [post() for _ in range(20)] == [404, *[429] * 19]


@pytest.mark.commands
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.commands)])
def test_server_sends_its_traces_before_it_ends(lake: Path, workers: str, collector: Collector) -> None:
    with serving(lake, "--workers", workers, DUCKICELAKE_OTLP_ENDPOINT=collector.uri) as served:
        httpx.get(f"{served.uri}/v1/namespaces", timeout=30).raise_for_status()
        assert served.end(signal.SIGTERM) == 0
    assert collector.below(collector.named("GET /v1/namespaces"))


@pytest.mark.commands
def test_info_beside_a_running_server_shows_its_uri(lake: Path) -> None:
    with serving(lake) as served:
        facts = json.loads(run("info", "--lake", str(lake), "--json").stdout)
    assert facts == {
        "uri": served.uri,
        "ducklake-attach": f"ducklake:postgres:user=postgres dbname=postgres host={lake}/postgres",
        "data-path": f"{lake}/warehouse/ducklake/",
        "format": "1.0",
    }
    stopped = run("info", "--lake", str(lake), "--json")
    assert json.loads(stopped.stdout).keys() == {"uri", "ducklake-attach"}, "Postgres knows the rest, as of an import"
    assert "data-path and format" in run("info", "--lake", str(lake)).stderr


@pytest.mark.commands
def test_adopted_lake_keeps_its_data_path_and_info_shows_it(
    lake: Path, empty_database_url: str, attach: Callable[..., duckdb.DuckDBPyConnection], tmp_path: Path
) -> None:
    own = f"{tmp_path}/own/"
    attach(url=empty_database_url, data_path=own).execute("CREATE TABLE birds AS SELECT 'duck' AS name FROM range(20)")
    external = {"DUCKICELAKE_DATABASE_URL": empty_database_url, "DUCKICELAKE_WAREHOUSE": f"{tmp_path}/warehouse"}
    with serving(lake, **external) as served:
        facts = json.loads(run_here("info", "--lake", str(lake), "--json", **external).stdout)
        table = httpx.get(f"{served.uri}/v1/namespaces/main/tables/birds", timeout=30).raise_for_status().json()
    assert facts["data-path"] == own
    assert facts["uri"] == served.uri
    assert not lake.exists()
    assert table["metadata"]["location"].startswith(f"file:{tmp_path}/warehouse/data/main/birds-")
    assert table["metadata"]["snapshots"][0]["summary"]["added-records"] == "20"


def test_adopted_lake_in_another_store_than_the_warehouse_is_refused(
    lake: Path,
    empty_database_url: str,
    attach: Callable[..., duckdb.DuckDBPyConnection],
    tmp_path: Path,
    bucket: Bucket,
) -> None:
    attach(url=empty_database_url, data_path=f"{tmp_path}/own/").close()
    backends = Backends(empty_database_url, bucket.minio, bucket.name).environment()
    refused = run_here("init", "--lake", str(lake), **backends)
    assert refused.returncode == 2
    assert f"DuckDB's files are in {tmp_path}/own/, where this server doesn't read" in refused.stderr


@pytest.mark.commands
def test_allowed_location_inside_the_data_path_is_refused(lake: Path) -> None:
    inside = f"{lake}/warehouse/ducklake/x"
    refused = run("serve", "--lake", str(lake), "--port", "0", DUCKICELAKE_ALLOWED_LOCATIONS=inside)
    assert refused.returncode == 2
    assert "DATA_PATH" in refused.stderr


def test_misspelt_command_is_answered_with_the_one_that_was_meant() -> None:
    report = run_here("servee")
    assert report.returncode == 2
    assert "No such command 'servee'. Did you mean 'serve'?" in report.stderr


def test_info_without_a_lake_starts_and_creates_nothing(lake: Path) -> None:
    report = run_here("info", "--lake", str(lake), DUCKICELAKE_PORT="9000")
    assert (report.returncode, report.stdout) == (2, "")
    said = f"duckicelake: there is no lake in {lake}; make one with: duckicelake init --lake {lake}\n"
    assert report.stderr == said
    assert not lake.exists()


@pytest.mark.commands
def test_duckdb_attaches_by_what_info_says(lake: Path, extensions: None) -> None:
    with serving(lake) as served:
        httpx.post(f"{served.uri}/v1/namespaces", json={"namespace": ["made_by_rest"]}, timeout=30).raise_for_status()
        source = json.loads(run("info", "--lake", str(lake), "--json").stdout)["ducklake-attach"]
        with duckdb.connect() as connection:
            connection.execute("LOAD ducklake; LOAD postgres_scanner")
            connection.execute(f"ATTACH '{source}' AS lake")
            connection.execute("CREATE TABLE lake.made_by_rest.t AS SELECT 42 AS answer")
            assert connection.execute("FROM lake.made_by_rest.t").fetchall() == [(42,)]
            connection.execute("CREATE MACRO lake.made_by_rest.one_more(a) AS a + 1")
        assert json.loads(run_here("info", "--lake", str(lake), "--json").stdout)["macros"] == "made_by_rest.one_more"


@pytest.mark.commands
def test_init_makes_a_lake_and_may_be_repeated(lake: Path) -> None:
    for _ in range(2):
        made = run("init", "--lake", str(lake))
        assert (made.returncode, made.stderr) == (0, "")
        assert f"{lake}/warehouse/ducklake/" in made.stdout
        assert not (lake / "postgres" / "postmaster.pid").exists()


@pytest.mark.commands
def test_doctor_of_a_healthy_lake_exits_with_0_whether_it_runs_or_not(lake: Path) -> None:
    run_here("init", "--lake", str(lake))
    stopped = run("doctor", "--lake", str(lake))
    with serving(lake):
        running = run_here("doctor", "--lake", str(lake))
    for found in (stopped, running):
        assert (found.returncode, found.stderr) == (0, "")
        assert "ok    object store" in found.stdout
        assert "ok    tables: nothing in them is damaged" in found.stdout
        assert "ok    files: 0 are in the store" in found.stdout
        assert "FAIL" not in found.stdout


@pytest.mark.commands
def test_doctor_of_a_damaged_lake_exits_with_1_and_says_what_to_do(lake: Path) -> None:
    with serving(lake):
        with psycopg.connect(build_embedded_url(lake)) as connection:
            connection.execute("DROP TRIGGER duckicelake_raise_epoch ON ducklake_snapshot")
            connection.execute("INSERT INTO duckicelake_left_out VALUES ('lineage', now(), 'changes', 'KeyError')")
        found = run_here("doctor", "--lake", str(lake))
        forgotten = run_here("doctor", "--lake", str(lake), "--no-files", "--forget-left-out")
    assert (found.returncode, forgotten.returncode) == (1, 1)
    assert "FAIL  triggers: duckicelake_raise_epoch" in found.stdout
    assert "CREATE TRIGGER as migrations" in found.stdout
    assert "FAIL  lineage: changes: left out" in found.stdout
    assert "gone  lineage: changes (KeyError)" in forgotten.stdout
    assert "FAIL  lineage" not in forgotten.stdout


@pytest.mark.commands
def test_doctor_names_a_damaged_table_and_looks_for_files_unless_asked_not_to(lake: Path) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    with serving(lake) as served:
        made = {"name": "t", "schema": schema}
        httpx.post(f"{served.uri}/v1/namespaces/main/tables", json=made, timeout=30).raise_for_status()
        with psycopg.connect(build_embedded_url(lake)) as connection:
            connection.execute(
                "INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative, "
                "file_format, record_count, file_size_bytes) VALUES (0, 1, 1, 'gone.parquet', true, 'parquet', 1, 1)"
            )
        with_files = run_here("doctor", "--lake", str(lake))
        without = run_here("doctor", "--lake", str(lake), "--no-files")
    assert (with_files.returncode, without.returncode) == (1, 1)
    assert f"FAIL  files: main.t: data file 0, {lake}/warehouse/ducklake/main/t/gone.parquet, isn't in the store" in (
        with_files.stdout
    )
    assert "FAIL  files" not in without.stdout
    for found in (with_files, without):
        assert "FAIL  side tables: main.t: data file 0 (gone.parquet) has come without a record" in found.stdout
        assert "FAIL  snapshots: next_file_id of snapshot 1 is below ids in use" in found.stdout
        assert found.stderr == ""


def test_doctor_without_a_lake_says_how_to_make_one(lake: Path) -> None:
    found = run_here("doctor", "--lake", str(lake))
    assert found.returncode == 2
    assert f"duckicelake init --lake {lake}" in found.stderr
    assert not lake.exists()


def test_doctor_of_an_absent_database_exits_with_1(lake: Path) -> None:
    found = run_here(
        "doctor", DUCKICELAKE_DATABASE_URL="postgresql://127.0.0.1:1/x", DUCKICELAKE_WAREHOUSE=str(lake.parent / "w")
    )
    assert found.returncode == 1
    assert "FAIL  database: Postgres does not answer" in found.stdout
    assert "ok    object store" in found.stdout


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"DUCKICELAKE_PROT": "1"}, "DUCKICELAKE_PROT is not a setting; did you mean DUCKICELAKE_PORT?"),
        ({"DUCKICELAKE_WORKERS": "many"}, "DUCKICELAKE_WORKERS is 'many'"),
        ({"DUCKICELAKE_DATABASE_URL": "postgresql://127.0.0.1:1/x"}, "Set DUCKICELAKE_WAREHOUSE"),
        (
            {"DUCKICELAKE_DATABASE_URL": "postgresql://me:secret@[x", "DUCKICELAKE_WAREHOUSE": "{folder}/w"},
            "database_url is not a Postgres URL",
        ),
        (
            {"DUCKICELAKE_DATABASE_URL": "postgresql://127.0.0.1:1/x", "DUCKICELAKE_WAREHOUSE": "{folder}/w"},
            "start Postgres, or correct DUCKICELAKE_DATABASE_URL",
        ),
        ({"DUCKICELAKE_WAREHOUSE": "hdfs://bucket"}, "Write an absolute path or file:"),
    ],
)
def test_what_hinders_serving_is_one_line_with_exit_code_2(lake: Path, settings: dict[str, str], said: str) -> None:
    placed = {name: value.format(folder=lake.parent) for name, value in settings.items()}
    refused = run_here("serve", "--lake", str(lake), "--port", "0", **placed)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert "secret" not in refused.stderr


def test_database_that_postgres_does_not_have_is_distinguished_from_postgres_that_does_not_answer(
    lake: Path, empty_database_url: str, tmp_path: Path
) -> None:
    url = make_conninfo(empty_database_url, dbname="nothing")
    external = {"DUCKICELAKE_DATABASE_URL": url, "DUCKICELAKE_WAREHOUSE": f"{tmp_path}/warehouse"}
    refused = run_here("serve", "--lake", str(lake), "--port", "0", **external)
    assert refused.returncode == 2
    assert "Postgres refuses the connection: " in refused.stderr
    assert refused.stderr.endswith("; create what is missing, or correct DUCKICELAKE_DATABASE_URL\n")


@pytest.mark.commands
def test_database_without_a_lake_is_served_only_if_asked_to_make_one(
    lake: Path, empty_database_url: str, tmp_path: Path
) -> None:
    external = {"DUCKICELAKE_DATABASE_URL": empty_database_url, "DUCKICELAKE_WAREHOUSE": f"{tmp_path}/warehouse"}
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("CREATE TABLE orders (i integer)")
    for command in (["serve", "--port", "0"], ["flush"], ["audit"], ["history"], ["info"]):
        refused = run_here(*command, **external)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "no DuckLake catalog in schema public; it holds 1 other table (orders): make a lake" in refused.stderr
    with psycopg.connect(empty_database_url) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    assert found == [("orders",)]
    with serving(lake, "--create", **external) as served:
        assert "beside other tables: it holds 1 other table (orders)" in served.printed
    with serving(lake, **external) as served:
        assert httpx.get(f"{served.uri}/readyz", timeout=30).status_code == 200


@pytest.mark.commands
def test_warehouse_inside_duckdbs_folder_is_refused(lake: Path) -> None:
    run("init", "--lake", str(lake))
    refused = run("serve", "--lake", str(lake), DUCKICELAKE_WAREHOUSE=f"{lake}/warehouse/ducklake/inner")
    assert refused.returncode == 2
    assert "choose a warehouse outside" in refused.stderr


def test_version_and_help_name_the_program() -> None:
    assert re.match(r"duckicelake \S+ \(DuckLake 1\.0\)", run("version").stdout)
    for command in ("serve", "init", "info", "doctor"):
        report = run_here(command, "--help")
        assert report.returncode == 0
        assert f"duckicelake {command}" in re.sub(r"\s+", " ", report.stdout)
