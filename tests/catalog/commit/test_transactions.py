"""Commits to several tables at once: all of them or none."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import duckdb
import pytest
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.tables import commit_transaction, drop_table
from duckicelake.errors import (
    CatalogError,
    CommitFailedError,
    InvalidRequestError,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from duckicelake.iceberg.rest import CommitTransactionRequest
from tests.support import engine
from tests.support.client import (
    NS,
    SCHEMA,
    Client,
    Draft,
    Json,
    assert_whole,
    duckdb_rows,
    pyiceberg_rows,
    set_properties,
)
from tests.support.row_lineage import lineage
from tests.support.seams import Fuse, Killed, fresh, fused

MOST_STEPS = 200
UUID = "5f0a6a1e-4d8a-4d2f-9a43-0c5a5a8b3f11"


def change(name: str, body: Json) -> Json:
    return {"identifier": {"namespace": list(NS), "name": name}, **body}


def commit(services: Services, *changes: Json) -> None:
    commit_transaction(services, CommitTransactionRequest.model_validate({"table-changes": changes}))


def creation(services: Services, name: str, *rows: engine.Row, version: int = 2) -> Json:
    """The request that creates a table with its first rows, as engines send it after staging."""
    location = f"{services.policy.data_zone}/ns/{name}"
    schema = {**SCHEMA, "schema-id": 0}
    metadata = {"location": location, "format-version": version, "schemas": [schema], "current-schema-id": 0,
                "table-uuid": UUID, "next-row-id": 0}  # fmt: skip
    draft = Draft(metadata, format_version=version)
    added = draft.body([draft.manifest([draft.data_file(rows)])])["updates"]
    updates = [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": location},
    ]
    return change(name, {"requirements": [{"type": "assert-create"}], "updates": [*updates, *added]})


@pytest.fixture(params=["client", "ducklake"])
def numbered(client: Client, request: pytest.FixtureRequest) -> Client:
    """A client of a server in each mode."""
    return Client(replace(fresh(client.services), snapshot_ids=request.param))


def contents(client: Client, duck: duckdb.DuckDBPyConnection, names: Iterable[str]) -> dict[str, list[engine.Row]]:
    """What both sides read; None for a table that isn't there."""
    found = {}
    for name in names:
        answer = client.load(name)
        assert_whole(answer)
        found[name] = pyiceberg_rows(answer)
        assert duckdb_rows(duck, name) == found[name]
    return found


@pytest.mark.parametrize("version", [1, 2, 3])
def test_three_tables_change_together_and_one_of_them_is_new(
    numbered: Client, ducklake: duckdb.DuckDBPyConnection, version: int
) -> None:
    properties = {"format-version": str(version)}
    for name in ("a", "b"):
        numbered.create(name, properties=properties)
    commit(
        numbered.services,
        change("a", engine.then(engine.append((1, "a")), engine.append((2, "a")))(numbered.metadata("a"))),
        creation(numbered.services, "new", (3, "new"), version=version),
        change("b", engine.append((4, "b"))(numbered.metadata("b"))),
    )
    found = contents(numbered, ducklake, ("a", "b", "new"))
    assert found == {"a": [(1, "a"), (2, "a")], "b": [(4, "b")], "new": [(3, "new")]}
    ids = [snapshot for name in ("a", "new", "b") for snapshot in numbered.metadata(name)["snapshots"]]
    made = [int(snapshot["summary"]["ducklake.snapshot-id"]) for snapshot in ids]
    assert made == list(range(made[0], made[0] + 4))
    if numbered.services.snapshot_ids == "ducklake":
        assert [snapshot["snapshot-id"] for snapshot in ids] == made
    if version == 3:
        assert [snapshot["sequence-number"] for snapshot in ids] == made
        for name in ("a", "b", "new"):
            rows = lineage(StaticTable.from_metadata(numbered.load(name)["metadata-location"]))
            assert sorted(ducklake.sql(f"SELECT rowid FROM lake.ns.{name}").fetchall()) == [(id_,) for id_, _ in rows]


