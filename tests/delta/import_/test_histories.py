"""Delta tables with random histories, some of it imported and the rest followed, are read right at every version."""

from pathlib import Path
from random import Random

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.delta.import_.sync import find_source, sync
from duckicelake.delta.log.reader import DeltaLog
from tests.delta.import_.histories import RandomTable
from tests.delta.import_.versions import assert_same, duckdb_rows, imported, table_metadata, versions
from tests.support.client import new_client


def hide(folder: Path, version: int) -> Path:
    """Take a version out of the log for now; where it is meanwhile."""
    path = folder / "_delta_log" / f"{version:020}.json"
    return path.rename(folder / path.name)


@pytest.mark.parametrize("is_mapped", [False, True])
def test_random_histories_are_read_right(
    services: Services, ducklake: duckdb.DuckDBPyConnection, warehouse: Path, is_mapped: bool
) -> None:
    """DuckDB's rows only: PyIceberg takes vectors that a Puffin file has and its manifest no longer lists."""
    new_client(services)
    for seed in range(3):
        random, name = Random(seed), f"t{seed}"
        folder = warehouse / "delta" / name
        expected = RandomTable(folder, random, is_mapped=is_mapped).grow(8)
        hidden = [hide(folder, version) for version in range(random.randint(1, 8), 8)]
        imported(services, folder, name, following=True)
        log = DeltaLog(services.store, str(folder))
        for path in hidden:
            path.rename(folder / "_delta_log" / path.name)
            if random.random() < 0.7:
                sync(services, find_source(services, f"ns.{name}"), log)
        sync(services, find_source(services, f"ns.{name}"), log)
        found = versions(table_metadata(services, name))
        assert found.keys() == expected.keys()
        for version, (_, ducklake_id) in found.items():
            wanted = expected[version]
            assert_same(duckdb_rows(ducklake, ducklake_id, name), wanted, f"seed {seed}, version {version}")
