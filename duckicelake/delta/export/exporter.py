"""Append a version to a table's Delta log for each state that main has had since export was enabled."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.delta.export import logs
from duckicelake.delta.export.commits import (
    FileDifference,
    LoggedDefinition,
    MainMoment,
    NewVersion,
    build_next_version,
)
from duckicelake.delta.export.definition import (
    build_delta_metadata,
    build_protocol,
    check_delta_writable,
    is_enabled,
    keep_unchanged,
)
from duckicelake.delta.export.field_names import (
    collect_named_ids,
    find_physical_names,
    has_plain_names,
    read_logged_names,
)
from duckicelake.delta.export.files import OtherLogError, clear_log, publish_log, remove_log, repair_log
from duckicelake.delta.export.logs import LogAddition, LoggedVersion, LogRow, VersionRow
from duckicelake.delta.export.states import LoggedBase, list_paths, read_differences, read_names_in_files
from duckicelake.delta.log.actions import Metadata, Protocol
from duckicelake.delta.log.decoder import parse_metadata, parse_protocol
from duckicelake.delta.log.encoder import encode_commit, encode_metadata, encode_protocol, encode_vector
from duckicelake.delta.log.schema import parse_schema
from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.iceberg.schema import Schema
from duckicelake.lake.ducklake.snapshots import retry_transaction
from duckicelake.lake.state import SnapshotRow, TableState
from duckicelake.properties import DELTA_ENABLED
from duckicelake.storage.policy import canonicalize


@dataclass(frozen=True, slots=True)
class _NewestVersion:
    """The newest version of a log, and its table's state."""

    log: LogRow
    row: VersionRow
    metadata: Metadata
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class _PendingState:
    """The content of the next version. snapshot: of main since `logged_ms`; None: metadata alone.

    is_next: it is main's next state after the newest version.
    """

    snapshot: SnapshotRow | None
    logged_ms: int
    schema: Schema
    is_next: bool = True

    @property
    def is_metadata_alone(self) -> bool:
        return self.snapshot is None


def update_delta_log(services: Services, table: TableVersion) -> LogRow:
    """Bring a table's log up to this version, with all files written; return the log.

    The log begins anew in another location, and if its files have commits that a restored Postgres lacks.

    UnsupportedError: Delta can't express the table's state. The log records the error, and stays as it is until it can.
    """
    services.database.gate.require_open()
    table_id = table.row.table_id
    with services.database.reading() as cursor:
        log = logs.read_log(cursor, table_id)
    if log is None or not _has_looked_at(log, table):
        if log is not None and log.root != canonicalize(table.metadata.location):
            remove_log(services, table_id)
        _append_missing(services, table)
    elif log.problem is not None:
        raise UnsupportedError("delta-out", log.problem)
    try:
        return publish_log(services, table_id)
    except OtherLogError:
        remove_log(services, table_id)
        _append_missing(services, table)
        return publish_log(services, table_id)


def _has_looked_at(log: LogRow, table: TableVersion) -> bool:
    """Return whether the log has all of this version of the table.

    Another worker may have written a newer one.
    """
    return log.table_version > table.row.version or (log.table_version == table.row.version and log.is_looked_at)


def _append_missing(services: Services, table: TableVersion) -> None:
    try:
        check_delta_writable(table.metadata)
        while (addition := _build_addition(services, table)) is not None:
            retry_transaction(lambda new=addition: _record(services, table.row.table_id, new))  # type: ignore[misc]
    except UnsupportedError as error:
        _note_looked_at(services, table, str(error.args[1]))
        publish_log(services, table.row.table_id)
        raise
    _note_looked_at(services, table, None)


def _note_looked_at(services: Services, table: TableVersion, problem: str | None) -> None:
    with services.database.transaction() as cursor:
        logs.note_looked_at(cursor, table.row.table_id, table.row.version, problem)


def _record(services: Services, table_id: int, addition: LogAddition) -> None:
    """Record the version, unless its number exists by now.

    The transaction that begins a log also clears its folder, as no other may write to it before.
    """
    with services.database.transaction() as cursor:
        if logs.add_version(cursor, table_id, addition) and addition.row.version == 0:
            clear_log(services, addition.root)


def _read_newest(services: Services, table_id: int) -> _NewestVersion | None:
    with services.database.reading() as cursor:
        log, row = logs.read_log(cursor, table_id), logs.read_newest_version(cursor, table_id)
    if log is None or row is None:
        return None
    return _NewestVersion(log, row, parse_metadata(log.metadata), parse_protocol(log.protocol))


def _build_addition(services: Services, table: TableVersion) -> LogAddition | None:
    """Build the next version that the log lacks; None if it lacks none.

    States that Delta can't express are skipped, except the last one if the table's present schema can express it.
    UnsupportedError: no state is left.
    """
    newest = _read_newest(services, table.row.table_id)
    if newest is None:
        return _build_version(services, table, None, _build_first(table))
    if newest.log.table_version > table.row.version:
        return None
    refusal: UnsupportedError | None = None
    for following in _list_pending(table, newest):
        try:
            return _build_version(services, table, newest, replace(following, is_next=refusal is None))
        except UnsupportedError as error:
            refusal, last = error, following
    if refusal is not None:
        if last.schema == table.metadata.schema():
            raise refusal
        return _build_version(services, table, newest, replace(last, schema=table.metadata.schema(), is_next=False))
    return _build_version(
        services, table, newest, _PendingState(None, table.row.last_updated_ms, table.metadata.schema())
    )


