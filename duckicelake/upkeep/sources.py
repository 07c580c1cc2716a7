"""Ask features what they want done, each as often as its setting says, and put that into the queue."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import inf
from time import monotonic
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.upkeep_tasks import UpkeepSource
from duckicelake.errors import BadInputError
from duckicelake.features.registry import load_hooks
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.maintenance.policy import QUIET_HOURS, parse_policy
from duckicelake.maintenance.task import UpkeepTask
from duckicelake.postgres.queries import Transaction
from duckicelake.settings.model import Settings
from duckicelake.storage.threads import DaemonCall
from duckicelake.upkeep import queue
from duckicelake.upkeep.policies import find_nearest
from duckicelake.upkeep.queue import DueTask

_USE_SECONDS: Final = 5.0
"""Between two looks whether a lake has anything that a feature looks at."""
_LEASE_SECONDS: Final = 30.0
"""For which a look is left to the process that has taken it: that may be killed, or wait for a store."""
_PUNCTUALITY: Final = 0.9
"""Of the seconds between two looks: a process that is a little early takes the look, and not the one after it."""

_WORKERS_SETTING: Final = "upkeep_workers"
_WORKER_ADVICE: Final = "set DUCKICELAKE_UPKEEP_WORKERS to 1 or more, or run `duckicelake work`"

_WAIT_SECONDS: Final = 1.0
"""For which a look is waited for that asks stores, which may hang. Tasks that it finds later wake the workers."""
_MAX_REST_SECONDS: Final = 60.0
"""For which a source isn't asked that fails again and again."""


@dataclass(frozen=True, slots=True)
class MissingWorker:
    """What nothing does that a lake needs. detail: says so. advice: what is to be done about it."""

    detail: str
    advice: str


@dataclass(slots=True)
class _Schedule:
    """When a source is asked next, and until when it is known whether the lake has anything for it; by `monotonic`.

    setting: None: it is asked at each look. failures: how many calls have failed since the last that did not. look: the
    one that is under way.
    """

    source: UpkeepSource
    setting: str | None
    seconds: float = 0.0
    next_at: float = 0.0
    is_used: bool = False
    known_until: float = 0.0
    failures: int = 0
    look: DaemonCall[int] | None = None

    def rest(self, seconds: float) -> None:
        """Ask the source no sooner than after so many seconds."""
        self.next_at = max(self.next_at, monotonic() + seconds)


def _raise(error: Exception) -> None:
    raise error


class SourcePlanner:
    """Plans what features want done in one lake. Each process that plans the lake has one."""

    def __init__(self, settings: Settings, failed: Callable[[Exception], object] = _raise) -> None:
        """Make one that has asked nothing yet. failed: is called with each error of a source."""
        sources = load_hooks(UpkeepSource, "upkeep_source")
        self._failed = failed
        self._presence = list_presence(settings)
        self._noted_at = -inf
        """When it noted last that this process looks at the lake, by `monotonic`."""
        self._plain = [_Schedule(source, None) for source in sources if source.pause_setting is None]
        self._schedules = [
            _Schedule(source, source.pause_setting, seconds)
            for source in sources
            if source.pause_setting is not None and (seconds := float(getattr(settings, source.pause_setting))) > 0
        ]

    @property
    def next_at(self) -> float:
        """When a source with a setting is to be asked next, by `monotonic`; inf if there is none."""
        return min((schedule.next_at for schedule in self._schedules), default=inf)

    @property
    def is_used(self) -> bool:
        """Whether the lake has anything for a source with a setting, as of the last look."""
        return any(schedule.is_used for schedule in self._schedules)

    def rest(self, seconds: float) -> None:
        """Ask no source with a setting for so many seconds."""
        for schedule in self._schedules:
            schedule.rest(seconds)

    def plan(self, services: Services, *, is_look: bool) -> int:
        """Put what features want done into the queue; return how many tasks may be taken since then.

        A source that fails rests, and the others are asked. is_look: also ask those that are asked at each look.
        """
        if is_look and monotonic() - self._noted_at >= queue.HEARTBEAT_SECONDS:
            with services.database.statement() as cursor:
                queue.note_presence(cursor, self._presence)
            self._noted_at = monotonic()
        return sum(self._plan(services, schedule) for schedule in (*(self._plain if is_look else ()), *self._schedules))

    def _plan(self, services: Services, schedule: _Schedule) -> int:
        try:
            count = _ask(services, schedule)
        except Exception as error:  # noqa: BLE001 - whatever a feature does, the others go on
            schedule.failures += 1
            schedule.rest(min(2.0 ** min(schedule.failures, 6), _MAX_REST_SECONDS))
            self._failed(error)
            return 0
        if count is not None:
            schedule.failures = 0
        return count or 0


def _ask(services: Services, schedule: _Schedule) -> int | None:
    """Ask a source if that is due and no other process does; return how many tasks may be taken since then.

    Where it fails, the others leave it alone for a while, too. A look that takes long goes on in its thread; the first
    call after its end returns what it found.
    """
    if schedule.look is not None:
        return _read_look(schedule, 0)
    if monotonic() < schedule.next_at:
        return None
    if schedule.setting is None:
        return _enqueue(services, schedule.source.find_due(services))
    until = _take(services, schedule, schedule.setting)
    if until is None:
        return None
    schedule.look = DaemonCall(partial(_look, services, schedule, schedule.setting, until))
    return _read_look(schedule, _WAIT_SECONDS)


