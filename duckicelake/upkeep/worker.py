"""Take tasks of a lake from the queue, and do them one after the other.

A worker that is killed leaves a task whose lease ends; another takes it again. The job's lease keeps Spark's pipeline
and other workers from the table meanwhile, and the list of jobs is the history.
"""

import errno
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, cast
from uuid import uuid4

import duckdb

from duckicelake.catalog import jobs
from duckicelake.catalog.context.caller import Caller, Principal
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.jobs import BeginJob, EndJob, Kind, RenewJob, Result
from duckicelake.errors import (
    BadInputError,
    CatalogError,
    CommitStateUnknownError,
    ConflictError,
    JobEndedError,
    JobHeldError,
    NoSuchTableError,
    QueryMemoryError,
    StoreRestingError,
    TaskStoppedError,
    TooManyRequestsError,
    UnavailableError,
)
from duckicelake.iceberg.identifiers import Namespace, parse_schema_name
from duckicelake.lake.ducklake import maintenance
from duckicelake.maintenance.policy import OPT_IN_KINDS, MaintenancePolicy, parse_policy
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.postgres.queries import Transaction, replace_unstorable
from duckicelake.upkeep import queue
from duckicelake.upkeep.actions import list_kinds, load_action
from duckicelake.upkeep.queue import ClaimedTask, State

MAINTENANCE_LEASE: Final = "maintenance"
"""As `pipeline.maintenance` calls it: neither runs beside the other."""
LEASE_SECONDS: Final = 30
_HEARTBEATS: Final = 3
"""In the time of a lease."""
_HELD_MS: Final = 15_000
"""After which a table is tried again that another job has."""
_UNKNOWN_MS: Final = 60_000
"""After which a task is put into the queue again whose policies a worker doesn't know: another may."""
_KILLED_MS: Final = 24 * 3_600_000
"""After which a task is put into the queue again that killed its workers, whatever its table does meanwhile."""
MAX_ATTEMPTS: Final = 6
_MAX_MESSAGE_CHARS: Final = 1000
_CALLER: Final = Caller(Principal("duckicelake", ()), operation="upkeep")
_MEMORY_SETTING: Final = "DUCKICELAKE_UPKEEP_MEMORY_BYTES"
_FULL_DISK: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_TAKEN: Final = "another worker has taken the task: this one was too slow to renew its lease"
_PASSING: Final = (UnavailableError, ConflictError, TooManyRequestsError, CommitStateUnknownError, OSError)
"""What may be gone at the next attempt."""


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """What one worker may take.

    at_once: tasks of a warehouse that may run at once, by all workers. share: of the cores, beside writers.
    """

    memory_bytes: int
    disk_bytes: int
    at_once: int
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How an attempt ended. is_attempt: whether it counts as one."""

    state: State
    message: str | None = None
    outcome: TaskOutcome | None = None
    until_ms: int | None = None
    is_attempt: bool = True


class RunningTask:
    """The control of a task that runs: a thread renews its leases; a `TaskControl`."""

    def __init__(
        self, services: Services, claimed: ClaimedTask, task: UpkeepTask, limits: WorkerLimits, stopped: threading.Event
    ) -> None:
        self._services = services
        self._claimed = claimed
        self._task = task
        self._stopped = stopped
        self._ended = threading.Event()
        self._counts: Mapping[str, int] = {}
        self._lost: str | None = None
        self._quiet_until: int | None = None
        self._has_job = False
        self.memory_bytes = limits.memory_bytes // 2  # beside its limit DuckDB takes up to as much for what it writes
        self.scratch_bytes = limits.disk_bytes
        self.share = 1.0
        self._share_beside_writers = 1.0 if claimed.is_late else limits.share

    def check(self) -> None:
        """Raise TaskStoppedError if the task is to end."""
        if self._lost is not None:
            raise TaskStoppedError(self._lost)
        if self._stopped.is_set():
            raise TaskStoppedError("the worker stops")
        if self._quiet_until is not None:
            raise TaskStoppedError("quiet hours have begun")

    def report(self, counts: Mapping[str, int]) -> None:
        """Say how far the task is."""
        self._counts = dict(counts)

    @property
    def quiet_until_ms(self) -> int | None:
        """When the quiet hours end by which the task was stopped."""
        return self._quiet_until

    def run(self) -> TaskOutcome:
        """Hold the table's lease, and do the task; raises what it raises. JobEndedError if the claim is lost by now."""
        self._begin_job()
        with self._services.database.transaction() as cursor:
            self._renew_claim(cursor)  # this process may have been frozen for longer than its lease
        self._choose_share()
        thread = threading.Thread(target=self._renew_until_end, name="upkeep-heartbeat", daemon=True)
        thread.start()
        try:
            self.check()
            return load_action(self._task.kind)(self._services, self._task, self)
        finally:
            self._ended.set()
            thread.join()

    def close(self, end: TaskEnd) -> None:
        """Note in the list of jobs what came of the task, if it began."""
        if not self._has_job:
            return
        outcome = end.outcome
        made = outcome.snapshot_ids if outcome else ()
        result: Result = "skipped" if end.state in {"queued", "waiting"} else "failed"
        ended = EndJob(
            result=outcome.result if outcome else result,
            message=outcome.message if outcome else end.message,
            snapshot_ids=made[-jobs.MOST_SNAPSHOTS :],
            counts=dict(outcome.counts if outcome else self._counts),
        )
        about = dict(outcome.parameters) if outcome else {}
        with suppress(CatalogError):  # the job is another's by now, or its lease ends by itself
            jobs.end_job(self._services, *self._name, self._claimed.claim, ended, made[: -jobs.MOST_SNAPSHOTS], about)

    def abandon(self) -> None:
        """Give the task back to the queue while it goes on."""
        end = TaskEnd("queued", "the worker stopped", is_attempt=False)
        with suppress(CatalogError), self._services.database.transaction() as cursor:
            queue.finish_task(cursor, self._claimed.claim, end.state, end.message, is_attempt=False)
        self.close(end)

    @property
    def _name(self) -> tuple[Namespace, str]:
        return self._task.namespace, self._task.table

    def _begin_job(self) -> None:
        parameters = {**self._task.parameters, "estimate": self._task.estimate.to_json()}
        begin = BeginJob(
            id=self._claimed.claim,
            kind=cast("Kind", self._task.kind),
            lease=MAINTENANCE_LEASE,
            lease_seconds=LEASE_SECONDS,
            engine=f"duckicelake upkeep on {name_worker()}",
            parameters=parameters,
        )
        jobs.begin_job(self._services, *self._name, begin)
        self._has_job = True

    def _renew_until_end(self) -> None:
        while not self._ended.wait(LEASE_SECONDS / _HEARTBEATS):
            try:
                self._renew()
            except JobEndedError as error:
                self._lost = str(error)
                return
            except Exception:  # noqa: BLE001, S112 - the next heartbeat may reach Postgres; else the leases end
                continue

    def _renew_claim(self, cursor: Transaction) -> int:
        """Renew the claim, and return Postgres's time. JobEndedError if another worker has it."""
        now_ms = queue.renew_claim(cursor, self._claimed.claim, LEASE_SECONDS, self._counts)
        if now_ms is None:
            raise JobEndedError(_TAKEN)
        return now_ms

    def _renew(self) -> None:
        with self._services.database.transaction() as cursor:
            now_ms = self._renew_claim(cursor)
        jobs.renew_job(
            self._services,
            *self._name,
            self._claimed.claim,
            RenewJob(lease_seconds=LEASE_SECONDS, counts=dict(self._counts)),
        )
        self._quiet_until = find_quiet_end(self._task.policy, now_ms)
        self._choose_share()

    def _choose_share(self) -> None:
        with self._services.database.reading() as cursor:
            self.share = self._share_beside_writers if queue.has_writers(cursor) else 1.0