def _build_version(
    services: Services, table: TableVersion, newest: _NewestVersion | None, following: _PendingState
) -> LogAddition | None:
    """Build the version of a change; None if it would be empty."""
    root = newest.log.root if newest else canonicalize(table.metadata.location)
    base = None if newest is None else LoggedBase(root, newest.row.version, newest.row.snapshot_id)
    files = read_differences(services, table.state, base, root, following.snapshot)
    physical = _find_physical(services, table, newest, following, files)
    metadata = build_delta_metadata(
        table.metadata, following.schema, physical, _read_log_id(table), following.logged_ms
    )
    metadata = keep_unchanged(metadata, newest.metadata if newest else None)
    if newest is not None and following.is_metadata_alone and metadata == newest.metadata:
        return None
    has_vectors = any(held.positions for held in files.after.values())
    protocol = build_protocol(metadata, has_vectors=has_vectors, before=newest.protocol if newest else None)
    said = LoggedDefinition(
        following.schema,
        physical,
        None if newest is not None and metadata == newest.metadata else metadata,
        None if newest is not None and protocol == newest.protocol else protocol,
    )
    row = _build_row(following, newest)
    moment = MainMoment(row.version, metadata.id, row.timestamp_ms, following.snapshot, is_alone=not following.is_next)
    return _build_record(row, table, root, metadata, protocol, build_next_version(moment, files, said))


def _build_row(following: _PendingState, newest: _NewestVersion | None) -> VersionRow:
    """Build the version's row. A version of metadata alone doesn't change main, so the next one starts from there."""
    snapshot_id = following.snapshot.snapshot_id if following.snapshot else None
    if newest is None:
        return VersionRow(0, snapshot_id, following.logged_ms, following.logged_ms)
    version, at = newest.row.version + 1, max(following.logged_ms, newest.row.timestamp_ms + 1)
    if following.is_metadata_alone:
        return VersionRow(version, newest.row.snapshot_id, newest.row.logged_ms, at)
    return VersionRow(version, snapshot_id, following.logged_ms, at)


def _build_record(
    row: VersionRow, table: TableVersion, root: str, metadata: Metadata, protocol: Protocol, new: NewVersion
) -> LogAddition:
    vectors = {
        path: None if known is None else (known.digest, encode_vector(known.vector))
        for path, known in new.vectors.items()
    }
    vectors_path, data = (None, None) if new.file is None else (new.file.path, new.file.data)
    files = LoggedVersion(row.version, encode_commit(new.commit), vectors_path, data)
    parts = encode_protocol(protocol), encode_metadata(metadata)
    return LogAddition(row, table.row.version, root, *parts, files, vectors)


def _read_log_id(table: TableVersion) -> str:
    """Read the log's id from the metadata.json's name: a restored Postgres counts the same versions again."""
    return str(uuid5(UUID(table.row.table_uuid), f"delta log of {table.location.rpartition('/')[2]}"))


def _build_first(table: TableVersion) -> _PendingState:
    """Build the first version: main's present state."""
    log, current = table.state.snapshot_log, table.state.current()
    since = log[-1][1] if log and current is not None else table.row.last_updated_ms
    return _PendingState(current, since, table.metadata.schema())


def _list_pending(table: TableVersion, newest: _NewestVersion) -> Iterator[_PendingState]:
    """Yield the states that the log lacks, the oldest first."""
    listed = {snapshot.snapshot_id: snapshot for snapshot in table.state.snapshots}
    schemas = {schema.schema_id: schema for schema in table.metadata.schemas}
    for snapshot_id, logged_ms in _list_logged_since(table.state, newest.row):
        if snapshot_id in listed:
            snapshot = listed[snapshot_id]
            schema = None if snapshot.schema_id is None else schemas.get(snapshot.schema_id)
            yield _PendingState(snapshot, logged_ms, schema or table.metadata.schema())


def _list_logged_since(state: TableState, row: VersionRow) -> Iterator[tuple[int, int]]:
    """Yield main's states since that version, by its snapshot log.

    If that doesn't go back so far, yield only the present state.
    """
    log = state.snapshot_log
    if row.snapshot_id is None:
        yield from log
        return
    at = next((at for at in range(len(log), 0, -1) if log[at - 1] == (row.snapshot_id, row.logged_ms)), None)
    if at is not None:
        yield from log[at:]
    elif log and state.row.current_snapshot_id != row.snapshot_id:
        yield log[-1]


def _find_physical(
    services: Services,
    table: TableVersion,
    newest: _NewestVersion | None,
    following: _PendingState,
    files: FileDifference,
) -> dict[int, str]:
    """Find the names in files of columns that have other names in the schema.

    The names in files of the newest version are known. Only if other files disagree, or there are new columns whose
    names former ones may have in a file, all files are read.
    """
    snapshot = table.state.current() if following.is_metadata_alone else following.snapshot
    if snapshot is None or has_plain_names(table.metadata.schemas):
        return {}
    known = (
        {} if newest is None else read_logged_names(parse_schema(newest.metadata.schema_string), table.metadata.schemas)
    )
    if collect_named_ids(following.schema) <= set(known.values()):
        with suppress(UnsupportedError):
            new = read_names_in_files(services, table, (held.file.path for held in files.after.values()))
            return find_physical_names(following.schema, [("the Delta log", known), *new])
    return find_physical_names(following.schema, read_names_in_files(services, table, list_paths(services, snapshot)))


def export_delta_log(services: Services, name: str) -> LogRow:
    """Bring the log of the table `namespace.table` up to date, with all its files; return it.

    Raises NoSuchTableError, InvalidRequestError without `delta.enabled`, and UnsupportedError if Delta can't express
    the table.
    """
    schema, _, table_name = name.rpartition(".")
    table = load_current_table(services, parse_schema_name(schema), table_name)
    if not is_enabled(table.metadata.properties):
        raise InvalidRequestError(f"{name} has no Delta log: set its table property {DELTA_ENABLED} to true")
    log = update_delta_log(services, table)
    repair_log(services, table.row.table_id)
    return log
