"""Tables of an attached lake are the datasets that the catalog's own events tell of."""

from collections.abc import Iterator
from typing import Any

import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.lineage.duckdb.connection import LineageConnection, connect
from duckicelake.lineage.openlineage.names import name_location
from tests.conftest import DUCKDB_SETTINGS
from tests.support.openlineage import check_event
from tests.support.receiver import Receiver, receiving

Json = dict[str, Any]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


@pytest.fixture
def lake(receiver: Receiver, database_url: str, extensions: None) -> Iterator[LineageConnection]:
    """A connection whose current catalog is the lake, which has a table `zoo.birds` of two rows."""
    options = {"config": DUCKDB_SETTINGS}
    with connect(catalog_uri=receiver.uri, job_name="p", **options) as connection:
        connection.execute("LOAD ducklake; LOAD postgres_scanner").execute(build_duckdb_attach(database_url))
        connection.execute("USE lake; CREATE SCHEMA zoo; CREATE TABLE zoo.birds (name TEXT, legs INT)")
        connection.execute("INSERT INTO zoo.birds VALUES ('duck', 2), ('penguin', 2)")
        yield connection


def completed(connection: LineageConnection, receiver: Receiver) -> list[Json]:
    connection.close()
    for each in receiver.taken:
        check_event(each)
    return [each for each in receiver.taken if each["eventType"] == "COMPLETE"]


def named(dataset: Json) -> tuple[str, str]:
    return dataset["namespace"], dataset["name"]


def test_table_is_named_by_where_the_catalog_has_it_or_will_have_it(
    lake: LineageConnection, receiver: Receiver, services: Services, warehouse: Any
) -> None:
    table = load_current_table(services, ("zoo",), "birds").metadata
    lake.execute("DROP TABLE IF EXISTS nothing")
    lake.execute("INSERT INTO lake.zoo.birds SELECT name, legs + 1 FROM zoo.birds")
    before, after = completed(lake, receiver)
    assert named(before["outputs"][0]) == named(after["outputs"][0]) == name_location(table.location)
    assert after["inputs"][0]["name"] == after["outputs"][0]["name"]


def test_table_has_its_other_name_in_the_catalog(lake: LineageConnection, receiver: Receiver) -> None:
    (event,) = completed(lake, receiver)
    (identifier,) = event["outputs"][0]["facets"]["symlinks"]["identifiers"]
    assert identifier == {"namespace": receiver.uri, "name": "zoo.birds", "type": "TABLE"}
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2


def test_version_is_the_snapshot_that_was_made(lake: LineageConnection, receiver: Receiver) -> None:
    lake.execute("BEGIN; UPDATE zoo.birds SET legs = 3; DELETE FROM zoo.birds WHERE legs = 2; COMMIT")
    ((newest,),) = lake.execute("SELECT id FROM lake.current_snapshot()").fetchall()
    *_, update, delete = completed(lake, receiver)
    versions = {each["outputs"][0]["facets"]["version"]["datasetVersion"] for each in (update, delete)}
    assert versions == {str(newest)}


def test_view_lies_nowhere_and_has_the_catalogs_name(lake: LineageConnection, receiver: Receiver) -> None:
    lake.execute("CREATE VIEW zoo.names AS SELECT name FROM zoo.birds")
    lake.execute("CREATE TABLE zoo.copy AS SELECT upper(name) AS n FROM zoo.names")
    _, view, copy = completed(lake, receiver)
    assert named(view["outputs"][0]) == named(copy["inputs"][0]) == (receiver.uri, "zoo.names")
    assert view["outputs"][0]["facets"]["columnLineage"]["fields"]["name"]["inputFields"][0]["field"] == "name"
    field = copy["outputs"][0]["facets"]["columnLineage"]["fields"]["n"]["inputFields"][0]
    assert (field["namespace"], field["name"], field["field"]) == (receiver.uri, "zoo.names", "name")


def test_table_made_in_a_transaction_is_known_by_its_end(
    lake: LineageConnection, receiver: Receiver, warehouse: Any
) -> None:
    lake.execute("BEGIN").execute("CREATE TABLE zoo.made AS FROM zoo.birds").execute("COMMIT")
    *_, event = completed(lake, receiver)
    assert event["outputs"][0]["name"].startswith(f"{warehouse}/data/zoo/made-")
    assert set(event["outputs"][0]["facets"]["columnLineage"]["fields"]) == {"name", "legs"}


def test_merge_into_the_lake_from_memory_shows_both(lake: LineageConnection, receiver: Receiver) -> None:
    lake.execute("CREATE TABLE memory.main.news AS SELECT 'emu' AS name, 2 AS legs")
    lake.execute(
        "MERGE INTO zoo.birds b USING memory.main.news n ON b.name = n.name "
        "WHEN MATCHED THEN UPDATE SET legs = n.legs WHEN NOT MATCHED THEN INSERT (name, legs) VALUES (n.name, n.legs)"
    )
    *_, event = completed(lake, receiver)
    assert {each["namespace"] for each in event["inputs"]} == {"duckdb://memory", "file"}
    assert set(event["outputs"][0]["facets"]["columnLineage"]["fields"]) == {"name", "legs"}
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 1


def test_lake_that_no_catalog_knows_is_named_by_its_folder(
    opened_elsewhere: LineageConnection, receiver: Receiver, tmp_path: Any
) -> None:
    *_, event = completed(opened_elsewhere, receiver)
    assert named(event["outputs"][0]) == ("file", f"{tmp_path}/files/main/t")
    assert [each["name"] for each in event["outputs"][0]["facets"]["schema"]["fields"]] == ["a"]


@pytest.fixture
def opened_elsewhere(receiver: Receiver, tmp_path: Any, extensions: None) -> Iterator[LineageConnection]:
    options = {"config": DUCKDB_SETTINGS}
    with connect(catalog_uri=receiver.uri, job_name="p", **options) as connection:
        connection.execute(f"LOAD ducklake; ATTACH 'ducklake:{tmp_path}/meta.db' AS l (DATA_PATH '{tmp_path}/files')")
        connection.execute("CREATE TABLE l.t (a INT); INSERT INTO l.t VALUES (1)")
        yield connection
