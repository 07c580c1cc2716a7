"""The versions of a Delta table that come after its import, as changes of the table that is here."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duckicelake.bridge.delta.tables import DeltaState
from duckicelake.bridge.delta.versions import DeltaVersion, ReadableVersions
from duckicelake.catalog.commits.attempts import base_of
from duckicelake.catalog.commits.workspace import Workspace
from duckicelake.catalog.delta.reading import look
from duckicelake.catalog.delta.targets import DeltaTarget, numbers_are_shared
from duckicelake.catalog.delta.versions import Translation
from duckicelake.catalog.loads.cache import CachedTable
from duckicelake.catalog.services import Services
from duckicelake.delta.log import DeltaLog
from duckicelake.errors import FileMissing
from duckicelake.lake import native
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.delta_sources import Source


@dataclass(frozen=True, slots=True)
class Further:
    """Changes that are to be written in turn (`targets.write_all`), and what is known after them.

    There are none where all versions lack files: then the next one that can be read has what they did.
    """

    changes: Sequence[ChangeSet]
    state: Mapping[str, Any]
    delta_id: str


def next_versions(services: Services, cached: CachedTable, log: DeltaLog, source: Source, upto: int) -> Further:
    """The versions after the one that the table has. StaleBase comes when they're written.

    Raises Unsupported, InvalidRequest, DamagedLog, FileMissing where the last one can't be read.
    """
    commits = list(log.commits(source.position.version, upto))
    target = _target(services, cached, source)
    space = Workspace(services, cached.materialized.row.table_id)

    def known(paths: Iterable[str]) -> set[str]:
        return {file.path for file in space.at_paths(target.listed, paths)}

    files = look(services, log, [add for commit in commits for add in commit.adds], known)
    readable = ReadableVersions(files.missing)
    translation = Translation(services, files, target)
    first = DeltaVersion(source.position.version, 0)
    changes = list(translation.changes(readable.after(first, commits)))
    for path in sorted(readable.absent):
        raise FileMissing(f"{files.located(path)} isn't there, but is part of version {upto} of {log.root}")
    return Further(changes, translation.state.to_json(), translation.state.metadata.id)


def _target(services: Services, cached: CachedTable, source: Source) -> DeltaTarget:
    table = cached.materialized
    assert source.position.state is not None
    current = table.state.current()
    space = Workspace(services, table.row.table_id, table.known)
    next_id = None
    if numbers_are_shared(services, table.metadata):
        with services.database.reading() as cursor:
            next_id = native.newest_snapshot(cursor) + 1
    return DeltaTarget(
        table.row.table_id,
        base_of(services, cached),
        table.metadata,
        DeltaState.from_json(source.position.state),
        space.listed(current.manifest_ids) if current else (),
        next_id,
    )
