"""Files that were written and have been lost: manifests, lists and metadata come back from the rows (design D4)."""

from duckicelake.catalog.services import Services
from duckicelake.lake import reader
from duckicelake.lake.state import TableState
from duckicelake.storage.parallel import in_parallel


def forget_lost(services: Services, state: TableState) -> bool:
    """Forget that lost files were written; whether there were any, so that the table must be materialised again.

    Looks at what a reader of main needs, and only if some of that is lost at all the rest.
    """
    table_id, current = state.row.table_id, state.current()
    wanted = [state.metadata_location]
    if current is not None:
        with services.database.reading() as cursor:
            manifests = reader.manifests(cursor, current.manifest_ids).values()
        wanted += [current.manifest_list, *(manifest.path for manifest in manifests)]
    if not _missing(services, [path for path in wanted if path is not None]):
        return False
    with services.database.reading() as cursor:
        written = reader.artifacts(cursor, table_id)
    lost = _missing(services, written)
    with services.database.transaction() as cursor:
        reader.forget_artifacts(cursor, table_id, lost)
    return True


def _missing(services: Services, paths: list[str]) -> list[str]:
    there = in_parallel(services.store.exists, paths)
    return [path for path, exists in zip(paths, there, strict=True) if not exists]
