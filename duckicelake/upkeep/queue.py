"""The queue of tasks, as rows of `duckicelake_upkeep_task`. Postgres's clock decides about every lease and time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import orjson

from duckicelake.catalog.upkeep_tasks import ABSENT_SECONDS
from duckicelake.errors import format_count
from duckicelake.maintenance.task import TaskEstimate, UpkeepTask
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("upkeep", "queue")
_IDLE_SECONDS: Final = 30.0
"""Seconds within which a worker takes a task that is due; its process may have to start."""

HEARTBEAT_SECONDS: Final = 30.0
"""Between two notes of a process that it looks for tasks."""

State = Literal["queued", "running", "waiting", "blocked", "failed", "done"]
CHANNEL: Final = "duckicelake_upkeep"
"""On which Postgres notifies workers of new tasks, with the lake's schema."""
BACKOFF_SECONDS: Final = 10
"""Before the second attempt; each later one waits twice as long, up to an hour, half of it at random."""


@dataclass(frozen=True, slots=True)
class LakeWatch:
    """What a worker looks at to see whether a lake needs it. policies: of the whole lake, as properties."""

    policies: Mapping[str, str]
    is_plan_due: bool
    has_open_task: bool


@dataclass(frozen=True, slots=True)
class DueTask:
    """A task for the queue. digest: of the table's state. problem: why it is blocked, if it is."""

    table_id: int
    task: UpkeepTask
    digest: str
    policies: Mapping[str, str]
    problem: str | None = None

    @property
    def key(self) -> tuple[int, str]:
        """Return (table id, kind), of which the queue has one task."""
        return self.table_id, self.task.kind


@dataclass(frozen=True, slots=True)
class EnqueuedTasks:
    """What has come into the queue. keys: (table id, kind) of each. ready: how many may be taken since then."""

    keys: frozenset[tuple[int, str]]
    ready: int


@dataclass(frozen=True, slots=True)
class ClaimedTask:
    """A task that a worker has taken.

    claim: by which it holds it. now_ms: Postgres's time. is_late: due for a day. is_asked: by a request.
    """

    claim: UUID
    table_id: int
    kind: str
    why: str
    estimate: TaskEstimate
    policies: Mapping[str, str]
    target_size: int
    where: str | None
    attempts: int
    now_ms: int
    is_late: bool
    is_asked: bool


@dataclass(frozen=True, slots=True)
class HeldTask:
    """A task that keeps another of its table and kind out of the queue. where: its condition."""

    where: str | None
    state: State


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task as the queue shows it. job: the id of the job that does it, while it runs.

    message: what came of it or keeps it. Of a task that is due it first says why no worker has taken it.
    """

    number: int
    schema_name: str
    table_name: str
    kind: str
    state: State
    why: str
    message: str | None
    estimate: Mapping[str, Any]
    requested_by: str | None
    attempts: int
    available: datetime
    created: datetime
    changed: datetime
    worker: str | None
    lease_until: datetime | None
    job: UUID | None
    counts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks to list; None: any. visible: schemas whose tables may be seen; visible_ids: and other tables."""

    after: int = 0
    state: str | None = None
    schema_name: str | None = None
    table_name: str | None = None
    visible: Sequence[str] | None = None
    visible_ids: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class StateTotal:
    """How many tasks are in a state. age: seconds for which the oldest that may be taken has been there."""

    state: str
    tasks: int
    age: float


def watch_lake(cursor: Transaction) -> LakeWatch:
    """Look whether a plan is due, or a task to be taken."""
    (row,) = cursor.execute(_SQL.watch).fetchall()
    return LakeWatch(*row)


def take_plan(cursor: Transaction, seconds: float, *, is_forced: bool = False) -> tuple[int, int] | None:
    """Take the next plan, for so many seconds: Postgres's time in milliseconds, and DuckLake's newest snapshot.

    None if another process has it, or it isn't due.
    """
    row = cursor.execute(_SQL.take_plan, {"seconds": seconds, "is_forced": is_forced}).fetchone()
    return None if row is None else (row[0], row[1])


def note_plan(cursor: Transaction, snapshot: int, seconds: float) -> None:
    """Note that the lake was planned at a snapshot; the next plan is due after so many seconds."""
    cursor.execute(_SQL.note_plan, {"snapshot": snapshot, "seconds": seconds})


