"""Namespaces through the use cases, with DuckDB's own view of the same schemas as the oracle."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.namespaces import (
    UpdatedProperties,
    create_namespace,
    drop_namespace,
    list_namespaces,
    load_namespace,
    update_namespace,
)
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.catalog.tables import drop_table, list_tables, table_exists
from duckicelake.catalog.views import drop_view, list_views, view_exists
from duckicelake.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NotFoundError,
    UnprocessableError,
)

ALL = PageRequest()
WRITTEN = """
    SELECT s.snapshot_id, s.schema_version, s.next_catalog_id, s.next_file_id, c.changes_made, c.commit_extra_info
    FROM ducklake_snapshot s JOIN ducklake_snapshot_changes c USING (snapshot_id) ORDER BY 1
"""
SCHEMAS = """
    SELECT schema_id, begin_snapshot, end_snapshot, schema_name, path_is_relative,
           replace(path, schema_uuid::text, 'uuid')
    FROM ducklake_schema ORDER BY 1
"""


def children(services, *parent):
    return list(list_namespaces(services, parent, ALL).items)


def rows(services, query):
    with services.database.reading() as cursor:
        return cursor.execute(query).fetchall()


def duckdb_schemas(connection):
    found = connection.execute("SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake' ORDER BY 1")
    return [name for (name,) in found.fetchall()]


def test_a_new_lake_has_the_namespace_main(services):
    assert children(services) == [("main",)]
    assert load_namespace(services, ("main",)) == {}


def test_a_created_namespace_has_its_properties_and_duckdb_can_use_it(services, ducklake):
    assert create_namespace(services, ("s1",), {"owner": "me"}) == {"owner": "me"}

    assert load_namespace(services, ("s1",)) == {"owner": "me"}
    assert duckdb_schemas(ducklake) == ["main", "s1"]
    ducklake.execute("CREATE TABLE s1.t AS SELECT range AS i FROM range(20)")
    assert ducklake.execute("SELECT count(*) FROM s1.t").fetchall() == [(20,)]


NAMES = ["s1", "a-b", "_x", "1a", "Ab", "a b", "é", 'q"q', "s1$", "it's", "select", "information_schema", "漢字"]


def test_creating_and_dropping_writes_the_same_rows_as_duckdb(services, attach, empty_database_url, warehouse):
    theirs = attach(empty_database_url, f"{warehouse}/ducklake/")
    for name in NAMES:
        quoted = '"' + name.replace('"', '""') + '"'
        theirs.execute(f"CREATE SCHEMA {quoted}")
        create_namespace(services, (name,), {})
    theirs.execute("DROP SCHEMA s1")
    drop_namespace(services, ("s1",))

    with psycopg.connect(empty_database_url) as connection:
        for query in (WRITTEN, SCHEMAS, "SELECT * FROM ducklake_schema_versions"):
            assert rows(services, query) == connection.execute(query).fetchall()
    signed = "SELECT DISTINCT author, commit_message FROM ducklake_snapshot_changes WHERE snapshot_id > 0"
    assert rows(services, signed) == [(services.caller.principal.name, None)]


def test_a_schema_that_duckdb_creates_is_a_namespace(services, ducklake):
    ducklake.execute("CREATE SCHEMA from_duckdb")

    assert children(services) == [("from_duckdb",), ("main",)]
    assert load_namespace(services, ("from_duckdb",)) == {}
    with pytest.raises(AlreadyExistsError, match="from_duckdb"):
        create_namespace(services, ("from_duckdb",), {})
    drop_namespace(services, ("from_duckdb",))
    assert duckdb_schemas(ducklake) == ["main"]


def test_a_schema_with_a_dot_is_a_nested_namespace_with_a_virtual_parent(services, ducklake):
    ducklake.execute('CREATE SCHEMA "a.b.c"')

    assert children(services) == [("a",), ("main",)]
    assert children(services, "a") == [("a", "b")]
    assert children(services, "a", "b") == [("a", "b", "c")]
    assert children(services, "a", "b", "c") == []
    assert load_namespace(services, ("a", "b")) == {}


def test_a_virtual_parent_can_be_created_and_outlives_its_children(services):
    create_namespace(services, ("a", "b"), {})
    create_namespace(services, ("a",), {"k": "v"})
    drop_namespace(services, ("a", "b"))

    assert children(services) == [("a",), ("main",)]
    assert load_namespace(services, ("a",)) == {"k": "v"}


def test_a_virtual_parent_goes_with_its_last_child(services):
    create_namespace(services, ("a", "b"), {})
    drop_namespace(services, ("a", "b"))

    assert children(services) == [("main",)]
    with pytest.raises(NoSuchNamespaceError, match=r": a$"):
        load_namespace(services, ("a",))


def test_a_dot_inside_a_level_is_not_a_parent(services):
    create_namespace(services, ("a.b", "c%"), {})

    assert children(services) == [("a.b",), ("main",)]
    assert children(services, "a.b") == [("a.b", "c%")]
    with pytest.raises(NoSuchNamespaceError):
        children(services, "a")


def test_listing_below_an_unknown_namespace_is_refused(services):
    with pytest.raises(NoSuchNamespaceError, match=r": x\.y$"):
        children(services, "x", "y")


def test_pages_of_namespaces_are_complete_while_others_create_and_drop(services):
    for name in ("b", "d", "f", "h"):
        create_namespace(services, (name,), {})
    first = list_namespaces(services, None, PageRequest("", 2))
    drop_namespace(services, ("b",))
    create_namespace(services, ("a",), {})
    second = list_namespaces(services, None, PageRequest(first.next_token, 2))
    third = list_namespaces(services, None, PageRequest(second.next_token, 2))

    assert first.items + second.items + third.items == (("b",), ("d",), ("f",), ("h",), ("main",))
    assert third.next_token is None


def test_creating_an_existing_namespace_is_a_conflict_and_makes_no_snapshot(services):
    create_namespace(services, ("s",), {})
    before = rows(services, WRITTEN)

    with pytest.raises(AlreadyExistsError, match=r": s$"):
        create_namespace(services, ("s",), {"other": "properties"})

    assert rows(services, WRITTEN) == before
    assert load_namespace(services, ("s",)) == {}


@pytest.mark.parametrize(
    ("present", "wanted", "named"),
    [(("Sales",), ("sales",), "Sales"), (("A", "x"), ("a",), "A"), (("a", "X"), ("a", "x"), r"a\.X")],
)
def test_a_name_that_differs_from_a_sibling_only_by_case_is_refused(services, present, wanted, named):
    create_namespace(services, present, {})

    with pytest.raises(InvalidRequestError, match=named):
        create_namespace(services, wanted, {})


def test_names_that_differ_by_case_under_different_parents_are_no_siblings(services):
    create_namespace(services, ("a", "X"), {})
    create_namespace(services, ("b", "x"), {})

    assert children(services, "a") + children(services, "b") == [("a", "X"), ("b", "x")]


@pytest.mark.parametrize("namespace", [(), ("",), ("a", "")])
def test_an_empty_name_is_refused(services, namespace):
    with pytest.raises(InvalidRequestError):
        create_namespace(services, namespace, {})


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TABLE s.t (i INTEGER)", "table t"),
        ("CREATE VIEW s.v AS SELECT 1 AS i", "view v"),
        ("CREATE MACRO s.m(x) AS x + 1", "macro m"),
        ('CREATE SCHEMA "s.child"', r"is not empty\. It holds namespace s\.child$"),
    ],
)
def test_dropping_a_namespace_that_holds_something_is_refused_naming_it(services, ducklake, statement, named):
    create_namespace(services, ("s",), {})
    ducklake.execute(statement)

    with pytest.raises(NamespaceNotEmptyError, match=named):
        drop_namespace(services, ("s",))
    assert ("s",) in children(services)


def test_dropping_a_virtual_namespace_is_refused_naming_its_children(services):
    create_namespace(services, ("a", "b"), {})

    with pytest.raises(NamespaceNotEmptyError, match=r"^Namespace a is not empty\. It holds namespace a\.b$"):
        drop_namespace(services, ("a",))


def test_dropping_a_namespace_whose_tables_were_dropped_works(services, ducklake):
    create_namespace(services, ("s",), {})
    ducklake.execute("CREATE TABLE s.t (i INTEGER)")
    ducklake.execute("DROP TABLE s.t")

    drop_namespace(services, ("s",))

    assert duckdb_schemas(ducklake) == ["main"]


def test_dropping_an_unknown_namespace_is_refused(services):
    with pytest.raises(NoSuchNamespaceError, match=r": nothing$"):
        drop_namespace(services, ("nothing",))


def test_a_namespace_created_again_has_none_of_its_old_properties(services):
    create_namespace(services, ("s",), {"old": "1"})
    drop_namespace(services, ("s",))
    create_namespace(services, ("s",), {})

    assert load_namespace(services, ("s",)) == {}


def test_properties_are_set_and_removed_in_one_step_without_a_snapshot(services):
    create_namespace(services, ("s",), {"keep": "1", "change": "2", "drop": "3"})
    before = rows(services, WRITTEN)

    result = update_namespace(services, ("s",), ["drop", "absent"], {"change": "new", "add": "4"})

    assert result == UpdatedProperties(updated=("change", "add"), removed=("drop",), missing=("absent",))
    assert load_namespace(services, ("s",)) == {"keep": "1", "change": "new", "add": "4"}
    assert rows(services, WRITTEN) == before


def test_many_properties_are_removed_without_comparing_each_with_all(services):
    class Compared(str):
        __slots__ = ()
        times = 0

        def __eq__(self, other):
            Compared.times += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    create_namespace(services, ("s",), {f"k{number}": "" for number in range(300)})
    removed = update_namespace(services, ("s",), [Compared(f"k{number}") for number in range(299, -1, -1)], {}).removed
    assert len(removed) == 300
    assert Compared.times < 10_000, "each was compared with all, while every other commit waited"


def test_properties_of_a_virtual_namespace_make_it_a_schema(services, ducklake):
    create_namespace(services, ("a", "b"), {})

    update_namespace(services, ("a",), [], {"k": "v"})

    assert load_namespace(services, ("a",)) == {"k": "v"}
    assert duckdb_schemas(ducklake) == ["a", "a.b", "main"]


def test_a_key_both_set_and_removed_is_refused(services):
    with pytest.raises(UnprocessableError, match="k"):
        update_namespace(services, ("main",), ["k"], {"k": "v"})


def test_properties_of_an_unknown_namespace_are_refused(services):
    with pytest.raises(NoSuchNamespaceError):
        update_namespace(services, ("nothing",), [], {"k": "v"})


def test_properties_set_by_many_at_once_are_all_kept(services):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: update_namespace(services, ("main",), [], {f"k{n}": str(n)}), range(24)))

    assert load_namespace(services, ("main",)) == {f"k{n}": str(n) for n in range(24)}


def test_many_creators_beside_duckdb_clients_lose_nothing_and_skip_no_snapshot(services, attach):
    def ours(worker):
        for n in range(6):
            create_namespace(services, (f"ours_{worker}_{n}",), {"by": str(worker)})

    def theirs(worker):
        lake = attach()
        for n in range(4):
            lake.execute(f"CREATE SCHEMA theirs_{worker}_{n}")

    with ThreadPoolExecutor(10) as pool:
        futures = [pool.submit(theirs, worker) for worker in range(2)] + [pool.submit(ours, n) for n in range(8)]
        for future in futures:
            future.result()

    expected = {f"ours_{w}_{n}" for w in range(8) for n in range(6)} | {
        f"theirs_{w}_{n}" for w in range(2) for n in range(4)
    }
    assert {level for (level,) in children(services)} == expected | {"main"}
    assert set(duckdb_schemas(attach())) == expected | {"main"}
    written = rows(services, WRITTEN)
    assert [(row[0], row[1], row[2]) for row in written] == [(n, n, n + 1) for n in range(len(expected) + 1)]


def test_two_creators_of_one_name_give_one_namespace_and_one_conflict(services):
    def create(_):
        try:
            create_namespace(services, ("contested",), {})
        except AlreadyExistsError:
            return "conflict"
        return "created"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(create, range(2))) == ["conflict", "created"]


DOTTED = ("a.b", "c")
REFUSED = {
    "load": lambda services: load_namespace(services, DOTTED),
    "drop": lambda services: drop_namespace(services, DOTTED),
    "tables": lambda services: list_tables(services, DOTTED, ALL),
    "views": lambda services: list_views(services, DOTTED, ALL),
    "table": lambda services: table_exists(services, DOTTED, "d.e"),
    "drop table": lambda services: drop_table(services, DOTTED, "d.e", purge=False),
    "rows": lambda services: append_rows(services, PostedRows(DOTTED, "d.e", b"[{}]", "application/json")),
    "view": lambda services: view_exists(services, DOTTED, "d.e"),
    "drop view": lambda services: drop_view(services, DOTTED, "d.e"),
}


@pytest.mark.parametrize("act", REFUSED)
def test_what_is_not_there_is_named_with_its_dots_apart_from_those_between_levels(services, act):
    create_namespace(services, ("a", "b", "c"), {})
    with pytest.raises(NotFoundError, match=r"does not exist: a%2Eb\.c(\.d%2Ee)?$"):
        REFUSED[act](services)


def test_what_is_there_already_is_reported_the_same_way(services):
    create_namespace(services, DOTTED, {})
    with pytest.raises(AlreadyExistsError, match=r"a%2Eb\.c$"):
        create_namespace(services, DOTTED, {})
    with pytest.raises(InvalidRequestError, match=r"Namespace A%2Eb\.c differs only by case from a%2Eb,"):
        create_namespace(services, ("A.b", "c"), {})
