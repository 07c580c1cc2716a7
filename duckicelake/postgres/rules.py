"""Rules of the schema that a Database serves, and the roll-back by them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from psycopg.errors import NotNullViolation
from psycopg.pq import PipelineStatus, TransactionStatus

from duckicelake.errors import CatalogError
from duckicelake.postgres.pipeline import DeferredConnection

TableColumn = tuple[str | None, str | None]
"""Names of a table and of a column of it."""


class DatabaseRules(NamedTuple):
    """Rules of the schema that a Database serves.

    marker_table: the schema that has this table is served. error_by_column: errors by the NOT NULL columns that our
    statements set to NULL on purpose, to fail where their result is not fetched. translate: gives the request's error
    for an SQLSTATE of the schema's own triggers and functions, None for any other.
    """

    marker_table: str
    error_by_column: Mapping[TableColumn, type[Exception]]
    translate: Callable[[psycopg.Error], CatalogError | None]


@contextmanager
def roll_back_on_error(
    connection: DeferredConnection, error_by_column: Mapping[TableColumn, type[Exception]]
) -> Iterator[None]:
    """Roll back if the block raises no error of Postgres, or one that our SQL provoked (`error_by_column`).

    psycopg would also forget all statements that the session has prepared, which Postgres keeps and later transactions
    need. After an error in a pipeline only those are forgotten that were still to be prepared.
    """
    prepared_before = connection.prepared_count
    try:
        yield
    except psycopg.Error as error:
        unfulfilled = error_by_column.get((error.diag.table_name, error.diag.column_name))
        if not isinstance(error, NotNullViolation) or unfulfilled is None:
            raise
        _roll_back(connection, prepared_before)
        raise unfulfilled from error
    except BaseException:
        _roll_back(connection, prepared_before)
        raise


def _roll_back(connection: DeferredConnection, prepared_before: int) -> None:
    connection.forget_prepared(prepared_before)
    is_plain = connection.pgconn.pipeline_status == PipelineStatus.OFF
    if is_plain and connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
        connection.pgconn.exec_(b"ROLLBACK")
