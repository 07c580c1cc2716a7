"""Commits to one table: check the requirements, apply the updates, write the difference (design, "A commit walks").

Everything is computed outside the lock, from a base that the writer checks again under it. If the base has moved, the
commit is computed again: what still holds is committed on the new base, what does not is the client's conflict.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from duckicelake.bridge.clock import on_our_clock
from duckicelake.bridge.diff import Base, Increment, change_set
from duckicelake.bridge.manifests import ListedManifest
from duckicelake.bridge.project import DUCKLAKE_ID
from duckicelake.bridge.renumber import Renumbered, aliases_of, renumber
from duckicelake.bridge.supported import check_format_version, new_on_main
from duckicelake.bridge.uploads import new_files
from duckicelake.catalog.cache import CachedTable, Materialized
from duckicelake.catalog.deletes import resolve_deletes
from duckicelake.catalog.ids import file_ids, manifest_ids
from duckicelake.catalog.listing import listed_manifests
from duckicelake.catalog.loading import current_table, refresh
from duckicelake.catalog.releasing import release_files
from duckicelake.catalog.services import Services
from duckicelake.catalog.uploads import main_list, read_upload
from duckicelake.errors import AlreadyExists, CatalogError, CommitFailed, CommitStateUnknown, Unavailable
from duckicelake.iceberg.apply import apply, check
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.names import Namespace, schema_name
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.lake import native, writer
from duckicelake.lake.changes import ChangeSet, Creation
from duckicelake.lake.files import StaleBase
from duckicelake.lake.snapshots import queue, queue_alone, retrying

ATTEMPTS = 50
PLAIN = Renumbered((), (), {})
SHARED_ATTEMPTS = 3
"""After so many attempts that others overtook, a commit takes a turn of its own."""


def commit(services: Services, namespace: Namespace, name: str, request: CommitTableRequest) -> Materialized:
    """Commit to an existing table; the committed version, all files written.

    Raises NoSuchTable, CommitFailed for a requirement that doesn't hold, InvalidRequest, Unsupported.
    """
    for attempt in range(ATTEMPTS):
        alone = attempt >= SHARED_ATTEMPTS
        with _turn(services, alone=alone):
            cached = current_table(services, namespace, name)
            renumbered = _renumbered(services, request, cached)
            base = cached.materialized.metadata
            check(renumbered.requirements, base)
            target = _applied(services, base, renumbered)
            if target is base or _only_says_ours(base, target):
                return cached.materialized
            try:
                table_id = _commit_over(services, cached, target, renumbered, alone=alone)
            except StaleBase:
                continue
        return committed(services, table_id)
    raise Unavailable(f"Other writers changed {'.'.join(namespace)}.{name} {ATTEMPTS} times in a row; try again")


def create(services: Services, namespace: Namespace, name: str, request: CommitTableRequest) -> Materialized:
    """Commit a table that doesn't exist yet, with `assert-create` among the requirements."""
    for _ in range(ATTEMPTS):
        renumbered = _renumbered(services, request, None)
        check(renumbered.requirements, None)
        target = _applied(services, None, renumbered)
        try:
            return create_from(services, namespace, name, target, renumbered)
        except AlreadyExists:
            raise CommitFailed("Requirement failed: table already exists") from None
        except StaleBase:
            continue
    raise Unavailable(f"Other writers were faster {ATTEMPTS} times in a row; try again")


def create_from(
    services: Services, namespace: Namespace, name: str, target: TableMetadata, renumbered: Renumbered = PLAIN
) -> Materialized:
    """Create a table with this metadata; AlreadyExists, NoSuchNamespace, InvalidRequest."""
    check_format_version(target)
    services.policy.check_table_location(target.location)
    base = Base()
    increments = _increments(services, base, target, renumbered)
    creation = Creation(schema_name(namespace), name, target.table_uuid)
    change = change_set(base, target, increments, manifest_ids(services), creation)
    return committed(services, _write(services, change))


def committed(services: Services, table_id: int) -> Materialized:
    """The newest version of a table after COMMIT: from here on no failure may look as if nothing was written."""
    try:
        return refresh(services, table_id).materialized
    except CatalogError as error:
        raise CommitStateUnknown(f"The commit was written, but its metadata files were not yet: {error}") from error


