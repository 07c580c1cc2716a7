"""Load the files of a folder or prefix as they come, each once. What was loaded is kept in the catalog alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal
from uuid import uuid4

from duckicelake.client.lake import Lake
from duckicelake.errors import (
    BadColumnError,
    BadInputError,
    BadSourceError,
    CatalogUnreachableError,
    JobConflictError,
    MissingTableError,
    OutOfMemoryError,
    PipelineError,
    format_count,
)
from duckicelake.file_import.archive import Archive
from duckicelake.file_import.load import create_table, load_files
from duckicelake.file_import.load_request import FileLoad, LoadSummary, LoadWatcher
from duckicelake.file_import.source_files import InputFile, check_name, find_format, is_unchanged, list_arrivals
from duckicelake.rest.client import encode_segment
from duckicelake.rest.http import Json

MAX_BATCH_FILES: Final = 1000
MAX_BATCH_BYTES: Final = 2 << 30
MAX_FAILURES: Final = 5
"""Failures in a row after which a watch that ends when it is idle gives up."""
_MAX_PAUSE_SECONDS: Final = 60.0
_MAX_ERROR_CHARACTERS: Final = 2000
EventKind = Literal["batch", "failed", "waiting"]


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What to watch.

    Attributes:
        load: how files are loaded; its locations are ignored.
        every_seconds: between listings.
        still_seconds: a file of this machine is left alone until it has not changed for so long.
        until_idle: end once every file is loaded or has failed.
        again: try files once more that failed before.

    """

    location: str
    load: FileLoad
    every_seconds: float = 5.0
    still_seconds: float = 5.0
    until_idle: bool = False
    archive: Archive | None = None
    again: bool = False


@dataclass(slots=True)
class WatchSummary:
    """What a watch has done so far."""

    batches: int = 0
    files: int = 0
    rows: int = 0
    quarantined: int = 0
    bytes: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """What a watch reports: a batch that was loaded, a file that failed, or why it waits."""

    kind: EventKind
    text: str
    batch: LoadSummary | None = None
    file: str | None = None


@dataclass(slots=True)
class _SeenFile:
    """A file as it was listed first. is_over: it is loaded, or has failed."""

    file: InputFile
    since: float
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class _Batch:
    """Files of one format that are loaded together."""

    format: str
    files: Sequence[InputFile]

    @property
    def halves(self) -> tuple[_Batch, _Batch]:
        middle = len(self.files) // 2
        return replace(self, files=self.files[:middle]), replace(self, files=self.files[middle:])


