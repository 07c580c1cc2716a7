"""Columns that a policy hashes with a salt of each answer: which rows an answer has depends on no salt."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.model import parse
from duckicelake.iceberg.read_restrictions import Mask, Restriction
from duckicelake.iceberg.schema import Schema
from duckicelake.query import service
from duckicelake.query.processes import QueryProcess
from duckicelake.row_changes.masks import write_hashes
from tests.row_changes.conftest import Change, Changes
from tests.support.policies import restrict

_MANY = 200_000
"""So many rows on both sides have 9 pairs of the same 32-bit hash on average."""


@pytest.fixture
def services(services: Services) -> Services:
    return replace(services, rights=RightsCache.of_first(services.database))


def read_in_parts(
    changes: Changes, since: int, limit: int, *, ends_processes: bool, **query: Any
) -> list[list[Change]]:
    """Read answers of so many rows; ends_processes: each is of another process, as of another server."""
    parts: list[list[Change]] = []
    found = {"_position": f"{since}.0.0", "_is_complete": False}
    while not found["_is_complete"]:
        rows, found = changes.read(since=found["_position"], limit=limit, **query)
        parts.append(rows)
        if ends_processes:
            service.end_processes()
    return parts


def test_different_keys_with_the_same_hash_are_no_pair(changes: Changes, services: Services) -> None:
    """Of a key of 32 bits, hashes were paired: false updates, other ones in the first answer than in the later ones."""
    changes.duck.execute("CREATE TABLE t (id INTEGER, n BIGINT)")
    changes.duck.execute(f"INSERT INTO t SELECT i, i FROM range({_MANY}) r(i)")
    changes.duck.execute(
        f"BEGIN; DELETE FROM t; INSERT INTO t SELECT i, i FROM range({_MANY}, {2 * _MANY}) r(i); COMMIT"
    )
    restrict(services, "main.t", masks={1: Mask.SHA_256_LOCAL})
    parts = read_in_parts(changes, 2, _MANY, ends_processes=False, key="id")
    assert [len(part) for part in parts] == [_MANY, _MANY]
    assert Counter(row["_change_type"] for part in parts for row in part) == {"DELETE": _MANY, "INSERT": _MANY}
    assert sorted(row["n"] for part in parts for row in part) == [*range(2 * _MANY)]


@pytest.mark.parametrize(("limit", "ends_processes"), [(1, False), (2, False), (5, True)])
@pytest.mark.parametrize("query", [{}, {"key": "id"}, {"where": "id IS NOT NULL"}], ids=str)
def test_answers_of_few_rows_make_the_whole_one_but_for_hashes(
    changes: Changes, services: Services, query: dict[str, str], limit: int, ends_processes: bool
) -> None:
    """A hash is the same for the same value in one answer, and in no other one."""
    for statement in (
        "CREATE TABLE t (id TINYINT, name VARCHAR, place STRUCT(town VARCHAR, n INTEGER))",
        "INSERT INTO t SELECT i, 'n' || i % 3, {'town': 't' || i % 3, 'n': i} FROM range(8) r(i)",
        "INSERT INTO t VALUES (NULL, NULL, NULL)",
        "BEGIN; DELETE FROM t WHERE id % 2 = 0; INSERT INTO t SELECT i, 'x', NULL FROM range(0, 12, 2) r(i); COMMIT",
        "UPDATE t SET name = 'y' WHERE id % 3 = 0",
    ):
        changes.duck.execute(statement)
    plain, _ = changes.read(**query)
    restrict(services, "main.t", masks=dict.fromkeys((1, 2, 4), Mask.SHA_256_LOCAL))
    whole, _ = changes.read(**query)
    parts = read_in_parts(changes, 0, limit, ends_processes=ends_processes, **query)
    assert [_show(row) for row in whole] == [_show(row) for row in plain]
    assert [_show(row) for part in parts for row in part] == [_show(row) for row in plain]
    values = iter(plain)
    answers = [list(zip(whole, plain, strict=True)), *([(row, next(values)) for row in part] for part in parts)]
    for column in ("id", "name", "town"):
        check_hashes([[(_find(row, column), _find(value, column)) for row, value in answer] for answer in answers])


def test_a_salt_is_in_no_step(changes: Changes, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no answer could go on with the rows that a process has left of the one before."""
    changes.duck.execute("CREATE TABLE t (id INTEGER, name VARCHAR); INSERT INTO t SELECT i, 'n' FROM range(9) r(i)")
    restrict(services, "main.t", masks={1: Mask.SHA_256_LOCAL, 2: Mask.SHA_256})
    asked: list[Any] = []
    send = QueryProcess.send

    def note(self: QueryProcess, kind: bytes, body: bytes) -> None:
        asked.extend([json.loads(body)] if kind == b"H" else [])
        send(self, kind, body)

    monkeypatch.setattr(QueryProcess, "send", note)
    read_in_parts(changes, 1, 3, ends_processes=False)
    assert [order["has_rest"] for order in asked] == [False, False, True]
    assert len({order["steps"][0]["shape"] for order in asked}) == 1
    assert len({json.dumps(order["hashed"]) for order in asked}) == 3


