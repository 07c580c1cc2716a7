"""Names, levels and folders of schemas: those of DuckLake 1.0, and nested ones by `ducklake-1.1-facts.md`, §7."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duckicelake.iceberg.identifiers import parse_schema_name, to_schema_name
from duckicelake.postgres.queries import load_queries
from tests.support.ducklake_11 import add_nested_schemas
from tests.support.examples import count_examples

Connection = psycopg.Connection[Any]
PACKAGE = Path(__file__).parents[3] / "duckicelake"
NAMES = st.text("ab.%25E", min_size=1, max_size=4)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def nested(connection: Connection) -> Connection:
    """A lake that may have nested schemas."""
    add_nested_schemas(connection)
    return connection


def add(
    connection: Connection,
    schema_id: int,
    name: str,
    parent: int | None = None,
    *,
    begin: int = 0,
    end: int | None = None,
) -> None:
    connection.execute(
        "INSERT INTO ducklake_schema (schema_id, schema_uuid, begin_snapshot, end_snapshot, schema_name, path, "
        "path_is_relative, parent_schema_id) VALUES (%s, gen_random_uuid(), %s, %s, %s, %s, true, %s)",
        [schema_id, begin, end, name, f"p{schema_id}/", parent],
    )


def names(connection: Connection) -> dict[int, str]:
    found = connection.execute(
        "SELECT schema_id, schema_name FROM duckicelake_schemas() WHERE schema_id > 0 ORDER BY 1"
    )
    return dict(found.fetchall())


@settings(max_examples=count_examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(NAMES, min_size=1, max_size=3).map(tuple), min_size=1, max_size=9))
def test_sql_spells_names_and_levels_as_python(connection: Connection, namespaces: list[tuple[str, ...]]) -> None:
    for namespace in namespaces:
        name = to_schema_name(namespace)
        spelled, levels = connection.execute(
            "SELECT string_agg(duckicelake_escape_level(level), '.' ORDER BY place), duckicelake_parse_levels(%s) "
            "FROM unnest(%s::text[]) WITH ORDINALITY AS l (level, place)",
            [name, list(namespace)],
        ).fetchall()[0]
        assert (spelled, tuple(levels)) == (name, namespace)
        raw = ".".join(namespace)
        ((levels,),) = connection.execute("SELECT duckicelake_parse_levels(%s)", [raw]).fetchall()
        assert tuple(levels) == parse_schema_name(raw)


@settings(max_examples=count_examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.lists(NAMES, min_size=1, max_size=3), namespace=st.lists(NAMES, min_size=1, max_size=3))
def test_what_is_within_a_namespace_is_said_by_levels(
    connection: Connection, name: list[str], namespace: list[str]
) -> None:
    within = connection.execute(
        "SELECT duckicelake_is_within(%s, %s)", [to_schema_name(tuple(name)), to_schema_name(tuple(namespace))]
    )
    assert within.fetchone() == (name[: len(namespace)] == namespace,)


RAW = """
    SELECT schema_id, schema_uuid, begin_snapshot, end_snapshot, NULL::bigint, false, schema_name::text,
           schema_name::text, path::text, path_is_relative,
           (SELECT value FROM ducklake_metadata WHERE key = 'data_path') || path,
           ARRAY[path::text]
    FROM ducklake_schema ORDER BY 1
"""
COMPUTED = """
    SELECT schema_id, schema_uuid, begin_snapshot, end_snapshot, parent_id, is_nested, schema_name, recorded_name, path,
           path_is_relative, folder, possible_paths
    FROM duckicelake_schemas() ORDER BY 1
"""


@pytest.mark.parametrize("is_new", [False, True], ids=["1.0", "1.1"])
def test_schemas_at_the_top_are_as_ducklake_has_them(connection: Connection, is_new: bool) -> None:
    if is_new:
        add_nested_schemas(connection)
    for schema_id, name in enumerate(["s", "a.b", "a%2Eb", "100%", "a..b", "q'q"], 1):
        connection.execute(
            "INSERT INTO ducklake_schema (schema_id, schema_uuid, begin_snapshot, end_snapshot, schema_name, path, "
            "path_is_relative) VALUES (%s, gen_random_uuid(), 0, %s, %s, 'p/', true)",
            [schema_id, 1 if schema_id % 2 else None, name],
        )
    assert connection.execute(COMPUTED).fetchall() == connection.execute(RAW).fetchall()


def test_without_nested_schemas_queries_are_planned_as_if_they_read_ducklakes_table(nested: Connection) -> None:
    """Freshness is checked in each load: the function must cost nothing there."""
    query = load_queries("lake", "state").table_id
    parameters = {"schema_name": "main", "table_name": "t"}
    plain = query.replace("duckicelake_schemas()", "ducklake_schema").replace("s.is_nested", "false")
    plans = [nested.execute(f"EXPLAIN {text}", parameters).fetchall() for text in (query, plain)]
    assert plans[0] == plans[1]


BARE = {
    "damage": 4,  # names in lakes that lack migrations; schemas that `duckicelake_schemas` leaves out; the highest id
    "dropped": 3,  # uuids of dropped schemas, and schemas that come back
    "format": 2,  # a new lake's; names of macros in lakes that lack migrations
    "import": 1,  # of a lake without migrations
    "moved_schemas": 2,  # ends of schemas, and their new rows
    "publish": 2,  # copies of rows
    "schemas": 2,  # new schemas, and their ends
}
"""How often SQL reads or writes DuckLake's own rows of schemas, by file."""


