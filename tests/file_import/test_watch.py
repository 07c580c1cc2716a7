"""`duckicelake watch`: files that come, that are bad, that others load; watches that are killed."""

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg
import pytest

from duckicelake.file_import import bad_rows, load, source_files
from scripts.demo_job.server import PROGRAM
from tests.file_import.conftest import Loads
from tests.file_import.killed_watch import STEPS
from tests.support.commands import invoke
from tests.support.waits import wait_until

pytestmark = pytest.mark.commands


def fill(folder: Path, numbers: Sequence[int], *, rows: int = 3) -> None:
    """Write a CSV file for each number: rows of that file, and a bad one. All have one age: a look takes all."""
    now = time.time()
    for number in numbers:
        lines = [f"{number},{row}" for row in range(rows)]
        file = folder / f"f{number:04}.csv"
        file.write_text("\n".join(["file,row", *lines, "bad,1"]) + "\n")
        os.utime(file, (now, now))


def assert_once(loads: Loads, table: str, numbers: Sequence[int], *, rows: int = 3) -> None:
    """Check that each row and each bad row of the files is there once."""
    expected = [(number, row) for number in numbers for row in range(rows)]
    assert loads.rows(f"SELECT file, row FROM lake.{table} ORDER BY ALL") == expected
    bad = loads.rows(f"SELECT parse_filename(source) FROM lake.{table}_quarantine ORDER BY 1")
    assert [name for (name,) in bad] == [f"f{number:04}.csv" for number in numbers]


def list_states(loads: Loads, table: str) -> dict[str, str]:
    ran = invoke("loaded-files", table, "--json", "--uri", loads.lake.uri)
    assert ran.exit_code == 0, ran.output
    files = [json.loads(line) for line in ran.stdout.splitlines()]
    return {Path(file["name"]).name: file["state"] for file in files}


SCHEMA = ("--schema", "file long, row long")


def test_files_are_loaded_once_as_they_come(loads: Loads, table: str) -> None:
    folder = loads.new_folder()
    fill(folder, range(5))
    (folder / ".hidden.csv").write_text("x\n")
    (folder / "notes.md").write_text("x\n")
    *_, end = loads.watch(folder, table, *SCHEMA)
    assert (end["files"], end["rows"], end["quarantined"], end["batches"]) == (5, 15, 5, 1)
    fill(folder, range(5, 8))
    *_, end = loads.watch(folder, table, *SCHEMA)
    assert (end["files"], end["rows"]) == (3, 9)
    *_, end = loads.watch(folder, table, *SCHEMA)
    assert (end["files"], end["batches"], end["failed"]) == (0, 0, 0)
    assert_once(loads, table, range(8))


def test_bad_files_stop_no_others_and_are_tried_again_once_changed(loads: Loads, table: str) -> None:
    folder = loads.new_folder()
    fill(folder, range(6))
    (folder / "cut.csv.gz").write_bytes(gzip.compress(b"file,row\n1,2\n" * 999)[:-9])
    (folder / "twice.csv").write_text("row,ROW\n1,2\n")
    (folder / "no.parquet").write_text("PAR1")
    (folder / "other.csv").write_text("x,y\n1,2\n")
    events = loads.watch(folder, table, *SCHEMA, "--evolve", "strict")
    failed = {Path(event["file"]).name: event["text"] for event in events if event["event"] == "failed"}
    assert set(failed) == {"cut.csv.gz", "twice.csv", "no.parquet", "other.csv"}
    assert "cut off" in failed["cut.csv.gz"]
    assert_once(loads, table, range(6))
    states = list_states(loads, table)
    assert {name for name, state in states.items() if state == "failed"} == set(failed)
    assert events[-1]["failed"] == 4
    assert loads.watch(folder, table, *SCHEMA)[-1]["failed"] == 4
    (folder / "cut.csv.gz").write_bytes(gzip.compress(b"file,row\n7,7\n"))
    (folder / "twice.csv").write_text("row\n8\n")
    (folder / "no.parquet").unlink()
    *_, end = loads.watch(folder, table, *SCHEMA, "--evolve", "strict")
    assert (end["files"], end["rows"], end["failed"]) == (2, 2, 1)
    assert loads.rows(f"SELECT count(*) FROM lake.{table}") == [(20,)]


