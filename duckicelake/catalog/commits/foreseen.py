"""What a commit will make of its table if nobody else comes first: written before its COMMIT instead of after it.

On a local disk its files are synced while its transaction runs, which waits for them as its last step. A distant store
has them before the transaction begins: nobody else's commit may wait for that.

They are not waited for after COMMIT, though loads write again what got lost: a load that comes at once would take files
for lost that are still being written; what DuckDB commits before such a load would be listed together with manifests
that nobody looks for any more; and a full disk would be noticed only when the commit is there. Nor before the lock:
meanwhile Postgres runs the statements, which then would take as long after it.
"""

from dataclasses import dataclass
from functools import partial

from duckicelake.catalog.access.confinement import write_all
from duckicelake.catalog.commits.beside import Ready
from duckicelake.catalog.files.materialize import Prepared, prepare_next
from duckicelake.catalog.loads.cache import CachedTable
from duckicelake.catalog.loads.damage import damage_of, undamaged
from duckicelake.catalog.services import Services
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.foreseen import expected_of, with_files
from duckicelake.storage.parallel import begun


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A change with the files of the version that it is to make.

    `ready` returns once all of them are durable; TimeoutError if they aren't after so many seconds.
    """

    change: ChangeSet
    version: Prepared
    ready: Ready


def foresee(services: Services, name: str, before: CachedTable, change: ChangeSet) -> Foreseen | None:
    """Begin to write what the change of the table of this name would make; None if that isn't known.

    It isn't where that takes rows which the commit changes: all row ids, when a table becomes version 3.
    """
    assert change.table_id is not None
    if change.row_ids:
        return None
    expected = expected_of(change.table_id, change)

    def prepare() -> tuple[Prepared, Ready] | None:
        with services.meter.phase("materialize"):
            version = prepare_next(services, before.materialized, change, expected)
            return None if version is None else (version, _begin(services, version))

    prepared = undamaged(services, change.table_id, prepare)
    if prepared is None:
        return None
    version, written = prepared

    def ready(seconds: float | None) -> None:
        with damage_of(name):
            written(seconds)

    return Foreseen(with_files(change, version.rows), version, ready)


def _begin(services: Services, version: Prepared) -> Ready:
    """Begin to write the files."""
    write = partial(write_all, services, version.files)
    if services.store.local_path(version.table.location) is not None:
        return begun(write)
    write()
    return lambda _: None
