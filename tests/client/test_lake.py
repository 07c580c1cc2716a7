"""The client of a lake over REST, against a served lake, and beside what DuckDB and the routes say of the same."""

import asyncio
import inspect
import time
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

import duckicelake
from duckicelake.client.async_lake import connect_async
from duckicelake.client.changes import ChangeInfo
from duckicelake.client.lake import Lake
from duckicelake.client.lineage import LineageInfo
from duckicelake.client.models import TableInfo, ViewInfo
from duckicelake.client.table import Table, View
from duckicelake.errors import BadInputError, JobConflictError, MissingTableError
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.postgres.embedded import build_embedded_url
from scripts.async_client import FOLDER, TARGETS, write_client
from tests.client.conftest import LiveLake, live, shared_lake
from tests.conftest import new_duckdb
from tests.support.documents import snippets

__all__ = ["live", "shared_lake"]
_numbers = count(1)


@pytest.fixture
def lake(live: LiveLake) -> Lake:
    return duckicelake.connect(live.served.uri)


@pytest.fixture
def space(lake: Lake) -> str:
    """A namespace of the test's own."""
    name = f"client{next(_numbers)}"
    lake.create_namespace(name, {"owner": "ann"})
    return name


def insert(live: LiveLake, statement: str) -> None:
    with new_duckdb() as duck:
        duck.execute(build_duckdb_attach(build_embedded_url(live.folder)))
        duck.execute(statement)


def wait_for_history(lake: Lake, name: str, newest: str) -> list[ChangeInfo]:
    """The history of a table up to the newest change, which the server writes down a moment after the commit."""
    ends = time.monotonic() + 30
    while True:
        found = list(lake.history(name))
        if found and found[0].kind == newest:
            return found
        assert time.monotonic() < ends, found
        time.sleep(0.05)


def wait_for_lineage(lake: Lake, name: str) -> LineageInfo:
    """What a table or view comes from; the server writes it down a moment after the commit."""
    ends = time.monotonic() + 30
    while True:
        try:
            return lake.lineage(name, direction="upstream", has_columns=True)
        except MissingTableError:
            assert time.monotonic() < ends
            time.sleep(0.05)


def test_lists_what_both_sides_made(live: LiveLake, lake: Lake, space: str) -> None:
    lake.create_namespace(f"{space}.eu")
    lake.create_table(f"{space}.eu.`a.b`", "id long")
    insert(live, f"CREATE TABLE lake.{space}.t AS SELECT 1 AS id")
    insert(live, f"CREATE VIEW lake.{space}.v AS SELECT id FROM lake.{space}.t")
    found = [(one.kind, one.name) for one in lake.list(space, is_recursive=True)]
    assert found == [
        ("namespace", f"{space}.eu"),
        ("table", f"{space}.eu.`a.b`"),
        ("table", f"{space}.t"),
        ("view", f"{space}.v"),
    ]
    assert space in lake.namespaces()
    assert [*lake.tables(space), *lake.views(space)] == [f"{space}.t", f"{space}.v"]
    assert {size.name: size.rows for size in lake.sizes(space)}[f"{space}.t"] == 1
    assert isinstance(lake.find(f"{space}.t"), TableInfo)
    view = lake.find(f"{space}.v")
    assert isinstance(view, ViewInfo)
    assert "duckdb" in view.sql


def test_table_is_described_as_it_was_created(lake: Lake, space: str) -> None:
    columns = (
        "id long not null, n decimal(9, 2) comment 'who''s', l list<map<string, int>>, s struct<a: int, `b c`: uuid>"
    )
    table = lake.create_table(f"{space}.t", columns, partition_by="bucket(4, id), n", properties={"comment": "Rows."})
    info = table.load()
    assert [(one.name, one.type, one.is_required, one.comment) for one in info.columns] == [
        ("id", "long", True, None),
        ("n", "decimal(9, 2)", False, "who's"),
        ("l", "list<map<string, int>>", False, None),
        ("s", "struct<a: int, b c: uuid>", False, None),
    ]
    assert (info.partition_fields, info.sort_fields, info.comment) == (("bucket(4, id)", "n"), (), "Rows.")
    assert (info.snapshot, info.snapshots, info.refs, list(table.files())) == (None, (), (), [])