def test_files_that_failed_are_tried_again_when_asked(loads: Loads, table: str) -> None:
    folder = loads.new_folder()
    fill(folder, [1])
    assert loads.watch(folder, table, *SCHEMA, "--bad-rows", "fail")[-1]["failed"] == 1
    assert "row" in loads.watch(folder, table, *SCHEMA)[0]["text"]
    assert loads.watch(folder, table, *SCHEMA, "--again")[-1]["rows"] == 3
    assert_once(loads, table, [1])


def test_first_files_are_bad(loads: Loads, table: str) -> None:
    folder = loads.new_folder()
    (folder / "a.csv").write_text("x,X\n")
    assert loads.watch(folder, table)[-1]["failed"] == 1
    assert not loads.has(table)
    fill(folder, [1])
    *_, end = loads.watch(folder, table, *SCHEMA)
    assert (end["failed"], end["files"]) == (1, 1)
    assert list_states(loads, table) == {"a.csv": "failed", "f0001.csv": "loaded"}


def test_new_columns_need_a_yes(loads: Loads, table: str) -> None:
    folder = loads.new_folder()
    (folder / "a.csv").write_text("x\n1\n")
    loads.watch(folder, table)
    (folder / "b.csv").write_text("x,y\n2,3\n")
    options = ("--until-idle", "--every", "0.1", "--still", "0", "--uri", loads.lake.uri)
    ran = invoke("watch", str(folder), "--table", table, *options)
    assert "give --yes" in ran.output
    assert loads.watch(folder, table, "--again")[-1]["rows"] == 1
    assert loads.rows(f"FROM lake.{table} ORDER BY x") == [(1, None), (2, 3)]


def test_loaded_files_move_to_the_archive(loads: Loads, table: str) -> None:
    folder, archive = loads.new_folder(), loads.new_folder() / "done"
    (folder / "below").mkdir()
    fill(folder, [1])
    fill(folder / "below", [2])
    (folder / "bad.csv").write_text("row,ROW\n")
    loads.watch(folder, table, *SCHEMA, "--archive", str(archive))
    fill(folder, [3])
    (folder / "f0003.csv").rename(folder / "f0001.csv")
    loads.watch(folder, table, *SCHEMA, "--archive", str(archive))
    left = sorted(path.name for path in folder.rglob("*") if path.is_file())
    kept = sorted(path.relative_to(archive).as_posix() for path in archive.rglob("*") if path.is_file())
    assert left == ["bad.csv"]
    assert [kept[0], kept[1]] == ["below/f0002.csv", "f0001.csv"]
    assert kept[2].startswith("f0001.csv.")
    assert loads.rows(f"SELECT DISTINCT file FROM lake.{table} ORDER BY 1") == [(1,), (2,), (3,)]


def test_files_that_still_change_are_left_alone(loads: Loads, table: str) -> None:
    folder = loads.new_folder()
    fill(folder, [1, 2])
    old = time.time() - 9000
    os.utime(folder / "f0001.csv", (old, old))
    fixed = ("--yes", "--every", "0.1", "--still", "3600", "--uri", loads.lake.uri)
    with subprocess.Popen([PROGRAM, "watch", str(folder), "--table", table, *SCHEMA, *fixed]) as process:
        try:
            wait_until(lambda: loads.has(table) and loads.rows(f"SELECT count(*) FROM lake.{table}") == [(3,)])
            assert list_states(loads, table) == {"f0001.csv": "loaded"}
            fill(folder, [2], rows=5)
            os.utime(folder / "f0002.csv", (old, old))
            wait_until(lambda: loads.rows(f"SELECT count(*) FROM lake.{table} WHERE file = 2") == [(5,)])
        finally:
            process.terminate()


def test_two_watches_at_once(loads: Loads, table: str) -> None:
    folder = loads.new_folder()
    fill(folder, range(30))
    fixed = ("--yes", "--until-idle", "--every", "0.1", "--still", "0", "--json", "--uri", loads.lake.uri)
    commands = [
        [PROGRAM, "watch", str(place), "--table", table, *SCHEMA, *fixed]
        for place in (folder, folder / "f*[02468].csv", folder)
    ]
    with ThreadPoolExecutor(3) as pool:
        ran = pool.map(lambda command: subprocess.run(command, check=True, capture_output=True, text=True), commands)
        ends = [json.loads(watch.stdout.splitlines()[-1]) for watch in ran]
    assert sum(end["files"] for end in ends) == 30
    assert_once(loads, table, range(30))


