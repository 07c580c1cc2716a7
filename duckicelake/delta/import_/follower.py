"""Follow Delta tables by tasks of the upkeep: find those with newer versions, and import these."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final, NoReturn

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.upkeep_tasks import IsWanted, TaskControl, UpkeepSource
from duckicelake.delta.import_ import sources
from duckicelake.delta.import_.sources import FOLLOW_KIND, LIST_SECONDS, DeltaSource, list_watched
from duckicelake.delta.import_.store_rests import (
    FoundTable,
    StoreRests,
    ask_buckets,
    describe_failed_look,
    find_rests,
    look_at_buckets,
)
from duckicelake.delta.import_.sync import SYNCER, find_source, sync_in_parts
from duckicelake.delta.log.files import LogFiles
from duckicelake.delta.log.segments import LogListing, find_newest_version
from duckicelake.errors import CatalogError, FileMissingError, NoSuchTableError, TaskStoppedError, UnavailableError
from duckicelake.iceberg.identifiers import Namespace, parse_schema_name, to_schema_name
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import TaskOutcome, UpkeepTask
from duckicelake.storage.protocol import ObjectStore
from duckicelake.storage.threads import DaemonCall

_TURN_SECONDS: Final = 10.0
"""After which a task ends with its transaction, as other tables have new versions too. The rest has its own turn."""
_LOOK_SECONDS: Final = 1.0
"""For which a look waits for stores. What they say later is taken by the next look."""
_CHECK_SECONDS: Final = 0.5
"""Between two looks whether a task must end that waits for a store."""


def find_due(services: Services) -> Sequence[UpkeepTask]:
    """Find the followed tables with newer versions, and those whose last task failed some time ago.

    Each bucket has a look of its own, and none waits for another's. A store that doesn't answer has one task: its
    tables wait until it has rested.
    """
    rests, store = find_rests(services.database), services.store
    with services.database.statement() as cursor:
        followed = sources.read_sources(cursor, followed=True)
        free = [source for source in followed if rests.is_free(source.root)]
        listed = sources.take_listings(cursor, LIST_SECONDS, [source.table_id for source in free])
        open_tasks = sources.read_open_tasks(cursor)
    wanted = [source for source in free if source.table_id in listed or source.table_id not in open_tasks]

    def find_reason(source: DeltaSource) -> str | None:
        if rests.find(source.root) is not None:
            return None
        if source.table_id not in listed:
            return None if source.error is not None else _find_next(store, rests, source)
        if source.error is not None or source.table_id in open_tasks:
            return "its last task was not done"
        return _find_change(store, rests, source)

    return _build_tasks(look_at_buckets(rests, wanted, find_reason, _LOOK_SECONDS))


def find_asked(services: Services, is_wanted: IsWanted) -> Sequence[UpkeepTask]:
    """Find the followed tables that are asked for and have newer versions, or stand still.

    Those whose stores don't answer are among them. It takes 20 seconds at most, and 3 where no store answers.
    """
    with services.database.statement(only_reads=True) as cursor:
        followed = [
            source
            for source in sources.read_sources(cursor, followed=True)
            if is_wanted(parse_schema_name(source.schema_name), source.table_name)
        ]

    rests = find_rests(services.database)

    def find_reason(source: DeltaSource) -> str | None:
        if source.error is not None:
            return "it stands still"
        if rests.find(source.root) is not None:
            return f"the store of {source.root} did not answer just now"
        return _find_next(services.store, rests, source)

    return _build_tasks(ask_buckets(rests, followed, find_reason))


def _build_tasks(found: Sequence[FoundTable]) -> Sequence[UpkeepTask]:
    policy = parse_policy({})
    return [
        UpkeepTask(FOLLOW_KIND, parse_schema_name(source.schema_name), source.table_name, why, policy, 0)
        for source, why in found
    ]


def _find_next(store: ObjectStore, rests: StoreRests, source: DeltaSource) -> str | None:
    """Look for the file of the next version by its name, which lists nothing."""
    try:
        is_there = _has_next(store, rests, source)
    except UnavailableError as error:
        return describe_failed_look(source) if rests.begin(source.root, error) else None
    except Exception:  # noqa: BLE001 - the task says what it is
        return describe_failed_look(source)
    return f"version {source.position.version + 1} is there" if is_there else None


def _has_next(store: ObjectStore, rests: StoreRests, source: DeltaSource) -> bool:
    """Ask the store for the next version's file, and note that it has answered, however late."""
    try:
        store.size(LogListing(source.root).commit_name(source.position.version + 1))
    except FileMissingError:
        is_there = False
    else:
        is_there = True
    rests.note_answer(source.root)
    return is_there


def _find_change(store: ObjectStore, rests: StoreRests, source: DeltaSource) -> str | None:
    """List the log, and look whether its newest version is another one."""
    version = source.position.version
    try:
        newest = find_newest_version(LogFiles(store, source.root).listing())
    except UnavailableError as error:
        return "its log can not be listed" if rests.begin(source.root, error) else None
    except Exception:  # noqa: BLE001 - the task says what it is
        return "its log can not be listed"
    rests.note_answer(source.root)
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
    rest = rests.find(source.root)
    if rest is not None:
        raise rest.build_error() from rest.error
    _require_answer(services, source, control)
    began = monotonic()
    first, ends_at, has_more = source.position.version + 1, began + _TURN_SECONDS, False
    try:
        for after in sync_in_parts(services, source, control.check):
            source, began = after, monotonic()
            control.report({"versions": source.position.version + 1 - first})
            if monotonic() >= ends_at:
                has_more = source.following and _find_next(services.store, rests, source) is not None
                break
    except (NoSuchTableError, TaskStoppedError):
        raise
    except Exception as error:
        if isinstance(error, UnavailableError):
            rests.begin(source.root, error, monotonic() - began)
        _record_failure(services, source, error)
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


def _require_answer(services: Services, source: DeltaSource, control: TaskControl) -> None:
    """Ask the store for the next version's file, whether or not that is there.

    Raises TaskStoppedError, UnavailableError if the store doesn't answer soon, and StoreRestingError for the first
    time. The store then rests, as each of its requests would hold a worker. A late answer ends the rest.
    """
    rests = find_rests(services.database)
    began, answer_seconds = monotonic(), rests.find_answer_seconds(source.root)
    call = DaemonCall(partial(_has_next, services.store, rests, source))
    while not call.wait(min(_CHECK_SECONDS, max(0.0, began + answer_seconds - monotonic()))):
        control.check()
        if monotonic() >= began + answer_seconds:
            late = UnavailableError(f"the store of {source.root} did not answer within {answer_seconds:g} seconds")
            _let_rest(services, source, late, monotonic() - began)
    try:
        call.read_result()
    except UnavailableError as error:
        _let_rest(services, source, error, monotonic() - began)
    except Exception:  # noqa: BLE001 - the sync says what it is
        return


def _let_rest(services: Services, source: DeltaSource, error: UnavailableError, waited_seconds: float) -> NoReturn:
    """Let the store rest, and raise why. A table stands still once that isn't the store's first failure."""
    rests = find_rests(services.database)
    rests.begin(source.root, error)
    rest = rests.find(source.root)
    if rest is not None and rest.failures == 1:
        raise rest.build_error(waited_seconds) from error
    _record_failure(services, source, error)
    raise error


def _record_failure(services: Services, source: DeltaSource, error: Exception) -> None:
    with suppress(CatalogError), services.database.statement() as cursor:
        sources.record_failure(cursor, source, str(error) or type(error).__name__)


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