class Worker:
    """Does tasks of any lake, one at a time."""

    def __init__(self, limits: WorkerLimits, log: Callable[[str], object] = lambda _: None) -> None:
        self.stopped = threading.Event()
        """Ends the task under way, which goes back to the queue."""
        self._limits = limits
        self._log = log
        self._running: RunningTask | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it does a task; for other threads."""
        return self._running is not None

    def abandon(self) -> None:
        """Put the task under way back into the queue though it goes on; the process must end at once."""
        running = self._running
        if running is not None:
            running.abandon()

    def work(self, services: Services) -> bool:
        """Take one task of a lake, and do it; return whether there was one. Raises UnavailableError."""
        claim = uuid4()
        with services.database.transaction() as cursor:
            claimed = queue.claim_task(
                cursor, claim, name_worker(), sorted(list_kinds()), self._limits.at_once, LEASE_SECONDS
            )
            names = None if claimed is None else queue.find_table(cursor, claimed.table_id)
        if claimed is None:
            return False
        end = self._do(replace(services, caller=_CALLER), claimed, names)
        with services.database.transaction() as cursor:
            is_ours = queue.finish_task(
                cursor,
                claim,
                end.state,
                None if end.message is None else end.message[:_MAX_MESSAGE_CHARS],
                counts=end.outcome.counts if end.outcome else None,
                until_ms=end.until_ms,
                is_attempt=end.is_attempt,
            )
        came = f"{end.state}" + (f", {end.message}" if end.message else "")
        self._log(f"{claimed.kind} {names[1] if names else claimed.table_id}: {came if is_ours else _TAKEN}")
        return True

    def _do(self, services: Services, claimed: ClaimedTask, names: tuple[str, str] | None) -> TaskEnd:
        if names is None:
            return TaskEnd("done", "the table is gone", is_attempt=False)
        if claimed.attempts > MAX_ATTEMPTS:
            message = f"each of {MAX_ATTEMPTS} workers was killed at it. It is tried again in a day, or if asked for"
            return TaskEnd("failed", message, until_ms=claimed.now_ms + _KILLED_MS)
        try:
            policy = parse_policy(_read_policies(services, claimed))
        except BadInputError as error:  # of a server of a newer version, which knows more
            message = f"{error}. {name_worker()} is of another version than the server that planned it"
            return TaskEnd("blocked", message, until_ms=claimed.now_ms + _UNKNOWN_MS)
        if not _is_wanted(claimed, policy):
            return TaskEnd("done", "no policy asks for it any more", is_attempt=False)
        quiet = find_quiet_end(policy, claimed.now_ms)
        if quiet is not None:
            return TaskEnd("waiting", "quiet hours", until_ms=quiet, is_attempt=False)
        task = UpkeepTask(
            claimed.kind,
            parse_schema_name(names[0]),
            names[1],
            claimed.why,
            policy,
            claimed.target_size,
            claimed.where,
            claimed.estimate,
        )
        self._log(f"{task}")
        self._running = running = RunningTask(services, claimed, task, self._limits, self.stopped)
        try:
            end = explain_outcome(running.run(), claimed)
        except Exception as error:  # noqa: BLE001 - whatever it was, the queue must say so, and other tasks go on
            end = explain_end(error, claimed, running.quiet_until_ms)
        running.close(end)
        self._running = None
        return end


def _read_policies(services: Services, claimed: ClaimedTask) -> Mapping[str, str]:
    """Return the policies by which a task is done: those of its plan, or of now where it deletes for ever."""
    if claimed.kind not in OPT_IN_KINDS:
        return claimed.policies
    with services.database.statement(only_reads=True) as cursor:
        found = maintenance.read_statistics(cursor, [claimed.table_id], services.maintenance)
    return found[0][0].policies if found else claimed.policies


def _is_wanted(claimed: ClaimedTask, policy: MaintenancePolicy) -> bool:
    """Return whether the policies of now still ask for a task that deletes for ever."""
    if claimed.kind not in OPT_IN_KINDS:
        return True
    is_enabled = policy.expires if claimed.kind == "expire" else policy.orphans
    return policy.enabled and is_enabled and (claimed.is_asked or claimed.kind in policy.automatic)


def explain_outcome(outcome: TaskOutcome, claimed: ClaimedTask) -> TaskEnd:
    """Say what becomes of a task that ended by itself: one that others kept from it is tried again.

    One that has done a part goes back to the queue.
    """
    if outcome.has_more:
        return TaskEnd("queued", outcome.message, outcome, is_attempt=False)
    if outcome.result != "skipped":
        return TaskEnd("done", outcome.message, outcome)
    return TaskEnd("failed" if claimed.attempts >= MAX_ATTEMPTS else "waiting", outcome.message, outcome)


def explain_end(error: Exception, claimed: ClaimedTask, quiet_until_ms: int | None = None) -> TaskEnd:
    """Say what becomes of a task that raised: it waits for another attempt, has failed, or is blocked."""
    message = replace_unstorable(" ".join(str(error).split())) or type(error).__name__
    if isinstance(error, TaskStoppedError):
        state: State = "queued" if quiet_until_ms is None else "waiting"
        return TaskEnd(state, message, until_ms=quiet_until_ms, is_attempt=False)
    if isinstance(error, JobHeldError):
        return TaskEnd("waiting", message, until_ms=claimed.now_ms + _HELD_MS, is_attempt=False)
    if isinstance(error, StoreRestingError):
        until_ms = claimed.now_ms + round(1000 * error.seconds)
        return TaskEnd("waiting", message, until_ms=until_ms, is_attempt=False)
    if isinstance(error, NoSuchTableError):
        return TaskEnd("waiting", f"{message}: it was dropped or renamed meanwhile")
    if isinstance(error, OSError) and error.errno in _FULL_DISK:
        message = f"the disk of {name_worker()} is full: {message}"
    if isinstance(error, QueryMemoryError) and _MEMORY_SETTING not in message:
        message = f"{message}. Raise {_MEMORY_SETTING}, of which DuckDB has half, and ask for the task again"
    if isinstance(error, CatalogError) and not isinstance(error, _PASSING):
        return TaskEnd("blocked", message)
    if not isinstance(error, (CatalogError, OSError, duckdb.Error)):
        message = f"{type(error).__name__}: {message}"
    if claimed.attempts >= MAX_ATTEMPTS:
        return TaskEnd("failed", f"after {claimed.attempts} attempts: {message}")
    return TaskEnd("waiting", message)


def find_quiet_end(policy: MaintenancePolicy, now_ms: int) -> int | None:
    """Find when the policy's quiet hours end that a moment is in; None if it is in none."""
    return None if policy.quiet is None else policy.quiet.find_end(now_ms)


def name_worker() -> str:
    """Name this process: host and pid."""
    return f"{socket.gethostname()}:{os.getpid()}"