@contextmanager
def _turn(services: Services, *, alone: bool) -> Iterator[None]:
    """Compute and write while no other commit may be written, if asked to."""
    if not alone:
        yield
        return
    with services.commit_turn, services.database.transaction() as cursor:
        queue_alone(cursor)
        yield


def _renumbered(services: Services, request: CommitTableRequest, cached: CachedTable | None) -> Renumbered:
    if services.snapshot_ids == "client":
        return Renumbered(request.requirements, request.updates, {})
    if cached is None:
        with services.database.reading() as cursor:
            newest = native.newest_snapshot(cursor)
        return renumber(request.requirements, request.updates, None, {}, newest + 1)
    aliases = aliases_of(cached.materialized.state.snapshots)
    base = cached.materialized.metadata
    return renumber(request.requirements, request.updates, base, aliases, cached.checked_upto + 1)


def _applied(services: Services, base: TableMetadata | None, renumbered: Renumbered) -> TableMetadata:
    now = services.clock()
    return apply(base, on_our_clock(renumbered.updates, base, now), now)


def _only_says_ours(base: TableMetadata, target: TableMetadata) -> bool:
    """Whether the request changes nothing but the property that the server says itself."""
    ours = {**target.properties, DUCKLAKE_ID: base.properties[DUCKLAKE_ID]}
    return (
        ours == base.properties
        and target.replaced(properties=base.properties, last_updated_ms=base.last_updated_ms) == base.replaced()
    )


def _commit_over(
    services: Services, cached: CachedTable, target: TableMetadata, renumbered: Renumbered, *, alone: bool
) -> int:
    check_format_version(target)
    row = cached.materialized.row
    if target.location != row.location:
        services.policy.check_table_location(target.location)
    base = _base(services, cached)
    increments = _increments(services, base, target, renumbered)
    loaded = replace(base, manifests=_to_rewrite(services, base, increments))
    change = change_set(loaded, target, increments, manifest_ids(services))
    table_id = _write(services, change, alone=alone)
    if change.target.removed_snapshots:
        _release(services, table_id)
    return table_id


def _release(services: Services, table_id: int) -> None:
    """Best effort: the commit is done, and the next release takes what this one leaves."""
    with suppress(Unavailable):
        release_files(services, table_id)


def _to_rewrite(services: Services, base: Base, increments: Sequence[Increment]) -> tuple[ListedManifest, ...]:
    """The base's manifests, those that hold removed files with their files."""
    removed = [row.file_id for increment in increments for row in increment.upload.removed]
    with services.database.reading() as cursor:
        return listed_manifests(cursor, [manifest.manifest_id for manifest in base.manifests], removed)


def _base(services: Services, cached: CachedTable) -> Base:
    row, state = cached.materialized.row, cached.materialized.state
    current = state.current()
    with services.database.reading() as cursor:
        definition = native.definition(cursor, row.table_id, max(cached.checked_upto, row.caught_up_to))
        return Base(
            table_id=row.table_id,
            version=row.version,
            caught_up_to=row.caught_up_to,
            metadata=cached.materialized.metadata,
            declared=definition.partition_keys if definition else (),
            manifests=listed_manifests(cursor, current.manifest_ids if current else (), ()),
            stats=native.table_stats(cursor, row.table_id),
            column_stats=native.table_column_stats(cursor, row.table_id),
        )


def _increments(services: Services, base: Base, target: TableMetadata, renumbered: Renumbered) -> list[Increment]:
    """The new snapshots of main with what their manifests and delete files say."""
    increments: list[Increment] = []
    ids, parent = file_ids(services), main_list(services, base.manifests)
    for snapshot in new_on_main(base.metadata, target):
        proposed_id = renumbered.proposed.get(snapshot.snapshot_id)
        read = read_upload(services, target, snapshot, proposed_id or snapshot.snapshot_id, parent)
        files = new_files(read.upload, target, ids)
        earlier = [(each.files, each.deletes) for each in increments]
        deletes = resolve_deletes(services, base.table_id, target.location, read.upload, files, base.manifests, earlier)
        expected = None if proposed_id is None else snapshot.snapshot_id
        increments.append(Increment(read.upload, files, deletes, proposed_id, expected))
        parent = read.as_parent(files)
    return increments


def _write(services: Services, change: ChangeSet, *, alone: bool = False) -> int:
    def attempt() -> int:
        with services.commit_turn, services.database.transaction() as cursor:
            if not alone:
                queue(cursor)
            return writer.write(cursor, change)

    return retrying(attempt)