def take_look(cursor: Transaction, setting: str, seconds: float) -> datetime | None:
    """Take the next look at what a feature wants done, for so many seconds; None if it isn't due.

    Returns until when no other process looks. setting: the name of the setting with the seconds between two looks.
    """
    row = cursor.execute(_SQL.take_look, {"setting": setting, "seconds": seconds}).fetchone()
    return None if row is None else row[0]


def end_look(cursor: Transaction, setting: str, until: datetime, seconds: float) -> None:
    """Note that a look has ended that was taken until a time, and that the next one is due so much later."""
    cursor.execute(_SQL.end_look, {"setting": setting, "until": until, "seconds": seconds})


def note_presence(cursor: Transaction, settings: Sequence[str]) -> None:
    """Note that a process looks at the lake, and by which settings it looks for tasks."""
    cursor.execute(_SQL.note_presence, {"settings": list(settings), "seconds": HEARTBEAT_SECONDS / 2})


def read_presence(cursor: Transaction) -> set[str]:
    """Read by which settings processes have looked for tasks within some minutes."""
    return {row[0] for row in cursor.execute(_SQL.presence, {"seconds": ABSENT_SECONDS}).fetchall()}


def read_policies(cursor: Transaction) -> dict[str, str]:
    """Read the policies of the whole lake."""
    (row,) = cursor.execute(_SQL.policies).fetchall()
    return dict(row[0])


def write_policies(cursor: Transaction, policies: Mapping[str, str]) -> None:
    """Replace the policies of the whole lake."""
    cursor.execute(_SQL.set_policies, {"policies": orjson.dumps(dict(policies)).decode()})


def enqueue(
    cursor: Transaction, due: Sequence[DueTask], *, requested_by: str | None = None, is_repeated: bool = False
) -> EnqueuedTasks:
    """Put tasks into the queue, and return those that are there as given. The commit wakes idle workers for new ones.

    A task of the same table and kind that runs stays, and one that was asked for with another condition.
    requested_by: who asks for them; they then need no change of the table. is_repeated: neither do they then.
    """
    encoded: dict[frozenset[tuple[str, str]], str] = {}  # tables by the thousand have few policies
    texts = []
    for item in due:
        key = frozenset(item.policies.items())
        texts.append(encoded.setdefault(key, orjson.dumps(dict(item.policies)).decode()))
    parameters: dict[str, object] = {
        "table_ids": [item.table_id for item in due],
        "kinds": [item.task.kind for item in due],
        "whys": [item.task.why for item in due],
        "problems": [item.problem for item in due],
        "estimates": [orjson.dumps(item.task.estimate.to_json()).decode() for item in due],
        "ranks": [item.task.estimate.rank for item in due],
        "digests": [item.digest for item in due],
        "policies": texts,
        "target_sizes": [item.task.target_size for item in due],
        "conditions": [item.task.where for item in due],
        "requested_by": requested_by,
        "is_repeated": is_repeated,
    }
    rows = cursor.execute(_SQL.enqueue, parameters).fetchall()
    ready = sum(bool(is_ready) for *_, is_ready in rows)
    if ready:
        cursor.execute(_SQL.notify, {"channel": CHANNEL})
    return EnqueuedTasks(frozenset((table_id, kind) for table_id, kind, _ in rows), ready)


def read_held(cursor: Transaction, due: Sequence[DueTask]) -> dict[tuple[int, str], HeldTask]:
    """Read what the queue has in the places of tasks, by table id and kind."""
    parameters = {"table_ids": [item.table_id for item in due], "kinds": [item.task.kind for item in due]}
    rows = cursor.execute(_SQL.held, parameters).fetchall()
    return {(table_id, kind): HeldTask(*rest) for table_id, kind, *rest in rows}


def read_schema(cursor: Transaction) -> str:
    """Read which schema of Postgres the lake is in, as notifications have it."""
    (row,) = cursor.execute(_SQL.schema).fetchall()
    return str(row[0])


def forget_tasks(cursor: Transaction, kinds: Sequence[str], due: Sequence[DueTask]) -> None:
    """Remove tasks of these kinds that aren't due any more and weren't asked for, and those of tables that are gone."""
    parameters = {
        "kinds": list(kinds),
        "due_tables": [item.table_id for item in due],
        "due_kinds": [item.task.kind for item in due],
    }
    cursor.execute(_SQL.forget, parameters)


