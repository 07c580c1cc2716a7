"""Refresh views by themselves, on schedule and once a source has changed: tasks of the upkeep of the lake."""

from collections.abc import Sequence
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.upkeep_tasks import TaskControl, UpkeepSource
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.materialized_views import view_rows
from duckicelake.materialized_views.refreshes import REFRESH_SECONDS, refresh_view
from duckicelake.query.processes import QueryLimits

KIND: Final = "refresh"
CHANGE_SECONDS: Final = 5.0
"""For which a change of a source waits for others, so that one refresh takes all in."""
FAILURE_SECONDS: Final = 300.0
"""After which a refresh that failed is tried again."""
_MAX_SNAPSHOTS: Final = 1000
"""Snapshots that are looked through again and again for changes of a source."""


def find_due(services: Services) -> Sequence[UpkeepTask]:
    """Find the views that are to be refreshed now, and say why."""
    with services.database.statement() as cursor:
        due = view_rows.read_due(cursor, CHANGE_SECONDS, FAILURE_SECONDS)
        view_rows.skip_unchanged(cursor, _MAX_SNAPSHOTS)
    policy = parse_policy({})
    return [UpkeepTask(KIND, namespace, name, why, policy, 0) for namespace, name, why in due]


def run_refresh(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Run the refresh of a task; raises what `refresh_view` does, and TaskStoppedError."""
    control.check()
    limits = QueryLimits(1, control.memory_bytes, control.scratch_bytes, REFRESH_SECONDS, 0)
    view = refresh_view(services, task.namespace, task.table, limits=limits, check=control.check)
    last = view.last
    counts = {"rows written": last.rows_written}
    return TaskOutcome("unchanged" if last.mode == "unchanged" else "done", f"{last.mode}: {last.reason}", (), counts)


UPKEEP_SOURCE: Final = UpkeepSource({KIND: "duckicelake.materialized_views.upkeep:run_refresh"}, find_due)
