"""What a commit will make of its table if nobody else comes first: written before its transaction instead of after it.

So nobody's commit waits for another's files, a full disk is noticed while the commit can still be refused, and a load
that comes at once finds them. Where somebody does come first, they are orphans.
"""

from dataclasses import dataclass

from duckicelake.catalog.access.confinement import write_derived
from duckicelake.catalog.files.encoding import Prepared
from duckicelake.catalog.files.materialize import prepare_next
from duckicelake.catalog.loads.cache import CachedTable, Materialized
from duckicelake.catalog.loads.damage import undamaged
from duckicelake.catalog.services import Services
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.foreseen import expected_of, with_files


@dataclass(frozen=True, slots=True)
class Foreseen:
    """A change with the files of the version that it is to make, which are written; their bytes aren't kept."""

    change: ChangeSet
    version: Materialized


def foresee(services: Services, before: CachedTable, change: ChangeSet) -> Foreseen | None:
    """Write what the change of the table would make; None if that isn't known.

    It isn't where that takes rows which the commit changes: all row ids, when a table becomes version 3.
    """
    assert change.table_id is not None
    if change.row_ids:
        return None
    expected = expected_of(change.table_id, change)

    def prepare() -> Prepared | None:
        with services.meter.phase("materialize"):
            version = prepare_next(services, before.materialized, change, expected)
            if version is not None:
                write_derived(services, version.files)
            return version

    version = undamaged(services, change.table_id, prepare)
    return None if version is None else Foreseen(with_files(change, version.rows), version.table)
