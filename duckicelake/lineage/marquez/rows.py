"""Convert rows of lineage to the shapes of Marquez's API."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from duckicelake.lineage.graph.lists import ColumnListed, DatasetListed, JobIo, JobListed, RunListed, VersionListed
from duckicelake.lineage.graph.parsed_event import EventName, read_facet_word, read_word
from duckicelake.lineage.marquez.shapes import (
    MarquezColumnLineage,
    MarquezDataset,
    MarquezDatasetVersion,
    MarquezDatasetVersionId,
    MarquezField,
    MarquezInputField,
    MarquezJob,
    MarquezJobVersion,
    MarquezName,
    MarquezRun,
)

STATES: Final[Mapping[str, str]] = {
    "START": "RUNNING",
    "RUNNING": "RUNNING",
    "COMPLETE": "COMPLETED",
    "FAIL": "FAILED",
    "ABORT": "ABORTED",
    "OTHER": "NEW",
}
"""Marquez's words for the states of runs."""
_JOB_TYPES: Final = {"STREAMING": "STREAM", "SERVICE": "SERVICE"}
_STREAMS: Final = ("kafka://", "kinesis://", "pubsub", "eventhub")


def build_dataset(row: DatasetListed, columns: Iterable[ColumnListed] = ()) -> MarquezDataset:
    """Build a dataset with its column lineage."""
    return MarquezDataset(
        id=MarquezName(namespace=row.shown_namespace, name=row.shown_name),
        type=_find_type(row),
        name=row.shown_name,
        physical_name=row.name,
        created_at=row.first_seen,
        updated_at=row.last_seen,
        namespace=row.shown_namespace,
        source_name=row.namespace,
        fields=_build_fields(row.facets),
        last_modified_at=row.last_seen,
        last_lifecycle_state=row.lifecycle,
        description=_find_description(row.facets),
        facets=row.facets,
        deleted=row.lifecycle == "DROP",
        column_lineage=_build_lineage(columns),
    )


def build_job(row: JobListed, io: Iterable[JobIo], run: RunListed | None) -> MarquezJob:
    """Build a job with its newest run."""
    sides = [side for side in io if side.job_id == row.id]
    latest = None if run is None else build_run(run)
    return MarquezJob(
        id=MarquezName(namespace=row.namespace, name=row.name),
        type=_JOB_TYPES.get(read_facet_word(row.facets, "jobType", "processingType") or "", "BATCH"),
        name=row.name,
        simple_name=row.name.rpartition(".")[2],
        created_at=row.first_seen,
        updated_at=row.last_seen,
        namespace=row.namespace,
        inputs=tuple(_build_name(side) for side in sides if not side.is_output),
        outputs=tuple(_build_name(side) for side in sides if side.is_output),
        location=read_facet_word(row.facets, "sourceCodeLocation", "url"),
        description=_find_description(row.facets),
        latest_run=latest,
        latest_runs=() if latest is None else (latest,),
        facets=row.facets,
    )


def build_run(row: RunListed) -> MarquezRun:
    took = None if row.ended is None else round((row.ended - row.started).total_seconds() * 1000)
    return MarquezRun(
        id=str(row.id),
        created_at=row.started,
        updated_at=row.last_seen,
        nominal_start_time=read_facet_word(row.facets, "nominalTime", "nominalStartTime"),
        nominal_end_time=read_facet_word(row.facets, "nominalTime", "nominalEndTime"),
        state=STATES.get(row.state, "NEW"),
        job_version=MarquezJobVersion(namespace=row.job_namespace, name=row.job_name, version=str(row.id)),
        started_at=row.started,
        ended_at=row.ended,
        duration_ms=took,
        facets=row.facets,
    )


def build_version(
    row: VersionListed, dataset: DatasetListed, names: set[EventName], run: RunListed | None
) -> MarquezDatasetVersion:
    """Build a dataset version. names: all names of the dataset, one of which the run used."""
    outputs: list[dict[str, Any]] = row.outputs or []
    facets = next(
        (parsed.get("facets") or {} for parsed in outputs if EventName(parsed["namespace"], parsed["name"]) in names),
        {},
    )
    version = row.version or str(row.run_id)
    named = {"namespace": dataset.shown_namespace, "name": dataset.shown_name}
    return MarquezDatasetVersion(
        id=MarquezDatasetVersionId(**named, version=version),
        type=_find_type(dataset),
        created_by_run=None if run is None else build_run(run),
        name=dataset.shown_name,
        physical_name=dataset.name,
        created_at=row.at,
        version=version,
        namespace=dataset.shown_namespace,
        source_name=dataset.namespace,
        fields=_build_fields(facets if "schema" in facets else dataset.facets),
        last_modified_at=row.at,
        description=_find_description(facets),
        lifecycle_state=row.lifecycle,
        facets=facets,
    )


def _build_name(io: JobIo) -> MarquezName:
    return MarquezName(namespace=io.namespace, name=io.name)


def _find_type(row: DatasetListed) -> str:
    return "STREAM" if row.namespace.startswith(_STREAMS) else "DB_TABLE"


def _find_description(facets: Mapping[str, Any]) -> str:
    return read_facet_word(facets, "documentation", "description") or ""


def _build_fields(facets: Mapping[str, Any]) -> tuple[MarquezField, ...]:
    fields = (facets.get("schema") or {}).get("fields") or ()
    return tuple(
        MarquezField(
            name=parsed["name"], type=read_word(parsed, "type"), description=read_word(parsed, "description") or ""
        )
        for parsed in fields
    )


def _build_lineage(columns: Iterable[ColumnListed]) -> tuple[MarquezColumnLineage, ...]:
    by_field: dict[str, list[MarquezInputField]] = {}
    for column in columns:
        if column.target_field:
            by_field.setdefault(column.target_field, []).append(build_input_field(column))
    return tuple(MarquezColumnLineage(name=name, input_fields=tuple(found)) for name, found in by_field.items())


def build_input_field(row: ColumnListed) -> MarquezInputField:
    """Build a source field of another field."""
    return MarquezInputField(
        namespace=row.namespace,
        dataset=row.name,
        field=row.source_field,
        transformation_description=row.description,
        transformation_type=row.subtype or row.kind,
    )
