"""A run of lineage as `/lineage/v1/runs` tells it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from duckicelake.catalog.lineage.answers import LineageJob
from duckicelake.catalog.lineage.graph import KnownRun
from duckicelake.iceberg.model import SpecModel
from duckicelake.lake.lineage.graph import IoRow
from duckicelake.lineage.facet_values import engine, word, word_in


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
    commit = run.facets.get("duckicelake_commit")
    parent = known.facets.get("parent")
    return LineageRunDetails(
        id=run.id,
        state=run.state,
        origin=run.origin,
        job=LineageJob(
            namespace=run.job_namespace,
            name=run.job_name,
            type=word_in(run.job_facets, "jobType", "processingType"),
            integration=word_in(run.job_facets, "jobType", "integration"),
        ),
        started=run.started,
        ended=run.ended,
        engine=engine(run.facets.get("processing_engine")),
        application=word(commit, "application"),
        principal=word(commit, "principal"),
        complete=known.is_complete,
        parent=dict(parent) if isinstance(parent, Mapping) else None,
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
