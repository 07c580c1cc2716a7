"""Tables of another Iceberg catalog come into the lake: registered, files and history as they are, or copied.

    import_tables(spark, client, ImportRequest({"type": "hive", "uri": "thrift://…"}), SILENT)

Each table is imported by itself; one that is there already is left alone, so a run that was interrupted is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from duckicelake.errors import BadInput, CatalogUnreachable, OutOfMemory, PipelineError
from duckicelake.pipeline import sources
from duckicelake.pipeline.copying import copy_table, origin
from duckicelake.pipeline.failures import explained
from duckicelake.pipeline.foreign import ForeignCatalog, ForeignTable, attach_source
from duckicelake.pipeline.registering import guard, register_table
from duckicelake.pipeline.reporting import Reporter
from duckicelake.pipeline.running import running
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.names import Namespace, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_END_ALL: Final = (CatalogUnreachable, OutOfMemory)
_TOLD: Final = ("type", "catalog-impl", "uri", "warehouse")
"""Properties of a catalog that the job's row tells, without users and passwords in them."""


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
class Imported:
    """What came of a table. result: `there` where an import before has brought it. message: what to know, or to do."""

    table: str
    result: Literal["registered", "copied", "there", "failed"]
    snapshots: int = 0
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What came of each table. views: found, and not imported, as their SQL is about the other catalog."""

    tables: tuple[Imported, ...]
    views: tuple[str, ...]

    @property
    def failed(self) -> int:
        return sum(1 for table in self.tables if table.result == "failed")


def import_tables(
    spark: SparkSession, client: CatalogClient, request: ImportRequest, reporter: Reporter
) -> ImportResult:
    """Import one table after the other; one that fails keeps no other from coming. BadInput, CatalogUnreachable."""
    source = ForeignCatalog(spark, attach_source(spark, request.source))
    namespaces = list(_namespaces(source, request))
    for namespace in namespaces:
        theirs = source.namespace_properties(namespace)
        client.make_namespace(namespace, {key: value for key, value in theirs.items() if key != "location"})
    whole = [] if request.tables else namespaces
    tables = [*request.tables, *((namespace, name) for namespace in whole for name in source.tables(namespace))]
    reporter.begin("importing", len(tables), "tables")
    done = []
    for namespace, name in tables:
        done.append(_import(_Run(spark, client, source, request), namespace, name))
        reporter.say(_line(done[-1]))
        reporter.advance()
    reporter.done()
    views = [shown(namespace, name) for namespace in whole for name in source.views(namespace)]
    return ImportResult(tuple(done), tuple(views))


def _namespaces(source: ForeignCatalog, request: ImportRequest) -> Iterator[Namespace]:
    """Those of the tables; or those that were asked for, with what is in them; or all."""
    asked = dict.fromkeys([*(namespace for namespace, _ in request.tables), *request.namespaces])
    for namespace in asked:
        if not source.has_namespace(namespace):
            raise BadInput(f"The other catalog has no namespace {shown(namespace[:-1], namespace[-1])}: check --source")
    if request.tables:
        yield from asked
        return
    for found in source.namespaces():
        if not asked or any(found[: len(wanted)] == wanted for wanted in asked):
            yield found


@dataclass(frozen=True, slots=True)
class _Run:
    spark: SparkSession
    client: CatalogClient
    source: ForeignCatalog
    request: ImportRequest


def _import(run: _Run, namespace: Namespace, name: str) -> Imported:
    try:
        table = run.source.load(namespace, name)
        found = _found(run, table)
        return _bring(run, table) if found is None else found
    except Exception as error:
        failure = explained(error)
        if failure is None or isinstance(failure, _END_ALL):
            raise
        return Imported(shown(namespace, name), "failed", message=_advice(failure))


def _found(run: _Run, table: ForeignTable) -> Imported | None:
    """What there is to say if the lake has a table of the name; None if not, or if it is a copy without its rows."""
    if not run.client.table_exists(table.namespace, table.name):
        return None
    label = shown(table.namespace, table.name)
    metadata = run.client.load_table(table.namespace, table.name)["metadata"]
    snapshots = {each["snapshot-id"] for each in metadata.get("snapshots", [])}
    if origin(metadata.get("properties", {})) == table.uuid:
        unfinished = run.request.copy and table.snapshot is not None and not snapshots
        return None if unfinished else Imported(label, "there", len(snapshots), "a copy, made before")
    if metadata["table-uuid"] != table.uuid:
        return Imported(label, "failed", message="the lake has another table of this name: rename one of them")
    guard(run.client, table)
    behind = table.snapshot is not None and table.snapshot not in snapshots
    told = "the other catalog has written to it since: drop it here, without purge, and import it again"
    return Imported(label, "there", len(snapshots), told if behind else None)


def _bring(run: _Run, table: ForeignTable) -> Imported:
    request, label = run.request, shown(table.namespace, table.name)
    told = {key: sources.shown(value).partition("?")[0] for key, value in request.source.items() if key in _TOLD}
    parameters = {"from": told, "uuid": table.uuid, "copy": request.copy}
    with running(run.client, "import", table.namespace, table.name, lease="import", parameters=parameters) as job:
        if request.copy:
            return Imported(label, "copied", copy_table(run.spark, run.client, run.source, table, job))
        snapshots = register_table(run.client, run.source, table, job, leave_source=request.leave_source)
    unguarded = "the other catalog may still delete its files: set gc.enabled=false there, or drop it without purge"
    return Imported(label, "registered", snapshots, unguarded if request.leave_source else None)


def _advice(failure: PipelineError) -> str:
    """Tables are refused for what a copy doesn't have: files of other formats."""
    more = "; or bring its rows with --copy" if "MISSING.md" in str(failure) else ""
    return f"{failure}{more}"


def _line(table: Imported) -> str:
    counted = f", {table.snapshots:,} snapshots" if table.snapshots else ""
    return f"{table.table}: {table.result}{counted}{f': {table.message}' if table.message else ''}"
