"""PURE. Batches as rows of `ducklake_inlined_data_*`."""

from duckicelake.iceberg.types import PrimitiveType
from duckicelake.rows.batch import Batch
from duckicelake.rows.encoding import Encoded


def obstacle(batch: Batch) -> str | None:
    """Why the batch can't be inlined, so that it becomes a file; None if it can."""
    return batch.layout.obstacle or _nul(batch)


def encode(batch: Batch) -> list[list[Encoded]]:
    """For each stored column of the layout its values; only for batches without an `obstacle`."""
    return batch.encoded


def _nul(batch: Batch) -> str | None:
    """Nested values are texts in Postgres, which holds no NUL in any; flat ones are bytes."""
    if not batch.layout.nested:
        return None
    for column, values in zip(batch.layout.stored, batch.encoded, strict=True):
        if not isinstance(column.type, PrimitiveType) and any("\0" in str(value) for value in values):
            return f"Postgres holds no NUL character in {column.name}, a column of nested values"
    return None
