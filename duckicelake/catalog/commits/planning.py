"""Plans: what an attempt at a commit would write over the tables' newest state, computed outside of any lock."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from duckicelake.bridge.rebase import appends_of
from duckicelake.catalog.auditing import actions, touched
from duckicelake.catalog.commits.attempts import TableCommit, change_over
from duckicelake.catalog.commits.foreseen import Foreseen, foresee
from duckicelake.catalog.commits.known import Unwritten
from duckicelake.catalog.loads.cache import CachedTable
from duckicelake.catalog.loads.loading import current_table, freshness, is_current, lately_current
from duckicelake.catalog.services import Services
from duckicelake.errors import CommitFailed, NoSuchTable
from duckicelake.iceberg.requirements import AssertCreate
from duckicelake.lake import native
from duckicelake.lake.audit import Touched
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.writing.files import StaleBase


@dataclass(frozen=True, slots=True)
class Planned:
    """One table's part of an attempt: what was loaded, and the change, None if there is nothing to do."""

    table: Touched
    cached: CachedTable | None
    change: ChangeSet | None
    foreseen: Foreseen | None = None


def plan_all(services: Services, commits: Sequence[TableCommit], *, prepare: bool) -> list[Planned]:
    """Every table's change over its newest state; their DuckLake snapshots will follow each other.

    prepare: write what the first is expected to make. Raises StaleBase as `_plan_asked` does, and what `commit` does.
    """
    return _plan_unasked(services, commits, prepare=prepare) or _plan_asked(services, commits, prepare=prepare)


def _plan_asked(services: Services, commits: Sequence[TableCommit], *, prepare: bool) -> list[Planned]:
    """StaleBase if it failed and a table has changed meanwhile: rows of what it was may have gone."""
    with services.meter.phase("plan"):
        loaded = [_load(services, each) for each in commits]
        try:
            return _changes(services, commits, loaded, prepare=prepare)
        except Unwritten:
            for cached in filter(None, loaded):
                services.cache.forget(cached.materialized.row.table_id)
            raise
        except (CommitFailed, StaleBase):
            raise
        except Exception as error:
            if not _are_current(services, commits, loaded):
                raise StaleBase("a table changed while the commit was computed") from error
            raise


def _plan_unasked(services: Services, commits: Sequence[TableCommit], *, prepare: bool) -> list[Planned] | None:
    """The same of an append to a table that was right a moment ago; the writer sees whether it still is.

    None where that must be asked first, as it is before anybody hears that a request can't be committed.
    """
    if len(commits) != 1 or not appends_of(commits[0].request):
        return None
    lately = lately_current(services, commits[0].namespace, commits[0].name)
    if lately is None:
        return None
    try:
        with services.meter.phase("plan"):
            planned = _changes(services, commits, [lately], prepare=prepare)
    except Exception:  # noqa: BLE001 - it may be of what the table was; if not, it is raised again of what was asked for
        services.meter.retried("unasked")
        return None
    return planned if planned[0].change is not None else None


def _foreseen(services: Services, plan: Planned) -> Planned:
    if plan.change is None or plan.cached is None:
        return plan
    foreseen = foresee(services, plan.cached, plan.change)
    return plan if foreseen is None else replace(plan, change=foreseen.change, foreseen=foreseen)


def _are_current(services: Services, commits: Sequence[TableCommit], loaded: Sequence[CachedTable | None]) -> bool:
    """Whether the tables are still as they were loaded."""
    pairs = [(each, cached) for each, cached in zip(commits, loaded, strict=True) if cached is not None]
    return all(is_current(cached, freshness(services, each.namespace, each.name, cached)) for each, cached in pairs)


def _changes(
    services: Services, commits: Sequence[TableCommit], loaded: Sequence[CachedTable | None], *, prepare: bool
) -> list[Planned]:
    next_id = max([_newest(services, loaded), *(cached.checked_upto for cached in loaded if cached)]) + 1
    planned: list[Planned] = []
    for each, cached in zip(commits, loaded, strict=True):
        change = change_over(services, each, cached, next_id)
        if change is not None and cached is not None:
            change = replace(change, checked_upto=cached.checked_upto)
        next_id += len(change.steps) if change else 0
        planned.append(Planned(touched(each.namespace, each.name, actions(each.request.updates)), cached, change))
    return [_foreseen(services, planned[0]), *planned[1:]] if prepare else planned


def _newest(services: Services, loaded: Sequence[CachedTable | None]) -> int:
    """The newest DuckLake snapshot, which is read where no table tells."""
    if any(loaded):
        return 0
    with services.database.reading() as cursor:
        return native.newest_snapshot(cursor)


def _load(services: Services, commit: TableCommit) -> CachedTable | None:
    """The table, None where the request is to create it."""
    try:
        return current_table(services, commit.namespace, commit.name)
    except NoSuchTable:
        if any(isinstance(requirement, AssertCreate) for requirement in commit.request.requirements):
            return None
        raise
