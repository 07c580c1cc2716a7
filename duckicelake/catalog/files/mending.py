"""Files that were written and have been lost: manifests, lists and metadata come back from the rows (design D4).

On a local disk nobody waits until they are safe from a power loss: the operating system sees to that within a minute.
What it didn't get to see to isn't there after it, or has been cut off.
"""

from collections.abc import Mapping

from duckicelake.catalog.services import Services
from duckicelake.errors import FileMissing
from duckicelake.lake import reader
from duckicelake.lake.state import TableState
from duckicelake.storage.parallel import in_parallel


def forget_lost(services: Services, state: TableState) -> bool:
    """Forget that lost files were written; whether there were any, so that the table must be materialised again.

    Where to look takes a round trip each, it looks at what a reader of main needs, and only if some of that is lost at
    all the rest.
    """
    if services.store.local_path(state.row.location) is None and not _lost(services, _needed(services, state)):
        return False
    table_id = state.row.table_id
    with services.database.reading() as cursor:
        written = reader.artifacts(cursor, table_id)
    lost = _lost(services, written)
    if not lost:
        return False
    with services.database.transaction() as cursor:
        reader.forget_artifacts(cursor, table_id, lost)
    return True


def _needed(services: Services, state: TableState) -> dict[str, int]:
    """The files that a reader of main needs, with their lengths."""
    current = state.current()
    snapshot = (current.snapshot_id, current.manifest_ids) if current is not None else (None, ())
    with services.database.reading() as cursor:
        return reader.artifacts_of(cursor, state.row.table_id, *snapshot)


def _lost(services: Services, lengths: Mapping[str, int]) -> list[str]:
    """Those of the paths that have no file of this length."""

    def is_whole(path: str) -> bool:
        try:
            return services.store.size(path) == lengths[path]
        except FileMissing:
            return False

    whole = in_parallel(is_whole, lengths)
    return [path for path, is_there in zip(lengths, whole, strict=True) if not is_there]