def test_files_and_partitions_are_those_of_the_snapshot(live: LiveLake, lake: Lake, space: str) -> None:
    table = lake.create_table(
        f"{space}.t",
        "id long, region string",
        partition_by="region",
    )
    insert(live, f"INSERT INTO lake.{space}.t SELECT i, CASE WHEN i < 20 THEN 'eu' END FROM range(50) r(i)")
    table.flush()
    first = table.resolve_snapshot()
    insert(live, f"DELETE FROM lake.{space}.t WHERE id = 3")
    insert(live, f"INSERT INTO lake.{space}.t SELECT i, 'us' FROM range(100, 130) r(i)")
    table.flush()
    parts = {one.partition["region"]: (one.files, one.rows) for one in table.partitions()}
    assert parts == {"eu": (1, 20), None: (1, 30), "us": (1, 30)}
    assert sum(file.delete_files for file in table.files()) == 1
    assert sum(file.rows for file in table.files(first)) == 50
    assert {file.format for file in table.files(str(first))} == {"parquet"}
    size = next(size for size in lake.sizes(space) if size.name == table.name)
    assert (size.rows, size.files) == (79, 3)


def test_refs_are_created_moved_and_dropped(live: LiveLake, lake: Lake, space: str) -> None:
    table = lake.create_table(f"{space}.t", "id long")
    insert(live, f"INSERT INTO lake.{space}.t VALUES (1)")
    first = table.resolve_snapshot()
    table.set_ref("old", "tag", first)
    table.set_ref("audit", "branch", first)
    with pytest.raises(JobConflictError):
        table.set_ref("audit", "branch", first)
    insert(live, f"INSERT INTO lake.{space}.t VALUES (2)")
    with pytest.raises(BadInputError, match="main can't be fast-forwarded to audit: audit doesn't descend from it"):
        table.fast_forward("main", "audit")
    table.fast_forward("audit", "main")
    refs = {ref.name: (ref.kind, ref.snapshot_id) for ref in table.load().refs}
    second = table.resolve_snapshot()
    assert refs == {"main": ("branch", second), "audit": ("branch", second), "old": ("tag", first)}
    table.drop_ref("audit")
    with pytest.raises(BadInputError, match=r"has no branch or tag 'audit'; it has main, old"):
        table.drop_ref("audit")
    with pytest.raises(BadInputError, match="main can't be dropped"):
        table.drop_ref("main")


def test_properties_comments_names_and_history_change(lake: Lake, space: str) -> None:
    table = lake.create_table(f"{space}.t", "id long, name string")
    table.update_properties({"a": "1", "b": "2"}, ["b"])
    table.set_column_comment("name", "Whose.")
    assert table.load().properties["a"] == "1"
    assert [one.comment for one in table.load().columns] == [None, "Whose."]
    table.set_column_comment("name", None)
    assert [one.comment for one in table.load().columns] == [None, None]
    with pytest.raises(BadInputError, match="has no column 'nome'"):
        table.set_column_comment("nome", "x")
    lake.update_namespace(space, {"comment": "All."}, ["owner"])
    assert "owner" not in lake.namespace_properties(space)
    lake.rename("table", f"{space}.t", f"{space}.u")
    assert list(lake.tables(space)) == [f"{space}.u"]
    history = wait_for_history(lake, f"{space}.u", "rename-table")
    assert history[-1].kind == "create-table"
    assert (history[0].resource, history[0].previous) == (f"{space}.u", f"{space}.t")
    assert {"create-namespace", "rename-table"} <= {change.kind for change in lake.history(space)}
    of_day = lake.history(space, kinds=["rename-table"], since=datetime.now(UTC) - timedelta(days=1), page_size=1)
    assert [change.resource for change in of_day] == [f"{space}.u"]


