"""The files of the version that catching up makes, made while its rows are: Postgres takes one core, and this another.

If the rows aren't committed then, the files are orphans.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from duckicelake.catalog.access.confinement import write_derived
from duckicelake.catalog.commits.known import Known
from duckicelake.catalog.files.encoding import Prepared, encoded
from duckicelake.catalog.files.mending import forget_lost
from duckicelake.catalog.files.unwritten import Unwritten, next_unwritten
from duckicelake.catalog.services import Services
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.changes import ChangeSet, Progress, Written
from duckicelake.lake.state import TableState
from duckicelake.storage.parallel import begun

Encoding: TypeAlias = Callable[[], Prepared]
"""Waits for the version, whose files are written then."""


def encode_ahead(
    services: Services, before: tuple[TableState, TableMetadata], change: ChangeSet, progress: Progress
) -> Encoding | None:
    """Begin to write what the change makes of the version before; None where that can't be told beforehand."""
    state, metadata = before
    row, cached = state.row, services.cache.get(state.row.table_id)
    if cached is None and forget_lost(services, state):
        return None
    is_known = cached is not None and cached.materialized.row.version == row.version
    known = Known(cached.materialized.known.manifests) if cached is not None and is_known else Known()
    state = replace(state, row=replace(row, epoch=progress.epoch))
    snapshots = tuple(step.ducklake_id for step in change.steps if step.ducklake_id is not None)
    written = Written(row.table_id, snapshots, progress.upto, change)
    unwritten = next_unwritten(services, state, known, change, written)
    return None if unwritten is None else begun(partial(_written, services, unwritten, (state, metadata)))


def _written(services: Services, unwritten: Unwritten, before: tuple[TableState, TableMetadata]) -> Prepared:
    prepared = encoded(unwritten, before)
    write_derived(services, prepared.files)
    return prepared
