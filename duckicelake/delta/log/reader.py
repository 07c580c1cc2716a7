"""Read a Delta table's log: its versions, their commits, and the table's content at each version."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from duckicelake.delta.log.actions import (
    AddFile,
    DeletionVector,
    DeltaCommit,
    DeltaSnapshot,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    Txn,
    check_readable,
)
from duckicelake.delta.log.clock import VersionClock, read_commit_time
from duckicelake.delta.log.decoder import LogActions
from duckicelake.delta.log.files import LogFiles
from duckicelake.delta.log.segments import (
    FOLDER,
    LogSegment,
    LogStore,
    check_version,
    find_newest_version,
    find_oldest_version,
    find_segments,
)
from duckicelake.delta.log.vectors import build_damage_error, decode_positions, locate_vector_file
from duckicelake.errors import DamagedLogError, FileMissingError, NoDeltaLogError


@dataclass(slots=True)
class LogReplay:
    """A table's state so far. Later actions replace earlier ones of the same file, application or domain."""

    files: dict[FileKey, AddFile] = field(default_factory=dict)
    txns: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    metadata: Metadata | None = None
    protocol: Protocol | None = None

    def take(self, actions: LogActions) -> None:
        """Apply a file of the log, or a part of it. It holds no two actions on the same object."""
        for removed in actions.removes:
            self.files.pop(removed.key, None)
        for added in actions.adds:
            self.files[added.key] = added
        self.txns.update((txn.app_id, txn) for txn in actions.txns)
        for domain in actions.domains:
            self.domains.pop(domain.domain, None)
            if not domain.removed:
                self.domains[domain.domain] = domain
        self.metadata = actions.metadata or self.metadata
        self.protocol = actions.protocol or self.protocol

    def snapshot(self, root: str, version: int, timestamp_ms: int) -> DeltaSnapshot:
        """Return the state; DamagedLogError: the log has no protocol or metadata."""
        if self.metadata is None or self.protocol is None:
            lacking = "metaData" if self.metadata is None else "protocol"
            raise DamagedLogError(
                f"the log of {root} has no {lacking} up to version {version}: every table's first has one"
            )
        return DeltaSnapshot(version, timestamp_ms, self.protocol, self.metadata, self.files, self.txns, self.domains)


class DeltaLog:
    """The log of the table in the folder `root`. It is listed at the start, and for each question about news.

    Raises NoDeltaLogError if there is none. Each method raises DamagedLogError, which names a torn or missing file, and
    UnsupportedError for a table that needs other features. Use it in one thread at a time.
    """

    def __init__(self, store: LogStore, root: str) -> None:
        self.root = root.rstrip("/") or root
        self._files = LogFiles(store, self.root)
        self._clock: VersionClock | None = None
        self._vectors: tuple[str, bytes] = ("", b"")
        self._list()

    def newest(self) -> int:
        """Return the newest version now."""
        self._list()
        return find_newest_version(self._listing)

    def has_next(self, version: int) -> bool:
        """Return whether the next version is there.

        Looks for its file by name, so that waiting lists nothing.
        """
        try:
            self._files.store.size(self._listing.commit_name(version + 1))
        except FileMissingError:
            return False
        return True

    def oldest(self) -> int:
        """Return the oldest version from which on all are readable."""
        return find_oldest_version(self._listing)

    def snapshot(self, version: int | None = None) -> DeltaSnapshot:
        """Return the table at a version, by default the newest.

        Raises ExpiredError or InvalidRequestError if the log lacks it.
        """
        wanted = self.newest() if version is None else version
        self._have(wanted)
        check_version(self._listing, wanted)
        snapshot = self._replay(wanted).snapshot(self.root, wanted, self._times().time(wanted))
        check_readable(snapshot.protocol, self.root, wanted)
        return snapshot

    def commits(self, after: int, upto: int) -> Iterator[DeltaCommit]:
        """Yield the versions `after` + 1 … `upto` in order, read one by one.

        DamagedLogError names a missing one.
        """
        self._have(upto)
        if after < upto:
            check_version(self._listing, upto)
        versions, clock = range(after + 1, upto + 1), self._times()
        there = list(takewhile(self._listing.commits.__contains__, versions))
        read = self._files.all_actions([self._listing.commits[version].location for version in there])
        for version, actions in zip(there, read, strict=True):
            yield self._commit(version, actions, clock)
        if len(there) < len(versions):
            missing = versions[len(there)]
            name = self._listing.commit_name(missing)
            raise DamagedLogError(f"{name} is missing: the changes of version {missing} are unknown")

    def version_at(self, timestamp_ms: int) -> int:
        """Return the newest version at a time, as Delta's TIMESTAMP AS OF does.

        Before the oldest readable version it raises ExpiredError, after the newest InvalidRequestError.
        """
        return self._times().version_at(timestamp_ms)

    def positions(self, vector: DeletionVector, data_path: str) -> bytes:
        """Read the positions that a vector deletes from a data file, as a portable 64-bit roaring bitmap."""
        try:
            return decode_positions(vector, self._vector_file(vector))
        except (ValueError, IndexError, FileMissingError) as error:
            raise build_damage_error(self.root, vector, data_path, error) from error

    def _vector_file(self, vector: DeletionVector) -> bytes | None:
        """Read the whole file of a vector.

        The last file is cached, since a commit writes the vectors of many data files into one.
        """
        location = locate_vector_file(self.root, vector)
        if location is None:
            return None
        if self._vectors[0] != location:
            self._vectors = location, self._files.store.read(location)
        return self._vectors[1]

    def _list(self) -> None:
        try:
            self._listing = self._files.listing()
        except FileMissingError as error:
            raise NoDeltaLogError(
                f"{self.root} isn't a Delta table: it is a file, and a Delta table is a folder"
            ) from error
        if self._listing.newest is None and not self._listing.torn:
            raise NoDeltaLogError(f"{self.root} isn't a Delta table: there is no {self.root}/{FOLDER}, or no log in it")

    def _have(self, version: int) -> None:
        """List again if the version wasn't there yet."""
        if self._listing.newest is None or version > self._listing.newest:
            self._list()

    def _times(self) -> VersionClock:
        if self._clock is None or not self._clock.belongs_to(self._listing):
            self._clock = VersionClock(self._files, self._listing, self._clock)
        return self._clock

    def _replay(self, version: int) -> LogReplay:
        """Replay the log from the newest checkpoint, or from an earlier one if that is torn, as Delta does."""
        first: DamagedLogError | None = None
        for segment in find_segments(self._listing, version):
            try:
                return self._replay_segment(segment)
            except DamagedLogError as error:
                first = first or error
        raise first or DamagedLogError(f"the log of {self.root} has no way to version {version}")

    def _replay_segment(self, segment: LogSegment) -> LogReplay:
        replay = LogReplay()
        if segment.checkpoint is not None:
            for actions in self._files.checkpoint(segment.checkpoint):
                replay.take(actions)
        for actions in self._files.all_actions([file.location for file in segment.tail]):
            replay.take(actions)
        return replay

    def _commit(self, version: int, actions: LogActions, clock: VersionClock) -> DeltaCommit:
        if actions.protocol is not None:
            check_readable(actions.protocol, self.root, version)
        stated = clock.in_commit.has(version)
        name = self._listing.commits[version].location
        return DeltaCommit(
            version,
            read_commit_time(actions.info, name) if stated else clock.file_time(version),
            tuple(actions.adds),
            tuple(actions.removes),
            actions.metadata,
            actions.protocol,
            tuple(actions.txns),
            tuple(actions.domains),
            actions.info,
        )
