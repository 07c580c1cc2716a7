"""The shell on a DuckLake lake without a catalog: described, queried, changed and completed by DuckDB alone."""

import json
from pathlib import Path

import duckdb
import pytest
from duckdb_extensions import import_extension

from duckicelake.rest.connection import Connection
from duckicelake.shell.completion import KnownNames, complete
from duckicelake.shell.ducklake import DuckLakeSession
from tests.shell.conftest import run_shell

pytestmark = pytest.mark.commands


@pytest.fixture
def lake(tmp_path: Path, extensions: None) -> str:
    """The URI of a lake with a partitioned table of three rows in two files, an empty one, and a view."""
    uri = f"ducklake:{tmp_path / 'metadata.ducklake'}"
    with duckdb.connect() as connection:
        import_extension("ducklake", con=connection)
        connection.execute(f"ATTACH '{uri}' AS lake (DATA_PATH '{tmp_path / 'data'}', DATA_INLINING_ROW_LIMIT 0)")
        connection.execute("CREATE SCHEMA lake.zoo")
        connection.execute("CREATE TABLE lake.zoo.birds (id BIGINT NOT NULL, name VARCHAR, kind VARCHAR)")
        connection.execute("ALTER TABLE lake.zoo.birds SET PARTITIONED BY (kind)")
        connection.execute(
            "INSERT INTO lake.zoo.birds VALUES (1, 'duck', 'water'), (2, 'hen', 'land'), (3, 'x', 'land')"
        )
        connection.execute("COMMENT ON TABLE lake.zoo.birds IS 'All of them.'")
        connection.execute('CREATE TABLE lake.zoo."odd name" ("a b" INT)')
        connection.execute("CREATE VIEW lake.zoo.named AS SELECT name FROM lake.zoo.birds")
    return uri


def read(lake: str, *commands: str) -> list[dict[str, object]]:
    done = run_shell(lake, *(word for command in commands for word in ("-c", command)), "--format", "ndjson")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_describes(lake: str) -> None:
    assert {"kind": "namespace", "name": "zoo"} in read(lake, "\\dn")
    sizes = {row["name"]: (row.get("rows"), row.get("files")) for row in read(lake, "\\dt+ zoo")}
    assert sizes == {"zoo.birds": (3, 2), "zoo.odd name": (0, 0)}
    assert [row["name"] for row in read(lake, "\\dv")] == ["zoo.named"]
    columns = [(row["name"], row["type"], row["required"]) for row in read(lake, "\\d zoo.birds")]
    assert columns == [("id", "BIGINT", True), ("name", "VARCHAR", False), ("kind", "VARCHAR", False)]
    assert [row["operation"] for row in read(lake, "\\snapshots zoo.birds")] == ["create", "alter", "append", "alter"]
    assert sum(int(str(row["rows"])) for row in read(lake, "\\files zoo.birds")) == 3
    assert {str(row["partition"]): row["rows"] for row in read(lake, "\\partitions zoo.birds")} == {
        "{'kind': 'land'}": 2,
        "{'kind': 'water'}": 1,
    }
    assert "All of them." in run_shell(lake, "-c", "\\d+ zoo.birds").stdout
    assert "SELECT" in run_shell(lake, "-c", "\\d+ zoo.named").stdout


def test_operations_name_removals_that_ducklake_does_not_record(lake: str) -> None:
    insert = "INSERT INTO zoo.birds SELECT i, 'owl', 'wood' FROM range(10, 30) r(i)"
    read(lake, f"BEGIN; {insert}; DELETE FROM zoo.birds WHERE id < 20 AND kind = 'wood'; COMMIT")
    read(lake, f"{insert}; DELETE FROM zoo.birds WHERE id = 1")
    operations = [row["operation"] for row in read(lake, "\\snapshots zoo.birds")]
    assert operations[-3:] == ["append, delete", "append", "delete"]


def test_queries_and_changes_at_snapshots(lake: str) -> None:
    changed = read(
        lake,
        "DELETE FROM zoo.birds WHERE id = 1",
        "SELECT count(*) AS n FROM zoo.birds",
        "\\at 4",
        "SELECT count(*) AS n FROM zoo.birds",
    )
    assert [row.get("n") for row in changed[1:]] == [2, 3]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("\\history", "\\history needs a server of duckicelake, and lake is attached by DuckDB"),
        ("\\branch zoo.birds x", "\\branch needs an Iceberg REST catalog"),
        ("\\d zoo.bird", "Table does not exist: zoo.bird; did you mean zoo.birds?"),
        ("\\dt zo", "Namespace does not exist: zo; did you mean zoo?"),
        ("\\at yesterday", "expected DuckLake's number, or a time in ISO form"),
        ("\\at 999", "999"),
        ("\\files zoo.birds main2", "a lake of DuckLake has numbers; it has no branches and tags"),
        ("FROM zoo.bird", "Table with name bird does not exist"),
    ],
)
def test_wrong_input_is_one_clear_line(lake: str, typed: str, message: str) -> None:
    done = run_shell(lake, "-c", typed)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM zoo.birds",
        "CREATE TABLE zoo.t (a INT)",
        "COPY zoo.birds TO 'x.csv'",
        "CALL ducklake_expire_snapshots('lake')",
    ],
)
def test_profile_that_is_read_only_refuses_changes_by_name(lake: str, home: dict[str, str], sql: str) -> None:
    Path(home["DUCKICELAKE_CLIENT_PROFILES"]).write_text(f'[here]\nuri = "{lake}"\nread-only = true\n')
    done = run_shell("here", "-c", sql, "-c", "SELECT count(*) FROM zoo.birds", **home)
    assert done.exit_code == 5
    assert done.stderr == f"duckicelake: profile here is read-only: {sql.split(maxsplit=1)[0]} is refused\n"
    assert "│            3 │" in done.stdout


@pytest.mark.parametrize(
    ("text", "suggestions"),
    [
        ("SELECT * FROM z", {"zoo": "namespace"}),
        ("SELECT * FROM zoo.", {"zoo.birds": "table", 'zoo."odd name"': "table", "zoo.named": "view"}),
        ("SELECT 1; FROM zoo.b", {"zoo.birds": "table"}),
        ("SELECT * FROM zoo.birds WHERE na", {"name": "VARCHAR"}),
        ("SELECT b.", {}),
        ("FROM zoo.birds b SELECT b.k", {"b.kind": "VARCHAR"}),
        ('FROM zoo."odd name" SELECT a', {'"a b"': "INTEGER", "AS": "keyword", "AND": "keyword", "ASC": "keyword"}),
        ("SEL", {"SELECT": "keyword"}),
        ("\\form", {"\\format": "choose how rows are printed"}),
        ("\\format nd", {"ndjson": "format"}),
        ("\\d zoo.o", {"zoo.odd name": "table"}),
        ("\\dt z", {"zoo": "namespace"}),
        ("\\c w", {"work": "profile"}),
        ("\\snapshots zoo.birds x", {}),
        ("\\nosuch z", {}),
    ],
)
def test_completes(lake: str, text: str, suggestions: dict[str, str]) -> None:
    session = DuckLakeSession(Connection(lake), "lake")
    try:
        found = {one.text: one.meta for one in complete(text, KnownNames(session.lake), ["work"])}
    finally:
        session.close()
    assert found == suggestions
