"""Answers of changes: positions, formats, errors, the command that reads them, and what a caller may not see."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.cli.main import app
from duckicelake.iceberg.read_restrictions import Mask
from duckicelake.query import service
from duckicelake.query.processes import QueryProcess
from tests.row_changes.conftest import Changes
from tests.support.policies import restrict

IS_X = {"type": "eq", "term": "called", "value": "x"}


@pytest.fixture
def services(services: Services) -> Services:
    return replace(services, rights=RightsCache.of_first(services.database))


@pytest.fixture
def history(changes: Changes) -> Changes:
    """Snapshots: a creation, 5 rows, 30 rows, an update of 12 of them, 1 row with another column, a deletion."""
    for statement in (
        "CREATE TABLE t (id BIGINT, name VARCHAR)",
        "INSERT INTO t SELECT i, 'n' || i FROM range(5) r(i)",
        "INSERT INTO t SELECT i, 'n' || i FROM range(100, 130) r(i)",
        "UPDATE t SET name = 'x' WHERE id % 3 = 0",
        "ALTER TABLE t ADD COLUMN place STRUCT(x INTEGER)",
        "ALTER TABLE t RENAME COLUMN name TO called",
        "INSERT INTO t VALUES (1000, 'new', {'x': 7})",
        "DELETE FROM t WHERE id < 3",
    ):
        changes.duck.execute(statement).fetchall()
    return changes


def test_answers_of_few_rows_make_the_whole_one(history: Changes) -> None:
    whole, end = history.read()
    assert end["_is_complete"]
    parts: list[dict[str, Any]] = []
    found: dict[str, Any] = {"_position": "0.0.0", "_is_complete": False}
    while not found["_is_complete"]:
        rows, found = history.read(since=found["_position"], limit=7)
        assert len(rows) == 7 or found["_is_complete"]
        parts += rows
        history.duck.execute("CALL ducklake_flush_inlined_data('lake')").fetchall()  # the next one reads files
    assert parts == whole


def test_old_rows_have_the_columns_of_the_last_snapshot(history: Changes) -> None:
    rows, _ = history.read()
    assert rows[0]["called"] == "n0"
    assert rows[0]["place"] is None
    assert [row["place"] for row in rows if row["id"] == 1000] == [{"x": 7}]
    until, _ = history.read(until=3)
    assert [*until[0]] == ["_change_type", "_change_ordinal", "_commit_snapshot_id", "_changed_row_id", "id", "name"]
    some, _ = history.read(columns="called", since=7)
    assert [row["called"] for row in some] == ["x", "n1", "n2"]


def test_arrow_says_where_it_ends(history: Changes) -> None:
    rows, end = history.read(since=3)
    answer = history.http.get(
        "/v1/namespaces/main/tables/t/changes?from=3", headers={"Accept": "application/vnd.apache.arrow.stream"}
    )
    with pa.ipc.open_stream(answer.content) as stream:
        batches = [*stream.iter_batches_with_custom_metadata()]
    assert pa.Table.from_batches([batch.batch for batch in batches]).to_pylist() == rows
    said = batches[-1].custom_metadata
    assert (said[b"position"].decode(), json.loads(said[b"is-complete"])) == (end["_position"], True)
    assert answer.headers["Duckicelake-To"] == end["_position"].partition(".")[0]


def test_a_key_pairs_rows_that_were_replaced(changes: Changes) -> None:
    changes.duck.execute("CREATE TABLE t (id BIGINT, name VARCHAR)")
    changes.duck.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    changes.duck.execute("BEGIN; DELETE FROM t; INSERT INTO t VALUES (1, 'a'), (2, 'c'), (3, 'd'); COMMIT")
    rows, _ = changes.read(since=2, key="id")
    found = sorted((row["_change_type"], row["id"], row["name"]) for row in rows)
    assert found == [("INSERT", 3, "d"), ("UPDATE_AFTER", 2, "c"), ("UPDATE_BEFORE", 2, "b")]


def test_pairs_are_neighbours_though_row_ids_move_between_keys(changes: Changes) -> None:
    changes.duck.execute("CREATE TABLE t (id BIGINT, name VARCHAR)")
    changes.duck.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    changes.duck.execute("UPDATE t SET id = id - 1")
    changes.duck.execute("UPDATE t SET id = 1 - id WHERE id < 2")
    rows, _ = changes.read(since=2, key="id")
    found = [(row["_change_type"], row["id"]) for row in rows]
    befores = [at for at, (kind, _) in enumerate(found) if kind == "UPDATE_BEFORE"]
    assert [found[at + 1] for at in befores] == [("UPDATE_AFTER", found[at][1]) for at in befores]
    assert len(befores) == 4


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ({"since": "99"}, 400, "is no branch or tag|no snapshot 99|The table has no snapshot"),
        ({"since": "99.1.0"}, 400, "no snapshot 99 yet"),
        ({"since": 5, "until": 3}, 400, "from=5 comes after to=3"),
        ({"since": "5.3.0", "until": 4}, 400, "from=5.3.0 comes after to=4"),
        ({"columns": "id,id"}, 400, "different names"),
        ({"columns": "nothing"}, 400, "no column 'nothing'"),
        ({"key": "nothing"}, 400, "no column 'nothing'"),
        ({"table_uuid": "x"}, 409, "another table"),
        ({"table": "gone"}, 404, "does not exist"),
    ],
)
def test_what_cannot_be_answered_is_named(history: Changes, query: dict[str, Any], status: int, said: str) -> None:
    named = {"table-uuid" if name == "table_uuid" else name: value for name, value in query.items()}
    answer = history.ask(**named)
    assert answer.status_code in {status, 404}, answer.text
    assert any(text in answer.text for text in said.split("|")), answer.text


def test_expired_changes_name_the_oldest_that_are_kept(history: Changes) -> None:
    history.duck.execute("CALL ducklake_expire_snapshots('lake', versions => [0, 1, 2, 3])").fetchall()
    answer = history.ask(since=2)
    assert answer.status_code == 410
    assert "the oldest from that is known is 4" in answer.json()["error"]["message"]
    assert history.read(since=4)[0]
    assert history.ask().status_code == 410


def test_hidden_rows_and_values_stay_hidden(history: Changes, services: Services) -> None:
    whole, _ = history.read()
    is_early = {"type": "lt", "left": {"type": "reference", "id": 1}, "right": 110}
    restrict(services, "main.t", is_early, masks={2: Mask.NULL})
    rows, _ = history.read()
    assert {row["called"] for row in rows} == {None}
    assert {row["_changed_row_id"] for row in rows} == {None}
    assert max(row["id"] for row in rows) < 110
    assert len(rows) < len(whole)
    assert not any(row["_change_type"].startswith("UPDATE") for row in rows)  # the change was in what is hidden


def test_command_goes_on_where_its_file_says(history: Changes, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    arguments = ["changes", "main.t", "--uri", str(history.http.base_url), "--state", str(state)]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert [json.loads(line) for line in first.stdout.splitlines()] == history.read()[0]
    assert CliRunner().invoke(app, arguments).stdout == ""
    history.duck.execute("INSERT INTO t VALUES (7, 'seven', NULL)")
    (row,) = CliRunner().invoke(app, arguments).stdout.splitlines()
    assert (json.loads(row)["_change_type"], json.loads(row)["id"]) == ("INSERT", 7)
    history.duck.execute("DROP TABLE t; CREATE TABLE t (id BIGINT)")
    other = CliRunner().invoke(app, arguments)
    assert other.exit_code != 0
    assert "another table" in other.output


@pytest.mark.parametrize(
    "where",
    ["called = 'x' AND id >= 3", {"type": "and", "left": IS_X, "right": {"type": "gt-eq", "term": "id", "value": 3}}],
    ids=["sql", "expression"],
)
def test_a_condition_leaves_the_changes_of_the_rows_that_meet_it(history: Changes, where: Any) -> None:
    """A row that an update leads into the condition is inserted, one that it leads out of it is deleted."""
    asked = where if isinstance(where, str) else json.dumps(where)
    rows, _ = history.read(where=asked)
    assert [row["_change_type"] for row in rows] == ["INSERT"] * 11
    assert {row["called"] for row in rows} == {"x"}
    history.duck.execute("UPDATE t SET called = 'y' WHERE id = 102; UPDATE t SET place = {'x': 1} WHERE id = 105")
    later, _ = history.read(where=asked, since=8)
    assert [(row["_change_type"], row["id"], row["place"]) for row in later] == [
        ("DELETE", 102, None),
        ("UPDATE_BEFORE", 105, None),
        ("UPDATE_AFTER", 105, {"x": 1}),
    ]
    parts: list[dict[str, Any]] = []
    found: dict[str, Any] = {"_position": "0.0.0", "_is_complete": False}
    while not found["_is_complete"]:
        part, found = history.read(where=asked, since=found["_position"], limit=4)
        parts += part
    assert parts == history.read(where=asked)[0]


def test_a_condition_reads_columns_as_they_are_at_the_end(history: Changes) -> None:
    """Rows from before a column was added have no value in it; those of a renamed one are found by its last name."""
    history.duck.execute("ALTER TABLE t ADD COLUMN size INTEGER DEFAULT 5")
    assert len(history.read(where="size = 5")[0]) == len(history.read()[0])
    assert {row["called"] for row in history.read(where="called = 'n1'")[0]} == {"n1"}
    assert "Cannot find column 'name'" in history.ask(where="name = 'n1'").text


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("id + 1 = 2", "Iceberg's filters can't say"),
        ("id =", "Invalid condition 'id ='"),
        ("gone = 1", "Cannot find column 'gone'"),
        ("id = 'many'", "id is compared with"),
        ('{"type": "eq", "term": "gone", "value": 1}', "Cannot filter by column 'gone'"),
        ('{"type": "eq"', "where isn't JSON"),
        ('{"type": "is-null", "term": "place"}', "Cannot filter by column 'place'"),
    ],
)
def test_a_wrong_condition_is_named(history: Changes, where: str, said: str) -> None:
    answer = history.ask(where=where)
    assert (answer.status_code, said in answer.text) == (400, True), answer.text


def test_a_condition_sees_masked_values_alone(history: Changes, services: Services) -> None:
    restrict(services, "main.t", masks={2: Mask.NULL})
    assert history.read(where="called = 'x'")[0] == []
    assert len(history.read(where="called IS NULL")[0]) > 0


def test_command_takes_a_condition(history: Changes) -> None:
    arguments = ["changes", "main.t", "--uri", str(history.http.base_url), "--where", "called LIKE 'n10%'"]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0, found.output
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    assert rows == history.read(where="called LIKE 'n10%'")[0]
    assert {row["called"][:3] for row in rows} == {"n10"}


@pytest.mark.parametrize("since", [0, 7])
def test_an_answer_that_is_as_long_as_it_may_be_is_complete(history: Changes, since: int) -> None:
    rows, _ = history.read(since=since)
    assert rows
    assert history.read(since=since, limit=len(rows)) == history.read(since=since)
    found, end = history.read(since=since, limit=len(rows) - 1)
    assert (found, end["_is_complete"]) == (rows[:-1], False)
    found, end = history.read(since=end["_position"])
    assert (found, end["_is_complete"]) == (rows[-1:], True)


def test_the_process_of_an_answer_is_used_again(history: Changes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start, and the opening of the lake, take most of the time of a small answer."""
    whole = history.read()
    started: list[QueryProcess] = []
    start = QueryProcess.__init__

    def note_start(self: QueryProcess, *arguments: Any) -> None:
        started.append(self)
        start(self, *arguments)

    monkeypatch.setattr(QueryProcess, "__init__", note_start)
    assert history.read() == whole
    assert started == []


