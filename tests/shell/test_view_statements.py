"""Materialized views by SQL in the shell: what is parsed, what the server does, what is refused."""

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import duckicelake
from duckicelake.errors import BadInputError, PipelineError
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.postgres.embedded import build_embedded_url
from duckicelake.rest.connection import Connection
from duckicelake.shell.completion import KnownNames, complete
from duckicelake.shell.session import RestSession
from duckicelake.shell.view_statements import ViewStatement, parse_view_statement, run_view_statement
from tests.client.conftest import LiveLake, live, shared_lake
from tests.conftest import new_duckdb
from tests.shell.conftest import run_shell

__all__ = ["live", "shared_lake"]
_numbers = count(1)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("create materialized view a.b as select 1", ViewStatement("CREATE", ("a",), "b", "select 1")),
        (
            '-- why\nCREATE /* so */ OR REPLACE MATERIALIZED VIEW "a.x"."b c" AS -- ;\n(FROM t)',
            ViewStatement("CREATE", ("a", "x"), "b c", "(FROM t)", is_replacing=True),
        ),
        (
            "CREATE MATERIALIZED VIEW IF NOT EXISTS a.b AS FROM t",
            ViewStatement("CREATE", ("a",), "b", "FROM t", is_lenient=True),
        ),
        ("REFRESH MATERIALIZED VIEW a.b", ViewStatement("REFRESH", ("a",), "b")),
        ("REFRESH MATERIALIZED VIEW a.b WHOLE", ViewStatement("REFRESH", ("a",), "b", is_whole=True)),
        ("DROP MATERIALIZED VIEW a.b", ViewStatement("DROP", ("a",), "b")),
        ("DROP MATERIALIZED VIEW IF EXISTS a.b", ViewStatement("DROP", ("a",), "b", is_lenient=True)),
        ("CREATE VIEW a.b AS SELECT 1", None),
        ("DROP TABLE a.b", None),
        ("SELECT 'CREATE MATERIALIZED VIEW a.b AS FROM t'", None),
    ],
)
def test_statements_are_parsed(sql: str, expected: ViewStatement | None) -> None:
    assert parse_view_statement(sql) == expected


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("CREATE MATERIALIZED VIEW b AS FROM t", "Invalid name 'b': expected NAMESPACE.NAME"),
        ("CREATE MATERIALIZED VIEW a.b.c AS FROM t", "Invalid name 'a.b.c'"),
        ("CREATE MATERIALIZED VIEW a.b", "expects AS and a query"),
        ("CREATE MATERIALIZED VIEW a.b AS", "expects AS and a query"),
        ("CREATE OR REPLACE MATERIALIZED VIEW IF NOT EXISTS a.b AS FROM t", "exclude each other"),
        ("CREATE MATERIALIZED VIEW", "Expected the name"),
        ("REFRESH MATERIALIZED VIEW a.b now", "Unexpected 'now'"),
        ("DROP MATERIALIZED VIEW 'a'", "Expected the name"),
    ],
)
def test_wrong_statements_are_named(sql: str, said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_view_statement(sql)
    assert said in str(caught.value)


@pytest.fixture
def space(live: LiveLake, tmp_path: Path) -> str:
    """A namespace with the table `birds`: rows 1, 2."""
    name = f"mv{next(_numbers)}"
    with duckicelake.connect(live.served.uri) as lake:
        lake.create_namespace(name)
        lake.create_table(f"{name}.birds", "id long")
    add_rows(live, name, tmp_path, 1, 2)
    return name


def add_rows(live: LiveLake, space: str, folder: Path, *ids: int) -> None:
    rows = folder / "rows.ndjson"
    rows.write_text("".join(f'{{"id": {id_}}}\n' for id_ in ids))
    done = run_shell(live.served.uri, "-c", f"\\copy {space}.birds from {rows}")
    assert done.exit_code == 0, done.output


def run(live: LiveLake, *statements: str, code: int = 0) -> str:
    """Run statements; return all that is printed."""
    options = [option for statement in statements for option in ("-c", statement)]
    done = run_shell(live.served.uri, *options, "--format", "ndjson")
    assert done.exit_code == code, done.output
    return done.output


def test_a_view_is_created_refreshed_replaced_and_dropped(live: LiveLake, space: str, tmp_path: Path) -> None:
    view = f"{space}.v"
    made = run(live, f"CREATE MATERIALIZED VIEW {view} AS SELECT count(*) AS n FROM birds")
    assert f"created {view}: whole, created; 1 row" in made
    add_rows(live, space, tmp_path, 3)
    found = run(live, f"REFRESH MATERIALIZED VIEW {view}", f"FROM {view}")
    assert f"refreshed {view}: incremental" in found
    assert '{"n":3}' in found
    assert f"refreshed {view}: whole" in run(live, f"REFRESH MATERIALIZED VIEW {view} WHOLE")
    with duckicelake.connect(live.served.uri) as lake:
        path = lake.client.iceberg("namespaces", space, "materialized-views", "v")
        lake.client.change("POST", path, {"refresh-every": 3600, "refresh-on-change": True})
        assert "Invalid name" in run(live, "CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1", code=2)
        assert "exists: nothing was done" in run(live, f"CREATE MATERIALIZED VIEW IF NOT EXISTS {view} AS SELECT 1")
        replaced = f"CREATE OR REPLACE MATERIALIZED VIEW {view} AS SELECT max(id) AS largest FROM birds"
        assert f"replaced {view}" in run(live, replaced)
        described = lake.client.get(path)
        assert (described["refresh-every"], described["refresh-on-change"]) == (3600, True)
    assert '{"largest":3}' in run(live, f"FROM {view}")
    assert [one["name"] for one in list_tables(live, space)] == [f"{space}.birds", view]
    assert f"dropped {view}" in run(live, f"DROP MATERIALIZED VIEW {view}")
    assert "nothing was done" in run(live, f"DROP MATERIALIZED VIEW IF EXISTS {view}")
    assert "does not exist" in run(live, f"DROP MATERIALIZED VIEW {view}", code=2)


def list_tables(live: LiveLake, space: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in run(live, f"\\dt {space}").splitlines()]


def test_a_name_that_another_takes_in_the_middle_is_no_loss(
    live: LiveLake, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new view has its own name until the rename; the error says it, and the command that goes on."""
    view = f"{space}.v"
    run(live, f"CREATE MATERIALIZED VIEW {view} AS SELECT 1 AS n")
    statement = parse_view_statement(f"CREATE OR REPLACE MATERIALIZED VIEW {view} AS SELECT 7 AS n")
    assert statement is not None
    with duckicelake.connect(live.served.uri) as lake, duckicelake.connect(live.served.uri) as other:
        client_type = type(lake.client)
        change = client_type.change

        def change_late(client: Any, method: str, path: str, *given: Any, **named: Any) -> Any:
            if client is lake.client and path.endswith("tables/rename"):
                other.create_table(view, "id long")
            return change(client, method, path, *given, **named)

        monkeypatch.setattr(client_type, "change", change_late)
        with pytest.raises(PipelineError, match=f"The old {view} is dropped") as caught:
            run_view_statement(lake, statement)
        new, old = str(caught.value).split("rename table ")[1].split(". ")[0].split()
        assert old == view
    assert '{"n":7}' in run(live, f"FROM {new}")


def test_a_replacement_that_fails_leaves_the_old_view(live: LiveLake, space: str) -> None:
    view = f"{space}.v"
    run(live, f"CREATE OR REPLACE MATERIALIZED VIEW {view} AS SELECT count(*) AS n FROM birds")
    run(live, f"CREATE OR REPLACE MATERIALIZED VIEW {view} AS SELECT gone FROM birds", code=2)
    assert "already exists" in run(live, f"CREATE MATERIALIZED VIEW {view} AS SELECT 1 AS n", code=6)
    assert "already exists" in run(live, f"CREATE OR REPLACE MATERIALIZED VIEW {space}.birds AS SELECT 1 AS n", code=6)
    assert '{"n":2}' in run(live, f"FROM {view}")
    assert [one["name"] for one in list_tables(live, space)] == [f"{space}.birds", view]


@pytest.mark.parametrize("source", ["v", "over", "over_over"])
def test_a_replacement_that_reads_the_replaced_view_is_refused(live: LiveLake, space: str, source: str) -> None:
    """The old view is dropped, so no refresh of the new one could ever succeed."""
    view = f"{space}.v"
    run(live, f"CREATE OR REPLACE MATERIALIZED VIEW {view} AS SELECT count(*) AS n FROM birds")
    with new_duckdb() as duck:
        duck.execute(build_duckdb_attach(build_embedded_url(live.folder)))
        duck.execute(f"CREATE VIEW lake.{space}.over AS SELECT n FROM lake.{view}")
        duck.execute(f"CREATE VIEW lake.{space}.over_over AS SELECT n FROM lake.{space}.over")
    said = run(live, f"CREATE OR REPLACE MATERIALIZED VIEW {view} AS SELECT * FROM {source}", code=2)
    assert f"would read {view}, which it replaces" in said
    assert '{"n":2}' in run(live, f"REFRESH MATERIALIZED VIEW {view}", f"FROM {view}")
    assert [one["name"] for one in list_tables(live, space) if "over" not in one["name"]] == [f"{space}.birds", view]


def test_other_lakes_and_read_only_profiles_are_refused(live: LiveLake, tmp_path: Path) -> None:
    statement = "REFRESH MATERIALIZED VIEW a.b"
    done = run_shell(f"ducklake:{tmp_path / 'x.ducklake'}", "-c", statement)
    assert (done.exit_code, "needs a server of duckicelake" in done.output) == (2, True), done.output
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(f'[work]\nuri = "{live.served.uri}"\nread-only = true\n')
    done = run_shell("work", "-c", statement, DUCKICELAKE_CLIENT_PROFILES=str(profiles))
    assert "REFRESH MATERIALIZED VIEW is refused" in done.output
    assert done.exit_code != 0


def test_names_are_completed(live: LiveLake, space: str) -> None:
    session = RestSession(Connection(live.served.uri), "lake")
    try:
        names = KnownNames(session.lake)
        found = [one.text for one in complete(f"REFRESH MATERIALIZED VIEW {space}.b", names)]
        assert found == [f"{space}.birds"]
        assert "MATERIALIZED VIEW" in [one.text for one in complete("CREATE MAT", names)]
        assert "REFRESH MATERIALIZED VIEW" in [one.text for one in complete("REF", names)]
    finally:
        session.close()
