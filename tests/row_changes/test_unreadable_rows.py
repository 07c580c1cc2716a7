"""Inlined rows that DuckDB can't read: changes and queries name the column and the way out, until a flush."""

from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from duckicelake.cli.main import app
from tests.row_changes.conftest import Changes

_UUID = "00000000-0000-0000-0000-000000000000"


def ask_all(changes: Changes) -> list[httpx.Response]:
    """Ask for the changes of a table, and for its rows."""
    return [changes.ask(), changes.http.post("/sql/v1/query", json={"sql": "FROM main.t"})]


@pytest.mark.parametrize(
    ("kind", "value", "shown"),
    [
        ("STRUCT(e VARCHAR, v TIMESTAMP_NS)", "{'e': 'x', 'v': TIMESTAMP_NS '2020-01-01'}", "2020-01-01T00:00:00"),
        ("STRUCT(v TIMESTAMPTZ)", "{'v': TIMESTAMPTZ '2020-01-01 00:00:00+00'}", "2020-01-01T00:00:00+00:00"),
        ("STRUCT(v DATE)", "{'v': DATE '2020-01-01'}", "2020-01-01"),
        ("STRUCT(v TIME)", "{'v': TIME '01:00:00'}", "01:00:00"),
        ("STRUCT(v UUID)", f"{{'v': '{_UUID}'::UUID}}", _UUID),
        ("STRUCT(v DOUBLE)", "{'v': 'nan'::DOUBLE}", "nan"),
        ("STRUCT(v FLOAT)", "{'v': '-inf'::FLOAT}", "-inf"),
        ("STRUCT(v JSON[])", "{'v': ['{}'::JSON]}", ["{}"]),
    ],
)
def test_column_is_named_until_its_rows_are_in_files(changes: Changes, kind: str, value: str, shown: Any) -> None:
    """DuckLake writes these values into Postgres as it can't read them again, so each attempt would fail."""
    changes.duck.execute(f"CREATE TABLE t (id INTEGER, plain STRUCT(v INTEGER), c {kind})")
    changes.duck.execute(f"INSERT INTO t VALUES (1, {{'v': 1}}, {value})")
    for answer in ask_all(changes):
        assert answer.status_code == 406, answer.text
        message = answer.json()["error"]["message"]
        assert "for c of main.t: put the rows into files by `duckicelake flush main.t`" in message
    assert changes.http.post("/v1/namespaces/main/tables/t/rows/flush").status_code == 200
    assert [answer.status_code for answer in ask_all(changes)] == [200, 200]
    assert [row["c"]["v"] for row in changes.read()[0]] == [shown]


def test_column_is_named_though_it_is_gone(changes: Changes) -> None:
    changes.duck.execute("CREATE TABLE t (id INTEGER, c STRUCT(v DATE)[]); ALTER TABLE t ADD COLUMN d STRUCT(v DATE)")
    changes.duck.execute("INSERT INTO t VALUES (1, NULL, {'v': DATE '2020-01-01'}); ALTER TABLE t DROP COLUMN d")
    answer = changes.ask()
    assert (answer.status_code, "d of main.t" in answer.text) == (406, True), answer.text
    command = ["changes", "main.t", "--follow", "--uri", str(changes.http.base_url)]
    ended = CliRunner().invoke(app, command)
    assert (ended.exit_code, "d of main.t" in ended.output) == (1, True), ended.output


def test_column_of_which_no_row_is_inlined_is_not_named(changes: Changes) -> None:
    """One that is NULL in all inlined rows, one whose rows are in a file, and one that none of the rows has."""
    changes.duck.execute("CREATE TABLE t (id INTEGER, blank STRUCT(v DATE), filed STRUCT(v TIME), c STRUCT(v DATE))")
    changes.duck.execute("INSERT INTO t SELECT i, NULL, {'v': TIME '01:00:00'}, NULL FROM range(20) r(i)")
    changes.duck.execute("INSERT INTO t VALUES (1, NULL, NULL, {'v': DATE '2020-01-01'})")
    changes.duck.execute('ALTER TABLE t ADD COLUMN "LATE" STRUCT(v UUID)')
    for answer in ask_all(changes):
        assert answer.status_code == 406, answer.text
        assert "for c of main.t: put" in answer.json()["error"]["message"]
    changes.duck.execute("CREATE TABLE plain (id INTEGER, d STRUCT(v DATE)); INSERT INTO plain VALUES (1, NULL)")
    answer = changes.http.post("/sql/v1/query", json={"sql": "FROM main.plain JOIN main.t USING (id)"})
    assert "for c of main.t: put" in answer.json()["error"]["message"]
    changes.duck.execute(f"INSERT INTO t VALUES (2, NULL, NULL, NULL, {{'v': '{_UUID}'::UUID}})")
    assert "for c of main.t, LATE of main.t: put" in changes.ask().json()["error"]["message"]