BROKEN: list[tuple[Json, type[CatalogError]]] = [
    ({"requirements": [{"type": "assert-table-uuid", "uuid": UUID}], "updates": []}, CommitFailedError),
    ({"requirements": [{"type": "assert-create"}], "updates": []}, CommitFailedError),
    ({"requirements": [], "updates": [{"action": "set-current-schema", "schema-id": 7}]}, InvalidRequestError),
    ({"requirements": [], "updates": [{"action": "set-location", "location": "file:///etc"}]}, InvalidRequestError),
]


@pytest.mark.parametrize(("broken", "error"), BROKEN)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_change_that_fails_leaves_everything_as_it_was(
    client: Client, ducklake: duckdb.DuckDBPyConnection, broken: Json, error: type[CatalogError], place: int
) -> None:
    for name in ("a", "b"):
        client.create(name)
        client.append((1, name), name=name)
    before = [client.load(name) for name in ("a", "b")]
    newest = ducklake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
    good = [change("a", engine.append((2, "a"))(client.metadata("a"))), creation(client.services, "new", (3, "new"))]
    with pytest.raises(error):
        commit(client.services, *good[:place], change("b", broken), *good[place:])
    assert [client.load(name) for name in ("a", "b")] == before
    assert ducklake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall() == newest
    with pytest.raises(NoSuchTableError):
        client.load("new")


def test_table_created_meanwhile_fails_the_whole_transaction(client: Client) -> None:
    client.create("a")
    made = change("a", engine.append((1, "a"))(client.metadata("a")))
    new = creation(client.services, "new", (2, "new"))
    client.create("new")
    with pytest.raises(CommitFailedError, match="already exists"):
        commit(client.services, made, new)
    assert pyiceberg_rows(client.load("a")) == []


def test_missing_tables_and_namespaces_fail_the_whole_transaction(client: Client) -> None:
    client.create("a")
    made = change("a", engine.append((1, "a"))(client.metadata("a")))
    with pytest.raises(NoSuchTableError):
        commit(client.services, made, change("gone", set_properties(a="b")))
    nowhere = {**creation(client.services, "new", (2, "new")), "identifier": {"namespace": ["x"], "name": "new"}}
    with pytest.raises(NoSuchNamespaceError):
        commit(client.services, made, nowhere)
    assert pyiceberg_rows(client.load("a")) == []


def test_changes_without_a_name_or_twice_of_one_table_are_refused(client: Client) -> None:
    client.create("a")
    update = set_properties(a="b")
    with pytest.raises(InvalidRequestError, match=r"table-changes\[1\] has no identifier"):
        commit(client.services, change("a", update), update)
    with pytest.raises(InvalidRequestError, match=r"ns\.a is changed 2 times"):
        commit(client.services, change("a", update), change("a", set_properties(c="d")))
    assert not client.metadata("a")["properties"].keys() & {"a", "c"}


