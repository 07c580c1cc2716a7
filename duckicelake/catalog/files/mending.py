"""Files that were written and have been lost: manifests, lists and metadata come back from the rows (design D4).

They aren't synced when a commit is answered, so a power loss may take, or cut off, what was written just before it.
"""

from collections.abc import Mapping

from duckicelake.catalog.services import Services
from duckicelake.errors import FileMissing
from duckicelake.lake import reader
from duckicelake.lake.state import TableState
from duckicelake.storage.parallel import in_parallel


def forget_lost(services: Services, state: TableState) -> bool:
    """Forget that lost files were written; whether there were any, so that the table must be materialised again.

    Looks at what a reader of main needs, and only if some of that is lost at all the rest.
    """
    table_id, current = state.row.table_id, state.current()
    snapshot = (current.snapshot_id, current.manifest_ids) if current is not None else (None, ())
    with services.database.reading() as cursor:
        wanted = reader.artifacts_of(cursor, table_id, *snapshot)
    if not _lost(services, wanted):
        return False
    with services.database.reading() as cursor:
        written = reader.artifacts(cursor, table_id)
    lost = _lost(services, written)
    with services.database.transaction() as cursor:
        reader.forget_artifacts(cursor, table_id, lost)
    return True


def _lost(services: Services, lengths: Mapping[str, int]) -> list[str]:
    """Those of the paths that have no file of this length."""

    def is_whole(path: str) -> bool:
        try:
            return services.store.size(path) == lengths[path]
        except FileMissing:
            return False

    whole = in_parallel(is_whole, lengths)
    return [path for path, is_there in zip(lengths, whole, strict=True) if not is_there]
