"""Follow Delta tables by tasks of the upkeep: find those with newer versions, and import these."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from time import monotonic
from typing import Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.upkeep_tasks import IsWanted, TaskControl, UpkeepSource
from duckicelake.delta.import_ import sources
from duckicelake.delta.import_.sources import FOLLOW_KIND, DeltaSource
from duckicelake.delta.import_.status import LIST_SECONDS, list_watched
from duckicelake.delta.import_.sync import SYNCER, find_source, sync_in_parts
from duckicelake.delta.log.files import LogFiles
from duckicelake.delta.log.segments import LogListing, find_newest_version
from duckicelake.errors import CatalogError, FileMissingError, NoSuchTableError, TaskStoppedError, UnavailableError
from duckicelake.iceberg.identifiers import Namespace, parse_schema_name, to_schema_name
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.postgres.database import Database
from duckicelake.storage.threads import DaemonCall, run_in_parallel

_TURN_SECONDS: Final = 10.0
"""After which a task ends with its transaction, as other tables have new versions too. The rest has its own turn."""
_REST_RATIO: Final = 5.0
"""A store rests for so many times as long as it was waited for: waits of up to 12 s take a sixth of a worker's time."""
_ANSWER_SECONDS: Final = 3.0
"""For which a task waits for the first answer of its store."""
_MIN_REST_SECONDS: Final = 5.0
_MAX_REST_SECONDS: Final = 60.0


class StoreRests:
    """Which stores rest, by bucket. Each process finds it out for itself."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._rests: dict[str, tuple[float, UnavailableError]] = {}
        """By bucket: when its rest ends, by `monotonic`, and why it rests."""

    def find(self, root: str) -> UnavailableError | None:
        """Find why the store of a folder rests; None if it doesn't."""
        ends_at, error = self._rests.get(_find_bucket(root), (0.0, None))
        return error if monotonic() < ends_at else None

    def begin(self, root: str, error: UnavailableError, waited_seconds: float) -> bool:
        """Let the store of a folder rest that didn't answer for so long; False if it does so already."""
        seconds = min(_MAX_REST_SECONDS, max(_MIN_REST_SECONDS, _REST_RATIO * waited_seconds))
        with self._lock:
            if self.find(root) is not None:
                return False
            self._rests[_find_bucket(root)] = monotonic() + seconds, error
        return True

    def end(self, root: str) -> None:
        """Let the store of a folder be asked again."""
        self._rests.pop(_find_bucket(root), None)


def _find_bucket(root: str) -> str:
    parts = urlsplit(root)
    return f"{parts.scheme}://{parts.netloc}"


_RESTS: Final[WeakKeyDictionary[Database, StoreRests]] = WeakKeyDictionary()
_LOCK: Final = Lock()


def find_rests(database: Database) -> StoreRests:
    """Find the rests of a lake's stores; each lake has its own, as it may have its own profile."""
    with _LOCK:
        return _RESTS.setdefault(database, StoreRests())


def find_due(services: Services) -> Sequence[UpkeepTask]:
    """Find the followed tables with newer versions, and those whose last task failed some time ago.

    A store that doesn't answer has one task: its tables wait until it has rested.
    """
    with services.database.statement() as cursor:
        listed = sources.take_listings(cursor, LIST_SECONDS)
        followed = sources.read_sources(cursor, followed=True)
        open_tasks = sources.read_open_tasks(cursor)
    wanted = [source for source in followed if source.table_id in listed or source.table_id not in open_tasks]
    rests = find_rests(services.database)

    def find_reason(source: DeltaSource) -> str | None:
        if rests.find(source.root) is not None:
            return None
        if source.table_id not in listed:
            return None if source.error is not None else _find_next(services, source)
        if source.error is not None or source.table_id in open_tasks:
            return "its last task was not done"
        return _find_change(services, source)

    return _build_tasks(wanted, find_reason)


def find_asked(services: Services, is_wanted: IsWanted) -> Sequence[UpkeepTask]:
    """Find the followed tables that are asked for and have newer versions or stand still."""
    with services.database.statement(only_reads=True) as cursor:
        followed = [
            source
            for source in sources.read_sources(cursor, followed=True)
            if is_wanted(parse_schema_name(source.schema_name), source.table_name)
        ]

    def find_reason(source: DeltaSource) -> str | None:
        if source.error is not None:
            return "it stands still"
        is_resting = find_rests(services.database).find(source.root) is not None
        return "its store did not answer just now" if is_resting else _find_next(services, source)

    return _build_tasks(followed, find_reason)


