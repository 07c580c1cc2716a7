"""Spark's `rewrite_table_path`: all files of a table in a folder have one prefix, so that a copy can have another."""

import csv
import shutil
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from tests.engines.engines import Engines, sorted_rows

pytestmark = [
    pytest.mark.more_engines,
    pytest.mark.engine,
    pytest.mark.spark,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("lake_in_a_folder"),
]


@pytest.mark.parametrize("version", [2, 3])
def test_a_copied_table_shows_the_rows_and_keeps_its_deletes(
    engines: Engines, namespace: str, tmp_path: Path, version: int
) -> None:
    name = f"lake.{namespace}.t"
    engines.spark.sql(
        f"CREATE TABLE {name} (id bigint, name string) TBLPROPERTIES ('format-version'='{version}',"
        " 'write.delete.mode'='merge-on-read')"
    )
    engines.spark.sql(f"INSERT INTO {name} SELECT /*+ REPARTITION(1) */ id, 'spark' FROM range(20)")
    engines.spark.sql(f"DELETE FROM {name} WHERE id IN (3, 5)")
    engines.duck.execute(f"INSERT INTO {name} VALUES (100, 'inlined')")
    engines.duck.execute(f"DELETE FROM {name} WHERE id = 7")
    engines.spark.sql(f"INSERT INTO {name} VALUES (200, 'last')")
    rows = sorted_rows(engines.duck.sql(f"FROM {name}").to_arrow_table())
    location = engines.catalog.load_table(f"{namespace}.t").location()
    assert location.startswith("file:/")
    assert not location.startswith("file://")
    (answer,) = engines.spark.sql(
        f"CALL lake.system.rewrite_table_path(table => '{namespace}.t', source_prefix => '{location}',"
        f" target_prefix => 'file:{tmp_path}/copy', staging_location => 'file:{tmp_path}/staging')"
    ).collect()
    listed = Path(answer.file_list_location.removeprefix("file:"))
    with listed.open() as lines:
        for source, target in csv.reader(lines):
            copy = Path(target.removeprefix("file:"))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(source.removeprefix("file:")), copy)
    shutil.rmtree(tmp_path / "staging")
    copied = f"file:{tmp_path}/copy/metadata/{answer.latest_version}"
    read = engines.spark.read.format("iceberg").load(copied)
    assert sorted_rows(read.toArrow()) == rows
    if version == 2:
        assert sorted_rows(StaticTable.from_metadata(copied).scan().to_arrow()) == rows
