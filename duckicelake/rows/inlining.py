"""PURE. Batches as rows of `ducklake_inlined_data_*`."""

from duckicelake.rows.batch import Batch


def obstacle(batch: Batch) -> str | None:
    """Why the batch can't be inlined, so that it becomes a file; None if it can."""
    return batch.layout.obstacle or _nul(batch)


def _nul(batch: Batch) -> str | None:
    """Nested values are texts in Postgres, which holds no NUL in any; flat ones are bytes."""
    if not batch.layout.nested:
        return None
    for index, column in enumerate(batch.layout.stored):
        if column.children and any("\0" in str(value) for value in batch.encoded(index)):
            return f"Postgres holds no NUL character in {column.name}, a column of nested values"
    return None