def _build_tasks(
    followed: Sequence[DeltaSource], find_reason: Callable[[DeltaSource], str | None]
) -> Sequence[UpkeepTask]:
    policy = parse_policy({})
    return [
        UpkeepTask(FOLLOW_KIND, parse_schema_name(source.schema_name), source.table_name, why, policy, 0)
        for source, why in zip(followed, run_in_parallel(find_reason, followed), strict=True)
        if why is not None
    ]


def _find_next(services: Services, source: DeltaSource) -> str | None:
    """Look for the file of the next version by its name, which lists nothing."""
    version, began = source.position.version + 1, monotonic()
    try:
        services.store.size(LogListing(source.root).commit_name(version))
    except FileMissingError:
        return None
    except UnavailableError as error:
        is_first = find_rests(services.database).begin(source.root, error, monotonic() - began)
        return f"version {version} can not be looked for" if is_first else None
    except Exception:  # noqa: BLE001 - the task says what it is
        return f"version {version} can not be looked for"
    return f"version {version} is there"


def _find_change(services: Services, source: DeltaSource) -> str | None:
    """List the log, and look whether its newest version is another one."""
    version, began = source.position.version, monotonic()
    try:
        newest = find_newest_version(LogFiles(services.store, source.root).listing())
    except UnavailableError as error:
        is_first = find_rests(services.database).begin(source.root, error, monotonic() - began)
        return "its log can not be listed" if is_first else None
    except Exception:  # noqa: BLE001 - the task says what it is
        return "its log can not be listed"
    if newest == version:
        return None
    return f"version {newest} is there" if newest > version else f"version {version} is gone"


def run_follow(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Import the new versions of a followed table, of a long log in several transactions and turns.

    Raises what `sync` does, and TaskStoppedError; versions that came before stay.
    """
    services = replace(services, caller=SYNCER)
    source = _find_followed(services, task.namespace, task.table)
    if source is None:
        return TaskOutcome("unchanged", "it follows no Delta table any more")
    rests = find_rests(services.database)
    cause = rests.find(source.root)
    if cause is not None:
        raise UnavailableError(f"{cause}; its store is left alone for a while") from cause
    began = monotonic()
    first, ends_at, has_more = source.position.version + 1, began + _TURN_SECONDS, False
    try:
        _require_answer(services, source)
        for after in sync_in_parts(services, source, control.check):
            source, began = after, monotonic()
            control.report({"versions": source.position.version + 1 - first})
            if monotonic() >= ends_at:
                has_more = source.following and _find_next(services, source) is not None
                break
    except (NoSuchTableError, TaskStoppedError):
        raise
    except Exception as error:
        if isinstance(error, UnavailableError):
            rests.begin(source.root, error, monotonic() - began)
        with suppress(CatalogError), services.database.statement() as cursor:
            sources.record_failure(cursor, source, str(error) or type(error).__name__)
        raise
    if source.error is not None:
        with services.database.statement() as cursor:
            sources.clear_failure(cursor, source)
    last = source.position.version
    if last < first:
        return TaskOutcome("unchanged", f"it is at version {last}, the newest")
    came = f"version {last}" if last == first else f"versions {first} to {last}"
    more = ", and more are there" if has_more else ""
    return TaskOutcome("done", f"{came} came{more}", (), {"versions": last - first + 1}, has_more=has_more)


def _require_answer(services: Services, source: DeltaSource) -> None:
    """Ask the store for the next version's file, whether or not that is there.

    Raises UnavailableError if the store doesn't answer soon. It then rests for long: each of its requests would hold a
    worker.
    """
    name = LogListing(source.root).commit_name(source.position.version + 1)
    call = DaemonCall(partial(services.store.size, name))
    if not call.wait(_ANSWER_SECONDS):
        error = UnavailableError(f"the store of {source.root} did not answer within {_ANSWER_SECONDS:g} seconds")
        find_rests(services.database).begin(source.root, error, _MAX_REST_SECONDS / _REST_RATIO)
        raise error
    try:
        call.read_result()
    except UnavailableError:
        raise
    except Exception:  # noqa: BLE001 - the sync says what it is
        return


def _find_followed(services: Services, namespace: Namespace, table: str) -> DeltaSource | None:
    try:
        source = find_source(services, f"{to_schema_name(namespace)}.{table}")
    except NoSuchTableError:
        return None
    return source if source.following else None


UPKEEP_SOURCE: Final = UpkeepSource(
    {FOLLOW_KIND: f"{__name__}:run_follow"},
    find_due,
    find_asked,
    pause_setting=sources.LOOK_SETTING,
    is_used=sources.is_any_followed,
    list_watched=list_watched,
)
