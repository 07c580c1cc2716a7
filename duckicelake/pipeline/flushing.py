"""Rows that DuckDB keeps in Postgres go to data files: the Parquet that serves them is rewritten, and nothing else.

Iceberg's own planner never picks a file that is alone in its partition, so the tasks are chosen here; reading, writing
and committing are what its compaction does.
"""

from collections.abc import Sequence
from typing import Any, Final

from duckicelake.pipeline.iceberg_table import IcebergTable
from duckicelake.pipeline.java import each, planned

INLINED: Final = "-inlined.parquet"
"""How the names of the files end that serve inlined rows."""


def flush(table: IcebergTable) -> dict[str, int]:
    """Flush what is inlined now. Iceberg refuses if others delete some of the rows meanwhile; nothing is committed."""
    tasks = _tasks(table)
    if not tasks:
        return {}
    rows = sum(task.file().recordCount() for task in tasks)
    files = _written(table, tasks)
    rewrite = table.stamp(table.java.newRewrite().validateFromSnapshot(table.head))
    rewrite.dataSequenceNumber(table.java.currentSnapshot().sequenceNumber())
    for task in tasks:
        rewrite.deleteFile(task.file())
        for delete in each(task.deletes()):
            if table.jvm.iceberg.util.ContentFileUtil.isDV(delete):
                rewrite.deleteFile(delete)
    for file in files:
        rewrite.addFile(file)
    rewrite.commit()
    return {"rows in Postgres": rows, "rewritten files": len(tasks), "added files": len(files)}


def _tasks(table: IcebergTable) -> list[Any]:
    if table.head is None:
        return []
    return [task for task in planned(table.java.newScan()) if task.file().location().endswith(INLINED)]


def _written(table: IcebergTable, tasks: Sequence[Any]) -> list[Any]:
    """The new files, uncommitted, with the tasks' rows that aren't deleted."""
    coordinator = table.jvm.iceberg.spark.FileRewriteCoordinator.get()
    options = {"distribution-mode": "none", "fanout-enabled": "true"}
    with table.jvm.staged(table.java, tasks) as name:
        rows = table.spark.read.format("iceberg").load(name)
        try:
            rows.coalesce(1).write.format("iceberg").options(**options).mode("append").save(name)
            return list(each(coordinator.fetchNewFiles(table.java, name)))
        finally:
            coordinator.clearRewrite(table.java, name)