FLUSH = "CALL ducklake_flush_inlined_data('lake')"


@pytest.mark.parametrize(
    "statements",
    [
        (FLUSH,),
        ("INSERT INTO t VALUES (7, 'x')", FLUSH),
        ("ALTER TABLE t ADD COLUMN more INTEGER", FLUSH),
        ("ALTER TABLE t ADD COLUMN more INTEGER", "INSERT INTO t VALUES (7, 'x', 1)", FLUSH),
        ("ALTER TABLE t RENAME name TO label", "UPDATE t SET label = 'y'", FLUSH),
        ("ALTER TABLE t DROP COLUMN name", "DELETE FROM t WHERE id = 1", FLUSH),
        (FLUSH, "CALL ducklake_merge_adjacent_files('lake')", "INSERT INTO t VALUES (7, 'x')"),
        ("INSERT INTO t SELECT 8, 'x'", "UPDATE t SET id = 9 WHERE id = 8", FLUSH, "DELETE FROM t WHERE id = 9"),
    ],
)
def test_a_process_that_is_used_again_answers_as_a_new_one(changes: Changes, statements: tuple[str, ...]) -> None:
    """DuckDB 1.5.5 keeps the names of tables of inlined rows, of which a flush drops some."""
    changes.duck.execute("CREATE TABLE t (id BIGINT, name VARCHAR)")
    changes.duck.execute("INSERT INTO t SELECT i, 'n' || i FROM range(3) r(i)")
    changes.read()
    for statement in statements:
        changes.duck.execute(statement).fetchall()
        used = changes.read()
        service.end_processes()
        assert used == changes.read()
        assert used[1]["_is_complete"]


