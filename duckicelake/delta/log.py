"""A Delta table's log, read: its versions, their commits and what the table holds at them."""

from collections.abc import Iterator

from duckicelake.delta.actions import Commit, DeletionVector, DeltaSnapshot, Metadata
from duckicelake.delta.checkpoints import read_checkpoint
from duckicelake.delta.commit_files import Actions, read_actions
from duckicelake.delta.features import check_readable
from duckicelake.delta.listing import FOLDER, Listing, listing_of
from duckicelake.delta.replay import Replay
from duckicelake.delta.segments import Segment, check_version, newest, oldest, segments
from duckicelake.delta.store import LogStore
from duckicelake.delta.times import InCommitTimes, file_times, in_commit_times, shown
from duckicelake.delta.vectors import damaged, file_of, positions_in
from duckicelake.errors import DamagedLog, FileMissing, Forgotten, InvalidRequest, NotDelta


class DeltaLog:
    """The log of the table whose folder is `root`; it is listed at the start, and again when news is asked for.

    Raises NotDelta if there is none. Every method raises DamagedLog naming the file that is torn or missing, and
    Unsupported for a table that uses what isn't read here.
    """

    def __init__(self, store: LogStore, root: str) -> None:
        self.root = root.rstrip("/") or root
        self._store = store
        self._vectors: tuple[str, bytes] = ("", b"")
        self._in_commit: tuple[int, InCommitTimes] | None = None
        self._list()

    def newest(self) -> int:
        """The newest version there is now."""
        self._list()
        return newest(self._listing)

    def oldest(self) -> int:
        """The oldest version from which on every one can be told."""
        return oldest(self._listing)

    def snapshot(self, version: int | None = None) -> DeltaSnapshot:
        """The table as it is at a version, the newest if none is named; Forgotten or InvalidRequest if it can't be."""
        wanted = self.newest() if version is None else version
        self._have(wanted)
        check_version(self._listing, wanted)
        replay = self._replay(wanted)
        snapshot = replay.snapshot(self.root, wanted, self._time(wanted))
        check_readable(snapshot.protocol, self.root, wanted)
        return snapshot

    def commits(self, after: int, upto: int) -> Iterator[Commit]:
        """The versions `after` + 1 … `upto` in order, each read when it is asked for."""
        self._have(upto)
        if after < upto:
            check_version(self._listing, upto)
        times = file_times(self._listing, oldest(self._listing))
        in_commit = self._in_commit_times()
        for version in range(after + 1, upto + 1):
            yield self._commit(version, times.get(version), in_commit)

    def version_at(self, timestamp_ms: int) -> int:
        """The newest version that was there at a time, as Delta's TIMESTAMP AS OF answers.

        Before the oldest version that can be told, and after the newest, there is no answer: Forgotten, InvalidRequest.
        """
        first, last = self.oldest(), newest(self._listing)
        self._check_time(timestamp_ms, first, last)
        in_commit = self._in_commit_times()
        since = in_commit.since_version
        if since is None or since > last:
            return self._latest(timestamp_ms, first, last)
        if since <= first or timestamp_ms >= in_commit.since_ms:
            return self._latest(timestamp_ms, max(first, since), last)
        return self._latest(timestamp_ms, first, since - 1)

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
            self._vectors = location, self._store.read(location)
        return self._vectors[1]

    def _check_time(self, timestamp_ms: int, first: int, last: int) -> None:
        if timestamp_ms < self._time(first):
            kind = InvalidRequest if first == 0 else Forgotten
            raise kind(
                f"{self.root} wasn't there at {shown(timestamp_ms)}, as far as its log tells: "
                f"version {first}, the oldest, is of {shown(self._time(first))}"
            )
        if timestamp_ms > self._time(last):
            raise InvalidRequest(
                f"{shown(timestamp_ms)} is after the newest version of {self.root}, "
                f"which is {last} of {shown(self._time(last))}: leave the time out to read that"
            )

    def _latest(self, timestamp_ms: int, first: int, last: int) -> int:
        """The last version of those that isn't later, by bisection: times increase."""
        while first < last:
            middle = (first + last + 1) // 2
            first, last = (middle, last) if self._time(middle) <= timestamp_ms else (first, middle - 1)
        return first

    def _list(self) -> None:
        self._listing: Listing = listing_of(self.root, self._store.files_below(f"{self.root}/{FOLDER}"))
        if self._listing.newest is None and not self._listing.torn:
            raise NotDelta(f"{self.root} isn't a Delta table: {self.root}/{FOLDER} has no log in it")

    def _have(self, version: int) -> None:
        """List anew if the version wasn't there yet."""
        if self._listing.newest is None or version > self._listing.newest:
            self._list()

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
            replay.take(read_checkpoint(self._store, self.root, segment.checkpoint))
        for file in segment.tail:
            replay.take(self._actions(file.location))
        return replay

    def _actions(self, location: str) -> Actions:
        try:
            return read_actions(self._store.read(location), location)
        except FileMissing as error:
            raise DamagedLog(f"{location} was there when the log was listed, and is no longer") from error

    def _commit(self, version: int, file_time: int | None, in_commit: InCommitTimes) -> Commit:
        if version not in self._listing.commits:
            raise DamagedLog(
                f"{self._listing.commit_name(version)} is missing: what version {version} did can't be told"
            )
        actions = self._actions(self._listing.commits[version].location)
        if actions.protocol is not None:
            check_readable(actions.protocol, self.root, version)
        return Commit(
            version,
            self._stated(actions, version) if in_commit.has(version) or file_time is None else file_time,
            tuple(actions.adds),
            tuple(actions.removes),
            actions.metadata,
            actions.protocol,
            tuple(actions.txns),
            tuple(actions.domains),
            actions.info,
        )

    def _stated(self, actions: Actions, version: int) -> int:
        stated = actions.info.get("inCommitTimestamp")
        if not isinstance(stated, int):
            raise DamagedLog(
                f"{self._listing.commit_name(version)} has no commitInfo with an inCommitTimestamp, "
                "which the table's property delta.enableInCommitTimestamps promises"
            )
        return stated

    def _time(self, version: int) -> int:
        in_commit = self._in_commit_times()
        if in_commit.has(version) and version in self._listing.commits:
            return self._stated(self._actions(self._listing.commits[version].location), version)
        return file_times(self._listing, oldest(self._listing))[version]

    def _in_commit_times(self) -> InCommitTimes:
        """As the newest metadata has it; only what has come since it was last asked for is read again."""
        last = newest(self._listing)
        if self._in_commit is None or self._in_commit[0] != last:
            known = -1 if self._in_commit is None else self._in_commit[0]
            found = self._metadata_since(known, last)
            times = self._in_commit[1] if self._in_commit is not None and found is None else InCommitTimes()
            self._in_commit = last, in_commit_times(found) if found is not None else times
        return self._in_commit[1]

    def _metadata_since(self, known: int, last: int) -> Metadata | None:
        """The newest metadata of the versions after `known`; None if they don't set any."""
        for version in range(last, known, -1):
            if version in self._listing.commits:
                location = self._listing.commits[version].location
                data = self._store.read(location)
                found = read_actions(data, location).metadata if b'"metaData"' in data else None
                if found is not None:
                    return found
            for checkpoint in self._listing.checkpoints.get(version, ()):
                return read_checkpoint(self._store, self.root, checkpoint).metadata
        return None
