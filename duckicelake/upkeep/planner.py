"""Plan what a lake's tables need, from statistics in SQL, and put it into the queue."""

import hashlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.scan_explanation import parse_file_condition
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import BadInputError, InvalidRequestError, TaskHeldError, summarize
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.lake.ducklake import maintenance, snapshots
from duckicelake.lake.ducklake.maintenance import InlinedRowStats, UpkeepStatistics
from duckicelake.maintenance.idle_kinds import IdleKinds, explain_disabled
from duckicelake.maintenance.plan import MaintenanceState, plan_jobs
from duckicelake.maintenance.policy import AUTOMATIC, JOB_KINDS, parse_policy
from duckicelake.maintenance.task import UpkeepTask
from duckicelake.postgres.queries import Transaction
from duckicelake.upkeep import queue
from duckicelake.upkeep.actions import list_kinds
from duckicelake.upkeep.queue import DueTask, HeldTask
from duckicelake.upkeep.sources import find_asked

_CHUNK_TABLES: Final = 1000
_LEASE_SECONDS: Final = 120.0
"""For which a process has the plan that it makes."""
_PAUSE_RATIO: Final = 20.0
"""A plan is due again after so many times as long as the last one took, so that plans take a twentieth of a core."""
_NEEDS_ALL_FILES: Final = frozenset({"statistics"})
"""Kinds of tasks that fail at any file that can't be read."""
PROBLEM_KIND: Final = "policy"
"""The kind of tasks that stand for tables with policies that can't be."""
_WRONG: Final = "a policy is wrong"
"""Why such a task is there; its problem says what is wrong."""
_PART_POLICIES: Final = {"maintenance.compaction.min-files": "2"}
"""Of a part of a table that was asked for by name."""
_SAME_FIELDS: Final = {field.name for field in fields(MaintenanceState)} & {
    field.name for field in fields(UpkeepStatistics)
}


def plan_lake(services: Services, pause_seconds: float, *, is_forced: bool = False) -> int | None:
    """Plan a whole lake, unless another process does or it isn't due; return how many tasks may be taken since then.

    pause_seconds: at least so long after it the next plan is due.
    """
    with services.database.transaction() as cursor:
        taken = queue.take_plan(cursor, _LEASE_SECONDS, is_forced=is_forced)
    if taken is None:
        return None
    now_ms, snapshot = taken
    began = time.monotonic()
    due = [item for item in find_due(services, now_ms, leaves_unreadable=True) if _is_automatic(item)]
    with services.database.transaction() as cursor:
        count = queue.enqueue(cursor, due).ready if due else 0
        queue.forget_tasks(cursor, (*JOB_KINDS, PROBLEM_KIND), due)
        queue.note_plan(cursor, snapshot, max(pause_seconds, _PAUSE_RATIO * (time.monotonic() - began)))
    return count


def request_tasks(
    services: Services,
    namespace: Namespace | None,
    table: str | None,
    kinds: Collection[str],
    idle: IdleKinds | None = None,
) -> Sequence[DueTask]:
    """Put what tables need now into the queue, whatever they do by themselves, and return it.

    Raises BadInputError; TaskHeldError if the queue can take nothing of it now. Tables with wrong policies are returned
    with their problem, and so is what the queue can't take; nothing of them is queued.
    kinds: only these; none given: all, but those that delete for ever only where a policy asks for them. idle: looks
    at the policies of the tables.
    """
    with services.database.statement() as cursor:
        now_ms = snapshots.read_clock(cursor)
    of_jobs = [kind for kind in kinds if kind in JOB_KINDS]
    planned = find_due(services, now_ms, namespace, table, of_jobs, idle) if of_jobs or not kinds else []
    asked = find_asked(services, namespace, table, kinds)
    found = [item for item in planned if item.task.kind in list_kinds() and (kinds or item.task.is_chosen)]
    found += [item for item in asked if item.problem is None]
    return _request(services, found) + [item for item in (*planned, *asked) if item.problem is not None]


