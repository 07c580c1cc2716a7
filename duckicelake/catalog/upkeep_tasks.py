"""What tasks of upkeep are given and give back, and how a feature adds kinds of its own.

A worker runs an action: a function of services, task and control. It has the table's lease meanwhile.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.postgres.queries import Transaction

ABSENT_SECONDS: Final = 180.0
"""After which a process that has noted nothing since looks for no tasks. Idle lakes have a look each minute."""


class TaskControl(Protocol):
    """What a task may use, and whether it is to go on.

    Attributes:
        memory_bytes: memory that DuckDB may take.
        scratch_bytes: temporary disk that it may take, in the folder of its process.
        share: of the machine's cores, which it may take at the moment: from above 0 to 1, less beside writers.

    """

    @property
    def memory_bytes(self) -> int: ...

    @property
    def scratch_bytes(self) -> int: ...

    @property
    def share(self) -> float: ...

    def check(self) -> None:
        """Raise TaskStoppedError if the lease is lost, the worker stops, or quiet hours begin. Call it often."""

    def report(self, counts: Mapping[str, int]) -> None:
        """Say how far the task is; the next heartbeat records it."""


TaskAction = Callable[[Services, UpkeepTask, TaskControl], TaskOutcome]
"""Does a task once. It raises CatalogError: UnavailableError and ConflictError are tried again later, others are shown
as the reason why the table can't be kept."""
IsWanted = Callable[[Namespace, str], bool]
"""Whether a request is about the table of a namespace and name."""


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """A table for which a feature looks again and again whether a task is due, as the catalog knows it now.

    Attributes:
        source: what the table is kept up with, as the folder of a Delta table.
        why: what makes a task due, or what the next one waits for.
        is_due: whether a task is due, waits or runs.
        next_at: when the task is due, tried again, or looked for. None: now if it is due, else after a change.
        behind_seconds: for how long a task has been due; None: none is.

    """

    namespace: Namespace
    table: str
    kind: str
    source: str
    why: str
    is_due: bool
    next_at: datetime | None = None
    behind_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class UpkeepSource:
    """Kinds of tasks that a feature adds.

    Attributes:
        actions: `module:attribute` of each kind's TaskAction.
        find_due: lists the tasks that are due now. It is called every few seconds, so it must be cheap.
        find_asked: lists the tasks that a request for these kinds is to have done now, whether or not one failed; only
            of tables for which the function says so that it is given. It must ask no store about others.
        pause_setting: name of the setting with the seconds between two calls of `find_due`, by all processes together;
            0: it is never called. None: it is called at each look at the lake.
        is_used: whether the lake has anything that `find_due` looks at. `find_due` isn't called without, where there is
            a setting.
        list_watched: lists the tables that `find_due` looks at, of those with these names of schema and table. It asks
            no store.

    """

    actions: Mapping[str, str] = field(default_factory=dict)
    find_due: Callable[[Services], Sequence[UpkeepTask]] = lambda _: ()
    find_asked: Callable[[Services, IsWanted], Sequence[UpkeepTask]] = lambda _, __: ()
    pause_setting: str | None = None
    is_used: Callable[[Transaction], bool] = lambda _: False
    list_watched: Callable[[Transaction, Sequence[tuple[str, str]]], Sequence[WatchedTable]] = lambda _, __: ()
