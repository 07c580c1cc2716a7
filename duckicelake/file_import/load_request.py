"""What to load and how, what a load would do, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

import duckdb

from duckicelake.errors import BadInputError
from duckicelake.file_import.column_types import parse_schema
from duckicelake.file_import.roots import Roots
from duckicelake.file_import.source_files import FILE_FORMATS
from duckicelake.file_import.source_rows import check_options
from duckicelake.pipeline.destination import LoadRequest

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from duckicelake.file_import.source_rows import FileGroup

_REPORT_SECONDS: Final = 0.5
DEFAULT_MEMORY: Final = "700MB"


@dataclass(frozen=True, slots=True)
class FileLoad:
    """What to load, and how.

    Attributes:
        options: of the reader, in the names of Spark's.
        schema: columns as `id long, name string`; None takes the table's, or those that the files have.
        bad_rows: `table`, `fail`, or the file that gets them.
        max_bad: more bad rows are an error; None for any number.
        memory: that DuckDB may use.
        roots: below which the files must lie.

    """

    locations: tuple[str, ...]
    load: LoadRequest
    format: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    run_id: str = field(default_factory=lambda: str(uuid4()))
    epoch: int = 0
    bad_rows: str = "table"
    max_bad: int | None = None
    memory: str = DEFAULT_MEMORY
    threads: int | None = None
    roots: Roots = field(default_factory=Roots)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load would do.

    Attributes:
        creates_namespace: the table's.
        columns: of the table afterwards.
        new, widened: of a table that is there.

    """

    table: str
    creates: bool
    creates_namespace: bool
    columns: Mapping[str, str]
    new: Mapping[str, str]
    widened: Mapping[str, str]
    files: int
    bytes: int
    rows: int
    bad: int


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a step of a load is.

    Attributes:
        step: what is done, as `writing rows`.
        share: of the step, from 0 to 1.
        bytes, rows: of all that the step reads or writes; rows are None before they are counted.

    """

    step: str
    share: float
    bytes: int
    rows: int | None = None

    @property
    def done_bytes(self) -> int:
        return int(self.share * self.bytes)

    @property
    def done_rows(self) -> int | None:
        return None if self.rows is None else int(self.share * self.rows)


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """What came of a load, by this attempt or an earlier one of its run. new_namespaces: that this attempt created."""

    table: str
    run_id: str
    result: Literal["done", "unchanged"]
    rows: int
    quarantined: int
    quarantine: str | None
    files: int
    bytes: int
    snapshot_ids: tuple[int, ...]
    seconds: float
    new_namespaces: tuple[str, ...] = ()


class LoadWatcher:
    """What a load says on its way, and whether it may go on. This one is silent and agrees."""

    def say(self, text: str) -> None:
        """Say what begins now."""

    def note(self, progress: LoadProgress) -> None:
        """Note how far a step is; called from another thread, twice a second, and at the end of the step."""

    def agree(self, plan: LoadPlan) -> None:
        """Return if the plan may be carried out; raise otherwise."""


class StepMeter:
    """Notes how far the statements of a DuckDB are, step by step."""

    def __init__(self, duck: DuckDBPyConnection, watcher: LoadWatcher) -> None:
        duck.execute("SET enable_progress_bar = true; SET enable_progress_bar_print = false")
        self._duck, self._watcher = duck, watcher

    def follow_groups(self, step: str, groups: Sequence[FileGroup]) -> Iterator[FileGroup]:
        """Yield groups of files one after the other; each is the part of the step that it has of the bytes."""
        size = sum(group.size for group in groups)
        done = 0
        for group in groups:
            whole = max(1, size)
            with self.measure(LoadProgress(step, done / whole, size), group.size / whole):
                yield group
            done += group.size

    @contextmanager
    def measure(self, begin: LoadProgress, part: float = 1.0) -> Iterator[None]:
        """Note how far the statements of the block are. part: of the step that they do."""
        ended = Event()

        def report() -> None:
            share = 0.0
            while not ended.wait(_REPORT_SECONDS):
                try:
                    share = max(share, min(self._duck.query_progress() / 100, 1.0))
                except duckdb.Error:  # of a statement that ran out of memory, which the caller meets
                    return
                self._watcher.note(replace(begin, share=begin.share + share * part))

        thread = Thread(target=report, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        self._watcher.note(replace(begin, share=min(1.0, begin.share + part)))


def check_request(request: FileLoad) -> None:
    """Check what no file decides. Raises BadInputError."""
    if request.format is not None and request.format not in FILE_FORMATS:
        raise BadInputError(f"Invalid --format {request.format!r}: expected {', '.join(FILE_FORMATS)}")
    check_options(request.options)
    if request.schema is not None:
        parse_schema(request.schema)
    try:
        duckdb.connect(config={"memory_limit": request.memory}).close()
    except duckdb.Error as error:
        raise BadInputError(f"Invalid --memory {request.memory!r}: expected a size, as 700MB or 2GB") from error
