"""The files of one table's log, read and understood; DamagedLog names the one that is torn or has gone.

InvalidRequest names a commit that is too long to be read.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from duckicelake.delta.actions import Metadata
from duckicelake.delta.checkpoints import read_checkpoint, read_metadata
from duckicelake.delta.commit_files import Actions, read_actions
from duckicelake.delta.listing import FOLDER, Checkpoint, Listing, has_hole, listing_of
from duckicelake.delta.store import LogStore
from duckicelake.errors import DamagedLog, FileMissing

_AHEAD: Final = 8
"""Files that are fetched before they are asked for, where each takes a round trip."""
_LONGEST: Final = 1 << 29
"""Bytes of a commit, which is in memory as a whole, and more than once: a million files, say."""


class LogFiles:
    """What `_delta_log` of the table whose folder is `root` holds."""

    def __init__(self, store: LogStore, root: str) -> None:
        self.store = store
        self.root = root

    def listing(self) -> Listing:
        """All there is now. It is listed twice if a commit seems missing: one made meanwhile can be passed over."""
        found = self._listed()
        return self._listed() if has_hole(found) else found

    def _listed(self) -> Listing:
        return listing_of(self.root, self.store.files_below(f"{self.root}/{FOLDER}"))

    def actions(self, location: str) -> Actions:
        """What a commit or a compaction says."""
        return read_actions(self._read(location), location)

    def all_actions(self, locations: Sequence[str]) -> Iterator[Actions]:
        """What each says, in order; a few at a time are in memory."""
        for location, data in zip(locations, self._read_all(locations), strict=True):
            yield read_actions(data, location)

    def checkpoint(self, checkpoint: Checkpoint) -> Iterator[Actions]:
        """The state that a checkpoint holds, some of it at a time."""
        return read_checkpoint(self.store, self.root, checkpoint)

    def checkpoint_metadata(self, checkpoint: Checkpoint) -> Metadata | None:
        """What it holds of that alone."""
        return read_metadata(self.store, checkpoint)

    def metadata_of(self, locations: Sequence[str]) -> Iterator[Metadata | None]:
        """What each commit sets of it; None for one that sets nothing, or can't be understood."""
        for location, data in zip(locations, self._read_all(locations), strict=True):
            found = None
            if b'"metaData"' in data:
                with suppress(DamagedLog):
                    found = read_actions(data, location).metadata
            yield found

    def _read(self, location: str) -> bytes:
        try:
            return self.store.read(location, _LONGEST)
        except FileMissing as error:
            raise DamagedLog(f"{location} was there when the log was listed, and is no longer") from error

    def _read_all(self, locations: Sequence[str]) -> Iterator[bytes]:
        if not locations or self.store.local_path(locations[0]) is not None:
            yield from map(self._read, locations)
            return
        with ThreadPoolExecutor(_AHEAD) as pool:
            waiting: deque[Future[bytes]] = deque()
            for location in locations:
                waiting.append(pool.submit(self._read, location))
                if len(waiting) == _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