class FileWatch:
    """A watch of one folder or prefix. `run` goes on until it is idle, or for ever."""

    def __init__(
        self, lake: Lake, request: WatchRequest, watcher: LoadWatcher, report: Callable[[WatchEvent], None]
    ) -> None:
        self._lake, self._request, self._watcher, self._report = lake, request, watcher, report
        self._target = request.load.load.target
        self._known: dict[str, _SeenFile] = {}
        self._has_table = False
        self._has_looked = False
        self._failures = 0
        self.summary = WatchSummary()

    def run(self) -> WatchSummary:
        """Load what comes. Raises PipelineError for what waiting doesn't mend."""
        while True:
            is_idle = self._load_arrivals()
            if is_idle and self._request.until_idle:
                return self.summary
            time.sleep(self._choose_pause())

    def _choose_pause(self) -> float:
        every = self._request.every_seconds
        return every if not self._failures else max(every, min(_MAX_PAUSE_SECONDS, 2.0 ** min(self._failures, 6)))

    def _load_arrivals(self) -> bool:
        """List the files once and load what is complete; return whether nothing is left."""
        try:
            self._look()
            for batch in self._list_batches():
                self._load(batch)
        except (MissingTableError, BadInputError):
            raise
        except (CatalogUnreachableError, JobConflictError) as error:
            self._note_failure(error)
        except PipelineError as error:
            if type(error) is not PipelineError:
                raise
            self._note_failure(error)
        else:
            self._failures = 0
        return not self._failures and all(known.is_over for known in self._known.values())

    def _note_failure(self, error: PipelineError) -> None:
        """Wait longer after each failure in a row. Raises it instead if the watch is to end."""
        self._failures += 1
        if self._request.until_idle and self._failures >= MAX_FAILURES:
            raise error
        self._report(WatchEvent("waiting", str(error)))

    def _look(self) -> None:
        """List the files, and forget those that are gone."""
        now = time.monotonic()
        try:
            found = list_arrivals(self._request.location, self._request.load.format)
        except BadSourceError as error:
            if not self._has_looked:
                raise
            raise PipelineError(str(error)) from error  # a store that is away comes back
        self._has_looked = True
        before = self._known
        self._known = {file.name: before.get(file.name, _SeenFile(file, now)) for file in found}
        for file in found:
            if self._known[file.name].file != file:
                self._known[file.name] = _SeenFile(file, now)
            if file.name not in before:
                self._check_name(file)

    def _check_name(self, file: InputFile) -> None:
        try:
            check_name(file)
        except BadSourceError as error:
            self._note_bad(file, str(error))

    def _list_batches(self) -> Iterator[_Batch]:
        """Yield the complete files in batches of one format, those with the first names first."""
        by_format: dict[str, list[InputFile]] = {}
        for known in sorted(self._known.values(), key=lambda one: one.file):
            if not known.is_over and self._is_still(known):
                format_ = self._request.load.format or find_format(known.file.name)
                by_format.setdefault(str(format_), []).append(known.file)
        for format_, files in by_format.items():
            for group in _divide(files):
                yield _Batch(format_, group)

    def _is_still(self, known: _SeenFile) -> bool:
        """Return whether a file is complete: objects are, files that have not changed for some time may be."""
        if known.file.is_remote:
            return True
        age = time.time() - int(known.file.version) / 1000
        seen = time.monotonic() - known.since
        return max(age, seen) >= self._request.still_seconds

    def _load(self, batch: _Batch) -> None:
        """Load what of a batch no other has. A batch with a bad file is halved until that is alone."""
        if not self._has_table and not self._make_table(batch):
            return
        run_id = f"watch-{uuid4()}"
        mine = self._claim(run_id, batch)
        if not mine:
            return
        claimed = replace(batch, files=mine)
        try:
            self._load_claimed(run_id, claimed)
        except MissingTableError:
            raise
        except (BadInputError, OutOfMemoryError) as error:
            self._divide_or_fail(run_id, claimed, error)
        except BaseException:
            with suppress(PipelineError):
                self._end(run_id, None)
            raise

    def _divide_or_fail(self, run_id: str, batch: _Batch, error: PipelineError) -> None:
        if len(batch.files) > 1:
            self._end(run_id, None)
            for half in batch.halves:
                self._load(half)
            return
        (file,) = batch.files
        if not is_unchanged(file):
            self._end(run_id, None)
            return
        self._end(run_id, str(error))
        self._note_bad(file, str(error))

    def _note_bad(self, file: InputFile, error: str) -> None:
        self._known[file.name].is_over = True
        self.summary.failed += 1
        self._report(WatchEvent("failed", error, file=file.shown))

    def _make_table(self, batch: _Batch) -> bool:
        """Make the table unless it is there; return whether it is. Without one, bad files are kept in mind alone."""
        if self._lake.client.table_exists(self._target.namespace, self._target.table):
            self._has_table = True
            return True
        try:
            create_table(self._lake, replace(self._request.load, format=batch.format), self._watcher, batch.files)
        except (BadSourceError, BadColumnError, OutOfMemoryError) as error:
            if len(batch.files) > 1:
                return any(self._make_table(half) for half in batch.halves)
            self._note_bad(batch.files[0], str(error))
            return False
        self._has_table = True
        for known in self._known.values():
            if known.is_over and known.file.shown == known.file.name:
                known.is_over = False
                self.summary.failed -= 1
        return True

    def _claim(self, run_id: str, batch: _Batch) -> list[InputFile]:
        """Claim the files of a batch; return those that are ours now."""
        files = [{"name": one.name, "size": one.size, "version": one.version} for one in batch.files]
        body = {"run-id": run_id, "files": files, "again": self._request.again}
        claims = self._lake.client.post(self._build_path("file-batches"), body)["files"]
        mine = []
        unfinished: dict[str, None] = {}
        for file, claim in zip(batch.files, claims, strict=True):
            if claim["state"] == "claimed":
                mine.append(file)
            elif claim["state"] == "failed":
                self._note_bad(file, claim["error"])
            elif claim["state"] == "loaded" and claim.get("is-unfinished"):
                unfinished[claim["run-id"]] = None
            elif claim["state"] == "loaded":
                self._set_aside(file)
        for other in unfinished:
            self._finish(other, batch.format)
        return mine

    def _finish(self, run_id: str, format_: str) -> None:
        """Do what the loader of a committed batch left undone: keep bad rows, if the files are still as they were."""
        rows = self._lake.client.pages(self._build_path("files"), {"run-id": run_id})
        listed = [InputFile(row["name"], int(row["size"]), row["version"]) for page in rows for row in page["files"]]
        files = sorted(listed)
        known = {known.file for known in self._known.values()}
        try:
            if known.issuperset(files):
                self._load_claimed(run_id, _Batch(format_, files))
                return
        except BadInputError as error:
            self._report(WatchEvent("waiting", f"bad rows of run {run_id} can't be kept any more: {error}"))
        self._end(run_id, None)

    def _load_claimed(self, run_id: str, batch: _Batch) -> None:
        load = replace(
            self._request.load, run_id=run_id, format=batch.format, locations=(self._request.location,), epoch=0
        )
        summary = load_files(self._lake, load, self._watcher, files=batch.files)
        self._end(run_id, None)
        self.summary.batches += 1
        self.summary.files += summary.files
        self.summary.rows += summary.rows
        self.summary.quarantined += summary.quarantined
        self.summary.bytes += summary.bytes
        self._report(WatchEvent("batch", format_count(summary.files, "file"), batch=summary))
        for file in batch.files:
            self._set_aside(file)

    def _set_aside(self, file: InputFile) -> None:
        """Move a loaded file into the archive, if there is one."""
        self._known[file.name].is_over = True
        if self._request.archive is not None:
            self._request.archive.keep(file)

    def _end(self, run_id: str, error: str | None) -> Json:
        body = {} if error is None else {"error": error[:_MAX_ERROR_CHARACTERS].replace("\0", "\ufffd")}
        return self._lake.client.post(self._build_path("file-batches", encode_segment(run_id)), body)

    def _build_path(self, *segments: str) -> str:
        return self._lake.client.pipeline(self._target.namespace, self._target.table, *segments)


def _divide(files: Sequence[InputFile]) -> Iterator[list[InputFile]]:
    group: list[InputFile] = []
    size = 0
    for file in files:
        if group and (len(group) >= MAX_BATCH_FILES or size + file.size > MAX_BATCH_BYTES):
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield group
