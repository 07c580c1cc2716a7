"""Importing a Delta table: its whole history becomes a table here, over the same files, in one transaction.

Delta's files are never touched. Where another catalog's table is registered (`registration`), Iceberg's metadata is
read; here it is made, version by version.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

from duckicelake.bridge.delta.columns import ColumnIds, table_columns
from duckicelake.bridge.delta.tables import DeltaState, first_metadata, needs_version
from duckicelake.bridge.delta.versions import DeltaVersion, ReadableVersions
from duckicelake.bridge.increments import Base
from duckicelake.catalog.auditing import touched
from duckicelake.catalog.delta.ahead import computed_ahead
from duckicelake.catalog.delta.notes import notes
from duckicelake.catalog.delta.reading import History, digest, open_log, read_history
from duckicelake.catalog.delta.targets import DeltaTarget, numbers_are_shared, write_all
from duckicelake.catalog.delta.versions import Translation
from duckicelake.catalog.services import Services
from duckicelake.delta.actions import Metadata
from duckicelake.errors import AlreadyExists, FileMissing, InvalidRequest, NoSuchNamespace
from duckicelake.iceberg.names import Namespace, check_name, check_namespace, namespace_of, schema_name
from duckicelake.lake import delta_sources, native
from duckicelake.lake.changes import Creation
from duckicelake.lake.delta_sources import Position
from duckicelake.lake.names import check_name_is_free
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.snapshots import lock, retrying
from duckicelake.lake.writing.files import StaleBase
from duckicelake.storage.policy import canonical

_PATIENCE: Final = 2
"""Attempts in which others may commit meanwhile, where the table's numbers depend on that."""

Progress = Callable[[int, int], None]
"""Hears how many versions of how many are translated."""


