"""PURE. Statements run in DuckDB as OpenLineage events."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, Final

import duckdb
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    sql_job,
)
from openlineage.client.uuid import generate_new_uuid
from sqlglot import exp

from duckicelake.lineage.duckdb.names import KnownName
from duckicelake.lineage.duckdb.statements import DuckStatement
from duckicelake.lineage.openlineage.facets import encode_facet
from duckicelake.lineage.openlineage.names import PRODUCER
from duckicelake.lineage.sql.dialects import MAX_MASKED_CHARS, mask_sql, may_show_values
from duckicelake.lineage.sql.functions import name_file_dataset
from duckicelake.lineage.sql.lineage import build_column_lineage, read_lineage
from duckicelake.lineage.sql.model import Flow, SqlDataset, StatementLineage

Parts = tuple[str, ...]
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Program:
    """The program that runs the statements.

    literals: whether events may contain literals of SQL. folder: base of relative paths.
    """

    namespace: str
    name: str
    folder: str
    parent: Mapping[str, Any] | None = None
    literals: bool = False


@dataclass(slots=True)
class StatementRun:
    """One run of a statement: the datasets of its names before it, and its result."""

    program: Program
    statement: DuckStatement
    names: dict[Parts, KnownName | None]
    id: str = field(default_factory=lambda: str(generate_new_uuid()))
    begun: datetime = field(default_factory=lambda: datetime.now(UTC))
    writes_nothing: bool = False
    rows: int | None = None
    version: int | None = None

    @property
    def output(self) -> KnownName | None:
        """The dataset that it writes, if known."""
        found = self.statement.written
        return self.names.get(found) if found is not None else None

    def lineage(self) -> StatementLineage:
        """Return the inputs and outputs, as far as known."""
        datasets = tuple((parts, *_build_key(known)) for parts, known in self.names.items())
        found = _read_lineage(self.statement, datasets, self.program.folder)
        if found is None:
            known = self.output
            return StatementLineage((), known.dataset if known else None)
        if self.writes_nothing:
            return StatementLineage(found.inputs)
        return found if self.program.literals else _hide_valued_columns(found)

    def facets(self, dataset: SqlDataset) -> dict[str, Any]:
        """Return the facets of a dataset."""
        known = next((name for name in self.names.values() if name is not None and name.dataset == dataset), None)
        return {} if known is None else dict(known.facets)


def _build_key(known: KnownName | None) -> tuple[SqlDataset | None, tuple[str, ...] | None]:
    return (None, None) if known is None else (known.dataset, known.dataset.columns)


@lru_cache(maxsize=256)
def _read_lineage(
    statement: DuckStatement, datasets: tuple[tuple[Parts, SqlDataset | None, tuple[str, ...] | None], ...], folder: str
) -> StatementLineage | None:
    """Read the lineage in a statement's text, with the datasets of its names and their columns."""
    known = {parts: dataset for parts, dataset, _ in datasets}
    tree = statement.tree
    return None if tree is None else read_lineage(tree, "duckdb", known.get, partial(name_file_dataset, folder=folder))


@lru_cache(maxsize=256)
def _mask_sql(text: str) -> str | None:
    return mask_sql(text, "duckdb")


def build_begun(run: StatementRun) -> list[RunEvent]:
    """Build the event of a run's begin, if it reads or writes anything.

    Outputs have only names.
    """
    return _build_events(run, RunState.START, run.begun, run.lineage(), is_complete=False)


def build_completed(run: StatementRun, at: datetime) -> list[RunEvent]:
    """Build the event of a run whose statement and transaction have ended."""
    return _build_events(run, RunState.COMPLETE, at, run.lineage(), is_complete=True)


def build_failed(run: StatementRun, at: datetime, message: str) -> list[RunEvent]:
    """Build the event of a failed run, with the message."""
    facet = error_message_run.ErrorMessageRunFacet(message, "SQL")
    return _build_events(run, RunState.FAIL, at, run.lineage(), is_complete=False, errorMessage=encode_facet(facet))


def build_aborted(run: StatementRun, at: datetime) -> list[RunEvent]:
    """Build the event of a run that was rolled back, or interrupted by the user."""
    return _build_events(run, RunState.ABORT, at, run.lineage(), is_complete=False)


def _build_events(
    run: StatementRun, kind: RunState, at: datetime, lineage: StatementLineage, *, is_complete: bool, **facets: Any
) -> list[RunEvent]:
    if not lineage.inputs and lineage.output is None and run.statement.written is None:
        return []
    event = RunEvent(
        eventType=kind,
        eventTime=at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        producer=PRODUCER,
        run=Run(run.id, {**_run_facets(run.program), **facets}),
        job=_build_job(run, lineage),
        inputs=[InputDataset(input_.namespace, input_.name, facets=run.facets(input_)) for input_ in lineage.inputs],
        outputs=[]
        if lineage.output is None
        else [_build_output(run, lineage, lineage.output, is_complete=is_complete)],
    )
    return [event]


