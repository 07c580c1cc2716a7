"""What a feature adds to the use cases: rules of commits, and notes of what applications read.

A table that uses a feature which isn't installed is read as before, and its writes are refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Final

from duckicelake.bridge.commit.increments import Increment
from duckicelake.catalog.context.caller import Caller
from duckicelake.errors import FeatureUnavailableError
from duckicelake.features.registry import is_installed, load_hooks
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.reports import MetricsReport
from duckicelake.iceberg.schema import Schema
from duckicelake.lake.state import FileRow
from duckicelake.properties import find_claims, read_constraint_texts

if TYPE_CHECKING:  # `services` holds the rules
    from duckicelake.catalog.context.cache import TableVersion
    from duckicelake.catalog.context.services import Services
    from duckicelake.rows.row_batch import Batch  # imports pyarrow

RowCheck = Callable[["Batch"], None]
"""InvalidRequestError naming the rows that a table must not have."""


class CommitRule:
    """A rule that commits of every client keep. Each method accepts everything unless the feature overrides it.

    A commit is checked by the rules of the features that its table uses: those of `properties.find_claims`.
    """

    feature: str
    """The name of the feature."""

    def check_definition(self, target: TableMetadata, base: TableMetadata | None) -> None:
        """Check what a commit changes in schema and properties. base: None for a table that is new here.

        Raises InvalidRequestError, UnsupportedError.
        """

    def check_commit(
        self,
        services: "Services",  # noqa: ARG002
        table: "TableVersion | None",  # noqa: ARG002
        target: TableMetadata,
        increments: list[Increment],
    ) -> tuple[TableMetadata, list[Increment]]:
        """Check a commit, and return it with what the rule adds to it.

        Raises InvalidRequestError. table: None for a new one.
        """
        return target, increments

    def build_row_check(self, properties: Mapping[str, str], schema: Schema) -> RowCheck | None:  # noqa: ARG002
        """Build the check of rows that the server writes itself; None if rows need no check. InvalidRequestError."""
        return None

    def find_unverified(self, metadata: TableMetadata, added: Sequence[FileRow]) -> list[str]:  # noqa: ARG002
        """Name the table's constraints that files of DuckDB may violate, which no server has checked."""
        return []


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """What a scan reads that the server has planned.

    Attributes:
        projected: Full names of the table's columns that are read.
        filtered: Full names of the columns that the filter tests.

    """

    snapshot_id: int
    projected: tuple[str, ...]
    filtered: tuple[str, ...]


class ReadObserver:
    """Notes what applications read. This one notes nothing.

    Attributes:
        repeat_seconds: seconds after which the same read of a session is noted again, unless its program writes.
        wrote: when each program that has read wrote last, by `time.perf_counter`.

    """

    repeat_seconds: float = 86_400.0

    @property
    def wrote(self) -> Mapping[str, float]:
        return {}

    def note_load(self, caller: Caller, namespace: Namespace, name: str, *, is_lookup: bool) -> None:
        """Note that the caller loaded a table. is_lookup: the caller named the snapshots that it wants."""

    def note_load_of(self, principal: str, session: str, named_as: tuple[str, str], *, is_lookup: bool) -> None:
        """Note the same by the names of principal and session. named_as: the table's schema and name."""

    def note_report(self, caller: Caller, namespace: Namespace, name: str, report: MetricsReport) -> None:
        """Note what the caller says that it scanned or committed."""

    def note_plan(self, caller: Caller, namespace: Namespace, name: str, read: PlannedRead) -> None:
        """Note that a scan was planned for the caller, who reports none then."""

    def note_write(self, session: str) -> None:
        """Note that a session begins to write."""

    def statistics(self) -> dict[str, int]:
        """Count the reads that were recorded and dropped since the start."""
        return {"recorded": 0, "dropped": 0}


UNOBSERVED: Final = ReadObserver()


@cache
def load_rules() -> tuple[CommitRule, ...]:
    """Import the rules of the installed features. A server does so at its start: they import DuckDB, which is slow."""
    return load_hooks(CommitRule, "commit_rule")


def check_features(name: str, properties: Mapping[str, str]) -> None:
    """Raise FeatureUnavailableError if the table uses a feature that isn't installed. name: the table's full name."""
    for feature, claim in find_claims(properties).items():
        if not is_installed(feature):
            raise FeatureUnavailableError(
                f"Table {name} uses {feature} (property {claim}), which this server runs without: "
                f"install duckicelake with {feature}, or remove the property"
            )


def find_rules(namespace: Namespace, name: str, target: TableMetadata, base: TableMetadata | None) -> list[CommitRule]:
    """Return the rules of the features that a table uses, or used so far. base: None for a table that is new here.

    Raises FeatureUnavailableError for a feature that isn't installed.
    """
    claims = find_claims(target.properties)
    if claims:
        check_features(format_full_name(namespace, name), target.properties)
    if base is not None and base.properties != target.properties:
        claims |= find_claims(base.properties)
    return [rule for rule in load_rules() if rule.feature in claims] if claims else []


def build_row_check(properties: Mapping[str, str], schema: Schema) -> RowCheck:
    """Build the check of a table's rows by all rules; InvalidRequestError if one can't be checked any more."""
    found = (rule.build_row_check(properties, schema) for rule in load_rules())
    checks = [check for check in found if check is not None]

    def check_rows(batch: "Batch") -> None:
        for check in checks:
            check(batch)

    return check_rows


def find_unverified(metadata: TableMetadata, added: Sequence[FileRow]) -> list[str]:
    """Name the constraints that files of DuckDB may violate: all of them where no feature can check them."""
    constraints = read_constraint_texts(metadata.properties)
    if not constraints:
        return []
    if not is_installed("constraints") and any(file.content == FileContent.DATA for file in added):
        return list(constraints)
    return [name for rule in load_rules() for name in rule.find_unverified(metadata, added)]


@dataclass(frozen=True, slots=True)
class ReadObserverFactory:
    """Makes the observer of a process. open: its argument says how long a read counts for a write that follows it."""

    open: Callable[[timedelta], ReadObserver]


def open_read_observer(window: timedelta) -> ReadObserver:
    """Make the observer of this process. window: how long a read counts for a write that follows it."""
    factories = load_hooks(ReadObserverFactory, "read_observer")
    return factories[0].open(window) if factories else UNOBSERVED
