"""Changes to files of many row groups through a catalog that plans, of which Spark would drop those it isn't sent."""

from collections.abc import Callable
from typing import Any

import duckdb

Run = Callable[[str], list[tuple[Any, ...]]]
"""Runs SQL of Spark and returns its rows."""

ROWS = 20_000
ROW_GROUPS = {"write.parquet.row-group-size-bytes": "65536", "write.parquet.row-group-check-min-record-count": "100"}
CHANGES = {
    "delete": ("DELETE FROM {t} WHERE id = 5", ROWS - 1, 0),
    "delete few": ("DELETE FROM {t} WHERE id IN (5, 19999) OR id BETWEEN 300 AND 302", ROWS - 5, 0),
    "update": ("UPDATE {t} SET v = 'x' WHERE id = 5", ROWS, 1),
    "merge": (
        "MERGE INTO {t} USING (SELECT 5L AS id) s ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET v = 'x'", ROWS, 1,
    ),
    "compact": (
        "CALL planned.system.rewrite_data_files(table => '{name}', where => 'id < 9', options => {everything})",
        ROWS, 0,
    ),
}  # fmt: skip
"""Each with how many rows are left, and how many of them are changed."""
COUNTED = "SELECT count(*), count(DISTINCT id), sum(CASE WHEN v = 'x' THEN 1 ELSE 0 END) FROM {}"


def create_with_many_row_groups(run: Run, duck: duckdb.DuckDBPyConnection, name: str, mode: str) -> None:
    modes = {f"write.{act}.mode": mode for act in ("delete", "update", "merge")}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in {"format-version": "2", **ROW_GROUPS, **modes}.items())
    columns = "(id bigint, v string, p int) USING iceberg PARTITIONED BY (p)"
    run(f"CREATE TABLE planned.{name} {columns} TBLPROPERTIES ({listed})")
    rows = f"SELECT id, concat(md5(CAST(id AS string)), id) AS v, 0 AS p FROM range(0, {ROWS}, 1, 1)"
    run(f"INSERT INTO planned.{name} {rows}")
    ((path,),) = run(f"SELECT file_path FROM planned.{name}.files")
    metadata = "SELECT count(DISTINCT row_group_id) > 8 FROM parquet_metadata(?)"
    assert duck.execute(metadata, [path.removeprefix("file:")]).fetchall() == [(True,)]


def make_change(run: Run, name: str, change: str) -> tuple[int, int, int]:
    """Make the change through the catalog `planned`; return what COUNTED must find then."""
    sql, left, changed = CHANGES[change]
    run(sql.format(t=f"planned.{name}", name=name, everything="map('rewrite-all', 'true')"))
    return left, left, changed
