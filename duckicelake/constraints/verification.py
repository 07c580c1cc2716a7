"""Report a table's constraints, and verify them with DuckDB for `duckicelake constraints`."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

import duckdb

from duckicelake.catalog.commit.apply import TableCommit
from duckicelake.catalog.commit.run import commit
from duckicelake.catalog.context.page import parse_full_name
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.cli.wiring.services import open_lake
from duckicelake.constraints.definition import find_unverified, split_checkable
from duckicelake.constraints.duckdb_check import render_condition
from duckicelake.errors import CommitFailedError, InvalidRequestError, PipelineError, format_count
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.iceberg.requirements import AssertRefSnapshotId, AssertTableUuid
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import MAIN
from duckicelake.iceberg.updates import RemoveProperties
from duckicelake.lake.ducklake.database import build_attach_source, find_duckdb_parameters
from duckicelake.pipeline.duckdb_lake import LAKE_ALIAS, attach_lake
from duckicelake.properties import UNVERIFIED_KEY, read_constraint_texts
from duckicelake.settings.model import Settings

_MAX_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class ConstraintState:
    """A constraint and what is known of its rows.

    Attributes:
        unverified_since: id of the snapshot since which rows may violate it; None if all rows satisfy it.
        problem: why the constraint can't be checked; None if it can.
        sql: the condition in DuckDB's SQL, over a relation `r`; None if it can't be checked.

    """

    name: str
    text: str
    unverified_since: str | None
    problem: str | None
    sql: str | None


@dataclass(frozen=True, slots=True)
class TableConstraints:
    """A table's constraints as of a snapshot of main.

    Attributes:
        lake_name: DuckLake's names of the schema and the table.
        snapshot_id: the snapshot; None if main has none.
        lake_version: DuckLake's snapshot at that time.

    """

    table_uuid: str
    lake_name: tuple[str, str]
    snapshot_id: int | None
    lake_version: int
    states: tuple[ConstraintState, ...]


def read_table_constraints(services: Services, namespace: Namespace, name: str) -> TableConstraints:
    """Read the constraints of a table, including changes that DuckDB made; NoSuchTableError."""
    cached = load_current_table(services, namespace, name)
    metadata = cached.metadata
    found, broken = split_checkable(metadata.properties, metadata.schema())
    sql, since = (
        {constraint.name: render_condition(constraint.condition) for constraint in found},
        find_unverified(metadata.properties),
    )
    states = tuple(
        ConstraintState(constraint, text, since.get(constraint), broken.get(constraint), sql.get(constraint))
        for constraint, text in read_constraint_texts(metadata.properties).items()
    )
    lake_name = to_schema_name(namespace), name
    return TableConstraints(metadata.table_uuid, lake_name, metadata.current_snapshot_id, cached.lake_snapshot, states)


def note_verified(
    services: Services, namespace: Namespace, name: str, found: TableConstraints, names: Collection[str]
) -> None:
    """Mark constraints as verified; CommitFailedError if the table has changed since its rows were checked."""
    request = CommitTableRequest(
        requirements=(
            AssertTableUuid(uuid=found.table_uuid),
            AssertRefSnapshotId(ref=MAIN, snapshot_id=found.snapshot_id),
        ),
        updates=(RemoveProperties(removals=tuple(f"{UNVERIFIED_KEY}{constraint}" for constraint in names)),),
    )
    commit(services, TableCommit(namespace, name, request))


@dataclass(frozen=True, slots=True)
class ConstraintReport:
    """The report on a constraint. violations: rows that violate it, as DuckDB counted them; None if not counted."""

    state: ConstraintState
    violations: int | None = None

    @property
    def is_well(self) -> bool:
        """Whether every row is known to satisfy the constraint."""
        return self.state.problem is None and self.state.unverified_since is None and not self.violations

    def __str__(self) -> str:
        """Format the report as one line."""
        state = self.state
        if self.violations:
            verdict = f"VIOLATED by {format_count(self.violations, 'row')}"
        elif state.problem is not None:
            verdict = f"BROKEN: {state.problem}"
        elif state.unverified_since is not None:
            verdict = f"unverified since snapshot {state.unverified_since}"
        else:
            verdict = "verified"
        return f"{state.name}\t{state.text}\t{verdict}"


def report_constraints(settings: Settings, name: str, *, verify: bool) -> list[ConstraintReport]:
    """Report the constraints of a table; with `verify`, mark those that all rows satisfy as verified.

    Raises InvalidRequestError, NoSuchTableError, UnavailableError, StartupError; CommitFailedError after too many
    conflicts.
    """
    namespace, table = parse_full_name(name)
    with open_lake(settings, "verify_constraints") as services:
        for attempt in range(_MAX_ATTEMPTS):
            found = read_table_constraints(services, namespace, table)
            if not verify:
                return [ConstraintReport(state) for state in found.states]
            reports = _verify_all(found, services.database.url)
            kept = [report.state.name for report in reports if report.violations == 0 and report.state.unverified_since]
            if not kept:
                return reports
            try:
                note_verified(services, namespace, table, found, kept)
            except CommitFailedError:
                if attempt == _MAX_ATTEMPTS - 1:
                    raise
                continue
            return [_mark_verified(report) if report.state.name in kept else report for report in reports]
    raise AssertionError


def _mark_verified(report: ConstraintReport) -> ConstraintReport:
    return replace(report, state=replace(report.state, unverified_since=None))


def _verify_all(found: TableConstraints, url: str) -> list[ConstraintReport]:
    """Count the rows that violate each constraint, with DuckDB."""
    if not any(state.sql for state in found.states):
        return [ConstraintReport(state) for state in found.states]
    try:
        with attach_lake(build_attach_source(url, find_duckdb_parameters(url)), read_only=True) as connection:
            return [ConstraintReport(state, _count_violations(connection, found, state)) for state in found.states]
    except PipelineError as error:
        raise InvalidRequestError(f"The constraints could not be verified: {error}") from error


def _count_violations(
    connection: duckdb.DuckDBPyConnection, found: TableConstraints, state: ConstraintState
) -> int | None:
    if state.sql is None:
        return None
    name = ".".join('"' + part.replace('"', '""') + '"' for part in found.lake_name)
    source = f"(FROM {LAKE_ALIAS}.{name} AT (VERSION => {found.lake_version})) AS r"
    violating = f"count(*) FILTER (WHERE ({state.sql}) IS NOT TRUE)"  # a filter of the scan would skip files
    ((count,),) = connection.execute(f"SELECT {violating} FROM {source}").fetchall()
    return int(count)
