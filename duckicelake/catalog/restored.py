"""Deleted rows don't come back: what DuckLake knows as deleted stays so, and Iceberg may not say otherwise."""

from collections.abc import Iterable, Sequence

from duckicelake.bridge import positions
from duckicelake.bridge.manifests import ListedManifest
from duckicelake.bridge.uploads import Upload
from duckicelake.catalog.services import Services
from duckicelake.errors import Unsupported
from duckicelake.iceberg.manifest import FileContent
from duckicelake.lake import reader
from duckicelake.lake.changes import NewDeletion
from duckicelake.lake.database import Transaction
from duckicelake.lake.state import DeletionRow, FileRow


def check_nothing_returns(
    services: Services,
    table_id: int,
    upload: Upload,
    deletions: Sequence[NewDeletion],
    prior: Sequence[ListedManifest],
) -> None:
    """Unsupported if an upload removes a delete file whose positions nothing else deletes, from a file that stays."""
    dropped = [row for row in upload.removed if row.content != FileContent.DATA]
    if not dropped:
        return
    left = {row.file_id for row in upload.removed if row.content == FileContent.DATA}
    with services.database.reading() as cursor:
        lost = positions.by_data_file(reader.deletions(cursor, table_id, [row.file_id for row in dropped]))
        still = positions.by_data_file((*_kept(cursor, table_id, lost, dropped, prior), *map(_row, deletions)))
        returning = [id_ for id_, rows in lost.items() if id_ not in left and rows - still.get(id_, frozenset())]
        held = [manifest.manifest_id for manifest in prior if manifest.content == 0]
        for file_id in returning:
            if reader.manifests_holding(cursor, held, [file_id]):
                raise Unsupported(
                    "restored-rows",
                    f"{dropped[0].path} is removed, and rows that it deletes would come back: "
                    "remove the data file too, or delete them again in the same snapshot",
                )


def _kept(
    cursor: Transaction,
    table_id: int,
    data_files: Iterable[int],
    dropped: Sequence[FileRow],
    prior: Sequence[ListedManifest],
) -> list[DeletionRow]:
    """What the delete files that stay delete from these data files."""
    lists = [manifest.manifest_id for manifest in prior if manifest.content == 1]
    live = {file.file_id for file in reader.live_files(cursor, lists)} - {row.file_id for row in dropped}
    return [row for row in reader.deletions_of(cursor, table_id, data_files) if row.delete_file_id in live]


def _row(deletion: NewDeletion) -> DeletionRow:
    return DeletionRow(deletion.delete_file_id, deletion.data_file_id, deletion.positions)
