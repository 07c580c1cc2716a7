"""Say how followed Delta tables stand, as far as the catalog knows it: no store is asked."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from duckicelake.catalog.upkeep_tasks import WatchedTable
from duckicelake.delta.import_ import sources
from duckicelake.delta.import_.sources import FOLLOW_KIND, FollowedTableState
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.postgres.queries import Transaction

LIST_SECONDS: Final = 60.0
"""After which a log is listed although its next version isn't there, as it may have been replaced. What failed is tried
again then, too."""
_LATE: Final = timedelta(seconds=60)
"""After which a look that was due is none that a process is about to take."""


def list_watched(cursor: Transaction, names: Sequence[tuple[str, str]]) -> Sequence[WatchedTable]:
    """List the followed tables of these names of schema and table."""
    return [_describe(table) for table in sources.read_followed(cursor, names)]


def _describe(table: FollowedTableState) -> WatchedTable:
    named = parse_schema_name(table.schema_name), table.table_name, FOLLOW_KIND, table.root
    fault = table.error or (table.message if table.state in {"blocked", "failed"} else None)
    if fault is not None:
        retry = None if table.listed is None else table.listed + timedelta(seconds=LIST_SECONDS)
        next_at = table.available if table.state == "waiting" else retry
        why = f"it stands still at version {table.version}: {fault}"
        return WatchedTable(*named, why, is_due=True, next_at=next_at, behind_seconds=table.behind_seconds)
    if table.why is not None:
        next_at = table.available if table.state == "waiting" else None
        return WatchedTable(*named, table.why, is_due=True, next_at=next_at, behind_seconds=table.behind_seconds)
    if table.next_look is None or table.next_look < table.now - _LATE:
        why = f"it is at version {table.version}, and no process looks for the next one"
        return WatchedTable(*named, why, is_due=False)
    why = f"it is at version {table.version}; the next one is looked for"
    return WatchedTable(*named, why, is_due=False, next_at=table.next_look)
