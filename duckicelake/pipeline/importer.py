"""Import tables of another Iceberg catalog: register their history, or copy their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from duckicelake.errors import (
    BadInputError,
    CatalogUnreachableError,
    JobConflictError,
    OutOfMemoryError,
    PipelineError,
    format_count,
)
from duckicelake.pipeline import sources
from duckicelake.pipeline.destination import CATALOG_NAME, format_sql_name
from duckicelake.pipeline.failures import explain_failure
from duckicelake.pipeline.foreign_catalog import ForeignCatalog, ForeignTable, attach_source, is_guarded
from duckicelake.pipeline.job import PipelineJob, run_job
from duckicelake.pipeline.progress import Reporter
from duckicelake.pipeline.session import stamp_snapshots
from duckicelake.properties import GC_ENABLED
from duckicelake.rest.client import CatalogClient, encode_namespace, encode_segment
from duckicelake.rest.http import Json
from duckicelake.rest.names import Namespace, format_name, quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORIGIN_PROPERTY: Final = "duckicelake.copied-from"
"""The property of a copy: the uuid of the table that it is one of."""
_LOCATION_PROPERTIES: Final = frozenset(
    {
        "write.data.path",
        "write.metadata.path",
        "write.object-storage.path",
        "write.folder-storage.path",
        "schema.name-mapping.default",  # by ids of fields, which are others here
        "write.format.default",
        "write.delete.format.default",
        "ducklake.snapshot-id",
        GC_ENABLED,
    }
)
"""Properties that say where and how the other catalog keeps its files."""
_FATAL_ERRORS: Final = (CatalogUnreachableError, OutOfMemoryError)
_SHOWN_PROPERTIES: Final = ("type", "catalog-impl", "uri", "warehouse")
"""Properties of a catalog that the job's row tells, without users and passwords in them."""


def register_table(
    client: CatalogClient, source: ForeignCatalog, table: ForeignTable, job: PipelineJob, *, leave_source: bool
) -> int:
    """Register what the other catalog has now, the job's snapshots; how many snapshots it has."""
    before = table
    if not leave_source:
        table = source.guard(table.namespace, table.name)
    try:
        job.check()
        metadata = _register_in_lake(client, table)
    except (CatalogUnreachableError, JobConflictError):
        raise  # it may be registered all the same, by this job or by another
    except PipelineError:
        if not leave_source and not is_guarded(before.properties):
            source.unguard(table.namespace, table.name)
        raise
    guard_table(client, table)
    snapshots = len(metadata.get("snapshots", []))
    job.ends("done", snapshot_ids=[] if table.snapshot is None else [table.snapshot], snapshots=snapshots)
    return snapshots


def _register_in_lake(client: CatalogClient, table: ForeignTable) -> Json:
    path = client.iceberg("namespaces", encode_namespace(table.namespace), "register")
    return client.post(path, {"name": table.name, "metadata-location": table.metadata_location})["metadata"]