def test_rename_of_a_namespace_answers_with_stale_views(lake: Lake, space: str) -> None:
    lake.create_table(f"{space}.t", "id long")
    assert lake.rename_namespace(space, f"{space}_archive.x") == []
    assert list(lake.tables(f"{space}_archive.x")) == [f"{space}_archive.x.t"]


def test_diff_is_what_duckdb_and_the_files_say(live: LiveLake, lake: Lake, space: str) -> None:
    schema = "id long, name string, s struct<a: int>"
    table = lake.create_table(f"{space}.t", schema, properties={"ducklake.data-inlining-row-limit": "0"})
    assert table.diff().is_empty
    insert(live, f"INSERT INTO lake.{space}.t SELECT i, 'n', {{a: 1}} FROM range(100) r(i)")
    first = table.resolve_snapshot()
    created = table.diff()
    assert (created.from_.snapshot_id, created.to.snapshot_id) == (None, first)
    assert (created.rows_added, created.rows_removed, created.files_added, created.columns) == (100, 0, 1, ())
    insert(live, f"DELETE FROM lake.{space}.t WHERE id < 10")
    assert [(one.change, one.rows_added, one.rows_removed) for one in table.diff().files] == [("rows-changed", 0, 10)]
    insert(live, f"INSERT INTO lake.{space}.t SELECT i, 'm', NULL FROM range(7) r(i)")
    insert(live, f"ALTER TABLE lake.{space}.t RENAME name TO title")
    insert(live, f"ALTER TABLE lake.{space}.t ADD COLUMN n INTEGER")
    insert(live, f"ALTER TABLE lake.{space}.t SET PARTITIONED BY (n)")
    both = table.diff(first)
    assert (both.rows_added, both.rows_removed, both.files_added, both.files_removed) == (7, 10, 1, 0)
    assert {one.path for one in table.files()} - {one.path for one in table.files(first)} == {
        one.path for one in both.files if one.change == "added"
    }
    before_and_after = [(one.before and one.before.name, one.after and one.after.name) for one in both.columns]
    assert before_and_after == [("name", "title"), (None, "n")]
    assert both.partition_fields == ((), ("n",))
    back = table.diff("main", first)
    assert (back.rows_added, back.rows_removed, back.files_removed) == (10, 7, 1)
    assert table.diff(first, first).is_empty
    assert table.diff(first, max_files=1).unlisted_files == 1
    with pytest.raises(BadInputError, match="no branch or tag"):
        table.diff("nonsense")


def test_diff_counts_a_rewrite_in_both_directions(live: LiveLake, lake: Lake, space: str) -> None:
    table = lake.create_table(f"{space}.t", "id long", properties={"ducklake.data-inlining-row-limit": "0"})
    for number in range(3):
        insert(live, f"INSERT INTO lake.{space}.t VALUES ({number})")
    first = table.resolve_snapshot()
    insert(live, f"CALL ducklake_merge_adjacent_files('lake', '{'t'}', schema => '{space}')")
    merged = table.diff(first)
    assert (merged.rows_added, merged.rows_removed, merged.files_added, merged.files_removed) == (3, 3, 1, 3)


def test_restore_clone_and_drop(live: LiveLake, lake: Lake, space: str) -> None:
    table = lake.create_table(f"{space}.t", "id long")
    insert(live, f"INSERT INTO lake.{space}.t SELECT i FROM range(3) r(i)")
    first = table.resolve_snapshot()
    insert(live, f"INSERT INTO lake.{space}.t VALUES (9)")
    assert table.restore(str(first), is_dry_run=True).snapshot_id is None
    assert table.restore(str(first)).rows_removed == 1
    clone = table.clone(f"{space}.c")
    assert sum(file.rows for file in clone.files()) == 3
    assert table.explain("id = 1").read.files >= 1
    clone.drop()
    with pytest.raises(MissingTableError):
        clone.load()
    assert table.unregister().endswith(".metadata.json")


