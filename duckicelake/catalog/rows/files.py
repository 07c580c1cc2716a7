"""Batches of rows that are too large to be inlined, as data files in DuckLake's own folder of the table."""

from collections.abc import Sequence
from uuid import uuid4

from duckicelake.catalog.rows.target import RowTarget
from duckicelake.catalog.services import Services
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


def locations_of(target: RowTarget, files: Sequence[NewDataFile]) -> list[str]:
    return [f"{target.folder}{file.path}" for file in files]


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