def guard_table(client: CatalogClient, table: ForeignTable) -> None:
    """Have the lake's engines delete no files of the table that was registered."""
    path = client.iceberg("namespaces", encode_namespace(table.namespace), "tables", encode_segment(table.name))
    metadata = client.load_table(table.namespace, table.name, "refs")["metadata"]
    if not is_guarded(metadata.get("properties", {})):
        requirements = [{"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}]
        updates = [{"action": "set-properties", "updates": {GC_ENABLED: "false"}}]
        client.post(path, {"requirements": requirements, "updates": updates})


def read_origin(properties: Mapping[str, str]) -> str | None:
    """Return the uuid of the table that the one with these properties is a copy of."""
    return properties.get(ORIGIN_PROPERTY)


def copy_table(
    spark: SparkSession, client: CatalogClient, source: ForeignCatalog, table: ForeignTable, job: PipelineJob
) -> int:
    """Make the copy, or go on with it; how many snapshots it has."""
    if not client.table_exists(table.namespace, table.name):
        _create_copy(spark, source, table)
    if table.snapshot is None:
        job.ends("done", rows=0)
        return 0
    theirs = quote_name(source.name, *table.namespace, table.name)
    job.check()
    with stamp_snapshots(spark, job):  # a snapshot's number would bring the columns of when it was made
        spark.sql(f"INSERT INTO {format_sql_name(table.namespace, table.name)} BY NAME SELECT * FROM {theirs}")
    made = client.load_table(table.namespace, table.name, "refs")["metadata"]["snapshots"]
    rows = sum(int(snapshot["summary"].get("added-records", 0)) for snapshot in made)
    job.ends("done", snapshot_ids=[snapshot["snapshot-id"] for snapshot in made], rows=rows)
    return len(made)


def _create_copy(spark: SparkSession, source: ForeignCatalog, table: ForeignTable) -> None:
    kept = {key: value for key, value in table.properties.items() if key not in _LOCATION_PROPERTIES}
    model = source.java_table(table.namespace, table.name)
    lake = ForeignCatalog(spark, CATALOG_NAME)
    lake.create_like(table.namespace, table.name, model, table.format_version, {**kept, ORIGIN_PROPERTY: table.uuid})


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """source: properties of the other catalog. tables, namespaces: all in it, if neither is given.

    copy: write the rows of now anew, in the lake's own place. leave_source: don't set `gc.enabled` in the other one.
    """

    source: Mapping[str, str] = field(repr=False)
    tables: Sequence[tuple[Namespace, str]] = ()
    namespaces: Sequence[Namespace] = ()
    copy: bool = False
    leave_source: bool = False


@dataclass(frozen=True, slots=True)
class ImportedTable:
    """What came of a table. result: `there` where an import before has brought it. message: what to know, or to do."""

    table: str
    result: Literal["registered", "copied", "there", "failed"]
    snapshots: int = 0
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What came of each table. views: found, and not imported, as their SQL is about the other catalog."""

    tables: tuple[ImportedTable, ...]
    views: tuple[str, ...]

    @property
    def failed(self) -> int:
        return sum(1 for table in self.tables if table.result == "failed")


def import_tables(
    spark: SparkSession, client: CatalogClient, request: ImportRequest, reporter: Reporter
) -> ImportResult:
    """Import one table after the other; one that fails keeps no other from coming.

    Raises BadInputError, CatalogUnreachableError.
    """
    source = ForeignCatalog(spark, attach_source(spark, request.source))
    namespaces = list(_list_namespaces(source, request))
    for namespace in namespaces:
        theirs = source.namespace_properties(namespace)
        client.make_namespace(namespace, {key: value for key, value in theirs.items() if key != "location"})
    whole = [] if request.tables else namespaces
    tables = [*request.tables, *((namespace, name) for namespace in whole for name in source.tables(namespace))]
    reporter.begin("importing", len(tables), "tables")
    done = []
    for namespace, name in tables:
        done.append(_import_table(_ImportRun(spark, client, source, request), namespace, name))
        reporter.say(_format_line(done[-1]))
        reporter.advance()
    reporter.done()
    views = [format_name(namespace, name) for namespace in whole for name in source.views(namespace)]
    return ImportResult(tuple(done), tuple(views))


def _list_namespaces(source: ForeignCatalog, request: ImportRequest) -> Iterator[Namespace]:
    """Yield those of the tables; or those that were asked for, with what is in them; or all."""
    asked = dict.fromkeys([*(namespace for namespace, _ in request.tables), *request.namespaces])
    for namespace in asked:
        if not source.has_namespace(namespace):
            raise BadInputError(
                f"The other catalog has no namespace {format_name(namespace[:-1], namespace[-1])}: check --source"
            )
    if request.tables:
        yield from asked
        return
    for found in source.namespaces():
        if not asked or any(found[: len(wanted)] == wanted for wanted in asked):
            yield found


@dataclass(frozen=True, slots=True)
class _ImportRun:
    spark: SparkSession
    client: CatalogClient
    source: ForeignCatalog
    request: ImportRequest


def _import_table(run: _ImportRun, namespace: Namespace, name: str) -> ImportedTable:
    try:
        table = run.source.load(namespace, name)
        found = _find_imported(run, table)
        return _bring_table(run, table) if found is None else found
    except Exception as error:
        failure = explain_failure(error)
        if failure is None or isinstance(failure, _FATAL_ERRORS):
            raise
        return ImportedTable(format_name(namespace, name), "failed", message=_format_failure(failure))


def _find_imported(run: _ImportRun, table: ForeignTable) -> ImportedTable | None:
    """Return what there is to say if the lake has a table of the name.

    None if not, or if it is a copy without its rows.
    """
    if not run.client.table_exists(table.namespace, table.name):
        return None
    label = format_name(table.namespace, table.name)
    metadata = run.client.load_table(table.namespace, table.name)["metadata"]
    snapshots = {snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", [])}
    if read_origin(metadata.get("properties", {})) == table.uuid:
        unfinished = run.request.copy and table.snapshot is not None and not snapshots
        return None if unfinished else ImportedTable(label, "there", len(snapshots), "a copy, made before")
    if metadata["table-uuid"] != table.uuid:
        return ImportedTable(label, "failed", message="the lake has another table of this name: rename one of them")
    guard_table(run.client, table)
    behind = table.snapshot is not None and table.snapshot not in snapshots
    import_facts = "the other catalog has written to it since: drop it here, without purge, and import it again"
    return ImportedTable(label, "there", len(snapshots), import_facts if behind else None)


def _bring_table(run: _ImportRun, table: ForeignTable) -> ImportedTable:
    request, label = run.request, format_name(table.namespace, table.name)
    import_facts = {
        key: sources.mask_secrets(value).partition("?")[0]
        for key, value in request.source.items()
        if key in _SHOWN_PROPERTIES
    }
    parameters = {"from": import_facts, "uuid": table.uuid, "copy": request.copy}
    with run_job(run.client, "import", table.namespace, table.name, lease="import", parameters=parameters) as job:
        if request.copy:
            return ImportedTable(label, "copied", copy_table(run.spark, run.client, run.source, table, job))
        snapshots = register_table(run.client, run.source, table, job, leave_source=request.leave_source)
    unguarded = "the other catalog may still delete its files: set gc.enabled=false there, or drop it without purge"
    return ImportedTable(label, "registered", snapshots, unguarded if request.leave_source else None)


def _format_failure(failure: PipelineError) -> str:
    """Format a failure, and advise to copy where a copy wouldn't have it: files of other formats."""
    more = "; or bring its rows with --copy" if "MISSING.md" in str(failure) else ""
    return f"{failure}{more}"


def _format_line(table: ImportedTable) -> str:
    counted = f", {format_count(table.snapshots, 'snapshot')}" if table.snapshots else ""
    return f"{table.table}: {table.result}{counted}{f': {table.message}' if table.message else ''}"
