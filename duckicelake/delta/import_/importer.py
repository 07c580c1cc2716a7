"""Import a Delta table: its whole history over the same files, in one transaction."""

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from queue import Empty, Full, Queue
from threading import Event
from typing import Final, TypeVar
from uuid import uuid4

from duckicelake.bridge.commit.increments import Base
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.services import Services
from duckicelake.delta.import_ import sources
from duckicelake.delta.import_.columns import ColumnIds, read_columns
from duckicelake.delta.import_.definition import DeltaState, build_first_metadata, needs_version
from duckicelake.delta.import_.history import DeltaHistory, collect_warnings, hash_commit, open_log, read_history
from duckicelake.delta.import_.sources import DeltaPosition
from duckicelake.delta.import_.translation import DeltaTarget, Translation, has_shared_numbers, write_changes
from duckicelake.delta.import_.versions import DeltaVersion, ReadableVersions
from duckicelake.delta.log.actions import Metadata
from duckicelake.errors import AlreadyExistsError, FileMissingError, InvalidRequestError, NoSuchNamespaceError
from duckicelake.iceberg.identifiers import Namespace, check_name, check_namespace, parse_schema_name, to_schema_name
from duckicelake.lake.changes import Creation
from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.schemas import check_name_free
from duckicelake.lake.ducklake.snapshots import lock_writers, retry_transaction
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.policy import canonicalize

T = TypeVar("T")
_END: Final = object()
_WAIT_SECONDS: Final = 0.1
_TURN_SECONDS: Final = 0.0002
"""The interpreter's switch interval: with Python's default, a thread with an answer of Postgres's waits for 5 ms."""
_MAX_ATTEMPTS: Final = 2
"""Attempts in which others may commit, if the table's numbers depend on the next snapshot."""
ImportProgress = Callable[[int, int], None]
"""Called with the numbers of translated and of all versions."""


@contextmanager
def iterate_pipelined(items: Iterable[T], most: int = 3) -> Iterator[Iterator[T]]:
    """Yield the items; another thread computes up to `most` ahead.

    An error of the items is raised in its place.
    """
    made: Queue[object] = Queue(most)
    stopped = Event()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                made.put(item, timeout=_WAIT_SECONDS)
            except Full:
                continue
            return True
        return False

    def compute() -> None:
        try:
            for item in items:
                if not put(item):
                    return
        finally:
            put(_END)

    with _shorten_turns(), ThreadPoolExecutor(1, "duckicelake-ahead") as pool:
        computing = pool.submit(compute)

        def take_items() -> Iterator[T]:
            while (item := made.get()) is not _END:
                yield item  # type: ignore[misc]
            computing.result()

        try:
            yield take_items()
        finally:
            stopped.set()
            _empty_queue(made)


@contextmanager
def _shorten_turns() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _empty_queue(queue: Queue[object]) -> None:
    """Drop the remaining items of the queue."""
    while True:
        try:
            queue.get_nowait()
        except Empty:
            return


@dataclass(frozen=True, slots=True)
class DeltaImport:
    """A request to import the table in a folder: all readable versions, or those from one on.

    copies: whether to copy files that DuckLake couldn't read where they are. following: whether the table follows later
    versions.
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
        """Build a request by the table's full name, as `sales.orders`; InvalidRequestError: it is none."""
        schema, _, name = table.rpartition(".")
        if not schema or not name:
            raise InvalidRequestError(f"{table!r} isn't the full name of a table: write it as sales.orders")
        check_name(name, "table name")
        return DeltaImport(root, check_namespace(parse_schema_name(schema)), name, from_version, copies, following)


@dataclass(frozen=True, slots=True)
class DeltaImportResult:
    """The result of an import. left_out: versions some of whose files are gone. notes: warnings about readers."""

    table_id: int
    newest: int
    versions: int
    files: int
    rows: int
    left_out: tuple[int, ...]
    notes: tuple[str, ...] = ()


def import_table(
    services: Services, wanted: DeltaImport, progress: ImportProgress = lambda _, __: None
) -> DeltaImportResult:
    """Make a table of a Delta table, as a whole or not at all.

    Raises AlreadyExistsError, NoSuchNamespaceError, NoDeltaLogError, InvalidRequestError, UnsupportedError,
    DamagedLogError, FileMissingError, ExpiredError.
    """
    _check_name(services, wanted)
    history = read_history(services, open_log(services, wanted.root), wanted.from_version)
    plan = _ImportPlan(services, wanted, history, progress)
    attempts = 0
    while True:
        attempts += 1
        with suppress(StaleBaseError):
            done = retry_transaction(lambda alone=attempts > _MAX_ATTEMPTS: plan.attempt(alone=alone))  # type: ignore[misc]
            return replace(done, notes=collect_warnings(services, history))


def _check_name(services: Services, wanted: DeltaImport) -> None:
    """Raise AlreadyExistsError or NoSuchNamespaceError; the message says what to do."""
    schema = to_schema_name(wanted.namespace)
    try:
        with services.database.reading() as cursor:
            check_name_free(cursor, schema, wanted.name)
    except NoSuchNamespaceError as error:
        raise NoSuchNamespaceError(
            f"{error}. Create it first, in DuckDB with CREATE SCHEMA or through the catalog"
        ) from error
    except AlreadyExistsError as error:
        with services.database.reading() as cursor:
            found = sources.read_sources(cursor, f"{schema}.{wanted.name}")
        if not found or canonicalize(found[0].root) != canonicalize(wanted.root):
            raise
        name, version = found[0].name, found[0].position.version
        raise AlreadyExistsError(
            f"{error}, with version {version} of this very Delta table. `duckicelake delta sync {name}` brings what "
            "came since, unless it was written here; to have it followed (again), drop it, which deletes no file of "
            "Delta's, and import it with --follow"
        ) from error