@dataclass(frozen=True, slots=True)
class DeltaImport:
    """What is wanted: the table in a folder, from a version on or with all that can be told.

    copies: files that DuckLake couldn't read in their place may be copied. following: what comes later is to follow.
    """

    root: str
    namespace: Namespace
    name: str
    from_version: int | None = None
    copies: bool = False
    following: bool = False

    @staticmethod
    def of(
        root: str, table: str, from_version: int | None = None, *, copies: bool = False, following: bool = False
    ) -> "DeltaImport":
        """The same with the table's full name, as `sales.orders`; InvalidRequest for one that is none."""
        schema, _, name = table.rpartition(".")
        if not schema or not name:
            raise InvalidRequest(f"{table!r} isn't the full name of a table: write it as sales.orders")
        check_name(name, "table name")
        return DeltaImport(root, check_namespace(namespace_of(schema)), name, from_version, copies, following)


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of it; `left_out` are versions some of whose files are gone, `notes` what readers should know."""

    table_id: int
    newest: int
    versions: int
    files: int
    rows: int
    left_out: tuple[int, ...]
    notes: tuple[str, ...] = ()


def import_table(services: Services, wanted: DeltaImport, progress: Progress = lambda _, __: None) -> Imported:
    """Make a table of a Delta table, or nothing at all.

    Raises AlreadyExists, NoSuchNamespace, NotDelta, InvalidRequest, Unsupported, DamagedLog, FileMissing, Forgotten.
    """
    _check_name(services, wanted)
    history = read_history(services, open_log(services, wanted.root), wanted.from_version)
    plan = _Plan(services, wanted, history, progress)
    attempts = 0
    while True:
        attempts += 1
        with suppress(StaleBase):
            done = retrying(lambda alone=attempts > _PATIENCE: plan.attempt(alone=alone))  # type: ignore[misc]
            return replace(done, notes=notes(services, history))


def _check_name(services: Services, wanted: DeltaImport) -> None:
    """AlreadyExists or NoSuchNamespace, saying what to do where an import is what is wanted."""
    schema = schema_name(wanted.namespace)
    try:
        with services.database.reading() as cursor:
            check_name_is_free(cursor, schema, wanted.name)
    except NoSuchNamespace as error:
        raise NoSuchNamespace(
            f"{error}. Create it first, in DuckDB with CREATE SCHEMA or through the catalog"
        ) from error
    except AlreadyExists as error:
        with services.database.reading() as cursor:
            found = delta_sources.sources(cursor, f"{schema}.{wanted.name}")
        if not found or canonical(found[0].root) != canonical(wanted.root):
            raise
        name, version = found[0].name, found[0].position.version
        raise AlreadyExists(
            f"{error}, with version {version} of this very Delta table. `duckicelake delta sync {name}` brings what "
            "came since, unless it was written here; to have it followed (again), drop it, which deletes no file of "
            "Delta's, and import it with --follow"
        ) from error


class _Plan:
    """A history that becomes a table, in one attempt or several."""

    def __init__(self, services: Services, wanted: DeltaImport, history: History, progress: Progress) -> None:
        self._services = services
        self._wanted = wanted
        self._history = history
        self._progress = progress
        uuid = str(uuid4())
        self._creation = Creation(schema_name(wanted.namespace), wanted.name, uuid)
        location = services.policy.table_location(wanted.namespace, wanted.name, uuid)
        definition = self._first_definition()
        ids = _column_ids(history)
        version = _format_version(history, ids)
        self._metadata, _ = first_metadata(definition, ids, uuid, location, version, services.clock())
        self._state = DeltaState.of(definition, ids)

    def attempt(self, *, alone: bool) -> Imported:
        """One transaction. alone: others wait from before it is computed; StaleBase can't come then."""
        readable = ReadableVersions(self._history.files.missing)
        with self._services.database.transaction() as cursor:
            if alone:
                lock(cursor)
            translation = self._translation()
            versions = self._counted(readable.of(self._history.first(), self._history.commits))
            changes = translation.changes(versions)
            if _writes_files(self._history) and not alone:
                changes = iter(list(changes))  # nobody waits for the store
            with computed_ahead(changes) as computed:
                table_id = write_all(cursor, computed).table_id
            _check_newest(readable, self._history)
            self._settle(cursor, table_id, translation.state)
        told = translation.told
        return Imported(table_id, self._history.newest, told.versions, told.files, told.rows, tuple(readable.left_out))

    def _first_definition(self) -> Metadata:
        """That of the first version that can be read."""
        readable = ReadableVersions(self._history.files.missing)
        first = next(readable.of(self._history.first(), self._history.commits), None)
        if first is None:
            _check_newest(readable, self._history)
        assert first is not None
        return first.metadata or self._history.start.metadata

    def _translation(self) -> Translation:
        next_id = None
        if numbers_are_shared(self._services, self._metadata):
            with self._services.database.reading() as cursor:
                next_id = native.newest_snapshot(cursor) + 1
        target = DeltaTarget(
            self._creation, Base(), self._metadata, self._state, next_id=next_id, copies=self._wanted.copies
        )
        return Translation(self._services, self._history.files, target)

    def _counted(self, versions: Iterable[DeltaVersion]) -> Iterator[DeltaVersion]:
        first, count = self._history.start.version, len(self._history.commits) + 1
        for version in versions:
            yield version
            self._progress(version.version - first + 1, count)

    def _settle(self, cursor: Transaction, table_id: int, state: DeltaState) -> None:
        log, newest = self._history.files.log, self._history.newest
        position = Position(state.metadata.id, newest, digest(self._services, log, newest), state.to_json())
        delta_sources.record(cursor, table_id, log.root, position, following=self._wanted.following)
        detail = {"from": log.root, "delta-version": newest, "following": self._wanted.following}
        self._services.settle(cursor, [touched(self._wanted.namespace, self._wanted.name, detail)], [table_id])


def _definitions(history: History) -> list[Metadata]:
    return [history.start.metadata, *(each.metadata for each in history.commits if each.metadata is not None)]


def _column_ids(history: History) -> ColumnIds:
    """All ids that Delta gives in any version, so that columns of versions before it gave any get the same."""
    ids = ColumnIds()
    for each in _definitions(history):
        ids.learn(each)
    return ids


def _format_version(history: History, ids: ColumnIds) -> int:
    tried = ColumnIds(dict(ids.by_path), ids.is_mapped)
    schemas = [table_columns(each, tried, 0).schema for each in _definitions(history)]
    return needs_version(schemas, has_vectors=_has_vectors(history))


def _has_vectors(history: History) -> bool:
    """Whether there are deletion vectors, or may be some tomorrow."""
    if _definitions(history)[-1].configuration.get("delta.enableDeletionVectors") == "true":
        return True
    return any(add.deletion_vector for add in history.adds())


def _writes_files(history: History) -> bool:
    """Whether files may be written for it: delete files, and links to files of mapped, partitioned tables."""
    return _has_vectors(history) or any(
        each.partition_columns and each.column_mapping != "none" for each in _definitions(history)
    )


def _check_newest(readable: ReadableVersions, history: History) -> None:
    """FileMissing if the newest version can't be read: then the table can't be, either."""
    for path in sorted(readable.absent):
        raise FileMissing(
            f"{history.files.located(path)}, or its deletion vector, isn't there, but is part of version "
            f"{history.newest}, the newest of the Delta table {history.files.log.root}: nobody can read that. "
            "Bring the file back, or have Delta let go of it (FSCK REPAIR TABLE, or RESTORE to a version without it)"
        )
