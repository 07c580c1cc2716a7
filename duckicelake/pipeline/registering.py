"""A table of another catalog, registered: the lake gets its whole history, and both catalogs share the files.

So that neither deletes what the other needs, both say `gc.enabled=false`, the other one first.
"""

from duckicelake.errors import CatalogUnreachable, JobConflict, PipelineError
from duckicelake.pipeline.foreign import GC_ENABLED, ForeignCatalog, ForeignTable, is_guarded
from duckicelake.pipeline.running import Job
from duckicelake.rest.client import CatalogClient, encoded, segment
from duckicelake.rest.json_http import Json


def register_table(
    client: CatalogClient, source: ForeignCatalog, table: ForeignTable, job: Job, *, leave_source: bool
) -> int:
    """Register what the other catalog has now, the job's snapshots; how many snapshots it has."""
    before = table
    if not leave_source:
        table = source.guard(table.namespace, table.name)
    try:
        job.check()
        metadata = _register(client, table)
    except (CatalogUnreachable, JobConflict):
        raise  # it may be registered all the same, by this job or by another
    except PipelineError:
        if not leave_source and not is_guarded(before.properties):
            source.unguard(table.namespace, table.name)
        raise
    guard(client, table)
    snapshots = len(metadata.get("snapshots", []))
    job.ends("done", snapshot_ids=[] if table.snapshot is None else [table.snapshot], snapshots=snapshots)
    return snapshots


def _register(client: CatalogClient, table: ForeignTable) -> Json:
    path = client.iceberg("namespaces", encoded(table.namespace), "register")
    return client.post(path, {"name": table.name, "metadata-location": table.metadata_location})["metadata"]


def guard(client: CatalogClient, table: ForeignTable) -> None:
    """Have the lake's engines delete no files of the table that was registered."""
    path = client.iceberg("namespaces", encoded(table.namespace), "tables", segment(table.name))
    metadata = client.load_table(table.namespace, table.name, "refs")["metadata"]
    if not is_guarded(metadata.get("properties", {})):
        requirements = [{"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}]
        updates = [{"action": "set-properties", "updates": {GC_ENABLED: "false"}}]
        client.post(path, {"requirements": requirements, "updates": updates})
