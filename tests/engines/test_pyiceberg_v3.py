"""What PyIceberg writes to a table of version 3: Spark and DuckDB read the same rows, row ids and last updates."""

import pytest
from pyiceberg.table import Table

from tests.engines.engines import Engines, Model, Row, Step, append, arrow, assert_same, duck, pyiceberg, spark
from tests.engines.sequences import BIG, MERGE_ON_READ, MORE, SMALL, overwrite_odd, upsert
from tests.engines.test_v3_native import assert_same_lineage

pytestmark = [
    pytest.mark.engine,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:Merge on read is not yet supported:UserWarning"),
]

COLUMNS = "(id bigint, name string, amount int)"
CREATE = f"CREATE TABLE {{t}} {COLUMNS}"
VERSION_3 = f"TBLPROPERTIES ('format-version'='3', {MERGE_ON_READ})"


def delete(where: str) -> Step:
    return pyiceberg(lambda table: table.delete(where), f"DELETE FROM {{t}} WHERE {where}")


def in_one_transaction(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.append(arrow(table, [(50, "fifty", 5), (51, "gone", 5)]))
        transaction.delete("id = 51 or id = 77")


UPSERT = pyiceberg(upsert, "DELETE FROM {t} WHERE id = 1; INSERT INTO {t} VALUES (1, 'uno', 11), (77, 'new', 7)")
OVERWRITE = pyiceberg(
    overwrite_odd, "DELETE FROM {t} WHERE id IN (3, 5); INSERT INTO {t} VALUES (3, 'three', 33), (9, 'nine', 99)"
)
TRANSACTION = pyiceberg(in_one_transaction, "DELETE FROM {t} WHERE id = 77; INSERT INTO {t} VALUES (50, 'fifty', 5)")
SEQUENCES: dict[str, tuple[Step, ...]] = {
    "pyiceberg_alone": (
        spark(f"{CREATE} {VERSION_3}", CREATE),
        append((1, "one", 10), (2, "two", 20), (3, None, 30)),
        append((4, "vier", 40), (5, "", None)),
        delete("id = 2"),
        UPSERT,
        OVERWRITE,
        TRANSACTION,
        delete("amount > 0"),
    ),
    "pyiceberg_copies_what_spark_and_duckdb_marked_as_deleted": (
        spark(f"{CREATE} {VERSION_3}", CREATE),
        append(*((key, "x", key % 5) for key in range(1, 30))),
        spark("DELETE FROM {t} WHERE id IN (2, 6)"),
        delete("id = 8"),
        duck(BIG),
        duck("DELETE FROM {t} WHERE id BETWEEN 105 AND 109"),
        UPSERT,
        delete("id = 110"),
        duck("UPDATE {t} SET name = 'inlined' WHERE id = 3"),
        delete("id = 4"),
        spark("DELETE FROM {t} WHERE id IN (10, 120)"),
    ),
    "pyiceberg_in_partitions": (
        spark(f"{CREATE} PARTITIONED BY (amount) {VERSION_3}", CREATE),
        append(*((key, "x", key % 5) for key in range(1, 30))),
        spark(SMALL.replace("(1, 'one', 10)", "(31, 'one', 10)")),
        delete("id > 25"),
        UPSERT,
        duck(MORE),
        OVERWRITE,
    ),
}


@pytest.mark.parametrize("steps", SEQUENCES.values(), ids=SEQUENCES.keys())
def test_rows_that_pyiceberg_writes_have_the_same_lineage_in_spark_and_in_duckdb(
    engines: Engines, namespace: str, steps: tuple[Step, ...], pyiceberg_v3: None
) -> None:
    name, model = f"{namespace}.t", Model()
    for number, step in enumerate(steps):
        print(f"step {number}: {step}")
        engines.do(step, name)
        model.do(step)
        assert_same(engines, name, model, by=("PyIceberg", "DuckDB"))
        assert_same_lineage(engines, name)
    assert_same(engines, name, model)


def test_numbers_of_changed_and_of_copied_rows_in_spark(engines: Engines, namespace: str, pyiceberg_v3: None) -> None:
    """Row ids stay with the rows; the other number is that of the snapshot that last changed the row."""
    name = f"{namespace}.t"
    engines.spark.sql(f"CREATE TABLE lake.{name} {COLUMNS} {VERSION_3}")
    table = engines.catalog.load_table(name)
    table.append(arrow(table, [(1, "one", 10), (2, "two", 20), (3, "three", 30), (4, "four", 40)]))
    appended = newest(table)
    table.delete("id = 2")
    table.upsert(arrow(table, [(3, "THREE", 30)]), join_cols=["id"])
    upserted = newest(table)
    assert numbers(engines, name) == [(1, 0, appended), (3, 2, upserted), (4, 3, appended)]
    engines.spark.sql(f"UPDATE lake.{name} SET amount = 0 WHERE id IN (1, 4)")
    updated = newest(table)
    table.delete("id = 1")
    assert numbers(engines, name) == [(3, 2, upserted), (4, 3, updated)]
    assert_same_lineage(engines, name)


def newest(table: Table) -> int:
    metadata = table.refresh().metadata
    assert metadata.format_version != 1
    return metadata.last_sequence_number


def numbers(engines: Engines, name: str) -> list[Row]:
    query = f"SELECT id, _row_id, _last_updated_sequence_number FROM lake.{name} ORDER BY id"
    return [tuple(row) for row in engines.spark.sql(query).collect()]