class _ImportPlan:
    """The import of a history, in one attempt or several."""

    def __init__(
        self, services: Services, wanted: DeltaImport, history: DeltaHistory, progress: ImportProgress
    ) -> None:
        self._services = services
        self._wanted = wanted
        self._history = history
        self._progress = progress
        uuid = str(uuid4())
        self._creation = Creation(to_schema_name(wanted.namespace), wanted.name, uuid)
        location = services.policy.table_location(wanted.namespace, wanted.name, uuid)
        definition = self._first_definition()
        ids = _collect_column_ids(history)
        version = _choose_format_version(history, ids)
        self._metadata, _ = build_first_metadata(definition, ids, uuid, location, version, services.clock())
        self._state = DeltaState.of(definition, ids)

    def attempt(self, *, alone: bool) -> DeltaImportResult:
        """Try the import in one transaction. alone: others wait from the start; StaleBaseError can't come then."""
        readable = ReadableVersions(self._history.files.missing)
        with self._services.database.transaction() as cursor:
            if alone:
                lock_writers(cursor)
            translation = self._translation()
            versions = self._count_versions(readable.of(self._history.first(), self._history.commits))
            changes = translation.changes(versions)
            if _must_write_files(self._history) and not alone:
                changes = iter(list(changes))  # so that others don't wait for the store
            with iterate_pipelined(changes) as computed:
                table_id = write_changes(cursor, computed).table_id
            _check_newest(readable, self._history)
            self._settle(cursor, table_id, translation.state)
        count = translation.count
        return DeltaImportResult(
            table_id, self._history.newest, count.versions, count.files, count.rows, tuple(readable.left_out)
        )

    def _first_definition(self) -> Metadata:
        """Return the definition of the first readable version."""
        readable = ReadableVersions(self._history.files.missing)
        first = next(readable.of(self._history.first(), self._history.commits), None)
        if first is None:
            _check_newest(readable, self._history)
        assert first is not None
        return first.metadata or self._history.start.metadata

    def _translation(self) -> Translation:
        next_id = None
        if has_shared_numbers(self._services, self._metadata):
            with self._services.database.reading() as cursor:
                next_id = native.read_newest_snapshot(cursor) + 1
        target = DeltaTarget(
            self._creation, Base(), self._metadata, self._state, next_id=next_id, copies=self._wanted.copies
        )
        return Translation(self._services, self._history.files, target)

    def _count_versions(self, versions: Iterable[DeltaVersion]) -> Iterator[DeltaVersion]:
        first, count = self._history.start.version, len(self._history.commits) + 1
        for version in versions:
            yield version
            self._progress(version.version - first + 1, count)

    def _settle(self, cursor: Transaction, table_id: int, state: DeltaState) -> None:
        log, newest = self._history.files.log, self._history.newest
        position = DeltaPosition(state.metadata.id, newest, hash_commit(self._services, log, newest), state.to_json())
        sources.record_source(cursor, table_id, log.root, position, following=self._wanted.following)
        detail = {"from": log.root, "delta-version": newest, "following": self._wanted.following}
        self._services.settle(cursor, [build_touched(self._wanted.namespace, self._wanted.name, detail)], [table_id])


def _read_definitions(history: DeltaHistory) -> list[Metadata]:
    return [history.start.metadata, *(commit.metadata for commit in history.commits if commit.metadata is not None)]


def _collect_column_ids(history: DeltaHistory) -> ColumnIds:
    """Collect Delta's ids of all versions, so that columns of versions without ids get the same."""
    ids = ColumnIds()
    for definition in _read_definitions(history):
        ids.learn(definition)
    return ids


def _choose_format_version(history: DeltaHistory, ids: ColumnIds) -> int:
    tried = ColumnIds(dict(ids.by_path), ids.is_mapped)
    schemas = [read_columns(definition, tried, 0).schema for definition in _read_definitions(history)]
    return needs_version(schemas, has_vectors=_has_vectors(history))


def _has_vectors(history: DeltaHistory) -> bool:
    """Return whether there are deletion vectors, or may be later."""
    if _read_definitions(history)[-1].configuration.get("delta.enableDeletionVectors") == "true":
        return True
    return any(add.deletion_vector for add in history.adds())


def _must_write_files(history: DeltaHistory) -> bool:
    """Return whether the import may write files: delete files, and links to files of mapped, partitioned tables."""
    return _has_vectors(history) or any(
        definition.partition_columns and definition.column_mapping != "none"
        for definition in _read_definitions(history)
    )


def _check_newest(readable: ReadableVersions, history: DeltaHistory) -> None:
    """Raise FileMissingError if the newest version can't be read: then the table can't be read, either."""
    for path in sorted(readable.absent):
        raise FileMissingError(
            f"{history.files.locate(path)}, or its deletion vector, isn't there, but is part of version "
            f"{history.newest}, the newest of the Delta table {history.files.log.root}: it can't be read. "
            "Bring the file back, or have Delta let go of it (FSCK REPAIR TABLE, or RESTORE to a version without it)"
        )
