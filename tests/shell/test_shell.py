"""The shell on a served lake without a terminal: -c, -f, pipes, formats, exit codes, wrong input."""

import csv
import io
import json
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import duckicelake
from tests.client.conftest import LiveLake, live, shared_lake
from tests.shell.conftest import run_shell

__all__ = ["live", "shared_lake"]
_numbers = count(1)


@pytest.fixture
def uri(live: LiveLake) -> str:
    return live.served.uri


@pytest.fixture
def table(uri: str, tmp_path: Path) -> str:
    """A table of two rows, `<namespace>.birds`."""
    space = f"sh{next(_numbers)}"
    with duckicelake.connect(uri) as lake:
        lake.create_namespace(space)
        lake.create_table(f"{space}.birds", "id long not null, name string")
    rows = tmp_path / "rows.ndjson"
    rows.write_text('{"id": 1, "name": "duck"}\n{"id": 2, "name": null}\n')
    done = run_shell(uri, "-c", f"\\copy {space}.birds from {rows}")
    assert done.exit_code == 0, done.output
    return f"{space}.birds"


def run(uri: str, *arguments: str, typed: str = "", code: int = 0) -> str:
    done = run_shell(uri, *arguments, typed=typed)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def test_statements_of_options_files_and_pipes(uri: str, table: str, tmp_path: Path) -> None:
    query = f"SELECT count(*) AS n FROM {table}"
    file = tmp_path / "two.sql"
    file.write_text(f"{query};\n\\format ndjson\n{query} -- no semicolon at the end")
    assert run(uri, "-c", query, "--format", "csv") == '"n"\n2\n'
    assert run(uri, "-c", query, "-c", query, "--format", "ndjson") == '{"n":2}\n' * 2
    assert run(uri, "-f", str(file), "--format", "csv") == '"n"\n2\n{"n":2}\n'
    assert run(uri, "--format", "csv", typed=query) == '"n"\n2\n'
    assert run(uri, "-c", f"\\i {file}", "--format", "csv").startswith('"n"\n2\n')
    assert run(uri, typed="\\q\nnot SQL at all;") == ""