def _look(services: Services, schedule: _Schedule, setting: str, until: datetime) -> int:
    """Put what a source finds due into the queue, and leave the next look to any process."""
    count = _enqueue(services, schedule.source.find_due(services))
    with services.database.statement() as cursor:
        queue.end_look(cursor, setting, until, _PUNCTUALITY * schedule.seconds)
    return count


def _read_look(schedule: _Schedule, seconds: float) -> int | None:
    """Wait for so many seconds for the end of a look; return how many tasks it has made, None if it goes on."""
    look = schedule.look
    if look is None or not look.wait(seconds):
        schedule.next_at = monotonic() + max(schedule.seconds, _WAIT_SECONDS)
        return None
    schedule.look = None
    schedule.next_at = monotonic() + schedule.seconds
    return look.read_result()


def _take(services: Services, schedule: _Schedule, setting: str) -> datetime | None:
    """Take the next look that is due; return until when it is this process's."""
    now = monotonic()
    schedule.next_at = now + schedule.seconds
    if now >= schedule.known_until:
        with services.database.statement(only_reads=True) as cursor:
            schedule.is_used = schedule.source.is_used(cursor)
        schedule.known_until = now + _USE_SECONDS
    if not schedule.is_used:
        schedule.next_at = schedule.known_until
        return None
    with services.database.statement() as cursor:
        return queue.take_look(cursor, setting, max(_LEASE_SECONDS, schedule.seconds))


def _enqueue(services: Services, tasks: Sequence[UpkeepTask]) -> int:
    due = _identify(services, tasks)
    if not due:
        return 0
    with services.database.transaction() as cursor:
        return queue.enqueue(cursor, due, is_repeated=True).ready


def list_presence(settings: Settings) -> list[str]:
    """List the settings by which a process that does tasks looks for them: its own, and those of features."""
    pauses = [source.pause_setting for source in load_hooks(UpkeepSource, "upkeep_source")]
    return [_WORKERS_SETTING, *(pause for pause in pauses if pause is not None and getattr(settings, pause) > 0)]


def explain_missing_worker(cursor: Transaction, presence: Collection[str] = ()) -> MissingWorker | None:
    """Say which kinds of tasks nothing does that the lake needs; None: workers look for all that it needs.

    presence: the settings by which this process looks for tasks.
    """
    needed: dict[str, list[str]] = {}
    for source in load_hooks(UpkeepSource, "upkeep_source"):
        setting = source.pause_setting or _WORKERS_SETTING
        if setting not in presence and source.is_used(cursor):
            needed.setdefault(setting, []).extend(sorted(source.actions))
    present = {*presence, *queue.read_presence(cursor)} if needed else set()
    missing = {setting: kinds for setting, kinds in needed.items() if setting not in present}
    kinds = " and ".join(kind for kinds in missing.values() for kind in kinds)
    if not missing:
        return None
    if _WORKERS_SETTING not in present:
        return MissingWorker(f"no worker looks at the lake, so nothing does {kinds}", _WORKER_ADVICE)
    variables = " and ".join(f"DUCKICELAKE_{setting.upper()}" for setting in missing)
    detail = f"workers look at the lake, but nothing does {kinds}: {variables} is 0 for all of them"
    return MissingWorker(detail, f"set {variables} above 0 for a server with workers, or for `duckicelake work`")


def find_asked(
    services: Services, namespace: Namespace | None, table: str | None, kinds: Collection[str]
) -> list[DueTask]:
    """Find what features want done of these kinds: everywhere, in a namespace and those below it, or in one table.

    No kinds find nothing: features look by themselves, and some ask a store about each table.
    """

    def is_wanted(of: Namespace, name: str) -> bool:
        if namespace is None:
            return True
        return of[: len(namespace)] == namespace if table is None else (of, name) == (namespace, table)

    found: list[DueTask] = []
    for source in load_hooks(UpkeepSource, "upkeep_source"):
        if source.actions.keys() & set(kinds):
            found += _identify(services, source.find_asked(services, is_wanted))
    return found


def _identify(services: Services, tasks: Sequence[UpkeepTask]) -> list[DueTask]:
    """Add the ids and the quiet hours of the tables, and what is wrong with them. Tables that are gone are left out."""
    names = [(to_schema_name(task.namespace), task.table) for task in tasks]
    found = find_nearest(services, QUIET_HOURS, set(names)) if names else {}
    due = []
    for task, name in zip(tasks, names, strict=True):
        if name not in found:
            continue
        table_id, quiet = found[name]
        policies = {} if quiet is None else {QUIET_HOURS: quiet}
        due.append(DueTask(table_id, task, task.why, policies, _find_problem(policies)))
    return due


def _find_problem(policies: Mapping[str, str]) -> str | None:
    try:
        parse_policy(policies)
    except BadInputError as error:
        return str(error)
    return None
