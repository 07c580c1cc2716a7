"""`duckicelake pipeline …` as people run it, as far as that takes no Spark: options, errors, exit codes, progress."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import httpx
import pytest
import typer
from fastapi import FastAPI
from rich.console import Console
from rich.progress import Progress, TextColumn
from typer.testing import CliRunner

from duckicelake import errors
from duckicelake.catalog.context.services import Services
from duckicelake.cli.main import app
from duckicelake.cli.pipeline import display
from duckicelake.cli.pipeline.app import (
    DIFFERENT_EXIT_CODE,
    EXIT_CODES,
    INTERRUPTED_EXIT_CODE,
    find_exit_code,
    one_line_errors,
)
from duckicelake.cli.pipeline.display import BarDisplay, CountColumn, LineDisplay
from duckicelake.errors import BadInputError, PipelineError
from duckicelake.pipeline.job import run_job
from duckicelake.pipeline.progress import TaskProgress
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.support.documents import PAGES, ROOT
from tests.support.logins import SECRET, Server
from tests.support.servers import serve

__all__ = ["serve"]

Serve = Callable[[FastAPI], httpx.Client]


def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["pipeline", *arguments], env=environment)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def uri(services: Services, serve: Serve) -> str:
    """A catalog on which a job has run, one has failed and one runs."""
    uri = str(serve(create_app(services)).base_url)
    client = CatalogClient(Connection(uri))
    with run_job(client, "ingest", ("a.b", "c"), "t") as job:
        job.ends("done", snapshot_ids=[2**60], rows=1_000)
    with pytest.raises(BadInputError), run_job(client, "sort", ("ns",), "u"):
        raise BadInputError("no \x1b[31msuch column")
    return uri


def test_jobs_are_listed_for_people(uri: str) -> None:
    code, out, err = run("jobs", "--uri", uri)
    heading, failed, done = out.splitlines()
    assert (code, err) == (0, "")
    assert heading.split()[:2] == ["began", "(UTC)"]
    assert "sort" in failed
    assert "ns.u" in failed
    assert "no \N{REPLACEMENT CHARACTER}[31msuch column" in failed
    assert re.search(rf"ingest +`a\.b`\.c\.t +done +anonymous +{2**60} +rows 1000", done)


def test_jobs_are_listed_for_programs_and_filtered(uri: str) -> None:
    code, out, _ = run("jobs", "--table", "`a.b`.c.t", "--json", DUCKICELAKE_PIPELINE_URI=uri)
    assert code == 0
    assert [job["counts"] for job in json.loads(out)["jobs"]] == [{"rows": 1000}]
    assert run("jobs", "--uri", uri, "--json", "--result", "lost")[1] == '{"jobs": []}\n'


def test_wrong_address_options_and_names_are_a_line_and_a_code(uri: str) -> None:
    for code, words, arguments in (
        (4, "http://127.0.0.1:1 doesn't answer", ["jobs", "--uri", "http://127.0.0.1:1"]),
        (2, "Invalid catalog URI '127.0.0.1:1'", ["jobs", "--uri", "127.0.0.1:1"]),
        (2, "--conf memory: write <name>=<value>", ["jobs", "--uri", uri, "--conf", "memory"]),
        (2, "Invalid table name 't': it has no namespace", ["jobs", "--uri", uri, "--table", "t"]),
        (2, "No such option", ["jobs", "--nonsense"]),
        (2, "'unchanged', 'skipped', 'failed', 'lost'", ["jobs", "--uri", uri, "--result", "done?"]),
        (2, "type (rest, hive, hadoop, glue, jdbc) is missing", ["import", "--uri", uri, "--source", "uri=x"]),
        (2, "uri and warehouse is missing", ["import", "--uri", uri, "--source", "type=jdbc"]),
        (2, "--follow has no end", ["changes", "ns.t", "--follow", "--to", "7"]),
        (2, "--state works with lines of JSON only", ["changes", "ns.t", "--state", "s", "--into", "ns.log"]),
        (2, "/none.csv isn't there", ["ingest", "/none.csv", "--table", "ns.t", "--uri", uri]),
        (2, "needs a --checkpoint", ["ingest", "/none.csv", "--table", "ns.t", "--uri", uri, "--follow"]),
    ):
        found, out, err = run(*arguments, JAVA_HOME="/none")  # where Spark would start the code is 3
        assert (found, out) == (code, "")
        assert words in err
        assert code == 2 or err.count("\n") == 1


def test_help_is_as_wide_as_the_terminal() -> None:
    code, out, _ = run("changes", "--help", COLUMNS="400", TERMINAL_WIDTH="400")
    assert code == 0
    assert "A table of changes gets each change exactly once, and stores the last snapshot itself" in out


def test_who_is_not_known_or_may_not_is_answered_so(services: Services, serve: Serve) -> None:
    server = Server()
    authentication = server.authentication(OAuthClient("bi", SECRET, ("ns:sales:r",)))
    uri = str(serve(server.app(services, authentication)).base_url)
    assert run("jobs", "--uri", uri)[0] == 5
    code, _, err = run("jobs", "--uri", uri, "--credential", "bi:wrong")
    assert (code, "wrong" in err) == (5, False)
    assert run("jobs", "--uri", uri, "--json", "--credential", f"bi:{SECRET}")[:2] == (0, '{"jobs": []}\n')


def test_rows_in_postgres_are_flushed_without_a_spark(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = CatalogClient(Connection(uri))
    client.make_namespace(("zoo",))
    columns = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    for table in ("birds", "fish"):
        client.post("/v1/namespaces/zoo/tables", {"name": table, "schema": columns})
        client.post(f"/v1/namespaces/zoo/tables/{table}/rows", [{"id": 1}, {"id": 2}])
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    flush = ["maintain", "zoo", "--uri", uri, "--only", "flush"]
    assert run(*flush)[:2] == (0, "nothing to do\n")
    code, out, err = run(*flush, "--policy", "maintenance.flush.min-rows=2", "--parallel", "2", "--json")
    done = json.loads(out)["jobs"]
    assert (code, {(job["table"], job["result"]) for job in done}) == (0, {("zoo.birds", "done"), ("zoo.fish", "done")})
    assert [job["counts"] for job in done] == [{"rows in Postgres": 2, "deletes in Postgres": 0, "added files": 1}] * 2
    assert "starting Spark" not in err
    report = {tuple(job["snapshot-ids"]) for job in client.jobs(namespace="zoo", kind="flush", result="done")}
    assert report == {tuple(job["snapshot_ids"]) for job in done}
    (current,) = (job["snapshot_ids"][0] for job in done if job["table"] == "zoo.fish")
    metadata = client.load_table(("zoo",), "fish")["metadata"]
    assert metadata["properties"]["ducklake.snapshot-id"] == str(current)


def test_flush_leaves_what_duckdb_did_before_to_readers_of_changes(
    uri: str, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE TABLE main.t (id bigint)")
    for first in (0, 100):
        ducklake.execute(f"INSERT INTO main.t SELECT range FROM range({first}, {first + 20})")
    ducklake.execute("DELETE FROM main.t WHERE id % 2 = 0")
    ducklake.execute("INSERT INTO main.t VALUES (1000)")
    code, out, _ = run(
        "maintain", "main.t", "--uri", uri, "--only", "flush", "--policy", "maintenance.flush.min-rows=1"
    )
    assert (code, out) == (0, "done                 1\n")
    snapshots = CatalogClient(Connection(uri)).load_table(("main",), "t")["metadata"]["snapshots"]
    report = [(each["summary"]["operation"], each["summary"].get("total-records")) for each in snapshots]
    kinds = [("append", "20"), ("append", "40"), ("delete", "40"), ("append", "41"), ("replace", "41")]
    assert report == kinds


def classes(root: type[PipelineError] = PipelineError) -> list[type[PipelineError]]:
    return [root, *(below for kind in root.__subclasses__() for below in classes(kind))]


def test_documentation_names_every_exit_code_that_there_is() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \| ", PAGES["docs/pipeline.md"], re.MULTILINE)}
    assert documented == {0, DIFFERENT_EXIT_CODE, INTERRUPTED_EXIT_CODE, *EXIT_CODES.values()}
    assert len(classes()) > len(EXIT_CODES)
    for kind in classes():
        assert find_exit_code(kind("why")) == EXIT_CODES[next(each for each in kind.__mro__ if each in EXIT_CODES)]
        assert kind.__name__ in str(errors.__doc__)


def test_interruption_is_a_line_and_a_bug_is_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as raised, one_line_errors():
        raise KeyboardInterrupt
    assert raised.value.exit_code == INTERRUPTED_EXIT_CODE
    assert "interrupted" in capsys.readouterr().err
    with pytest.raises(ZeroDivisionError), one_line_errors():
        print(1 // 0)


def folder_of(tools: Path, *names: str) -> str:
    """What a PATH is that has these programs and no others."""
    for name in names:
        (tools / name).symlink_to(str(shutil.which(name)))
    return str(tools)


@pytest.mark.parametrize(
    ("java_home", "pyspark", "words"),
    [
        (None, None, "there is no Java: install a JDK 17"),
        ("/nowhere", None, "JAVA_HOME names no JDK"),
        (None, "raise ImportError", "pip install 'duckicelake[spark]'"),
    ],
)
def test_without_java_or_pyspark_one_line_says_what_to_install(
    uri: str, tmp_path: Path, java_home: str | None, pyspark: str | None, words: str
) -> None:
    path = folder_of(tmp_path, "bash", "dirname", "ps", "env")
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": path, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    if java_home is not None:
        environment["JAVA_HOME"] = java_home
    if pyspark is not None:
        (tmp_path / "pyspark.py").write_text(pyspark)
    command = [sys.executable, "-m", "duckicelake.cli.main", "pipeline", "ingest", __file__, "--format", "csv"]
    result = subprocess.run(
        [*command, "--table", "ns.t", "--uri", uri],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    first, last = result.stderr.splitlines()
    assert (result.returncode, result.stdout, first) == (3, "", "starting Spark …")
    assert words in last


def test_progress_elsewhere_than_on_a_terminal_is_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(display, "_SECONDS_BETWEEN_LINES", 0.0)
    lines = LineDisplay()
    lines.begin("reading", 3_000, "files")
    lines.advance(1_000)
    lines.tasks(TaskProgress(3, 40, 2_000_000, 5_000_000))
    lines.tasks(None)
    lines.begin("sorting")
    lines.tasks(TaskProgress(0, 1, 0, 0))
    lines.say("so it goes")
    lines.done()
    out, err = capsys.readouterr()
    assert out == ""
    assert re.sub(r"\d+\.\d s", "1.0 s", err).splitlines() == [
        "reading: 3,000 files",
        "reading: 1,000 of 3,000 files",
        "reading: 1,000 of 3,000 files, 3 of 40 tasks, 2,000,000 rows and 5.0 MB read",
        "reading: done in 1.0 s",
        "sorting …",
        "sorting: 0 of 1 task, 0 rows and 0 bytes read",
        "so it goes",
        "sorting: done in 1.0 s",
    ]


def test_progress_on_a_terminal_is_bars_that_stay_and_one_of_sparks_that_goes() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with Progress(TextColumn("{task.description}"), TextColumn("{task.fields[unit]}"), console=console) as progress:
        bars = BarDisplay(progress)
        bars.begin("reading", 3, "files")
        bars.advance(3)
        bars.tasks(TaskProgress(1, 2, 7, 0))
        bars.tasks(TaskProgress(2, 2, 9, 0))
        assert [(task.description, task.completed, task.total) for task in progress.tasks] == [
            ("reading", 3, 3),
            ("  Spark", 2, 2),
        ]
        bars.tasks(None)
        bars.begin("sorting")
        bars.done()
        assert [(task.description, task.finished) for task in progress.tasks] == [("reading", True), ("sorting", True)]


def test_only_what_can_be_counted_is() -> None:
    progress = Progress()
    bars = BarDisplay(progress)
    bars.begin("starting Spark")
    (step,) = progress.tasks
    assert str(CountColumn().render(step)) == ""
    bars.done()
    assert str(CountColumn().render(step)) == ""
    bars.begin("reading", 3_000, "files")
    bars.advance(1_000)
    assert str(CountColumn().render(progress.tasks[1])) == "1,000/3,000"
    bars.begin("changes", unit="snapshots")
    bars.advance(7)
    assert str(CountColumn().render(progress.tasks[2])) == "7"
