"""DuckDB renames a table that another client changes meanwhile: DuckDB doesn't notice, but the catalog does."""

import duckdb
import pytest

from tests.conftest import Attach

COLUMN_CHANGES = (
    "ALTER TABLE t ADD COLUMN n INTEGER",
    "ALTER TABLE t DROP COLUMN extra",
    "ALTER TABLE t RENAME COLUMN extra TO other",
    "ALTER TABLE t ALTER extra SET DATA TYPE BIGINT",
)
OTHER_CHANGES = (
    "INSERT INTO t VALUES (4, 4)",
    "ALTER TABLE t SET PARTITIONED BY (i)",
    "COMMENT ON TABLE t IS 'said'",
    "DELETE FROM t WHERE i = 1",
)


def rename_during(attach: Attach, statement: str) -> duckdb.DuckDBPyConnection:
    """Rename `t` to `renamed` while another executes the statement; a client that sees what came of it."""
    renaming = attach()
    renaming.execute("CREATE TABLE t (i INTEGER, extra INTEGER)")
    renaming.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    renaming.execute("BEGIN")
    renaming.execute("ALTER TABLE t RENAME TO renamed")
    attach().execute(statement)
    renaming.execute("COMMIT")
    return attach()


@pytest.mark.parametrize("statement", COLUMN_CHANGES)
def test_table_is_not_renamed_once_its_columns_changed(attach: Attach, statement: str) -> None:
    with pytest.raises(duckdb.TransactionException, match="another transaction has changed its columns"):
        rename_during(attach, statement)
    assert attach().sql("SELECT i FROM t ORDER BY 1").fetchall() == [(1,), (2,), (3,)]


def test_table_is_not_renamed_once_it_was_dropped(attach: Attach) -> None:
    with pytest.raises(duckdb.TransactionException, match="another transaction has dropped it"):
        rename_during(attach, "DROP TABLE t")
    assert attach().sql("SHOW TABLES").fetchall() == []


@pytest.mark.parametrize("statement", OTHER_CHANGES)
def test_table_is_renamed_although_its_rows_or_properties_changed(attach: Attach, statement: str) -> None:
    found = rename_during(attach, statement)
    assert found.sql("SHOW TABLES").fetchall() == [("renamed",)]
    assert (2,) in found.sql("SELECT i FROM renamed").fetchall()
