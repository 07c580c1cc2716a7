"""What to load and how, what a load would do, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from uuid import uuid4

import duckdb

from duckicelake.errors import BadInputError
from duckicelake.file_import.column_types import parse_schema
from duckicelake.file_import.source_files import FILE_FORMATS
from duckicelake.file_import.source_rows import check_options
from duckicelake.pipeline.destination import LoadRequest

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


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What a load would do. columns: of the table afterwards; new, widened: of a table that is there."""

    table: str
    creates: bool
    columns: Mapping[str, str]
    new: Mapping[str, str]
    widened: Mapping[str, str]
    files: int
    bytes: int
    rows: int
    bad: int


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """What came of a load, by this attempt or an earlier one of its run."""

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


class LoadWatcher:
    """What a load says on its way, and whether it may go on. This one is silent and agrees."""

    def say(self, text: str) -> None:
        """Say what begins now."""

    def agree(self, plan: LoadPlan) -> None:
        """Return if the plan may be carried out; raise otherwise."""


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
