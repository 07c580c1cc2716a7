"""Batches of rows that are too large to be inlined, as data files in DuckLake's own folder of the table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from uuid import uuid4

from duckicelake.catalog.rows.cache import RowTarget
from duckicelake.catalog.services import Services
from duckicelake.errors import CommitStateUnknown
from duckicelake.lake.additions import NewDataFile
from duckicelake.lake.packed import PackedStats
from duckicelake.rows.batch import Batch
from duckicelake.rows.files import RowFile, row_files

NOT_YET = 0
"""In place of ids that a file gets when its transaction has them."""


def write_files(services: Services, target: RowTarget, batch: Batch) -> list[NewDataFile]:
    """Write the batch's files, each of one partition and in the table's order; Unsupported, InvalidRequest."""
    metadata = target.metadata
    made = row_files(batch, target.lake.definition.partition_keys, metadata.spec(), metadata.sort_order())
    named = [(f"ducklake-{uuid4()}.parquet", file) for file in made]
    services.store.write_all([(f"{target.folder}{name}", file.data) for name, file in named])
    return [_new(name, file) for name, file in named]


@contextmanager
def discarding(services: Services, target: RowTarget, files: Sequence[NewDataFile]) -> Iterator[None]:
    """Delete the files, as well as it goes, if the block comes to nothing for certain."""
    try:
        yield
    except CommitStateUnknown:
        raise
    except Exception:
        for file in files:
            with suppress(Exception):
                services.store.delete(f"{target.folder}{file.path}")
        raise


def _new(name: str, file: RowFile) -> NewDataFile:
    return NewDataFile(
        file_id=NOT_YET,
        path=name,
        record_count=file.record_count,
        file_size_bytes=len(file.data),
        row_id_start=NOT_YET,
        stats=PackedStats(file.stats),
        partition_values=file.partition_values or None,
        path_is_relative=True,
    )
