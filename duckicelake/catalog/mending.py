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
    with services.database.reading() as cursor:
        written = reader.artifacts(cursor, table_id)
    wanted = {("metadata", state.row.version)}
    if current is not None:
        wanted |= {("manifest-list", current.snapshot_id)} | {("manifest", id_) for id_ in current.manifest_ids}
    if not _missing(services, [path for kind, id_, path in written if (kind, id_) in wanted]):
        return False
    lost = _missing(services, [path for _, _, path in written])
    with services.database.transaction() as cursor:
        reader.forget_artifacts(cursor, table_id, lost)
    return True


def _missing(services: Services, paths: list[str]) -> list[str]:
    there = in_parallel(services.store.exists, paths)
    return [path for path, exists in zip(paths, there, strict=True) if not exists]
