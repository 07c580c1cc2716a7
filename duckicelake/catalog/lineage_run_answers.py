"""A run of lineage as `/lineage/v1/runs` tells it."""

from datetime import datetime
from typing import Any
from uuid import UUID

from duckicelake.catalog.lineage import KnownRun, engine
from duckicelake.catalog.lineage_answers import LineageJob
from duckicelake.iceberg.model import SpecModel
from duckicelake.lake.lineage_graph import IoRow


class LineageSide(SpecModel):
    """What a run read or wrote."""

    id: str
    name: str
    version: str | None = None
    state: str | None = None
    inferred: bool
    confidence: float | None = None


class LineageRunDetails(SpecModel):
    """A run. complete: whether all that it read and wrote is the reader's to know; else what it said is left out."""

    id: UUID
    state: str
    origin: str
    job: LineageJob
    started: datetime
    ended: datetime | None = None
    engine: str | None = None
    application: str | None = None
    principal: str | None = None
    complete: bool
    parent: dict[str, Any] | None = None
    inputs: tuple[LineageSide, ...]
    outputs: tuple[LineageSide, ...]
    facets: dict[str, Any]
    events: tuple[dict[str, Any], ...]


def run_answer(known: KnownRun) -> LineageRunDetails:
    """A run by itself."""
    run = known.run
    kind, commit = run.job_facets.get("jobType") or {}, run.facets.get("duckicelake_commit") or {}
    parent = known.facets.get("parent")
    return LineageRunDetails(
        id=run.id,
        state=run.state,
        origin=run.origin,
        job=LineageJob(
            namespace=run.job_namespace,
            name=run.job_name,
            type=kind.get("processingType"),
            integration=kind.get("integration"),
        ),
        started=run.started,
        ended=run.ended,
        engine=engine(run.facets.get("processing_engine")),
        application=commit.get("application"),
        principal=commit.get("principal"),
        complete=known.is_complete,
        parent=dict(parent) if parent else None,
        inputs=tuple(_side(each) for each in known.io if not each.is_output),
        outputs=tuple(_side(each) for each in known.io if each.is_output),
        facets=dict(known.facets),
        events=tuple(dict(event) for event in known.told),
    )


def _side(io: IoRow) -> LineageSide:
    name = io.name if io.schema_name is None else f"{io.schema_name}.{io.table_name}"
    return LineageSide(
        id=str(io.dataset_id),
        name=name,
        version=io.version,
        state=io.lifecycle,
        inferred=io.confidence is not None,
        confidence=io.confidence,
    )