def test_rows_events_statistics_and_lineage_are_records(live: LiveLake, lake: Lake, space: str) -> None:
    table = lake.create_table(f"{space}.t", "id long, region string", partition_by="region")
    done = table.append([{"id": 1, "region": "eu"}, {"id": 2, "region": None}])
    assert (done.rows, done.row_ids.count, table.append([]).snapshot_id) == (2, 2, None)
    insert(live, f"CREATE VIEW lake.{space}.v AS SELECT id FROM lake.{space}.t")
    wait_for_history(lake, space, "create-view")

    events = list(lake.events(space))
    assert [(event.name, event.type) for event in events] == [
        (space, "create-namespace"),
        (f"{space}.t", "create-table"),
        (f"{space}.t", "update-table"),
        (f"{space}.v", "create-view"),
    ]
    assert (events[2].kind, events[2].ducklake_snapshot_id) == ("append", done.snapshot_id)
    behind = events[1].position
    assert list(lake.events(space, after=behind)) == events[2:]
    assert [event.kind for event in lake.events(f"{space}.t", kinds=["append"])] == ["append"]
    assert next(lake.events(f"{space}.t", after=behind, is_following=True)) == events[2]

    (upkeep,) = lake.statistics(space, "t")
    assert (upkeep.inlined_rows, upkeep.files, upkeep.size) == (2, 0, next(lake.sizes(space)))
    graph = wait_for_lineage(lake, f"{space}.v")
    edge = next(iter(graph.edges))
    names = graph.find_node(edge.source).full_name, graph.find_node(edge.target).full_name
    assert (names, edge.job is None, graph.is_truncated) == ((f"{space}.t", f"{space}.v"), False, False)
    assert [(column.source_field, column.target_field) for column in edge.columns] == [("id", "id")]
    assert list(lake.jobs(table.name)) == []


@pytest.mark.parametrize("kind", [Lake, Table, View])
def test_no_method_answers_with_json(kind: type) -> None:
    """But `metadata` of records, which is Iceberg's own JSON."""
    methods = {name: one for name, one in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    answers = {name: str(inspect.signature(one).return_annotation) for name, one in methods.items()}
    assert [name for name, answer in answers.items() if "Any" in answer or "Json" in answer] == []


def test_missing_names_bring_suggestions(lake: Lake, space: str) -> None:
    lake.create_table(f"{space}.orders", "id long")
    with pytest.raises(MissingTableError, match=rf"Table does not exist: {space}.order; did you mean {space}.orders\?"):
        lake.find(f"{space}.order")
    with pytest.raises(MissingTableError, match=rf"did you mean the namespace {space}"):
        lake.find(f"{space}x.orders")


@pytest.mark.parametrize("target", TARGETS)
def test_async_client_is_written_from_the_other(target: str) -> None:
    assert (FOLDER / target).read_text() == write_client(target), "run: python -m scripts.async_client"


def test_async_client_does_the_same(live: LiveLake, space: str) -> None:
    async def use() -> None:
        async with connect_async(live.served.uri) as lake:
            table = await lake.create_table(f"{space}.t", "id long")
            await table.update_properties({"a": "1"})
            assert (await table.load()).properties["a"] == "1"
            assert [one.name async for one in lake.list(space)] == [f"{space}.t"]
            assert [file async for file in lake.table(table.name).files()] == []
            with pytest.raises(MissingTableError, match=r"did you mean"):
                await lake.find(f"{space}.tt")
            async for event in lake.events(space, kinds=["create-table"], is_following=True):
                assert event.name == f"{space}.t"
                break

    asyncio.run(use())


def test_snippet_of_the_page_prints_what_it_says(live: LiveLake, capsys: pytest.CaptureFixture[str]) -> None:
    lake = duckicelake.connect(live.served.uri)
    for snippet in snippets("docs/client.md"):
        if snippet.name == "client_history":
            wait_for_history(lake, "shop.orders", "append")
            wait_for_lineage(lake, "shop.orders")
        snippet.run_python({"http://localhost:8181": live.served.uri})
        assert capsys.readouterr().out.splitlines() == snippet.promised, snippet.name
