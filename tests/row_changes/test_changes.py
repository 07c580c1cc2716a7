"""Changes of rows: they lead from the state of each snapshot to the next one, whoever wrote it."""

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.pyiceberg_v3.installation import install, uninstall
from tests.row_changes.conftest import Changes

CREATE = "CREATE TABLE t (id BIGINT, name VARCHAR)"


def test_inlined_rows_files_deletes_and_updates(changes: Changes) -> None:
    for statement in (
        CREATE,
        "INSERT INTO t SELECT i, 'n' || i FROM range(5) r(i)",
        "INSERT INTO t SELECT i, 'n' || i FROM range(100, 130) r(i)",
        "DELETE FROM t WHERE id IN (1, 105)",
        "UPDATE t SET name = 'x' WHERE id IN (2, 106)",
        "CALL ducklake_flush_inlined_data('lake')",
        "DELETE FROM t WHERE id BETWEEN 110 AND 125",
        "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
        "CALL ducklake_merge_adjacent_files('lake')",
        "UPDATE t SET name = 'y' WHERE id > 3",
    ):
        changes.duck.execute(statement).fetchall()
    rows = changes.check_replay()
    assert [row["_change_type"] for row in rows if row["id"] == 106] == [
        "INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "UPDATE_BEFORE", "UPDATE_AFTER",
    ]  # fmt: skip
    ordinals = [row["_change_ordinal"] for row in rows]
    assert ordinals == sorted(ordinals)


UPSERT = ("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (1, 'new')")
MERGE = """MERGE INTO t USING (SELECT 1 AS id, 'new' AS name) AS given USING (id)
WHEN MATCHED THEN UPDATE SET name = given.name WHEN NOT MATCHED THEN INSERT VALUES (given.id, given.name)"""
PAIR = ["UPDATE_BEFORE", "UPDATE_AFTER"]
APART = ["DELETE", "INSERT"]


@pytest.mark.parametrize(
    ("statements", "key", "expected"),
    [
        (("BEGIN", *UPSERT, "COMMIT"), None, APART),
        (("BEGIN", *UPSERT, "COMMIT"), "id", PAIR),
        (UPSERT, "id", APART),
        ((MERGE,), None, PAIR),
    ],
    ids=["one transaction", "one transaction, by a key", "two transactions", "merge"],
)
@pytest.mark.parametrize("format_version", [2, 3])
def test_upsert_of_duckdb_is_an_update_where_one_transaction_and_a_key_say_so(
    changes: Changes, statements: tuple[str, ...], key: str | None, expected: list[str], format_version: int
) -> None:
    """A delete and an insert give the row a new id, which a MERGE keeps."""
    changes.duck.execute(CREATE)
    if format_version == 3:
        upgrade(changes)
    changes.duck.execute("INSERT INTO t SELECT i, 'n' || i FROM range(3) r(i)")
    for statement in statements:
        changes.duck.execute(statement).fetchall()
    rows = changes.check_replay(**({"key": key} if key else {}))
    assert [row["_change_type"] for row in rows[3:]] == expected


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("query", [{}, {"key": "id"}], ids=str)
@pytest.mark.parametrize(
    "alteration",
    ["ADD COLUMN x INTEGER DEFAULT 5", "RENAME COLUMN name TO other", "DROP COLUMN name", "ALTER id TYPE BIGINT"],
)
def test_transaction_that_alters_the_table_and_changes_rows(
    changes: Changes, alteration: str, query: dict[str, str], format_version: int
) -> None:
    """Its rows of before have the columns of before."""
    changes.duck.execute("CREATE TABLE t (id INTEGER, name VARCHAR, n INTEGER)")
    if format_version == 3:
        upgrade(changes)
    changes.duck.execute("INSERT INTO t SELECT i, 'a' || i, i FROM range(20) r(i); INSERT INTO t VALUES (30, 'b', 30)")
    changes.duck.execute(f"BEGIN; ALTER TABLE t {alteration}; INSERT INTO t BY NAME SELECT 40 AS id, 40 AS n")
    changes.duck.execute("DELETE FROM t WHERE id IN (1, 30); UPDATE t SET n = 7 WHERE id = 2; COMMIT")
    rows = changes.check_replay(**query)
    last = [(row["_change_type"], row["id"], row["n"]) for row in rows[21:]]
    updated = [("UPDATE_BEFORE", 2, 2), ("UPDATE_AFTER", 2, 7)]
    assert sorted(last) == sorted([("DELETE", 1, 1), ("DELETE", 30, 30), ("INSERT", 40, 40), *updated])
    if alteration.startswith("ADD"):
        changes.duck.execute("ALTER TABLE t DROP COLUMN x")
        assert [{**row, "x": was["x"]} for row, was in zip(changes.read(**query)[0], rows, strict=True)] == rows


