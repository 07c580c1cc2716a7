"""What `duckicelake constraints` tells, and how it verifies: DuckDB reads the table as of the version that is shown."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import duckdb
import typer

from duckicelake.catalog.commits.constraint_states import (
    ConstraintState,
    TableConstraints,
    note_verified,
    table_constraints,
)
from duckicelake.catalog.full_names import parse_full_name
from duckicelake.cli.assembly.opened import opened
from duckicelake.cli.counting import counted
from duckicelake.errors import CommitFailed, InvalidRequest, PipelineError
from duckicelake.lake.postgres.address import attach_source
from duckicelake.lake.postgres.session import duckdb_parameters
from duckicelake.pipeline.duck import ATTACHED, attached
from duckicelake.settings import Settings, read_settings

_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class Told:
    """A constraint as it is told; violations: how many rows DuckDB found that violate it, None if none was asked."""

    state: ConstraintState
    violations: int | None = None

    @property
    def is_well(self) -> bool:
        """Whether every row is known to keep it."""
        return self.state.problem is None and self.state.unverified_since is None and not self.violations

    def __str__(self) -> str:
        """Tell it in one line."""
        state = self.state
        if self.violations:
            told = f"VIOLATED by {counted(self.violations, 'row')}"
        elif state.problem is not None:
            told = f"BROKEN: {state.problem}"
        elif state.unverified_since is not None:
            told = f"unverified since snapshot {state.unverified_since}"
        else:
            told = "verified"
        return f"{state.name}\t{state.text}\t{told}"


def constraints(*, name: str, lake: Path | None, verify: bool) -> None:
    """Print them, one a line. Raises as `told`; Exit unless all rows are known to keep each."""
    found = told(read_settings({"lake": lake}), name, verify=verify)
    for each in found:
        typer.echo(str(each))
    if not found:
        typer.echo(f"{name} has no constraints", err=True)
    if not all(each.is_well for each in found):
        raise typer.Exit(1)


def told(settings: Settings, name: str, *, verify: bool) -> list[Told]:
    """The constraints of a table; with `verify` those that all rows keep are noted as verified.

    Raises InvalidRequest, NoSuchTable, Unavailable, StartupError; CommitFailed if others write to the table all along.
    """
    namespace, table = parse_full_name(name)
    with opened(settings, "verify_constraints") as services:
        for attempt in range(_ATTEMPTS):
            found = table_constraints(services, namespace, table)
            if not verify:
                return [Told(state) for state in found.states]
            all_told = _verified(found, services.database.url)
            kept = [each.state.name for each in all_told if each.violations == 0 and each.state.unverified_since]
            if not kept:
                return all_told
            try:
                note_verified(services, namespace, table, found, kept)
            except CommitFailed:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            return [_noted(each) if each.state.name in kept else each for each in all_told]
    raise AssertionError


def _noted(each: Told) -> Told:
    return replace(each, state=replace(each.state, unverified_since=None))


def _verified(found: TableConstraints, url: str) -> list[Told]:
    """The constraints with how many rows DuckDB finds that violate each."""
    if not any(state.sql for state in found.states):
        return [Told(state) for state in found.states]
    try:
        with attached(attach_source(url, duckdb_parameters(url)), read_only=True) as connection:
            return [Told(state, _violations(connection, found, state)) for state in found.states]
    except PipelineError as error:
        raise InvalidRequest(f"The constraints could not be verified: {error}") from error


def _violations(connection: duckdb.DuckDBPyConnection, found: TableConstraints, state: ConstraintState) -> int | None:
    if state.sql is None:
        return None
    name = ".".join('"' + each.replace('"', '""') + '"' for each in found.lake_name)
    source = f"(FROM {ATTACHED}.{name} AT (VERSION => {found.lake_version})) AS r"
    violating = f"count(*) FILTER (WHERE ({state.sql}) IS NOT TRUE)"  # a filter of the scan would skip files
    row = connection.execute(f"SELECT {violating} FROM {source}").fetchone()
    assert row is not None
    return int(row[0])
