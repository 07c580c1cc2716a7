"""The law of the whole project: whoever writes, Spark, PyIceberg and DuckDB read the same rows afterwards."""

from collections.abc import Iterable, Sequence

import pytest

from tests.engines.engines import (
    ALL,
    Engines,
    Model,
    Row,
    Step,
    append,
    assert_same,
    duck,
    number_of,
    sorted_rows,
    spark,
)
from tests.engines.sequences import BIG, CREATE, FLUSH, MERGE_ON_READ, MORE, SEQUENCES, SMALL

pytestmark = [pytest.mark.engine, pytest.mark.spark]

FILTERS = ("id = 3", "id > 101 AND id < 107", "amount IS NULL")


VERSIONS = {
    "v2": "",
    "v3": f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version'='3', {MERGE_ON_READ})",
}
CASES = [
    pytest.param(
        steps,
        upgrade,
        id=f"{name}-{version}",
        marks=() if (row + column) % 2 == 0 else pytest.mark.more_engines,  # always in one version, in turn
    )
    for row, (name, steps) in enumerate(SEQUENCES.items())
    for column, (version, upgrade) in enumerate(VERSIONS.items())
]


@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")  # PyIceberg rewrites the files instead
@pytest.mark.parametrize(("steps", "upgrade"), CASES)
def test_all_engines_agree_after_every_step(
    engines: Engines, namespace: str, steps: Sequence[Step], upgrade: str, pyiceberg_v3: None
) -> None:
    model = Model()
    for number, step in enumerate(steps):
        print(f"step {number}: {step}")
        engines.do(step, f"{namespace}.t")
        if upgrade and number == 0:
            engines.do(spark(upgrade), f"{namespace}.t")
        model.do(step)
        assert_same(engines, f"{namespace}.t", model)
        assert_filtered(engines, f"{namespace}.t", model, by=("PyIceberg", "DuckDB"))
    assert_filtered(engines, f"{namespace}.t", model, by=ALL)


def assert_filtered(engines: Engines, name: str, model: Model, by: Iterable[str]) -> None:
    """Filters are where wrong statistics or partition values lose rows. Spark is slow, so it is asked at the end."""
    for where in FILTERS:
        assert_same(engines, name, model, where, by)


MERGED = duck("CALL ducklake_merge_adjacent_files('lake', '{table}', schema => '{namespace}')", "")
REWRITTEN = duck(
    "CALL ducklake_rewrite_data_files('lake', '{table}', schema => '{namespace}', delete_threshold => 0.01)", ""
)
EXPIRED = duck("CALL ducklake_expire_snapshots('lake', older_than => now())", "")
CLEANED = duck("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)", "")
MERGE_ON_READ_TABLE = spark(f"{CREATE} TBLPROPERTIES ({MERGE_ON_READ})", CREATE)
HISTORIES = {
    "changes": (
        spark(CREATE),
        spark(SMALL),
        duck(MORE),
        duck("UPDATE {t} SET amount = 7 WHERE id IN (1, 4)"),
        append((6, "six", 60)),
        duck("DELETE FROM {t} WHERE id = 2"),
        spark("DELETE FROM {t} WHERE id = 4"),
        duck(BIG),
        duck("DELETE FROM {t} WHERE id > 120"),
        spark("UPDATE {t} SET name = 'end' WHERE id < 110"),
    ),
    "merges_and_flushes": (
        MERGE_ON_READ_TABLE,
        duck(SMALL),
        duck("DELETE FROM {t} WHERE id = 2"),
        FLUSH,
        duck(BIG),
        duck(BIG.replace("+ 100", "+ 200")),
        MERGED,
        spark("DELETE FROM {t} WHERE id % 10 = 3"),
        duck(MORE),
        duck("UPDATE {t} SET amount = 7 WHERE id IN (1, 4, 105)"),
        FLUSH,
        MERGED,
        append((6, "six", 60)),
        CLEANED,
    ),
    "repeated_deletes": (
        MERGE_ON_READ_TABLE,
        duck(BIG),
        duck("DELETE FROM {t} WHERE id = 101"),
        duck("DELETE FROM {t} WHERE id < 120"),
        spark("DELETE FROM {t} WHERE id = 121"),
        duck("DELETE FROM {t} WHERE id BETWEEN 122 AND 135"),
        spark("DELETE FROM {t} WHERE id = 137"),
        REWRITTEN,
        duck("DELETE FROM {t} WHERE id = 138"),
        CLEANED,
    ),
    "expiry": (
        spark(CREATE),
        duck(BIG),
        spark(SMALL),
        duck("DELETE FROM {t} WHERE id < 120"),
        duck(MORE),
        EXPIRED,
        CLEANED,
        spark("UPDATE {t} SET amount = 0 WHERE id = 4"),
        duck("DELETE FROM {t} WHERE id > 130"),
        FLUSH,
    ),
}


@pytest.mark.parametrize("steps", HISTORIES.values(), ids=HISTORIES.keys())
def test_listed_snapshots_read_as_they_were_in_every_engine(
    engines: Engines, namespace: str, steps: Sequence[Step]
) -> None:
    """What DuckDB expired is no longer listed; all others are as long as nobody expires them."""
    name, model = f"{namespace}.t", Model()
    expected: dict[int, list[Row]] = {}
    for step in steps:
        engines.do(step, name)
        model.do(step)
        if step is EXPIRED:
            expected.clear()
        if snapshot := engines.catalog.load_table(name).current_snapshot():
            expected[snapshot.snapshot_id] = model.rows()
    table = engines.catalog.load_table(name)
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == list(expected)
    for snapshot in table.snapshots():
        iceberg, number = snapshot.snapshot_id, number_of(snapshot)
        got = {
            "Spark": engines.spark.sql(f"SELECT * FROM lake.{name} VERSION AS OF {iceberg}").toArrow(),
            "PyIceberg": table.scan(snapshot_id=iceberg).to_arrow(),
            "DuckDB": engines.duck.sql(f"FROM lake.{name} AT (VERSION => {number})").to_arrow_table(),
        }
        rows = {engine: sorted_rows(read) for engine, read in got.items()}
        assert rows == dict.fromkeys(got, expected[iceberg]), snapshot.summary
