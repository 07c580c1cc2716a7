"""Damaged tables of the corpus: what is wrong is named, and nothing of them is in the lake, for any client."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.catalog import Catalog

from duckicelake.catalog.context.services import Services
from duckicelake.delta.import_.importer import DeltaImport, import_table
from duckicelake.errors import CatalogError
from scripts.demo_job.server import RunningLake
from tests.delta.corpus.records import DeltaTable
from tests.engines.delta.readers import NAMESPACE

pytestmark = [
    pytest.mark.more_engines,
    pytest.mark.engine,
    pytest.mark.spark,
    pytest.mark.timeout(1800),  # whoever is first makes the corpus
]

NAME = "damaged"


def tear_a_line(root: Path) -> None:
    commit = newest(root)
    commit.write_bytes(commit.read_bytes()[:-20])


def lose_a_data_file(root: Path) -> None:
    next(root.rglob("*.parquet")).unlink()


def lose_all_vectors(root: Path) -> None:
    for file in root.rglob("deletion_vector_*.bin"):
        file.unlink()


def lose_a_commit(root: Path) -> None:
    (root / "_delta_log" / f"{2:020}.json").unlink()


def tear_the_checkpoints(root: Path) -> None:
    for file in root.rglob("*.checkpoint*.parquet"):
        file.write_bytes(file.read_bytes()[:100])


def ask_for_a_feature(root: Path) -> None:
    asked = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["timeTravelByMood"],
             "writerFeatures": ["timeTravelByMood"]}  # fmt: skip
    append(newest(root), {"protocol": asked})


def ask_for_a_version(root: Path) -> None:
    append(newest(root), {"protocol": {"minReaderVersion": 9, "minWriterVersion": 9}})


def append(commit: Path, action: Any) -> None:
    with commit.open("a") as file:
        file.write(json.dumps(action) + "\n")


def newest(root: Path) -> Path:
    return max((root / "_delta_log").glob("*.json"))


DAMAGES: list[tuple[str, Callable[[Path], None], str]] = [
    ("columns_added", tear_a_line, f"{6:020}.json"),
    ("columns_added", lose_a_commit, f"{2:020}.json"),
    ("columns_added", ask_for_a_feature, "timeTravelByMood"),
    ("columns_added", ask_for_a_version, "9"),
    ("no_statistics", lose_a_data_file, ".parquet"),
    ("append_only", lose_a_data_file, ".parquet"),
    ("vectors_partitioned", lose_all_vectors, ".parquet"),
    ("beginning_lost", tear_the_checkpoints, "checkpoint"),
]


@pytest.fixture
def place(delta_lake: RunningLake) -> Iterator[Path]:
    """In the warehouse, where Delta tables may be imported from."""
    folder = delta_lake.folder / "warehouse" / "raw"
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(("name", "damage", "named"), DAMAGES, ids=[f"{n}-{d.__name__}" for n, d, _ in DAMAGES])
def test_damaged_table_is_refused_by_name_and_leaves_nothing(
    tables: dict[str, DeltaTable],
    name: str,
    damage: Callable[[Path], None],
    named: str,
    place: Path,
    services: Services,
    rest: Catalog,
    ducklake: duckdb.DuckDBPyConnection,
) -> None:
    root = place / "table"
    shutil.copytree(tables[name].root, root)
    damage(root)
    before = trace(services, ducklake)
    with pytest.raises(CatalogError) as refused:
        import_table(services, DeltaImport(str(root), (NAMESPACE,), NAME))
    assert named in str(refused.value)
    assert trace(services, ducklake) == before
    assert not rest.table_exists((NAMESPACE, NAME))


def trace(services: Services, ducklake: duckdb.DuckDBPyConnection) -> tuple[object, ...]:
    """What there would be more of, had anything been registered."""
    with services.database.reading() as cursor:
        counted = [
            cursor.execute(f"SELECT count(*) FROM {name}").fetchone()
            for name in ("ducklake_snapshot", "ducklake_table", "ducklake_data_file", "duckicelake_delta_source")
        ]
    return (*counted, ducklake.sql("SELECT count(*) FROM duckdb_tables()").fetchall())