def test_columns_may_have_the_names_by_which_changes_are_ordered(changes: Changes) -> None:
    changes.duck.execute("CREATE TABLE t (g BIGINT, s BIGINT, r BIGINT, side BIGINT, t BIGINT, c0 BIGINT, n BIGINT)")
    changes.duck.execute("INSERT INTO t SELECT -i, i % 3, -i, i % 2, i, -i, i FROM range(20) q(i)")
    changes.duck.execute("UPDATE t SET side = 5 - side, r = r + 1")
    rows, _ = changes.read()
    found = [(row["_change_type"], row["_changed_row_id"]) for row in rows]
    pairs = [(kind, row_id) for row_id in range(20) for kind in ("UPDATE_BEFORE", "UPDATE_AFTER")]
    assert found == [("INSERT", row_id) for row_id in range(20)] + pairs
    parts: list[dict[str, Any]] = []
    end: dict[str, Any] = {"_position": "0.0.0", "_is_complete": False}
    while not end["_is_complete"]:
        part, end = changes.read(since=end["_position"], limit=7)
        parts += part
    assert parts == rows


def test_a_variant_is_named_with_what_to_ask_for(changes: Changes) -> None:
    """Arrow has no type for it, and DuckDB says so without a name."""
    changes.duck.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    changes.duck.execute("CREATE TABLE t (id INTEGER, v VARIANT, n INTEGER)")
    changes.duck.execute("INSERT INTO t VALUES (1, {'a': 1}::VARIANT, 1)")
    changes.duck.execute("UPDATE t SET v = 'x'::VARIANT; UPDATE t SET v = 'x'::VARIANT; DELETE FROM t")
    for query in ({}, {"columns": "id,v"}):
        answer = changes.ask(**query)
        assert (answer.status_code, "show v of main.t" in answer.text) == (400, True), answer.text
        assert "columns=id,n" in answer.text
    rows, _ = changes.read(columns="id,n")
    assert [row["_change_type"] for row in rows] == ["INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"]
