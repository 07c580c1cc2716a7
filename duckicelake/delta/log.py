"""A Delta table's log, read: its versions, their commits and what the table holds at them."""

from collections.abc import Iterator
from itertools import takewhile

from duckicelake.delta.actions import Commit, DeletionVector, DeltaSnapshot
from duckicelake.delta.clock import Clock
from duckicelake.delta.commit_files import Actions
from duckicelake.delta.features import check_readable
from duckicelake.delta.files import LogFiles
from duckicelake.delta.listing import FOLDER
from duckicelake.delta.replay import Replay
from duckicelake.delta.segments import Segment, check_version, newest, oldest, segments
from duckicelake.delta.store import LogStore
from duckicelake.delta.times import stated_time
from duckicelake.delta.vectors import damaged, file_of, positions_in
from duckicelake.errors import DamagedLog, FileMissing, NotDelta


class DeltaLog:
    """The log of the table whose folder is `root`; it is listed at the start, and again when news is asked for.

    Raises NotDelta if there is none. Every method raises DamagedLog naming the file that is torn or missing, and
    Unsupported for a table that uses what isn't read here. One thread at a time.
    """

    def __init__(self, store: LogStore, root: str) -> None:
        self.root = root.rstrip("/") or root
        self._files = LogFiles(store, self.root)
        self._clock: Clock | None = None
        self._vectors: tuple[str, bytes] = ("", b"")
        self._list()

    def newest(self) -> int:
        """The newest version there is now."""
        self._list()
        return newest(self._listing)

    def has_next(self, version: int) -> bool:
        """Whether the version after one is there: one look at its file by name, so that waiting lists nothing."""
        try:
            self._files.store.size(self._listing.commit_name(version + 1))
        except FileMissing:
            return False
        return True

    def oldest(self) -> int:
        """The oldest version from which on every one can be told."""
        return oldest(self._listing)

    def snapshot(self, version: int | None = None) -> DeltaSnapshot:
        """The table as it is at a version, the newest if none is named; Forgotten or InvalidRequest if it can't be."""
        wanted = self.newest() if version is None else version
        self._have(wanted)
        check_version(self._listing, wanted)
        snapshot = self._replay(wanted).snapshot(self.root, wanted, self._times().time(wanted))
        check_readable(snapshot.protocol, self.root, wanted)
        return snapshot

    def commits(self, after: int, upto: int) -> Iterator[Commit]:
        """The versions `after` + 1 … `upto` in order, each when it is asked for; DamagedLog names a missing one."""
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
            raise DamagedLog(f"{name} is missing: what version {missing} did can't be told")

    def version_at(self, timestamp_ms: int) -> int:
        """The newest version that was there at a time, as Delta's TIMESTAMP AS OF answers.

        Before the oldest version that can be told, and after the newest, there is no answer: Forgotten, InvalidRequest.
        """
        return self._times().version_at(timestamp_ms)

    def positions(self, vector: DeletionVector, data_path: str) -> bytes:
        """The positions that a vector deletes from a data file, as a portable 64-bit roaring bitmap."""
        try:
            return positions_in(vector, self._vector_file(vector))
        except (ValueError, IndexError, FileMissing) as error:
            raise damaged(self.root, vector, data_path, error) from error

    def _vector_file(self, vector: DeletionVector) -> bytes | None:
        """The whole file; the last one is kept, since a commit writes the vectors of many data files into one."""
        location = file_of(self.root, vector)
        if location is None:
            return None
        if self._vectors[0] != location:
            self._vectors = location, self._files.store.read(location)
        return self._vectors[1]

    def _list(self) -> None:
        try:
            self._listing = self._files.listing()
        except FileMissing as error:
            raise NotDelta(f"{self.root} isn't a Delta table: it is a file, and a Delta table is a folder") from error
        if self._listing.newest is None and not self._listing.torn:
            raise NotDelta(f"{self.root} isn't a Delta table: there is no {self.root}/{FOLDER}, or no log in it")

    def _have(self, version: int) -> None:
        """List anew if the version wasn't there yet."""
        if self._listing.newest is None or version > self._listing.newest:
            self._list()

    def _times(self) -> Clock:
        if self._clock is None or not self._clock.is_of(self._listing):
            self._clock = Clock(self._files, self._listing, self._clock)
        return self._clock

    def _replay(self, version: int) -> Replay:
        """By the newest checkpoint, or an earlier one where that is torn, as Delta itself does."""
        first: DamagedLog | None = None
        for segment in segments(self._listing, version):
            try:
                return self._replayed(segment)
            except DamagedLog as error:
                first = first or error
        raise first or DamagedLog(f"the log of {self.root} has no way to version {version}")

    def _replayed(self, segment: Segment) -> Replay:
        replay = Replay()
        if segment.checkpoint is not None:
            for actions in self._files.checkpoint(segment.checkpoint):
                replay.take(actions)
        for actions in self._files.all_actions([file.location for file in segment.tail]):
            replay.take(actions)
        return replay

    def _commit(self, version: int, actions: Actions, clock: Clock) -> Commit:
        if actions.protocol is not None:
            check_readable(actions.protocol, self.root, version)
        stated = clock.in_commit.has(version)
        name = self._listing.commits[version].location
        return Commit(
            version,
            stated_time(actions.info, name) if stated else clock.file_time(version),
            tuple(actions.adds),
            tuple(actions.removes),
            actions.metadata,
            actions.protocol,
            tuple(actions.txns),
            tuple(actions.domains),
            actions.info,
        )
