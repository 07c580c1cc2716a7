"""What DuckDB, or an older DuckLake, called tables so that requests can't, or as if they had gone."""

import pytest

from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.namespaces import create_namespace, list_namespaces
from duckicelake.catalog.tables import list_tables
from duckicelake.catalog.views import list_views
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import check_name
from tests.support.lakes import assert_same_rows

CONTROLS = ["a\tb", "a\x1fb", "a\nb", "\x7f"]
STEPS = [".", ".."]


@pytest.mark.parametrize("schema", ["a..b", ".a", "a.", *STEPS, *CONTROLS, "a%25b"])
def test_schemas_that_no_request_can_name_are_left_out_of_lists(lake, schema):
    lake.run(f'CREATE SCHEMA "{schema}"', f'CREATE TABLE "{schema}".t AS SELECT 1 x', 'CREATE SCHEMA "a b%"')

    assert list_namespaces(lake.services, None, PageRequest()).items == (("a b%",), ("main",))
    (found,) = findings(lake)
    assert (found.name, found.ok) == ("names", False)
    assert f'schema "{schema}"' in found.detail
    assert "make another schema" in found.advice


@pytest.mark.parametrize("name", [*STEPS, *CONTROLS, "x" * 2001])
def test_tables_and_views_that_no_request_can_name_are_left_out_of_lists(lake, name):
    lake.run(
        f'CREATE TABLE main."{name}" (x int)',
        "CREATE TABLE t (x int)",
        "CREATE SCHEMA s",
        "CREATE VIEW s.v AS SELECT 1",
    )
    lake.run(f'CREATE VIEW s."{name}" AS SELECT 1 x', 'CREATE TABLE "a/b..c%" (x int)')

    assert list_tables(lake.services, ("main",), PageRequest()).items == ("a/b..c%", "t")
    assert list_tables(lake.services, ("main",), PageRequest(token="", size=1)).items == ("a/b..c%",)
    assert list_views(lake.services, ("s",), PageRequest()).items == ("v",)
    advice = {found.advice for found in findings(lake)}
    assert {f'ALTER TABLE "main"."{name}" RENAME TO' in text for text in advice} == {True, False}
    assert any(f'ALTER VIEW "s"."{name}" RENAME TO' in text for text in advice)


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_a_path_are_no_names(lake, name):
    with pytest.raises(InvalidRequestError, match="can't be part of a URL"):
        check_name(name, "table name")
    with pytest.raises(InvalidRequestError, match="can't be part of a URL"):
        create_namespace(lake.services, (name,), {})
    create_namespace(lake.services, ("a", name), {})


def findings(lake):
    found, _ = examine_tables(lake.services.database)
    return found


@pytest.mark.parametrize("is_known", [True, False])
def test_a_table_that_an_older_ducklake_renamed_is_served(lake, is_known):
    lake.run("CREATE TABLE t AS SELECT 1 x")
    if is_known:
        lake.metadata()
    lake.run("ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (2)")
    with lake.services.database.transaction() as cursor:
        renamed = cursor.execute(
            "UPDATE ducklake_snapshot_changes c SET changes_made = "
            "'dropped_table:' || t.table_id || ',created_table:\"main\".\"u\"' "
            "FROM ducklake_table t WHERE t.table_name = 'u' AND c.snapshot_id = t.begin_snapshot"
        )
        assert renamed.rowcount == 1

    assert_same_rows(lake, "u")
    lake.run("DROP TABLE u")
    assert list_tables(lake.services, ("main",), PageRequest()).items == ()
