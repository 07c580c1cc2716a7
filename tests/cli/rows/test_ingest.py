"""`duckicelake ingest-rows` as people run it, against a served lake: pipes, files, CSV, lines of bad rows, resuming."""

import json
import signal
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duckicelake.cli.main import app
from duckicelake.cli.rows.files import SourceLines, describe_progress
from duckicelake.client.stream import Progress
from tests.cli.test_commands import COMMAND, environment
from tests.client.conftest import LiveLake, live, shared_lake

__all__ = ["live", "shared_lake"]

TYPES = {
    "i": "int",
    "d": "double",
    "b": "boolean",
    "n": "decimal(9, 2)",
    "day": "date",
    "moment": "timestamptz",
    "s": "string",
    "l": {"type": "list", "element-id": 100, "element": "int", "element-required": False},
}


def ingest(lake: LiveLake, *arguments: str, text: str | None = None) -> tuple[int, str, str]:
    command = ["ingest-rows", lake.table, *arguments, "--uri", lake.served.uri]
    result = CliRunner().invoke(app, command, input=text)
    return result.exit_code, result.stdout, result.stderr


def test_lines_come_by_standard_input(live: LiveLake) -> None:
    code, out, err = ingest(live, "--json", text='\ufeff{"id": 1, "name": "ö"}\r\n\n{"id": 2}')
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["written"], found["skipped"], found["retries"]) == (2, 0, 0)
    assert live.rows() == [(1, "ö"), (2, None)]


def test_csv_is_read_by_the_types_of_the_table(live: LiveLake, tmp_path: Path) -> None:
    fields = [
        {"id": n, "name": name, "type": kind, "required": False} for n, (name, kind) in enumerate(TYPES.items(), 1)
    ]
    lake = LiveLake(live.folder, live.served).with_table({"type": "struct", "fields": fields})
    file = tmp_path / "rows.csv"
    text = '-7,1e3,TRUE,1.10,2026-08-31,2026-08-31 13:45:00Z,"a ""q""\nb","[1, null]"\n,NaN,,,,,,\n'
    file.write_text(f"{','.join(TYPES)}\n{text}")
    assert ingest(lake, str(file))[::2] == (0, "")
    (first, second) = lake.rows(
        "* REPLACE (CAST(n AS VARCHAR) AS n, CAST(day AS VARCHAR) AS day, epoch(moment) AS moment)"
    )
    assert first == (-7, 1000.0, True, "1.10", "2026-08-31", 1788183900.0, 'a "q"\nb', [1, None])
    assert (str(second[1]), {*second[:1], *second[2:]}) == ("nan", {None})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.ndjson", '{"id": 1}\n\n{"id": 2}\n{"id": "x"}\n', "a.ndjson, line 4, column id: 'x': write a whole number"),
        ("b.ndjson", '{"id": 1}\n\n{"id": 2\n', "b.ndjson, line 3 isn't JSON"),
        ("c.csv", 'id,name\n1,"a\nb"\nx,c\n', "c.csv, line 4, column id: 'x': write a whole number"),
        ("d.csv", "id,name\n1,a,b\n", "d.csv: line 2 has 3 fields, the header 2"),
        ("e.csv", "id,colour\n1,red\n", "e.csv, line 2: 'colour': the table has no such column"),
        ("f.csv", 'id\n"1', "f.csv: after line 2 it isn't CSV in UTF-8"),
    ],
)
def test_bad_row_is_reported_with_its_line(live: LiveLake, tmp_path: Path, name: str, text: str, said: str) -> None:
    good, bad = tmp_path / "good.csv", tmp_path / name
    good.write_text("id\n7\n")
    bad.write_text(text)
    code, out, err = ingest(live, str(good), str(bad), "--max-rows", "1")
    assert (code, out) == (2, "")
    assert err.startswith("duckicelake: ")
    assert err.count("\n") == 1
    assert said in err
    assert live.ids()[0] == 7
    assert "x" not in live.ids()


def test_input_goes_on_where_it_was(live: LiveLake, tmp_path: Path) -> None:
    first, second = tmp_path / "1.ndjson", tmp_path / "2.ndjson"
    lines = [f'{{"id": {number}}}\n' for number in range(30)]
    first.write_text("".join(lines[:20]) + '{"id": "twenty"}\n')
    second.write_text("".join(lines[21:]))
    arguments = (str(first), str(second), "--app-id", "two files", "--max-rows", "8")
    code, _, err = ingest(live, *arguments)
    assert (code, "1.ndjson, line 21, column id" in err) == (2, True)
    first.write_text("".join(lines[:21]))
    code, out, _ = ingest(live, *arguments, "--json")
    assert (code, json.loads(out)["skipped"]) == (0, 16)
    assert live.ids() == list(range(30))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nowhere", "--uri", "{uri}"), 2, "Invalid table name 'nowhere': it has no namespace; expected ns.table"),
        (("main.nowhere", "--uri", "{uri}"), 2, "Table does not exist: main.nowhere"),
        (("main.t", "--uri", "{uri}", "no-file"), 2, "no-file can't be read: No such file"),
        (("main.t", "--uri", "{uri}", "--format", "xml"), 2, "Invalid --format 'xml': expected ndjson or csv"),
        (("main.t", "--uri", "ftp://x"), 2, "must start with http:// or https://; written before it: 0 rows"),
    ],
)
def test_what_is_wrong_is_one_line(live: LiveLake, arguments: tuple[str, ...], code: int, said: str) -> None:
    given = [each.format(uri=live.served.uri) for each in arguments]
    result = CliRunner().invoke(app, ["ingest-rows", *given], input='{"id": 1}\n')
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr
    assert result.stderr.count("\n") == 1


def test_empty_input_still_needs_a_table(live: LiveLake) -> None:
    assert ingest(live, text="")[0] == 0
    result = CliRunner().invoke(app, ["ingest-rows", "main.nowhere", "--uri", live.served.uri], input="")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Table does not exist: main.nowhere" in result.stderr


def test_rows_of_a_pipe_are_there_after_ctrl_c(live: LiveLake) -> None:
    command = [*COMMAND, "ingest-rows", live.table, "--uri", live.served.uri, "--max-age", "0.1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment(), text=True, bufsize=0, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write('{"id": 1}\n{"id": 2}\n')
        process.stdin.flush()
        while live.ids() != [1, 2]:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert out.startswith("2 rows, ")


def test_places_of_rows_are_kept_by_runs() -> None:
    places = SourceLines()
    places.add("a", range(1, 101))
    places.add("a", range(101, 151))
    places.add("a", [155, 156, 160])
    places.add("b", [2])
    found = [places.of(row) for row in (0, 149, 150, 151, 152, 153)]
    assert found == ["a, line 1", "a, line 150", "a, line 155", "a, line 156", "a, line 160", "b, line 2"]


def test_progress_says_what_it_waits_for() -> None:
    assert describe_progress(Progress(written=2000, skipped=5, retries=3, trouble="nobody answers"), 2) == (
        "2,000 rows, 1,000 rows/s, 5 skipped, 3 retries, waiting: nobody answers"
    )
