"""Files that were written and have been lost: manifests, lists and metadata come back from the rows (design D4).

On a local disk nobody waits until they are safe from a power loss: the operating system sees to that within a minute.
What it didn't get to see to isn't there after it, or has been cut off.
"""

from collections.abc import Mapping

from duckicelake.catalog.services import Services
from duckicelake.lake import reader
from duckicelake.lake.state import TableState


def forget_lost(services: Services, state: TableState) -> bool:
    """Forget that lost files were written; whether there were any, so that the table must be materialised again.

    Looks at what a reader of main needs and, on a local disk, at what was written last; only if some of that is lost,
    at all the rest.
    """
    table_id = state.row.table_id
    if not _lost(services, _suspects(services, state)):
        return False
    with services.database.reading() as cursor:
        written = reader.artifacts(cursor, table_id)
    lost = _lost(services, written)
    with services.database.transaction() as cursor:
        reader.forget_artifacts(cursor, table_id, lost)
    return True


def _suspects(services: Services, state: TableState) -> dict[str, int]:
    """The files to look at, with their lengths."""
    table_id, current = state.row.table_id, state.current()
    snapshot = (current.snapshot_id, current.manifest_ids) if current is not None else (None, ())
    with services.database.reading() as cursor:
        needed = reader.artifacts_of(cursor, table_id, *snapshot)
        if services.store.local_path(state.row.location) is None:
            return needed
        return needed | reader.last_artifacts(cursor, table_id)


def _lost(services: Services, lengths: Mapping[str, int]) -> list[str]:
    """Those of the paths that have no file of this length."""
    sizes = services.store.sizes(list(lengths))
    return [path for path, size in zip(lengths, sizes, strict=True) if size != lengths[path]]