def test_statement_is_edited_and_run(uri: str, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i s/count/max/;s/[*]/id/")
    typed = f"SELECT count(*) + 5 AS n FROM {table};\n\\e"
    assert run(uri, "--format", "csv", typed=typed) == '"n"\n7\n"n"\n7\n'
    assert run(uri, "--format", "csv", typed=f"SELECT count(*) + 6 AS n FROM {table} \\e") == '"n"\n8\n'
    monkeypatch.setenv("EDITOR", "no-such-editor")
    assert "'no-such-editor' can't be run: set EDITOR" in run(uri, "-c", "\\e", code=2)
    monkeypatch.setenv("EDITOR", "false")
    assert "ended with 1: nothing was run" in run(uri, "-c", "\\e", code=2)


def test_formats(uri: str, table: str, tmp_path: Path) -> None:
    query = f"FROM {table} ORDER BY id"
    assert "│  1 │ duck │\n│  2 │ NULL │" in run(uri, "-c", query)
    assert run(uri, "-c", query, "--format", "markdown").splitlines()[2:] == ["| 1 | duck |", "| 2 | NULL |"]
    assert json.loads(run(uri, "-c", query, "--format", "json")) == [{"id": 1, "name": "duck"}, {"id": 2, "name": None}]
    assert "id   │ 1\nname │ duck" in run(uri, "-c", "\\x", "-c", query)
    arrow = tmp_path / "rows.arrow"
    run(uri, "--format", "arrow", "-c", f"\\o {arrow}", "-c", query)
    assert pa.ipc.open_stream(arrow.read_bytes()).read_all().num_rows == 2


@pytest.mark.parametrize("suffix", ["csv", "json", "ndjson", "arrow", "parquet"])
def test_copies_to_files(uri: str, table: str, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a file.{suffix}"
    assert "copied 2 rows to" in run(uri, "-c", f"\\copy (SELECT id FROM {table} ORDER BY id) to '{path}'")
    match suffix:
        case "csv":
            assert list(csv.reader(io.StringIO(path.read_text()))) == [["id"], ["1"], ["2"]]
        case "json":
            assert json.loads(path.read_text()) == [{"id": 1}, {"id": 2}]
        case "ndjson":
            assert path.read_text() == '{"id":1}\n{"id":2}\n'
        case "arrow":
            assert pa.ipc.open_stream(path.read_bytes()).read_all().to_pylist() == [{"id": 1}, {"id": 2}]
        case _:
            assert parquet.read_table(path).to_pylist() == [{"id": 1}, {"id": 2}]


def test_descriptions_are_those_of_the_commands(uri: str, table: str) -> None:
    space = table.partition(".")[0]
    described = run(uri, "-c", f"\\d {table}", "--format", "ndjson")
    assert [json.loads(line)["name"] for line in described.splitlines()] == ["id", "name"]
    assert json.loads(run(uri, "-c", f"\\dt+ {space}", "--format", "json"))[0]["rows"] == 2
    for command, expected in [
        ("\\dn", space),
        (f"\\dt {space}", f"table │ {table}"),
        (f"\\d+ {table}", "format version"),
        (f"\\snapshots {table}", "append"),
        (f"\\refs {table}", "main"),
        (f"\\files {table}", ".parquet"),
        (f"\\partitions {table} main", "unpartitioned"),
        (f"\\history {table} 5", "append"),
        ("\\?", "\\watch [SECONDS] [TIMES]"),
    ]:
        assert expected in run(uri, "-c", command), command


def test_changes(uri: str, table: str) -> None:
    assert "created the branch audit" in run(uri, "-c", f"\\branch {table} audit")
    assert "dropped audit" in run(uri, "-c", f"\\unbranch {table} audit")
    (snapshot, *_) = (
        json.loads(line)["snapshot-id"]
        for line in run(uri, "-c", f"\\snapshots {table}", "--format", "ndjson").splitlines()
    )
    assert f"{table}: is what it was at snapshot {snapshot}" in run(uri, "-c", f"\\restore {table} {snapshot}")
    assert f"{table}: 2 rows" in run(uri, "-c", f"\\maintain {table} 0s")


def test_queries_at_a_snapshot(uri: str, table: str, tmp_path: Path) -> None:
    before, rows = datetime.now(UTC).isoformat(), tmp_path / "more.ndjson"
    rows.write_text('{"id": 3, "name": "hen"}\n')
    query = f"SELECT count(*) AS n FROM {table}"
    commands = (f"\\copy {table} from {rows}", f"\\at {before}", query, "\\at", query)
    answers = run(uri, *(word for command in commands for word in ("-c", command)), "--format", "ndjson")
    assert [json.loads(line) for line in answers.splitlines()[1:]] == [{"n": 2}, {"n": 3}]


def test_watch_repeats_a_statement(uri: str) -> None:
    assert run(uri, "-c", "SELECT 7 AS n \\watch 0.01 3").count("│ 7 │") == 3


def test_first_error_gives_the_exit_code_and_stops_where_that_is_asked_for(uri: str) -> None:
    commands = ("-c", "SELECT nothing", "-c", "SELECT 8 AS n", "--format", "csv")
    assert run_shell(uri, *commands).exit_code == 2
    assert run_shell(uri, *commands).stdout == '"n"\n8\n'
    for option in (["--on-error-stop"], ["-v", "ON_ERROR_STOP=1"]):
        assert run_shell(uri, *commands, *option).stdout == ""
    assert run_shell(uri, typed="\\set ON_ERROR_STOP on\nnonsense;\nSELECT 8;").stdout == ""
    assert run_shell("http://127.0.0.1:1", "-c", "\\dt").exit_code == 4


def test_profile_that_is_read_only_refuses_by_name(uri: str, table: str, home: dict[str, str]) -> None:
    Path(home["DUCKICELAKE_CLIENT_PROFILES"]).write_text(f'[work]\nuri = "{uri}"\nread-only = true\n')
    for command, name in [
        (f"\\branch {table} x", "\\branch"),
        (f"\\unbranch {table} main", "\\unbranch"),
        (f"\\restore {table} main", "\\restore"),
        (f"\\maintain {table}", "\\maintain"),
        (f"\\copy {table} from x.csv", "\\copy … from"),
    ]:
        done = run_shell("work", "-c", command, **home)
        assert done.exit_code == 5
        assert done.stderr == f"duckicelake: profile work is read-only: {name} is refused\n"
    assert run_shell("work", "-c", f"\\d {table}", "-c", "\\l", **home).exit_code == 0


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT 'a", "A quote or comment doesn't end: 'a"),
        ("/* SELECT 1", "A quote or comment doesn't end: /* SELECT 1"),
        ("INSERT INTO {t} VALUES (3, 'x')", "Only"),
        ("DROP TABLE {t}", "Only"),
        ("SELECT * FROM {s}.bird", "{s}.bird"),
        ("SELECT nam FROM {t}", '"nam"'),
        ("SELECT 1; SELECT", "SELECT clause without selection list"),
        ("\\", "Unknown command \\: \\? lists all"),
        ("\\foo", "Unknown command \\foo: \\? lists all"),
        ("\\snapshot {t}", "Unknown command \\snapshot: did you mean \\snapshots?"),
        ("\\q+", "Unknown command \\q+: did you mean \\q?"),
        ("\\d {s}.bird", "Table does not exist: {s}.bird; did you mean {t}?"),
        ("\\d birds", "Invalid table name 'birds': it has no namespace; expected ns.table"),
        ("\\d a b", "Expected \\d [NAME], and got 2 arguments"),
        ("\\d .", "Invalid name '.'"),
        ("\\d 'x", "A quote"),
        ("\\dt nowhere", "Namespace does not exist: nowhere"),
        ("\\snapshots", "Expected \\snapshots TABLE [COUNT], and got 0 arguments"),
        ("\\snapshots {t} many", "Invalid number 'many': expected how many snapshots, as 10"),
        ("\\refs {s}.bird", "did you mean {t}?"),
        ("\\files {t} nosuch", "lists no snapshot, branch or tag 'nosuch'"),
        ("\\history {t} 0", "Invalid number '0': expected how many changes, as 10"),
        ("\\lineage no.such", "There is no lineage of no.such"),
        ("\\branch {t}", "Expected \\branch TABLE NAME [AT], and got 1 argument"),
        ("\\branch {t} x 99", "lists no snapshot, branch or tag '99'"),
        ("\\unbranch {t} nosuch", "has no branch or tag 'nosuch'"),
        ("\\unbranch {t} main", "main can't be dropped"),
        ("\\restore {t} nosuch", "nosuch"),
        ("\\maintain {t} soon", "'soon' is neither an age, as 2h or 90d, nor a time"),
        ("\\copy {t}", "Expected \\copy SOURCE to|from FILE, and got 1 argument"),
        ("\\copy {t} into x.csv", "expected to or from, not 'into'"),
        ("\\copy {t} to x.xls", "Invalid file 'x.xls': its name ends with .csv"),
        ("\\copy {t} to /no/such/x.csv", "/no/such/x.csv can't be written: No such file or directory"),
        ("\\copy {t} from /no/such.csv", "/no/such.csv can't be read: No such file or directory"),
        ("\\copy (SELECT 1 to x.csv", "A quote or bracket"),
        ("\\format yaml", "Invalid format 'yaml': expected box, markdown"),
        ("\\x maybe", "Invalid value 'maybe': expected on or off"),
        ("\\watch", "\\watch repeats a statement, and there was none yet"),
        ("SELECT 1 \\watch soon", "Invalid interval 'soon': expected seconds, as 2 or 0.5"),
        ("SELECT 1 \\dt", "The statement before \\dt has no semicolon: end it first"),
        ("\\o /no/such/file", "/no/such/file can't be written: No such file or directory"),
        ("\\i /no/such.sql", "/no/such.sql can't be read: No such file or directory"),
        ("\\set AUTOCOMMIT on", "Unknown variable 'AUTOCOMMIT': there is ON_ERROR_STOP"),
        ("\\c nosuch", "No profile 'nosuch'"),
        ("\\at", ""),
        ("\\at nosuch\nFROM {t}", "nosuch"),
    ],
)
def test_wrong_input_is_one_clear_line(uri: str, table: str, home: dict[str, str], typed: str, message: str) -> None:
    names = {"t": table, "s": table.partition(".")[0]}
    done = run_shell(uri, typed=typed.format(**names), **home)
    if not message:
        assert done.exit_code == 0
        return
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("duckicelake: ")
    assert message.format(**names).lower() in done.stderr.lower()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-c", "\\dt", "--format", "yaml"], "Invalid format 'yaml'"),
        (["-c", "\\dt", "-v", "STOP=1"], "Invalid variable 'STOP=1': expected ON_ERROR_STOP=1"),
        (["-f", "/no/such.sql"], "/no/such.sql can't be read: No such file or directory"),
        (["ducklake:/no/such/lake.ducklake", "-c", "\\dt"], "/no/such/lake.ducklake"),
        (["ftp://x", "-c", "\\dt"], "must start with http:// or https://"),
        (["--profile", "nosuch", "-c", "\\dt"], "No profile 'nosuch'"),
    ],
)
def test_wrong_options_are_one_clear_line(arguments: list[str], message: str, home: dict[str, str]) -> None:
    done = run_shell(*arguments, **home)
    assert done.exit_code in {2, 4}, done.output
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