def request_part(
    services: Services, namespace: Namespace, table: str, kinds: Collection[str], where: str
) -> Sequence[DueTask]:
    """Put rewrites of the files that may hold rows of a condition into the queue, due or not, and return them.

    kinds: compact or sort; none given: compact, which then takes two small files for many. Raises NoSuchTableError;
    InvalidRequestError for a condition that statistics don't decide, or a policy that keeps workers from the table;
    TaskHeldError as `request_tasks`.
    """
    wrong = sorted(set(kinds) - {"compact", "sort"})
    if wrong:
        raise InvalidRequestError(f"where is about the files that compact and sort rewrite, not about {wrong[0]}")
    version = load_current_table(services, namespace, table)
    parse_file_condition(where, version.metadata.schema())
    with services.database.statement(only_reads=True) as cursor:
        ((row, inlined),) = maintenance.read_statistics(cursor, [version.row.table_id], services.maintenance)
    policies = {**row.policies, **_PART_POLICIES}
    try:
        policy = parse_policy(policies)
    except BadInputError as error:
        raise InvalidRequestError(f"The table is left alone: {error}") from error
    if not policy.enabled:
        raise InvalidRequestError(f"The table is left alone: {explain_disabled(policies)}")
    if "sort" in kinds and policy.order is None and not version.metadata.sort_order().fields:
        raise InvalidRequestError("The table has no order to sort by: set maintenance.sort.order")
    size = build_state(row, inlined).target_size
    why = f"asked for, where {where}"
    found = [
        DueTask(row.table_id, UpkeepTask(kind, namespace, table, why, policy, size, where), where, policies)
        for kind in sorted(set(kinds)) or ("compact",)
    ]
    return _request(services, found)


def _request(services: Services, due: Sequence[DueTask]) -> list[DueTask]:
    """Put tasks that are asked for into the queue; what it can't take comes back with its problem. TaskHeldError.

    One that runs already for the same condition is as good as queued.
    """
    if not due:
        return []
    with services.database.transaction() as cursor:
        queued = queue.enqueue(cursor, due, requested_by=services.caller.principal.name).keys
        others = [item for item in due if item.key not in queued]
        held = queue.read_held(cursor, others) if others else {}
    refused = [item for item in others if item.key in held and held[item.key].where != item.task.where]
    problems = [_explain_held(item.task, held[item.key]) for item in refused]
    if len(problems) == len(due):
        raise TaskHeldError(f"Nothing was put into the queue: {summarize(problems)}")
    taken = [item for item in due if item not in refused]
    return taken + [replace(item, problem=problem) for item, problem in zip(refused, problems, strict=True)]


def _explain_held(task: UpkeepTask, held: HeldTask) -> str:
    """Say what of the same table and kind keeps a task out of the queue."""
    name = format_full_name(task.namespace, task.table)
    where = "" if held.where is None else f", where {held.where},"
    state = "runs" if held.state == "running" else "is in the queue"
    return f"{task.kind} of {name}{where} {state}: ask for it again once that has ended"


def find_due(
    services: Services,
    now_ms: int,
    namespace: Namespace | None = None,
    table: str | None = None,
    kinds: Collection[str] = (),
    idle: IdleKinds | None = None,
    *,
    leaves_unreadable: bool = False,
) -> list[DueTask]:
    """Find what tables need now, of a namespace and those below it or one; blocked tasks stand for wrong policies.

    idle: looks at the policies of the tables. leaves_unreadable: a task that only files make due that can't be read
    isn't due again after each change of its table.
    """
    schema = None if namespace is None else to_schema_name(namespace)
    found: list[DueTask] = []
    after: int = 0
    while True:
        with services.database.statement(only_reads=True) as cursor:
            ids = [row[0] for row in maintenance.read_table_ids(cursor, schema, table, after, _CHUNK_TABLES)]
            rows = maintenance.read_statistics(cursor, ids, services.maintenance) if ids else []
            readable = _read_readable(services, cursor, ids) if leaves_unreadable and ids else {}
        for row, inlined in rows:
            found += _plan_table(row, inlined, now_ms, kinds, readable.get(row.table_id))
            if idle is not None:
                idle.look(row.policies)
        if len(ids) < _CHUNK_TABLES:
            return found
        after = ids[-1]


