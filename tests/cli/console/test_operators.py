"""What operators are told: whose changes those of commands are, and where results go at a terminal."""

import getpass
import json
import os
import pty
import socket
import subprocess
from pathlib import Path

import duckdb
import pytest
from rich.console import Console

from duckicelake.cli.console import snippets
from duckicelake.cli.serve import server
from duckicelake.cli.serve.address import find_database_notes, note_database_server, read_noted_uri
from duckicelake.server.telemetry.logs import make_logger
from tests.cli.test_commands import COMMAND, environment, run
from tests.support.commands import run_here

ADDRESS = "http://127.0.0.1:8181"


@pytest.fixture
def lake(database_url: str, warehouse: Path, ducklake: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Settings of a lake with a table that has rows in Postgres."""
    ducklake.execute("CREATE TABLE t AS SELECT range AS i FROM range(100)")
    ducklake.execute("INSERT INTO t VALUES (1)")
    return {"DUCKICELAKE_DATABASE_URL": database_url, "DUCKICELAKE_WAREHOUSE": str(warehouse)}


@pytest.mark.commands
def test_changes_of_commands_are_their_users(lake: dict[str, str]) -> None:
    assert run("flush", **lake).returncode == 0
    for command in (
        ["clone", "main.t", "main.copy"],
        ["expire", "main.copy", "--older-than", "0s"],
        ["restore", "main.copy", "--to", "main"],
    ):
        assert run_here(*command, **lake).returncode == 0, command
    entries = [json.loads(line) for line in run_here("audit", "--json", **lake).stdout.splitlines()]
    assert [entry["operation"] for entry in entries] == ["flush_table_rows", "clone_table", "expire", "restore"]
    assert {(entry["principal"], entry["address"]) for entry in entries} == {
        (f"cli:{getpass.getuser()}", socket.gethostname())
    }


def test_audit_of_what_never_was_is_an_error(lake: dict[str, str]) -> None:
    for name in ("nope", "nope.t", "main.nope"):
        refused = run_here("audit", "--resource", name, **lake)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"{name} is no namespace, table or view of this lake" in refused.stderr
    for name in ("main", "main.t"):
        assert run_here("audit", "--resource", name, **lake).returncode == 0


def test_results_go_to_the_file_though_a_person_looks_on(lake: dict[str, str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with (tmp_path / "results").open("w") as results:
        process = subprocess.Popen(
            [*COMMAND, "flush"], env=environment(**lake, TERM="xterm"), stdout=results, stderr=theirs, close_fds=True
        )
    os.close(theirs)
    try:
        while os.read(ours, 4096):
            pass
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(120) == 0
    assert (tmp_path / "results").read_text() == "main.t: 1 row, 1 file\n"


def test_snippets_log_in_where_clients_must() -> None:
    for snippet in (snippets.build_spark_snippet, snippets.build_pyiceberg_snippet):
        assert "oauth2-server-uri" not in snippet(ADDRESS)
        assert "<id>:<secret>" in snippet(ADDRESS, with_login=True)
        assert f"{ADDRESS}/v1/oauth/tokens" in snippet(ADDRESS, with_login=True)
    compile(snippets.build_pyiceberg_snippet(ADDRESS, with_login=True), "snippet", "exec")
    assert "\n\n" not in snippets.build_spark_snippet(ADDRESS)


def test_snippets_have_the_colours_of_the_terminal_itself() -> None:
    console = Console(force_terminal=True, color_system="truecolor", width=100)
    with console.capture() as capture:
        console.print(server._highlight(snippets.build_pyiceberg_snippet(ADDRESS), "python"))
    assert "\x1b[" in capture.get()
    assert "38;2;" not in capture.get(), "a colour of ours, which may be that of the background"


@pytest.mark.parametrize(("no_color", "has_colours"), [("", True), ("1", False)])
def test_log_obeys_no_color(monkeypatch: pytest.MonkeyPatch, no_color: str, has_colours: bool) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        make_logger(terminal, "console").warning("x")
        terminal.flush()
        written = os.read(ours, 4096)
    os.close(ours)
    assert (b"\x1b[" in written) is has_colours


def test_note_of_a_server_on_a_database_is_found_by_any_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    url = "postgresql://{}@db/lake"
    with note_database_server(url.format("a:secret"), ADDRESS):
        assert read_noted_uri(*find_database_notes(url.format("b"))) == ADDRESS
        assert read_noted_uri(*find_database_notes(url.format("b") + "?options=-csearch_path%3Down")) is None
        (folder,) = tmp_path.iterdir()
        assert "secret" not in "".join(note.read_text() for note in folder.iterdir())
        folder.chmod(0o777)
        assert read_noted_uri(*find_database_notes(url.format("b"))) is None, "anybody could have left the note"
        folder.chmod(0o700)
    assert read_noted_uri(*find_database_notes(url.format("b"))) is None