def test_queries_read_schemas_by_the_function_alone() -> None:
    found = {
        path.stem: len(re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE) ducklake_schema\b(?!_)", path.read_text()))
        for path in PACKAGE.rglob("*.sql")
        if "migrations" not in path.parts
    }
    assert {name: count for name, count in found.items() if count} == BARE


def test_a_nested_schema_has_its_parents_levels(nested: Connection) -> None:
    add(nested, 1, "sales")
    add(nested, 2, "europe", 1)
    add(nested, 3, "europe", 2)
    add(nested, 4, "europe")
    add(nested, 5, "north.west", 2)
    add(nested, 6, "x%2E", 5)
    assert names(nested) == {
        1: "sales",
        2: "sales.europe",
        3: "sales.europe.europe",
        4: "europe",
        5: "sales.europe.north%2Ewest",
        6: "sales.europe.north%2Ewest.x%252E",
    }
    found = nested.execute(
        "SELECT levels, recorded_name, is_nested, path, folder, possible_paths FROM duckicelake_schemas() "
        "WHERE schema_id = 6"
    )
    levels = ["sales", "europe", "north.west", "x%2E"]
    assert found.fetchone() == (levels, "x%2E", True, None, None, ["p6/", "p1/p2/p5/p6/"])


def test_a_dotted_name_keeps_its_levels_until_a_nested_schema_has_them(nested: Connection) -> None:
    add(nested, 1, "a.b")
    add(nested, 2, "a")
    add(nested, 3, "c", 1)
    assert names(nested) == {1: "a.b", 2: "a", 3: "a.b.c"}

    add(nested, 4, "b", 2)
    add(nested, 5, "c", 4)
    assert names(nested) == {1: "a%2Eb", 2: "a", 3: "a%2Eb.c", 4: "a.b", 5: "a.b.c"}

    nested.execute("UPDATE ducklake_schema SET end_snapshot = 9 WHERE schema_id IN (4, 5)")
    assert names(nested) == {1: "a.b", 2: "a", 3: "a.b.c", 4: "a.b", 5: "a.b.c"}

    nested.execute("DELETE FROM ducklake_schema WHERE schema_id IN (3, 4, 5)")
    assert names(nested) == {1: "a.b", 2: "a"}
    assert nested.execute("SELECT * FROM duckicelake_nested_schema").fetchall() == []


def test_a_dropped_schema_is_called_as_at_its_end(nested: Connection) -> None:
    add(nested, 1, "a")
    add(nested, 2, "a.b", begin=1, end=3)
    add(nested, 3, "b", 1, begin=5)
    add(nested, 4, "a.b", begin=6, end=7)
    add(nested, 5, "a.b", begin=8)
    assert names(nested) == {1: "a", 2: "a.b", 3: "a.b", 4: "a%2Eb", 5: "a%2Eb"}


def test_a_renamed_or_moved_parent_takes_its_children_with_it(nested: Connection) -> None:
    add(nested, 1, "a")
    add(nested, 2, "b", 1)
    add(nested, 3, "c", 2)
    nested.execute("UPDATE ducklake_schema SET schema_name = 'z.z' WHERE schema_id = 1")
    assert names(nested) == {1: "z.z", 2: "z.z.b", 3: "z.z.b.c"}
    nested.execute("UPDATE ducklake_schema SET parent_schema_id = NULL WHERE schema_id = 2")
    assert names(nested) == {1: "z.z", 2: "b", 3: "b.c"}


def test_schemas_whose_parents_are_lost_have_no_name(nested: Connection) -> None:
    add(nested, 1, "a", 9)
    add(nested, 2, "b", 1)
    add(nested, 3, "c", 4)
    add(nested, 4, "d", 3)
    add(nested, 5, "e")
    assert names(nested) == {5: "e"}


@settings(max_examples=count_examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(st.text("ab.", min_size=1, max_size=4), st.none() | st.integers(1, 7)), min_size=1, max_size=7)
)
def test_live_schemas_have_names_of_their_own(nested: Connection, schemas: list[tuple[str, int | None]]) -> None:
    """Names within one parent are unique, as DuckLake makes them. Escapes in names that DuckDB made are left out."""
    with nested.transaction(force_rollback=True):
        taken: dict[tuple[str, int | None], int] = {}
        for name, wanted in schemas:
            parent = wanted if wanted is not None and wanted <= len(taken) else None
            if (name, parent) not in taken:
                taken[name, parent] = len(taken) + 1
                add(nested, taken[name, parent], name, parent)
        rows = nested.execute(
            "SELECT schema_id, schema_name, levels, parent_id, recorded_name FROM duckicelake_schemas() "
            "WHERE schema_id > 0"
        ).fetchall()
        assert len(rows) == len(taken)
        assert len({name for _, name, *_ in rows}) == len(rows)
        assert len({tuple(levels) for _, _, levels, *_ in rows}) == len(rows)
        known = {schema_id: levels for schema_id, _, levels, *_ in rows}
        for _, name, levels, parent, recorded in rows:
            assert tuple(levels) == parse_schema_name(name)
            if parent is not None:
                assert levels == [*known[parent], recorded]
                assert to_schema_name(tuple(levels)) == name or ".." in name or name[0] == "." or name[-1] == "."
