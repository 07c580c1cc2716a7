"""Keeps the Delta log of a table in step with main: a version for each state that main has had since it was enabled.

What a version says is recorded first, in a transaction that only one can make the next version in; then its files are
written, from the record, by anybody: so racing workers write the same bytes, and what is lost can be written again.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from duckicelake.bridge.delta.out_commits import Files, Moment, NewVersion, Said, next_version
from duckicelake.bridge.delta.out_definition import as_before, check_sayable, delta_metadata, protocol_for
from duckicelake.bridge.delta.out_names import are_names_plain, ids_of_names, names_told, physical_names
from duckicelake.catalog.delta.log_files import OtherLog, clear, publish, remove
from duckicelake.catalog.delta.log_states import Base, differences, names_in_files, paths_at
from duckicelake.catalog.loads.cache import Materialized
from duckicelake.catalog.services import Services
from duckicelake.delta.actions import Metadata, Protocol
from duckicelake.delta.parsing import metadata_of, protocol_of
from duckicelake.delta.schema import parse_schema
from duckicelake.delta.writing import encode_commit, metadata_json, protocol_json, vector_json
from duckicelake.errors import Unsupported
from duckicelake.iceberg.schema import Schema
from duckicelake.lake import delta_logs
from duckicelake.lake.delta_logs import Addition, LogRow, VersionRow, WrittenVersion
from duckicelake.lake.snapshots import retrying
from duckicelake.lake.state import SnapshotRow, TableState
from duckicelake.storage.policy import canonical


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest version of a log, and what its table was."""

    log: LogRow
    row: VersionRow
    metadata: Metadata
    protocol: Protocol


@dataclass(frozen=True, slots=True)
class _Next:
    """What the next version is to tell: the snapshot that main named since `logged_ms`; None: of metadata alone.

    is_next: it is what main was directly after the newest version.
    """

    snapshot: SnapshotRow | None
    logged_ms: int
    schema: Schema
    is_next: bool = True

    @property
    def is_metadata_alone(self) -> bool:
        return self.snapshot is None


def keep_in_step(services: Services, table: Materialized) -> LogRow:
    """Bring the table's log up to this version of it, all files written; the log.

    It begins anew in another location, and where its files tell of commits that a restored Postgres doesn't know.

    Raises Unsupported, and notes it with the log, where Delta can't say what the table has become: the log stays as it
    is until a state of the table can be said again.
    """
    services.database.gate.require_open()
    table_id = table.row.table_id
    with services.database.reading() as cursor:
        log = delta_logs.log(cursor, table_id)
    if log is None or not _has_looked_at(log, table):
        if log is not None and log.root != canonical(table.metadata.location):
            remove(services, table_id)
        _catch_up(services, table)
    elif log.problem is not None:
        raise Unsupported("delta-out", log.problem)
    try:
        return publish(services, table_id)
    except OtherLog:
        remove(services, table_id)
        _catch_up(services, table)
        return publish(services, table_id)


def _has_looked_at(log: LogRow, table: Materialized) -> bool:
    """Whether there is nothing in this version of the table that isn't in the log; others may have brought a newer."""
    return log.table_version > table.row.version or (log.table_version == table.row.version and log.is_looked_at)


def _catch_up(services: Services, table: Materialized) -> None:
    try:
        check_sayable(table.metadata)
        while (addition := _addition(services, table)) is not None:
            retrying(lambda new=addition: _record(services, table.row.table_id, new))  # type: ignore[misc]
    except Unsupported as error:
        _looked_at(services, table, str(error.args[1]))
        publish(services, table.row.table_id)
        raise
    _looked_at(services, table, None)


def _looked_at(services: Services, table: Materialized, problem: str | None) -> None:
    with services.database.transaction() as cursor:
        delta_logs.looked_at(cursor, table.row.table_id, table.row.version, problem)


def _record(services: Services, table_id: int, addition: Addition) -> None:
    """Record the version, unless there is one of that number by now.

    Who begins a log clears its folder meanwhile, as none must be able to write to it until then.
    """
    with services.database.transaction() as cursor:
        if delta_logs.add(cursor, table_id, addition) and addition.row.version == 0:
            clear(services, addition.root)


def _newest(services: Services, table_id: int) -> _Newest | None:
    with services.database.reading() as cursor:
        log, row = delta_logs.log(cursor, table_id), delta_logs.newest(cursor, table_id)
    if log is None or row is None:
        return None
    return _Newest(log, row, metadata_of(log.metadata), protocol_of(log.protocol))


def _addition(services: Services, table: Materialized) -> Addition | None:
    """The next version that the log lacks; None if it lacks none.

    States that Delta can't say are passed over, but for the last if it can with the schema that the table has by now;
    Unsupported if there is none after them.
    """
    newest = _newest(services, table.row.table_id)
    if newest is None:
        return _version(services, table, None, _first(table))
    if newest.log.table_version > table.row.version:
        return None
    refusal: Unsupported | None = None
    for following in _pending(table, newest):
        try:
            return _version(services, table, newest, replace(following, is_next=refusal is None))
        except Unsupported as error:
            refusal, last = error, following
    if refusal is not None:
        if last.schema == table.metadata.schema():
            raise refusal
        return _version(services, table, newest, replace(last, schema=table.metadata.schema(), is_next=False))
    return _version(services, table, newest, _Next(None, table.row.last_updated_ms, table.metadata.schema()))