def _build_output(
    run: StatementRun, lineage: StatementLineage, output: SqlDataset, *, is_complete: bool
) -> OutputDataset:
    if not is_complete:
        symlinks = {key: value for key, value in run.facets(output).items() if key == "symlinks"}
        return OutputDataset(output.namespace, output.name, facets=symlinks)
    facets = run.facets(output)
    columns, change = build_column_lineage(lineage), _find_lifecycle(run.statement)
    if columns is not None:
        facets["columnLineage"] = columns
    if change is not None:
        facets["lifecycleStateChange"] = encode_facet(change)
    if run.version is not None:
        facets["version"] = encode_facet(dataset_version_dataset.DatasetVersionDatasetFacet(str(run.version)))
    counted: dict[str, Any] = {}
    if run.rows is not None:
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=run.rows)
        counted["outputStatistics"] = encode_facet(statistics)
    return OutputDataset(output.namespace, output.name, facets=facets, outputFacets=counted)


def _find_lifecycle(statement: DuckStatement) -> lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet | None:
    if statement.created is None or statement.tree is None:
        return None
    change = "OVERWRITE" if statement.tree.args.get("replace") else "CREATE"
    kind = lifecycle_state_change_dataset.LifecycleStateChange[change]
    return lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(kind)


def _run_facets(program: Program) -> dict[str, Any]:
    engine = processing_engine_run.ProcessingEngineRunFacet(version=duckdb.__version__, name="DuckDB")
    facets: dict[str, Any] = {"processing_engine": encode_facet(engine)}
    return {**facets, "parent": program.parent} if program.parent else facets


def _build_job(run: StatementRun, lineage: StatementLineage) -> Job:
    """Build the job, which is the same for the same statement of a program, whatever its literals."""
    program, tree = run.program, run.statement.tree
    text = _mask_sql(run.statement.text)
    identity = "\0".join([program.namespace, program.name, _SPACE.sub(" ", text or "")])
    digest = blake2b(identity.encode(), digest_size=4).hexdigest()
    kind = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="DUCKDB", jobType="QUERY")
    facets: dict[str, Any] = {"jobType": encode_facet(kind)}
    is_complete = run.statement.text[:MAX_MASKED_CHARS] if program.literals else text
    if is_complete is not None:
        facets["sql"] = encode_facet(sql_job.SQLJobFacet(is_complete, "duckdb"))
    return Job(program.namespace, f"{program.name}.{_find_verb(tree)}.{_find_subject(run, lineage)}.{digest}", facets)


def _find_subject(run: StatementRun, lineage: StatementLineage) -> str:
    """Find the statement's subject for the job's name."""
    named = run.statement.written or next(iter(run.names), None)
    if named is not None:
        return ".".join(named)
    dataset = lineage.output or lineage.inputs[0]
    return dataset.name.rstrip("/").rpartition("/")[2] or dataset.name


def _find_verb(tree: exp.Expr | None) -> str:
    if tree is None:
        return "insert"
    return "select" if isinstance(tree, exp.Query | exp.Values | exp.Pivot) else tree.key


def _hide_valued_columns(lineage: StatementLineage) -> StatementLineage:
    """Remove columns whose names may contain a value of an expression."""
    fields = {name: _rename_plainly(flow) for name, flow in (lineage.fields or {}).items() if not may_show_values(name)}
    return replace(lineage, fields=fields, influence=_rename_plainly(lineage.influence or {}))


def _rename_plainly(flow: Flow) -> Flow:
    return {origin: effects for origin, effects in flow.items() if not may_show_values(origin.column)}


def parse_parent(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Parse the parent facet of `OPENLINEAGE_PARENT_ID` (`namespace/job/run id`), or of the three variables.

    `OPENLINEAGE_ROOT_PARENT_ID` names the root run.
    """
    parent = _split_parent(environment, "OPENLINEAGE_PARENT")
    if parent is None:
        return None
    namespace, name, run_id = parent
    root = _split_parent(environment, "OPENLINEAGE_ROOT_PARENT")
    try:
        above = parent_run.Root(parent_run.RootRun(root[2]), parent_run.RootJob(root[0], root[1])) if root else None
        facet = parent_run.ParentRunFacet(parent_run.Run(run_id), parent_run.Job(namespace, name), above)
    except ValueError:
        return None
    return encode_facet(facet)


def _split_parent(environment: Mapping[str, str], prefix: str) -> tuple[str, str, str] | None:
    whole = environment.get(f"{prefix}_ID")
    if whole:
        front, _, run_id = whole.rpartition("/")
        namespace, _, name = front.rpartition("/")
        return (namespace, name, run_id) if namespace and name else None
    parts = [environment.get(f"{prefix}_{part}") for part in ("JOB_NAMESPACE", "JOB_NAME", "RUN_ID")]
    return (parts[0], parts[1], parts[2]) if parts[0] and parts[1] and parts[2] else None
