"""A lake outlives its server."""

from pathlib import Path

import pytest

from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import RunningLake, running_lake
from tests.engines.engines import arrow, sorted_rows
from tests.engines.sequences import COLUMNS

pytestmark = pytest.mark.engine


@pytest.mark.more_engines
def test_stopped_server_starts_again_on_the_same_lake(folder: Path) -> None:
    with running_lake(folder / "lake", folder / "first.log") as lake:
        write_from_both_sides(lake)
        before = metadata(lake)
    with running_lake(folder / "lake", folder / "second.log") as lake:
        assert metadata(lake) == before
        with pyiceberg_catalog(lake) as catalog:
            rows = sorted_rows(catalog.load_table("ns.t").scan().to_arrow())
        assert rows == [(1, "one", 1), (2, "two", 2)]
        with duckdb_lake(lake) as duck:
            assert duck.sql("FROM lake.ns.t ORDER BY id").fetchall() == rows


def write_from_both_sides(lake: RunningLake) -> None:
    with pyiceberg_catalog(lake) as catalog, duckdb_lake(lake) as duck:
        catalog.create_namespace("ns")
        table = catalog.create_table("ns.t", COLUMNS)
        table.append(arrow(table, [(1, "one", 1)]))
        duck.execute("INSERT INTO lake.ns.t VALUES (2, 'two', 2)")


def metadata(lake: RunningLake) -> tuple[str, str]:
    with pyiceberg_catalog(lake) as catalog:
        table = catalog.load_table("ns.t")
        return table.metadata_location, table.metadata.model_dump_json()


@pytest.mark.more_engines
@pytest.mark.usefixtures("lake_in_a_folder")
def test_second_server_on_the_same_lake_is_refused(folder: Path) -> None:
    with (
        running_lake(folder / "lake", folder / "first.log"),
        pytest.raises(RuntimeError, match="another server"),
        running_lake(folder / "lake", folder / "second.log"),
    ):
        pass
