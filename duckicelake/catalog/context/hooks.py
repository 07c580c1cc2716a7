"""What a feature adds to the use cases: rules of commits, and notes of what applications read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from duckicelake.bridge.commit.increments import Increment
from duckicelake.catalog.context.caller import Caller
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.reports import MetricsReport
from duckicelake.iceberg.schema import Schema
from duckicelake.lake.additions import NewFile
from duckicelake.rows.row_batch import Batch

if TYPE_CHECKING:  # `services` holds the rules
    from duckicelake.catalog.context.cache import Materialized
    from duckicelake.catalog.context.services import Services

RowCheck = Callable[[Batch], None]
"""InvalidRequest naming the rows that a table must not have."""


class CommitRule:
    """A rule that commits of every client keep. Each method accepts everything unless the feature overrides it."""

    def check_definition(self, target: TableMetadata, base: TableMetadata | None) -> None:
        """Check what a commit changes in schema and properties. base: None for a table that is new here.

        Raises InvalidRequest, Unsupported.
        """

    def check_commit(
        self,
        services: "Services",  # noqa: ARG002
        table: "Materialized | None",  # noqa: ARG002
        target: TableMetadata,
        increments: list[Increment],
    ) -> tuple[TableMetadata, list[Increment]]:
        """Check a commit, and return it with what the rule adds to it; InvalidRequest. table: None for a new one."""
        return target, increments

    def build_row_check(self, properties: Mapping[str, str], schema: Schema) -> RowCheck | None:  # noqa: ARG002
        """Build the check of rows that the server writes itself; None if rows need no check. InvalidRequest."""
        return None

    def find_unverified(self, metadata: TableMetadata, added: Sequence[NewFile]) -> list[str]:  # noqa: ARG002
        """Name the table's constraints that files of DuckDB may violate, which no server has checked."""
        return []


class ReadObserver:
    """Notes what applications read. This one notes nothing.

    Attributes:
        repeat_seconds: seconds after which the same read of a session is noted again, unless its program writes.
        wrote: when each program that has read wrote last, by `time.perf_counter`.

    """

    repeat_seconds: float = 86_400.0
    wrote: Mapping[str, float] = {}

    def note_load(self, caller: Caller, namespace: Namespace, name: str, *, is_lookup: bool) -> None:
        """Note that the caller loaded a table. is_lookup: the caller named the snapshots that it wants."""

    def note_load_of(self, principal: str, session: str, named_as: tuple[str, str], *, is_lookup: bool) -> None:
        """Note the same by the names of principal and session. named_as: the table's schema and name."""

    def note_report(self, caller: Caller, namespace: Namespace, name: str, report: MetricsReport) -> None:
        """Note what the caller says that it scanned or committed."""

    def note_write(self, session: str) -> None:
        """Note that a session begins to write."""

    def statistics(self) -> dict[str, int]:
        """Count the reads that were recorded and dropped since the start."""
        return {"recorded": 0, "dropped": 0}


@dataclass(frozen=True, slots=True)
class ReadObserverFactory:
    """Makes the observer of a process. open: its argument says how long a read counts for a write that follows it."""

    open: Callable[[timedelta], ReadObserver]
