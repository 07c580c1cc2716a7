"""SQL of tables that follow a Delta table: triggers refuse all writes that no transaction has allowed."""

from duckicelake.errors import ReadOnlyTable
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("lake", "followed")


def allow_write(cursor: Transaction, table_id: int) -> None:
    """Allow the rest of the transaction to write this table though it is followed."""
    cursor.execute(_SQL.allow_write, {"table_id": table_id})


def check_writable(cursor: Transaction, table_id: int) -> None:
    """Raise ReadOnlyTable for a followed table, before work that the commit would refuse."""
    row = cursor.execute(_SQL.refusal, {"table_id": table_id}).fetchone()
    if row is not None and row[0] is not None:
        raise ReadOnlyTable(row[0])
