"""Say which materialized views are refreshed by themselves, when next, and for how long that has been due."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from duckicelake.catalog.upkeep_tasks import WatchedTable
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.materialized_views import view_rows
from duckicelake.materialized_views.view_rows import ScheduledView
from duckicelake.postgres.queries import Transaction

KIND: Final = "refresh"
"""Of the tasks that refresh views."""
FAILURE_SECONDS: Final = 300.0
"""After which a refresh that failed is tried again."""


def list_watched(cursor: Transaction, names: Sequence[tuple[str, str]]) -> Sequence[WatchedTable]:
    """List the views of these names of schema and table that are refreshed by themselves."""
    return [_describe(view) for view in view_rows.read_scheduled(cursor, names, KIND)]


def _describe(view: ScheduledView) -> WatchedTable:
    due_at = [at for at in (view.clock_at, view.changed_at) if at is not None and at <= view.now]
    began = min(due_at, default=None)
    return WatchedTable(
        namespace=parse_schema_name(view.schema_name),
        table=view.table_name,
        kind=KIND,
        source=", ".join(view.sources),
        why=_explain(view),
        is_due=began is not None,
        next_at=_find_next(view, is_due=began is not None),
        behind_seconds=None if began is None else (view.now - began).total_seconds(),
    )


def _explain(view: ScheduledView) -> str:
    if view.error is not None:
        return f"its last refresh failed: {view.error}"
    if view.changed_at is not None:
        return "a source has changed"
    return "no source has changed" if view.every_seconds is None else f"it is refreshed every {view.every_seconds} s"


def _find_next(view: ScheduledView, *, is_due: bool) -> datetime | None:
    if view.waits_until is not None:
        return view.waits_until
    if is_due and view.failed_at is not None:
        return view.failed_at + timedelta(seconds=FAILURE_SECONDS)
    return None if is_due else view.clock_at