def _version(services: Services, table: Materialized, newest: _Newest | None, following: _Next) -> Addition | None:
    """The version that tells of this; None if it would tell nothing."""
    root = newest.log.root if newest else canonical(table.metadata.location)
    base = None if newest is None else Base(root, newest.row.version, newest.row.snapshot_id)
    files = differences(services, table.state, base, root, following.snapshot)
    physical = _physical(services, table, newest, following, files)
    metadata = delta_metadata(table.metadata, following.schema, physical, _log_id(table), following.logged_ms)
    metadata = as_before(metadata, newest.metadata if newest else None)
    if newest is not None and following.is_metadata_alone and metadata == newest.metadata:
        return None
    has_vectors = any(held.positions for held in files.after.values())
    protocol = protocol_for(metadata, has_vectors=has_vectors, before=newest.protocol if newest else None)
    said = Said(
        following.schema,
        physical,
        None if newest is not None and metadata == newest.metadata else metadata,
        None if newest is not None and protocol == newest.protocol else protocol,
    )
    row = _row(following, newest)
    moment = Moment(row.version, metadata.id, row.timestamp_ms, following.snapshot, is_alone=not following.is_next)
    return _to_record(row, table, root, metadata, protocol, next_version(moment, files, said))


def _row(following: _Next, newest: _Newest | None) -> VersionRow:
    """Metadata alone leaves main what it is, so that what follows in its log is still told from there on."""
    snapshot_id = following.snapshot.snapshot_id if following.snapshot else None
    if newest is None:
        return VersionRow(0, snapshot_id, following.logged_ms, following.logged_ms)
    version, at = newest.row.version + 1, max(following.logged_ms, newest.row.timestamp_ms + 1)
    if following.is_metadata_alone:
        return VersionRow(version, newest.row.snapshot_id, newest.row.logged_ms, at)
    return VersionRow(version, snapshot_id, following.logged_ms, at)


def _to_record(
    row: VersionRow, table: Materialized, root: str, metadata: Metadata, protocol: Protocol, new: NewVersion
) -> Addition:
    vectors = {
        path: None if known is None else (known.digest, vector_json(known.vector))
        for path, known in new.vectors.items()
    }
    vectors_path, data = (None, None) if new.file is None else (new.file.path, new.file.data)
    files = WrittenVersion(row.version, encode_commit(new.commit), vectors_path, data)
    parts = protocol_json(protocol), metadata_json(metadata)
    return Addition(row, table.row.version, root, *parts, files, vectors)


def _log_id(table: Materialized) -> str:
    """The name of a metadata.json says what is in it: a Postgres that was restored counts the same versions again."""
    return str(uuid5(UUID(table.row.table_uuid), f"delta log of {table.location.rpartition('/')[2]}"))


def _first(table: Materialized) -> _Next:
    """All that main is at this moment."""
    log, current = table.state.snapshot_log, table.state.current()
    since = log[-1][1] if log and current is not None else table.row.last_updated_ms
    return _Next(current, since, table.metadata.schema())


def _pending(table: Materialized, newest: _Newest) -> Iterator[_Next]:
    """The states that aren't in the log, the oldest first."""
    listed = {snapshot.snapshot_id: snapshot for snapshot in table.state.snapshots}
    schemas = {schema.schema_id: schema for schema in table.metadata.schemas}
    for snapshot_id, logged_ms in _logged_since(table.state, newest.row):
        if snapshot_id in listed:
            snapshot = listed[snapshot_id]
            schema = None if snapshot.schema_id is None else schemas.get(snapshot.schema_id)
            yield _Next(snapshot, logged_ms, schema or table.metadata.schema())


def _logged_since(state: TableState, row: VersionRow) -> Iterator[tuple[int, int]]:
    """What main has been since that version, by its log; only what it is, where the log doesn't go back so far."""
    log = state.snapshot_log
    if row.snapshot_id is None:
        yield from log
        return
    at = next((at for at in range(len(log), 0, -1) if log[at - 1] == (row.snapshot_id, row.logged_ms)), None)
    if at is not None:
        yield from log[at:]
    elif log and state.row.current_snapshot_id != row.snapshot_id:
        yield log[-1]


def _physical(
    services: Services, table: Materialized, newest: _Newest | None, following: _Next, files: Files
) -> dict[int, str]:
    """What files call columns that aren't called so in the schema.

    What files of the newest version call them is known; only if the others disagree, or there are new columns, which
    might be called as a former one is in a file, all are asked.
    """
    snapshot = table.state.current() if following.is_metadata_alone else following.snapshot
    if snapshot is None or are_names_plain(table.metadata.schemas):
        return {}
    known = {} if newest is None else names_told(parse_schema(newest.metadata.schema_string), table.metadata.schemas)
    if ids_of_names(following.schema) <= set(known.values()):
        with suppress(Unsupported):
            new = names_in_files(services, table, (held.file.path for held in files.after.values()))
            return physical_names(following.schema, [("the Delta log", known), *new])
    return physical_names(following.schema, names_in_files(services, table, paths_at(services, snapshot)))
