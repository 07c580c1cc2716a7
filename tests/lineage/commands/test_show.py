"""`duckicelake lineage show` on a real lake: trees for people, and the formats of programs."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duckicelake.cli.main import app
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lineage.graph.store import record_events
from duckicelake.postgres.embedded import EmbeddedPostgres
from tests.conftest import new_lake
from tests.support.lineage_events import at, columns, event, facet, foreign, table

RAW, ORDERS, SUMS = table("sales.raw"), table("sales.orders"), table("sales.sums")


@pytest.fixture(scope="module")
def settings(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with new_lake(postgres, warehouse) as url, closing(open_lake_database(url, 1)) as database:
        engine = facet(name="spark", version="4.0.1")
        odd = foreign("kafka://broker", "clicks\x1b[31m")
        made = columns(("id", RAW, "id"), ("", RAW, "day", "INDIRECT", "FILTER"))
        guess = {"inputFacets": {"duckicelake_inferred": facet(confidence=0.75)}}
        report = [
            event(1, inputs=(odd,), outputs=(RAW,), job="load"),
            event(2, inputs=(RAW,), outputs=(ORDERS | {"facets": {**ORDERS["facets"], "columnLineage": made}},)),
            event(3, inputs=(ORDERS, RAW | guess), outputs=(SUMS,), job="sum", processing_engine=engine),
        ]
        with database.transaction() as cursor:
            record_events(cursor, report, origin="catalog")
        yield {"DUCKICELAKE_DATABASE_URL": url, "DUCKICELAKE_WAREHOUSE": str(warehouse)}


class Shell:
    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings

    def show(self, *arguments: str, status: int = 0) -> str:
        done = CliRunner().invoke(app, ["lineage", "show", *arguments], env=self.settings)
        assert done.exit_code == status, done.output
        return done.output


@pytest.fixture
def shell(settings: dict[str, str]) -> Shell:
    return Shell(settings)


def test_tree_shows_both_directions_with_jobs_and_runs(shell: Shell) -> None:
    lines = shell.show("sales.orders").splitlines()
    assert lines == [
        "sales.orders",
        "├── comes from",
        "│   └── sales.raw by job (2026-11-01 00:02:00)",
        "│       └── clicks\N{REPLACEMENT CHARACTER}[31m in kafka://broker by load (2026-11-01 00:01:00)",
        "└── goes to",
        "    └── sales.sums by sum (spark 4.0.1, 2026-11-01 00:03:00)",
    ]


def test_tree_shows_what_has_come_already_once(shell: Shell) -> None:
    report = shell.show("sales.sums", "--upstream")
    assert "goes to" not in report
    assert "75% sure" in report
    assert report.count("clicks") == 1
    assert "(as above)" in report


def test_columns_are_shown_if_asked_for_or_named(shell: Shell) -> None:
    assert "day → every row FILTER" in shell.show("sales.orders", "--columns", "--upstream", "--depth", "1")
    assert "id → id IDENTITY" in shell.show("sales.orders#id")


def test_nothing_known_is_said(shell: Shell) -> None:
    assert "nothing that is known" in shell.show("sales.sums", "--downstream")
    assert "nothing that is known" in shell.show("sales.orders", "--upstream", "--at", at(1.5))
    assert "There is more" in shell.show("sales.orders", "--limit", "1")


def test_formats_of_programs(shell: Shell) -> None:
    found = json.loads(shell.show("sales.orders", "--format", "json"))
    assert {node["name"] for node in found["nodes"]} >= {"sales.raw", "sales.orders", "sales.sums"}
    assert shell.show("sales.orders", "--format", "dot").startswith("digraph lineage {")
    assert shell.show("sales.orders", "--format", "mermaid").startswith("flowchart LR")
    events = [json.loads(line) for line in shell.show("sales.orders", "--format", "ndjson").splitlines()]
    assert [each["job"]["name"] for each in events] == ["load", "job", "sum"]


@pytest.mark.parametrize(
    "arguments",
    [("sales.absent",), ("sales.orders", "--upstream", "--downstream"), ("sales.orders", "--at", "soon"), ("#a",)],
)
def test_mistakes_are_reported_in_one_line(shell: Shell, arguments: tuple[str, ...]) -> None:
    report = shell.show(*arguments, status=2)
    assert report.startswith("duckicelake: ")
    assert len(report.splitlines()) == 1


def test_help_has_examples(shell: Shell) -> None:
    assert "duckicelake lineage show sales.orders" in shell.show("--help")


def test_old_runs_are_forgotten(settings: dict[str, str]) -> None:
    done = CliRunner().invoke(app, ["lineage", "forget", "--older-than", at(1.5)], env=settings)
    assert done.output == "forgot 1 event and 1 run\n"


def test_receiver_for_which_events_are_kept_is_named(settings: dict[str, str]) -> None:
    with (
        closing(open_lake_database(settings["DUCKICELAKE_DATABASE_URL"], 1)) as database,
        database.transaction() as cursor,
    ):
        cursor.execute("INSERT INTO duckicelake_delivery (transport, event_id) VALUES ('http://away', 0)")
    done = CliRunner().invoke(app, ["lineage", "forget", "--older-than", at(1.5)], env=settings)
    with (
        closing(open_lake_database(settings["DUCKICELAKE_DATABASE_URL"], 1)) as database,
        database.transaction() as cursor,
    ):
        cursor.execute(
            "INSERT INTO duckicelake_lineage_event (at, origin, digest, body) VALUES (%s, 'catalog', "
            "gen_random_uuid(), '{}')",
            [at(1)],
        )
    again = CliRunner().invoke(app, ["lineage", "forget", "--older-than", at(1.5)], env=settings)
    assert "wait for" not in done.output
    assert "waiting for http://away: 1 event; if it is gone for good: " in again.output
    assert "duckicelake lineage deliveries http://away --forget" in again.output


def test_lake_that_is_not_there_is_reported(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["lineage", "show", "a.b", "--lake", str(tmp_path / "lake")])
    assert done.exit_code == 2
    assert "there is no lake" in done.output
