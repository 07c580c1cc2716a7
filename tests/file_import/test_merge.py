"""`duckicelake load --mode merge`: rows take the place of those of the same key, in both format versions."""

import random
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from duckicelake.file_import import load, merge
from tests.file_import.conftest import Loads

pytestmark = pytest.mark.commands
SCHEMA = "id long, day date, x string, n long"
MERGE = ("--mode", "merge", "--key", "id")


def make(loads: Loads, table: str, version: int, rows: str, *options: str) -> None:
    """Make a table of a format version, with rows of a CSV."""
    loads.duck.execute("CREATE SCHEMA IF NOT EXISTS lake.loads")
    loads.run(loads.file("a.csv", f"id,day,x,n\n{rows}"), "--table", table, "--yes", "--schema", SCHEMA, *options)
    namespace, name = table.split(".")
    update = {"action": "upgrade-format-version", "format-version": version}
    if version > 2:
        loads.commit(namespace, name, [update])


def merge_rows(loads: Loads, table: str, content: str, *options: str, code: int = 0) -> dict[str, Any]:
    return loads.run(loads.file("m.csv", content), "--table", table, "--yes", *MERGE, *options, code=code)


def read(loads: Loads, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return loads.rows(f"SELECT {columns} FROM lake.{table} ORDER BY ALL")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("layout", [(), ("--partition-by", "truncate(1, x)"), ("--sort-by", "n desc")])
def test_rows_replace_those_of_their_key(loads: Loads, table: str, version: int, layout: Sequence[str]) -> None:
    make(loads, table, version, "1,2026-01-01,a,10\n2,2026-01-02,b,20\n3,,c,\n", *layout)
    loads.duck.execute(f"DELETE FROM lake.{table} WHERE id = 3")
    loads.duck.execute(f"INSERT INTO lake.{table} VALUES (4, NULL, 'd', 40)")
    ids = dict(read(loads, table, "id, rowid"))
    made = merge_rows(loads, table, "ID,x,n\n2,bb,21\n4,dd,\n5,e,50\n3,again,1\n")
    assert (made["rows"], made["quarantined"]) == (4, 0)
    assert read(loads, table, "id, CAST(day AS VARCHAR), x, n") == [
        (1, "2026-01-01", "a", 10),
        (2, "2026-01-02", "bb", 21),
        (3, None, "again", 1),
        (4, None, "dd", None),
        (5, None, "e", 50),
    ]
    if version == 3:
        after = dict(read(loads, table, "id, rowid"))
        assert {key: after[key] for key in ids} == ids
        assert len(set(after.values())) == 5


def test_a_merge_changes_no_file_without_its_keys(loads: Loads, table: str) -> None:
    make(loads, table, 3, "1,,a,\n")
    loads.run(loads.file("b.csv", "id,x\n7,b\n"), "--table", table)
    before = loads.list_files(table)
    merge_rows(loads, table, "id,x\n7,c\n")
    assert len(before) == 2
    assert len(before & loads.list_files(table)) == 1


@pytest.mark.parametrize("name", ["m.csv", "m.json"])
def test_rows_without_key_and_of_one_key_are_bad(loads: Loads, table: str, name: str) -> None:
    rows = [("1", '"new"'), ("2", '"p"'), ("null", '"q"'), ("2", '"r"')]
    if name == "m.csv":
        content = "id,x\n" + "".join(f"{'' if key == 'null' else key},{text}\n" for key, text in rows)
    else:
        content = "".join(f'{{"id":{key},"x":{text}}}\n' for key, text in rows)
    make(loads, table, 2, "1,,a,\n")
    made = loads.run(loads.file(name, content), "--table", table, "--yes", *MERGE)
    assert (made["rows"], made["quarantined"]) == (1, 3)
    assert read(loads, table, "id, x") == [(1, "new")]
    reasons = [reason for (reason,) in loads.rows(f"SELECT reason FROM lake.{table}_quarantine ORDER BY ALL")]
    first = 3 if name == "m.csv" else 2
    assert reasons == [
        f"line {first}: more than one row has this id",
        f"line {first + 1}: id must have a value",
        f"line {first + 2}: more than one row has this id",
    ]
    refused = loads.run(loads.file(name, content), "--table", table, *MERGE, "--bad-rows", "fail", code=2)
    assert "3 bad rows, at most 0 are allowed" in refused["message"]


def test_keys_of_several_columns(loads: Loads, table: str) -> None:
    make(loads, table, 3, "1,2026-01-01,a,1\n1,2026-01-02,b,2\n")
    content = "id,day,x\n1,2026-01-02,c\n2,2026-01-02,d\n1,2026-01-03,e\n1,2026-01-03,f\n"
    made = loads.run(loads.file("m.csv", content), "--table", table, "--yes", "--mode", "merge", "--key", "ID, day")
    assert (made["rows"], made["quarantined"]) == (2, 2)
    assert read(loads, table, "id, day(day), x, n") == [(1, 1, "a", 1), (1, 2, "c", 2), (2, 2, "d", None)]


def test_a_run_is_merged_once(loads: Loads, table: str) -> None:
    file = loads.file("m.csv", "id,n\n1,1\n2,2\n")
    assert loads.run(file, "--table", table, "--yes", *MERGE, "--run-id", "r")["rows"] == 2
    loads.duck.execute(f"UPDATE lake.{table} SET n = 9")
    again = loads.run(file, "--table", table, "--yes", *MERGE, "--run-id", "r")
    assert (again["result"], again["rows"]) == ("unchanged", 2)
    assert read(loads, table) == [(1, 9), (2, 9)]


def test_a_merge_of_nothing_is_a_run(loads: Loads, table: str) -> None:
    make(loads, table, 2, "1,,a,\n")
    for result in ("done", "unchanged"):
        file = loads.folder / f"{table}.csv"
        if result == "done":
            file.write_text("id,x\n")
        made = loads.run(str(file), "--table", table, *MERGE, "--run-id", "empty")
        assert (made["result"], made["rows"]) == (result, 0)
    assert read(loads, table, "id") == [(1,)]


def test_files_of_other_columns_are_refused(loads: Loads, table: str) -> None:
    make(loads, table, 2, "1,,a,\n")
    folder = loads.new_folder()
    (folder / "a.csv").write_text("id,x\n1,b\n")
    (folder / "b.csv").write_text("id,n\n1,2\n")
    error = loads.run(str(folder), "--table", table, *MERGE, code=2)
    assert "Only some of the files have x, n" in error["message"]


@pytest.mark.parametrize("version", [2, 3])
def test_columns_that_were_renamed_and_added(loads: Loads, table: str, version: int) -> None:
    make(loads, table, version, "1,,a,10\n2,,b,20\n")
    loads.duck.execute(f"ALTER TABLE lake.{table} RENAME COLUMN x TO y")
    merge_rows(loads, table, "id,y,new\n2,c,1.5\n")
    assert read(loads, table, "id, y, n, new") == [(1, "a", 10, None), (2, "c", 20, 1.5)]


def test_two_merges_at_once_lose_nothing(loads: Loads, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(loads, table, 2, "1,,a,\n")
    stage = merge.stage_merge

    def stage_late(*arguments: Any, **options: Any) -> Any:
        staged = stage(*arguments, **options)
        loads.duck.execute(f"INSERT INTO lake.{table} VALUES (2, NULL, 'other', 1)")
        return staged

    monkeypatch.setattr(load, "stage_merge", stage_late)
    error = merge_rows(loads, table, "id,x\n2,mine\n", code=6)
    assert "run it again" in error["message"]
    monkeypatch.undo()
    merge_rows(loads, table, "id,x\n2,mine\n")
    assert read(loads, table, "id, x, n") == [(1, "a", None), (2, "mine", 1)]


@pytest.mark.parametrize("step", ["behind the files", "before the commit", "behind the commit"])
def test_killed_merges(loads: Loads, table: str, step: str) -> None:
    make(loads, table, 3, "1,,a,1\n2,,b,2\n")
    file = loads.file("m.csv", "id,n\n2,20\n3,30\n")
    command = ("load", file, "--table", table, *MERGE, "--run-id", "r", "--uri", loads.lake.uri)
    killed = subprocess.run([sys.executable, "-m", "tests.file_import.killed_watch", step, *command], check=False)
    assert killed.returncode == -9
    loads.expire_leases()
    loads.run(file, "--table", table, *MERGE, "--run-id", "r")
    assert read(loads, table, "id, n") == [(1, 1), (2, 20), (3, 30)]


@pytest.mark.parametrize("seed", range(3))
def test_random_merges_beside_a_dictionary(loads: Loads, table: str, seed: int) -> None:
    source = random.Random(seed)
    make(loads, table, source.choice([2, 3]), "")
    expected: dict[int, tuple[str, int | None]] = {}
    for number in range(4):
        keys = source.sample(range(40), source.randint(1, 25))
        rows = {key: (f"v{number}", source.choice([None, key])) for key in keys}
        text = "".join(f"{key},{x},{'' if n is None else n}\n" for key, (x, n) in rows.items())
        merge_rows(loads, table, f"id,x,n\n{text}")
        expected |= rows
        gone = source.randrange(40)
        loads.duck.execute(f"DELETE FROM lake.{table} WHERE id = {gone}")
        expected.pop(gone, None)
    assert read(loads, table, "id, x, n") == sorted((key, *row) for key, row in expected.items())