@pytest.mark.parametrize("step", STEPS)
def test_killed_watch_goes_on(loads: Loads, table: str, step: str) -> None:
    folder, archive = loads.new_folder(), loads.new_folder()
    fill(folder, range(4))
    options = (*SCHEMA, "--archive", str(archive))
    fixed = ("--yes", "--until-idle", "--every", "0.1", "--still", "0", "--uri", loads.lake.uri)
    command = ("watch", str(folder), "--table", table, *options, *fixed)
    ran = subprocess.run([sys.executable, "-m", "tests.file_import.killed_watch", step, *command], check=False)
    assert ran.returncode == -9
    loads.expire_leases()
    loads.watch(folder, table, *options)
    assert_once(loads, table, range(4))
    assert [*folder.iterdir()] == []
    assert len([*archive.iterdir()]) == 4
    assert set(list_states(loads, table).values()) == {"loaded"}


def at_the_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something once, right before the next load commits."""
    check, waiting = source_files.check_unchanged, [act]

    def checked(files: Any) -> None:
        check(files)
        if waiting:
            waiting.pop()()

    monkeypatch.setattr(load, "check_unchanged", checked)


def test_slow_watch_can_not_commit_what_another_has_taken_over(
    loads: Loads, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = loads.new_folder()
    fill(folder, range(4))
    taken: list[dict[str, Any]] = []

    def take_over() -> None:
        loads.expire_leases()
        taken.extend(loads.watch(folder, table, *SCHEMA))

    at_the_commit(monkeypatch, take_over)
    events = loads.watch(folder, table, *SCHEMA)
    assert taken[-1]["files"] == 4
    assert events[-1]["files"] == 0
    assert_once(loads, table, range(4))


def test_file_that_is_changed_while_it_is_read(loads: Loads, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = loads.new_folder()
    fill(folder, [1])
    loads.watch(folder, table, *SCHEMA)
    fill(folder, [2])
    path = folder / "f0002.csv"
    read = bad_rows.check_rows

    def change(*arguments: Any) -> Any:
        found = read(*arguments)
        if not changed:
            changed.append(path)
            fill(folder, [2], rows=5)
        return found

    changed: list[Path] = []
    monkeypatch.setattr(load, "check_rows", change)
    *_, end = loads.watch(folder, table, *SCHEMA)
    assert (end["files"], end["failed"]) == (1, 0)
    assert loads.rows(f"SELECT count(*) FROM lake.{table} WHERE file = 2") == [(5,)]


def test_table_that_is_dropped_ends_the_watch(loads: Loads, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = loads.new_folder()
    fill(folder, [1])
    loads.watch(folder, table, *SCHEMA)
    fill(folder, [2, 3])
    at_the_commit(monkeypatch, lambda: loads.duck.execute(f"DROP TABLE lake.{table}"))
    (error,) = loads.watch(folder, table, *SCHEMA, code=2)
    assert table.partition(".")[2] in error["error"]["message"]
    assert not loads.has(table)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--bad-rows", "bad.csv"), "expected table or fail"),
        (("--archive", "{folder}/done"), "watched itself"),
        (("--archive", "s3://bucket/done"), "expected a folder"),
        (("--format", "xml"), "Invalid --format"),
        (("--schema", "id wat"), "Invalid --schema"),
        (("--option", "delim=;"), "Invalid --option"),
        (("--memory", "lots"), "Invalid --memory"),
        (("--partition-by", "day(nope)"), "no column 'nope'"),
        (("--evolve", "maybe"), "expected add or strict"),
    ],
)
def test_wrong_options(loads: Loads, table: str, options: Sequence[str], message: str) -> None:
    folder = loads.new_folder()
    fill(folder, [1, 2])
    (error,) = loads.watch(folder, table, *(text.format(folder=folder) for text in options), code=2)
    assert message in error["error"]["message"]
    assert not loads.has(table)


def test_places_that_are_not_there(loads: Loads, table: str) -> None:
    (error,) = loads.watch(loads.folder / "nowhere", table, code=2)
    assert "isn't there" in error["error"]["message"]
    fixed = ("--until-idle", "--uri", loads.lake.uri)
    ran = invoke("watch", str(loads.new_folder()), "--table", table, *fixed)
    assert "give --yes" in ran.output


def ask(loads: Loads, table: str, path: str, body: dict[str, Any]) -> Any:
    namespace, name = table.split(".")
    url = f"{loads.lake.uri}/pipeline/v1/namespaces/{namespace}/tables/{name}/{path}"
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(url, json.dumps(body).encode(), headers), timeout=60) as answer:
        return json.load(answer)


def claim(loads: Loads, table: str, run_id: str, *names: str) -> list[tuple[str, str]]:
    files = [{"name": name, "size": 1, "version": "1"} for name in names]
    found = ask(loads, table, "file-batches", {"run-id": run_id, "files": files})["files"]
    return [(file["state"], file["run-id"]) for file in found]


def test_claims(loads: Loads, table: str) -> None:
    loads.duck.execute(f"CREATE TABLE lake.{table} (id BIGINT)")
    assert claim(loads, table, "r1", "a", "b") == [("claimed", "r1")] * 2
    assert claim(loads, table, "r1", "a", "b") == [("claimed", "r1")] * 2
    assert claim(loads, table, "r2", "b", "c") == [("loading", "r1"), ("claimed", "r2")]
    assert ask(loads, table, "file-batches/r1", {})["state"] == "void"
    assert ask(loads, table, "file-batches/r1", {})["state"] == "void"
    assert ask(loads, table, "file-batches/r2", {"error": "no good"})["state"] == "void"
    assert claim(loads, table, "r3", "a", "b", "c")[:2] == [("claimed", "r3")] * 2
    assert list_states(loads, table) == {"a": "loading", "b": "loading", "c": "failed"}
    for path, body, status in (
        ("file-batches", {"run-id": "r1", "files": [{"name": "z", "size": 1, "version": "1"}]}, 409),
        ("file-batches", {"run-id": "r9", "files": []}, 400),
        ("file-batches", {"run-id": "r9", "files": [{"name": "z", "size": -1, "version": "1"}]}, 400),
        ("file-batches/none", {}, 404),
    ):
        with pytest.raises(HTTPError) as refused:
            ask(loads, table, path, body)
        refused.value.close()
        assert refused.value.code == status


def test_commit_waits_for_what_gives_its_batch_up(loads: Loads, table: str) -> None:
    loads.duck.execute(f"CREATE TABLE lake.{table} (id BIGINT)")
    claim(loads, table, "r", "a")
    with loads.postgres() as giving_up, loads.postgres() as committing, ThreadPoolExecutor(1) as pool:
        (table_id,) = giving_up.execute("SELECT table_id FROM duckicelake_file_batch ORDER BY begun DESC").fetchone()  # type: ignore[misc]
        commit = (
            "INSERT INTO duckicelake_txn (table_id, app_id, is_run, version, iceberg_snapshot_id) "
            f"VALUES ({table_id}, 'r', true, 0, 1)"
        )
        giving_up.autocommit = False
        giving_up.execute("UPDATE duckicelake_file_batch SET state = 'void' WHERE run_id = 'r'")
        pid = committing.info.backend_pid
        answer = pool.submit(committing.execute, commit)
        wait_until(
            lambda: (
                giving_up.execute("SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted", [pid]).fetchone()
                == (1,)
            )
        )
        giving_up.commit()
        with pytest.raises(psycopg.errors.SerializationFailure, match="given up"):
            answer.result()


def test_odd_names_of_files(loads: Loads, table: str) -> None:
    folder = loads.new_folder()
    for name in ("it's [1] é.csv", "two\nlines.csv", "a?b.csv", "*.csv"):
        (folder / name).write_text("id\n1\n")
    Path(os.fsdecode(bytes(folder) + b"/\xff.csv")).write_text("id\n1\n")
    events = loads.watch(folder, table)
    assert (events[-1]["files"], events[-1]["failed"]) == (4, 1)
    assert "no UTF-8" in events[0]["text"]
    assert loads.watch(folder, table)[-1]["files"] == 0