def claim_task(
    cursor: Transaction, claim: UUID, worker: str, kinds: Sequence[str], at_once: int, seconds: int
) -> ClaimedTask | None:
    """Take the best task of these kinds for so many seconds; None if there is none, or as many run as may at once."""
    parameters = {"claim": claim, "worker": worker, "kinds": list(kinds), "at_once": at_once, "seconds": seconds}
    cursor.execute(_SQL.lock)
    row = cursor.execute(_SQL.claim, parameters).fetchone()
    if row is None:
        return None
    _, table_id, kind, why, estimate, policies, target_size, where, *rest = row
    return ClaimedTask(
        claim, table_id, kind, why, TaskEstimate.from_json(estimate), policies, target_size, where, *rest
    )


def renew_claim(cursor: Transaction, claim: UUID, seconds: int, counts: Mapping[str, int]) -> int | None:
    """Hold a task for so many seconds more; return Postgres's time in milliseconds, None if it is another's now."""
    parameters = {"claim": claim, "seconds": seconds, "counts": orjson.dumps(dict(counts)).decode()}
    row = cursor.execute(_SQL.renew, parameters).fetchone()
    return None if row is None else int(row[0])


def has_writers(cursor: Transaction) -> bool:
    """Return whether others write to the lake again and again."""
    return cursor.execute(_SQL.has_writers).fetchone() == (True,)


def finish_task(
    cursor: Transaction,
    claim: UUID,
    state: State,
    message: str | None = None,
    *,
    counts: Mapping[str, int] | None = None,
    until_ms: int | None = None,
    is_attempt: bool = True,
) -> bool:
    """Let go of a task in a state; False if it is another's by now.

    until_ms: before which it isn't taken again, nor put into the queue again unless it is asked for or has other
    policies. None: a task that waits pauses longer after each attempt. is_attempt: whether this one counts.
    """
    parameters = {
        "claim": claim,
        "state": state,
        "message": message,
        "counts": orjson.dumps(dict(counts or {})).decode(),
        "until_ms": until_ms,
        "is_attempt": is_attempt,
        "backoff": BACKOFF_SECONDS,
    }
    return cursor.execute(_SQL.finish, parameters).rowcount == 1


def find_table(cursor: Transaction, table_id: int) -> tuple[str, str] | None:
    """Find the names of a table's schema and of itself; None if it is gone."""
    row = cursor.execute(_SQL.names, {"table_id": table_id}).fetchone()
    return None if row is None else (row[0], row[1])


def list_tasks(cursor: Transaction, wanted: TaskFilter, limit: int | None) -> list[QueuedTask]:
    """List the tasks that the filter wants, the oldest first. limit: None lists all."""
    parameters = {
        "after": wanted.after,
        "state": wanted.state,
        "schema_name": wanted.schema_name,
        "table_name": wanted.table_name,
        "visible": None if wanted.visible is None else list(wanted.visible),
        "visible_ids": list(wanted.visible_ids),
        "limit": limit,
    }
    return [_build_task(row) for row in cursor.execute(_SQL.tasks, parameters).fetchall()]


def _build_task(row: Sequence[Any]) -> QueuedTask:
    *values, is_lost, beside, running, due_seconds = row
    task = QueuedTask(*values)
    if is_lost:
        return replace(task, message="its worker was killed or is frozen: the next worker takes it")
    reason = None if due_seconds is None or due_seconds < 0 else _explain_wait(beside, running, due_seconds)
    if reason is None:
        return task
    return replace(task, message=reason if task.message is None else f"{reason}; before: {task.message}")


def _explain_wait(beside: str | None, running: int, due_seconds: float) -> str | None:
    """Say why a task that is due isn't taken; None: a worker is about to take it."""
    if beside is not None:
        return f"waits for the task {beside} of the same table, which runs"
    if running:
        return f"waits for {format_count(running, 'task')} of the warehouse: see DUCKICELAKE_UPKEEP_TASKS and _WORKERS"
    if due_seconds < _IDLE_SECONDS:
        return None
    return f"no worker has taken it for {due_seconds:.0f} seconds: see DUCKICELAKE_UPKEEP_WORKERS, or duckicelake work"


def count_failures(cursor: Transaction) -> dict[str, int]:
    """Count the attempts by kind that failed in the last hour, or whose worker was killed."""
    return dict(cursor.execute(_SQL.failures).fetchall())


def count_tasks(cursor: Transaction) -> list[StateTotal]:
    """Count the tasks by state."""
    return [StateTotal(*row) for row in cursor.execute(_SQL.totals).fetchall()]
