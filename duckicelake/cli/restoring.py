"""What `duckicelake restore` does and tells."""

from duckicelake.catalog.restore import Restored, restore_table
from duckicelake.cli.collecting import opened
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.names import Namespace, namespace_of
from duckicelake.settings import Settings


def restored(settings: Settings, name: str, to: str, *, is_dry_run: bool) -> str:
    """Restore the table; what it did, or would do, as one line. Raises as `restore_table`, StartupError."""
    with opened(settings) as services:
        return f"{name}: {_told(restore_table(services, *table_of(name), to, is_dry_run=is_dry_run), is_dry_run)}"


def table_of(name: str) -> tuple[Namespace, str]:
    """The namespace and the name of a table, from both joined by dots; InvalidRequest."""
    schema, _, table = name.rpartition(".")
    if not schema or not table:
        raise InvalidRequest(f"{name!r} isn't the full name of a table: write it as sales.orders")
    return namespace_of(schema), namespace_of(table)[0]


def _told(done: Restored, is_dry_run: bool) -> str:
    if not done.changes_anything:
        return f"is what it was at snapshot {done.restored_from}: nothing to do"
    files = f"{done.files_added} files come and {done.files_removed} go"
    rows = f"{done.rows_added} rows come and {done.rows_removed} go"
    definition = "; so do schema, partitions or sort order" if done.changes_definition else ""
    what = f"snapshot {done.restored_from}: {files}, {rows}{definition}"
    if is_dry_run:
        return f"would be restored to {what}; this was a dry run"
    return f"restored to {what}; the new snapshot is {done.snapshot_id} (DuckLake's {done.ducklake_id})"