def test_transaction_that_renames_the_table_and_changes_rows(changes: Changes) -> None:
    changes.duck.execute("CREATE TABLE old (id INTEGER); INSERT INTO old SELECT i FROM range(20) r(i)")
    changes.duck.execute(
        "BEGIN; ALTER TABLE old RENAME TO t; INSERT INTO t VALUES (40); DELETE FROM t WHERE id = 1; COMMIT"
    )
    assert [(row["_change_type"], row["id"]) for row in changes.check_replay()[20:]] == [("DELETE", 1), ("INSERT", 40)]


@pytest.mark.parametrize("format_version", [2, 3])
def test_rows_that_one_transaction_writes_and_deletes_are_left_out(changes: Changes, format_version: int) -> None:
    """DuckLake lists them on both sides: a reader kept a row that was updated and then deleted."""
    changes.duck.execute(CREATE)
    if format_version == 3:
        upgrade(changes)
    changes.duck.execute("INSERT INTO t SELECT i, 'a' FROM range(40) r(i)")
    changes.note_state()
    changes.duck.execute("UPDATE t SET name = 'small' WHERE id = 39")
    changes.note_state()
    for statement in (
        "BEGIN",
        "UPDATE t SET name = 'b' WHERE id < 3",
        "UPDATE t SET name = 'c' WHERE id = 1",
        "DELETE FROM t WHERE id IN (2, 39)",
        "INSERT INTO t VALUES (50, 'x'), (51, 'y')",
        "DELETE FROM t WHERE id = 51",
        "COMMIT",
    ):
        changes.duck.execute(statement)
    changes.check_replay()
    newest = max(changes.states)
    rows, _ = changes.read(since=newest - 1)
    assert sorted((row["_change_type"], row["id"], row["name"]) for row in rows) == [
        ("DELETE", 2, "a"),
        ("DELETE", 39, "small"),
        ("INSERT", 50, "x"),
        ("UPDATE_AFTER", 0, "b"),
        ("UPDATE_AFTER", 1, "c"),
        ("UPDATE_BEFORE", 0, "a"),
        ("UPDATE_BEFORE", 1, "a"),
    ]


def upgrade(changes: Changes) -> None:
    """Make the table one of format version 3."""
    changes.http.post(
        "/v1/namespaces/main/tables/t",
        json={"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]},
    ).raise_for_status()


@pytest.fixture
def pyiceberg_v3() -> Iterator[None]:
    install()
    yield
    uninstall()


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.usefixtures("pyiceberg_v3")
@pytest.mark.parametrize(("format_version", "seed"), [(2, 1), (3, 2)])
def test_random_history_of_several_clients(changes: Changes, format_version: int, seed: int) -> None:
    chance = random.Random(10 * seed + format_version)
    catalog = RestCatalog("lake", uri=str(changes.http.base_url))
    duck = changes.duck
    duck.execute(CREATE)
    if format_version == 3:
        upgrade(changes)

    def rows_of(count: int) -> pa.Table:
        ids = [chance.randrange(200) for _ in range(count)]
        return pa.table({"id": ids, "name": [f"p{chance.randrange(9)}" for _ in ids]})

    def go_back() -> None:
        table = catalog.load_table("main.t")
        earlier = [entry.snapshot_id for entry in table.metadata.snapshot_log]
        kept = [one for one in earlier if table.snapshot_by_id(one) is not None]
        if kept:
            with suppress(ValueError), table.manage_snapshots() as managing:  # of one that main isn't based on any more
                managing.rollback_to_snapshot(chance.choice(kept[-4:]))

    acts: dict[str, Any] = {
        "few": lambda: duck.execute(f"INSERT INTO t SELECT i, 'd' FROM range({chance.randrange(1, 9)}) r(i)"),
        "many": lambda: duck.execute(f"INSERT INTO t SELECT i, 'f' FROM range(50, {chance.randrange(70, 99)}) r(i)"),
        "delete": lambda: duck.execute(f"DELETE FROM t WHERE id % 11 = {chance.randrange(11)}"),
        "update": lambda: duck.execute(f"UPDATE t SET name = 'u' WHERE id % 7 = {chance.randrange(7)}"),
        "flush": lambda: duck.execute("CALL ducklake_flush_inlined_data('lake')").fetchall(),
        "merge": lambda: duck.execute("CALL ducklake_merge_adjacent_files('lake')").fetchall(),
        "rewrite": lambda: duck.execute(
            "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)"
        ).fetchall(),
        "append": lambda: catalog.load_table("main.t").append(rows_of(12)),
        "post": lambda: changes.http.post(
            "/v1/namespaces/main/tables/t/rows", json=rows_of(3).to_pylist()
        ).raise_for_status(),
        "back": go_back,
        "overwrite": lambda: catalog.load_table("main.t").overwrite(rows_of(5), f"id > {chance.randrange(200)}"),
        "remove": lambda: catalog.load_table("main.t").delete(f"id < {chance.randrange(60)}"),
    }
    for _ in range(30):
        name = chance.choice([*acts])
        acts[name]()
        changes.note_state()
    changes.check_replay()
