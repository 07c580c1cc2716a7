"""A process that is used again answers as a new one, whatever other clients did to the table meanwhile."""

import json
from typing import Any

import duckdb
import httpx
import pytest

from duckicelake.errors import UnavailableError
from duckicelake.query.processes import QueryProcess

ROUTE = "/sql/v1/query"
FLUSH = "CALL ducklake_flush_inlined_data('lake')"


def ask(http: httpx.Client, sql: str) -> list[tuple[object, ...]]:
    answer = http.post(ROUTE, json={"sql": sql}, headers={"Accept": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text
    return [tuple(json.loads(line).values()) for line in answer.text.splitlines()]


@pytest.mark.parametrize(
    "statements",
    [
        (FLUSH,),
        ("ALTER TABLE open.t ADD COLUMN more INTEGER", FLUSH),
        ("ALTER TABLE open.t ADD COLUMN more INTEGER", "INSERT INTO open.t VALUES (7, 'x', 1)", FLUSH),
        ("ALTER TABLE open.t ALTER id TYPE BIGINT", "INSERT INTO open.t VALUES (7, 'x')", FLUSH),
        ("ALTER TABLE open.t RENAME name TO label", "UPDATE open.t SET label = 'y'", FLUSH),
        ("ALTER TABLE open.t DROP COLUMN name", "DELETE FROM open.t WHERE id = 1", FLUSH),
    ],
)
@pytest.mark.parametrize("sql", ["SELECT count(*) FROM open.t", "SELECT * FROM open.t WHERE id < 5 ORDER BY ALL"])
def test_after_a_flush(
    http: httpx.Client, ducklake: duckdb.DuckDBPyConnection, statements: tuple[str, ...], sql: str
) -> None:
    ducklake.execute("CREATE SCHEMA open")
    ducklake.execute("CREATE TABLE open.t AS SELECT i::INTEGER AS id, 'n' || i AS name FROM range(3) r(i)")
    ask(http, sql)
    for statement in statements:
        ducklake.execute(statement).fetchall()
        assert ask(http, sql) == ducklake.execute(sql).fetchall()
    assert http.post(ROUTE, json={"sql": sql, "explain": True}).status_code == 200


def test_a_statement_that_breaks_a_new_process_is_refused(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken process isn't kept, and a new one gets no second query."""
    started = []
    start = QueryProcess.__init__

    def count(self: QueryProcess, *arguments: Any) -> None:
        started.append(self)
        start(self, *arguments)

    def break_all(self: QueryProcess, *_: object) -> None:
        self.is_broken = True
        raise UnavailableError("broken")

    monkeypatch.setattr(QueryProcess, "__init__", count)
    with monkeypatch.context() as broken:
        broken.setattr(QueryProcess, "parse", break_all)
        answers = [http.post(ROUTE, json={"sql": "SELECT 1 AS n"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [503, 503]
    used = [process for process in started if process.is_broken]
    assert len(used) == 2
    assert not any(process.is_alive for process in used)
    assert ask(http, "SELECT 1 AS n") == [(1,)]