def test_transaction_that_changes_nothing_writes_nothing(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create("a", properties={"a": "b"})
    client.create("b")
    before = [client.load(name) for name in ("a", "b")]
    newest = ducklake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
    commit(client.services, change("a", set_properties(a="b")), change("b", {"requirements": [], "updates": []}))
    assert [client.load(name) for name in ("a", "b")] == before
    assert ducklake.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall() == newest


def superseded(services: Services, duck: duckdb.DuckDBPyConnection, statement: str) -> Services:
    """A server that DuckDB overtakes after it has loaded the tables."""
    acts, clock = [statement], services.clock

    def now() -> int:
        if acts:
            duck.execute(acts.pop())
        return clock()

    return replace(services, clock=now)


@pytest.mark.parametrize("table", ["a", "b", "other"])
def test_writes_of_duckdb_in_between_are_taken_in(
    numbered: Client, ducklake: duckdb.DuckDBPyConnection, table: str
) -> None:
    for name in ("a", "b", "other"):
        numbered.create(name)
        numbered.append((1, name), name=name)
    added = {"id": 3, "name": "more", "type": "int", "required": False}
    schema = {"action": "add-schema", "schema": {"type": "struct", "fields": [*SCHEMA["fields"], added]}}
    tag = engine.point("v1", numbered.metadata("b")["current-snapshot-id"], "tag")({})
    current = {"action": "set-current-schema", "schema-id": -1}
    commit(
        superseded(numbered.services, ducklake, f"INSERT INTO lake.ns.{table} VALUES (2, 'DuckDB')"),
        change("a", {"requirements": [], "updates": [schema, current]}),
        change("b", tag),
        change("other", set_properties(a="b")),
    )
    found = contents(numbered, ducklake, ("a", "b", "other"))
    assert found == {name: [(1, name), *([(2, "DuckDB")] if name == table else [])] for name in ("a", "b", "other")}
    assert "more" in ducklake.sql("FROM lake.ns.a").columns
    assert numbered.metadata("b")["refs"].keys() == {"main", "v1"}
    assert numbered.metadata("other")["properties"]["a"] == "b"


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("table", ["a", "b", "other"])
def test_appends_that_duckdb_supersedes_all_fail_if_it_changed_one_of_their_tables(
    numbered: Client, ducklake: duckdb.DuckDBPyConnection, version: int, table: str
) -> None:
    for name in ("a", "b", "other"):
        numbered.create(name, properties={"format-version": str(version)})
    changes = [change(name, engine.append((1, name))(numbered.metadata(name))) for name in ("a", "b")]
    services = superseded(numbered.services, ducklake, f"INSERT INTO lake.ns.{table} VALUES (2, 'DuckDB')")
    if table == "other":
        commit(services, *changes)
    else:
        with pytest.raises(CommitFailedError):
            commit(services, *changes)
    mine = {name: [(1, name)] if table == "other" else [] for name in ("a", "b")} | {"other": []}
    assert contents(numbered, ducklake, mine) == mine | {table: [*mine[table], (2, "DuckDB")]}


@pytest.mark.crash
def test_transaction_killed_at_any_step_is_whole_or_nothing(
    client: Client, services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    for name in ("a", "b"):
        client.create(name)
    for step in range(MOST_STEPS):
        now = Client(fresh(services))
        before = len(pyiceberg_rows(now.load("a")))
        changes = [change(name, engine.append((step, name))(now.metadata(name))) for name in ("a", "b")]
        changes.append(creation(services, f"new{step}", (step, "new")))
        fuse = Fuse(step)
        try:
            commit(fused(services, fuse), *changes)
        except Killed:
            assert fuse.burnt
        now = Client(fresh(services))
        found = contents(now, ducklake, ("a", "b"))
        there = ducklake.sql(f"FROM duckdb_tables() WHERE table_name = 'new{step}'").fetchall()
        assert len(found["a"]) == len(found["b"]) == before + len(there), fuse.log
        if there:
            assert contents(now, ducklake, [f"new{step}"]) == {f"new{step}": [(step, "new")]}
            drop_table(services, NS, f"new{step}", purge=False)
        if not fuse.burnt:
            assert there
            assert {"before COMMIT", "after COMMIT"} <= set(fuse.log)
            return
    raise AssertionError(f"a transaction takes more than {MOST_STEPS} steps: {fuse.log}")


def test_transactions_over_the_same_tables_in_different_order_do_not_wait_for_each_other(
    client: Client, services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    names = ["a", "b", "c"]
    for name in names:
        client.create(name)

    def append_to_all(number: int) -> None:
        mine, order = Client(fresh(services)), names[number:] + names[:number]
        for turn in range(4):
            while True:
                row = (10 * number + turn, None)
                changes = [change(name, engine.append(row)(mine.metadata(name))) for name in order]
                try:
                    commit(mine.services, *changes)
                except CommitFailedError:
                    continue
                break

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(append_to_all, number) for number in range(3)]:
            done.result(timeout=120)
    expected = sorted((10 * number + turn, None) for number in range(3) for turn in range(4))
    assert contents(client, ducklake, names) == dict.fromkeys(names, expected)


@pytest.mark.parametrize(
    ("second", "error"), [("T", InvalidRequestError), ("t", CatalogError)], ids=["another case", "the same"]
)
def test_two_creations_of_one_name_in_a_transaction_are_refused(
    client: Client, ducklake: duckdb.DuckDBPyConnection, second: str, error: type[CatalogError]
) -> None:
    changes = [creation(client.services, "t", (1, "one")), creation(client.services, second, (2, "two"))]
    changes[1]["updates"][0]["uuid"] = str(uuid4())
    with pytest.raises(error):
        commit(client.services, *changes)
    assert ducklake.sql("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'").fetchall() == []