@pytest.mark.parametrize(("kind", "value"), [("variant", "{'k': 1}::VARIANT"), ("geometry", "'POINT (1 2)'::GEOMETRY")])
def test_values_beside_a_hash_keep_their_types(kind: str, value: str) -> None:
    """DuckDB's own columns have types that a schema of Iceberg's doesn't name as DuckDB does."""
    fields = [{"id": 2, "name": "e", "type": "string", "required": False}]
    fields.append({"id": 3, "name": "v", "type": kind, "required": False})
    column = {"id": 1, "name": "c", "type": {"type": "struct", "fields": fields}, "required": False}
    schema = parse(Schema, {"type": "struct", "fields": [column]}, "schema")
    hashed = write_hashes(schema.fields, Restriction(masks={2: Mask.SHA_256_LOCAL}), bytes(16))
    rows = f"(SELECT {{'e': 'a', 'v': {value}}} AS c0)"
    shown = duckdb.sql(
        f"SELECT typeof(c0), typeof(m), m.v = c0.v, m.e = c0.e FROM (SELECT c0, {hashed[0]} m FROM {rows})"
    )
    ((before, after, *same),) = shown.fetchall()
    assert (before, same) == (after, [True, False])


def check_hashes(answers: list[list[tuple[Any, Any]]]) -> None:
    """Check the hashes of each answer, which come with their values."""
    seen = set[Any]()
    for answer in answers:
        assert {hash_ for hash_, value in answer if value is None} <= {None}
        pairs = {pair for pair in answer if pair[1] is not None}
        hashes = {hash_ for hash_, _ in pairs}
        assert len(hashes) == len(pairs) == len({value for _, value in pairs})
        assert not hashes & seen
        seen |= hashes


def _show(row: Change) -> dict[str, Any]:
    """Show what no policy hides."""
    own = {name: row[name] for name in ("_change_type", "_change_ordinal", "_commit_snapshot_id")}
    return own | {"n": row["place"] and row["place"]["n"], "nulls": [row["id"] is None, row["name"] is None]}


def _find(row: Change, column: str) -> Any:
    return (row["place"] or {}).get("town") if column == "town" else row[column]


def test_a_condition_on_a_hash_is_refused_but_for_null(changes: Changes, services: Services) -> None:
    """It would choose other rows in each answer."""
    changes.duck.execute("CREATE TABLE t (id INTEGER, name VARCHAR)")
    changes.duck.execute("INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    restrict(services, "main.t", masks={2: Mask.SHA_256_LOCAL})
    for where in ("name > 'a'", "id = 1 OR NOT (name LIKE 'a%')", '{"type": "in", "term": "name", "values": ["a"]}'):
        answer = changes.ask(where=where)
        assert (answer.status_code, "hashed anew in each answer" in answer.text) == (400, True), answer.text
    assert [row["id"] for row in changes.read(where="name IS NULL")[0]] == [2]
    assert [row["id"] for row in changes.read(where="name IS NOT NULL OR id = 2")[0]] == [1, 2]


def test_values_that_a_column_has_by_default_are_hidden(changes: Changes, services: Services) -> None:
    """Rows that are older than the column have its default, in no file."""
    changes.duck.execute("CREATE TABLE t (id INTEGER)")
    changes.duck.execute("INSERT INTO t VALUES (1)")
    for name in ("early", "word", "number", "hidden"):
        changes.duck.execute(
            f"ALTER TABLE t ADD COLUMN {name} {'INTEGER' if name == 'number' else 'VARCHAR'} DEFAULT '7'"
        )
    plain, _ = changes.read()
    assert [(row["word"], row["number"]) for row in plain] == [("7", 7)]
    restrict(services, "main.t", masks={3: Mask.SHA_256_LOCAL, 4: Mask.SHA_256_LOCAL, 5: Mask.NULL})
    (row,), _ = changes.read()
    assert (row["early"], row["hidden"]) == ("7", None)
    assert (len(row["word"]), row["number"] != 7) == (64, True)
    (other,), _ = changes.read()
    assert (row["word"] != other["word"], row["number"] != other["number"]) == (True, True)