@dataclass(frozen=True, slots=True)
class _ReadableState:
    """A table's state without the files that can't be read. digest: the same as long as these and its policies are."""

    state: MaintenanceState
    digest: str


def _read_readable(services: Services, cursor: Transaction, table_ids: Sequence[int]) -> dict[int, _ReadableState]:
    """Read the states without files that can't be read, of the tables that have such files."""
    unreadable = maintenance.read_unreadable(cursor, table_ids)
    if not unreadable:
        return {}
    left_out = [data_file_id for ids in unreadable.values() for data_file_id in ids]
    rows = maintenance.read_statistics(cursor, list(unreadable), services.maintenance, left_out)
    return {
        row.table_id: _ReadableState(
            build_state(row, inlined), _hash((unreadable[row.table_id], sorted(row.policies.items())))
        )
        for row, inlined in rows
    }


def _plan_table(
    row: UpkeepStatistics,
    inlined: InlinedRowStats,
    now_ms: int,
    kinds: Collection[str],
    readable: _ReadableState | None,
) -> Iterator[DueTask]:
    state = build_state(row, inlined)
    plan = plan_jobs([state], now_ms, kinds)
    if not (plan.jobs or plan.problems):
        return
    done = set[str]()
    if readable is not None:
        digest = _build_digest(readable.state)
        for task in plan_jobs([readable.state], now_ms, kinds).jobs:
            if task.kind not in _NEEDS_ALL_FILES:
                done.add(task.kind)
                yield DueTask(row.table_id, task, digest, row.policies)
    digest = _build_digest(state) if readable is None else readable.digest
    for task in plan.jobs:
        if task.kind not in done:
            yield DueTask(row.table_id, task, digest, row.policies)
    for problem in plan.problems:
        task = UpkeepTask(PROBLEM_KIND, state.namespace, state.table, _WRONG, parse_policy({}), state.target_size)
        yield DueTask(row.table_id, task, digest, row.policies, problem)


def build_state(row: UpkeepStatistics, inlined: InlinedRowStats) -> MaintenanceState:
    """Build what the planner reads of a table from its rows in SQL."""
    same = {name: getattr(row, name) for name in _SAME_FIELDS - {"small_by_partition", "by_deleted_tenths"}}
    return MaintenanceState(
        namespace=parse_schema_name(row.schema_name),
        table=row.table_name,
        inlined_rows=inlined.rows,
        inlined_oldest_ms=inlined.oldest_ms,
        policies=row.policies,
        small_by_partition={int(files): parts for files, parts in row.small_by_partition.items()},
        by_deleted_tenths=tuple(row.by_deleted_tenths),
        **{name: value for name, value in same.items() if name not in {"policies", "namespace", "table"}},
    )


def _build_digest(state: MaintenanceState) -> str:
    """Build a text that differs where the table's state does; names don't count."""
    nameless = replace(state, namespace=(), table="")
    return _hash(nameless)


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:32]


def _is_automatic(item: DueTask) -> bool:
    """Return whether the lake does a task without being asked. Wrong policies show where any are about it."""
    if item.problem is not None:
        return True
    return item.task.kind in item.task.policy.automatic and item.task.kind in list_kinds()


def keeps_itself(services: Services, policies: Mapping[str, str]) -> bool:
    """Return whether a lake says of itself what its workers do: a table's policies count only then."""
    return AUTOMATIC in policies or AUTOMATIC in services.maintenance
