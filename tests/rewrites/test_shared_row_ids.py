"""Rows that share a row id, as in DuckDB 1.5.5: a delete that arrives during a rewrite takes its own row alone."""

from pathlib import Path

import duckdb
import pytest
from pyiceberg.catalog import Catalog

from duckicelake.catalog.context.services import Services
from tests.rewrites.test_compaction import ROWS, read_iceberg, run, upgrade


@pytest.mark.parametrize("version", [2, 3])
def test_delete_that_arrives_meanwhile_leaves_the_other_rows_of_its_row_id(
    services: Services, ducklake: duckdb.DuckDBPyConnection, catalog: Catalog, tmp_path: Path, version: int
) -> None:
    ducklake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    ducklake.execute("CREATE TABLE lake.main.t (id BIGINT, name VARCHAR)")
    catalog.load_table("main.t")
    if version > 2:
        upgrade(services)
    for first in (0, 100, 200):
        ducklake.execute("BEGIN")
        ducklake.execute(f"INSERT INTO lake.main.t SELECT range + {first}, 'x' FROM range(10)")
        ducklake.execute(f"UPDATE lake.main.t SET name = 'y' WHERE id >= {first}")
        ducklake.execute("COMMIT")
    ids = [row_id for *_, row_id in ducklake.execute(ROWS).fetchall()]
    assert len(ids) == 30 > len(set(ids)), "DuckDB gives each row an id of its own by now"
    calls = 0

    def act() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # the rows are written, and not yet committed
            ducklake.execute("DELETE FROM lake.main.t WHERE id = 103")

    assert run(services, tmp_path, before=act, policy={"maintenance.compaction.min-files": "2"}).result == "done"
    expected = [id_ for first in (0, 100, 200) for id_ in range(first, first + 10) if id_ != 103]
    assert [id_ for id_, *_ in ducklake.execute(ROWS).fetchall()] == expected
    assert sorted(int(str(row["id"])) for row in read_iceberg(catalog)) == expected
