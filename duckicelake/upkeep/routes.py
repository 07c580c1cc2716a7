"""The routes of upkeep: the queue, tasks that are asked for, policies of the lake and of tables."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from duckicelake.catalog.context.page import cut_page
from duckicelake.catalog.context.privileges import Privilege
from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import (
    Namespace,
    check_namespace,
    parse_schema_name,
    to_schema_name,
)
from duckicelake.iceberg.model import SpecModel
from duckicelake.maintenance.idle_kinds import IdleKinds
from duckicelake.server.auth.permissions import READ, WRITE, AnyToken, InPath, Need, WholeCatalog
from duckicelake.server.hooks import FeatureRoutes
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import (
    AppServices,
    Body,
    NamespacePath,
    NamespaceQuery,
    PageQuery,
    TablePath,
    describe_body,
)
from duckicelake.upkeep import policies, queue
from duckicelake.upkeep.actions import list_kinds
from duckicelake.upkeep.planner import request_part, request_tasks
from duckicelake.upkeep.policies import EffectivePolicies
from duckicelake.upkeep.queue import DueTask, QueuedTask, TaskFilter
from duckicelake.upkeep.service import wake_planner
from duckicelake.upkeep.sources import explain_missing_worker

_TASKS_PATH: Final = "/pipeline/v1/upkeep"
_TABLE_TASKS_PATH: Final = "/pipeline/v1/namespaces/{namespace}/tables/{table}/upkeep"
_POLICIES_PATH: Final = "/pipeline/v1/policies"
_NAMESPACE_POLICIES_PATH: Final = "/pipeline/v1/namespaces/{namespace}/policies"
_TABLE_POLICIES_PATH: Final = "/pipeline/v1/namespaces/{namespace}/tables/{table}/policies"
_STATES: Final = ("queued", "running", "waiting", "blocked", "failed", "done")
_MAX_POLICIES: Final = 100
router = APIRouter(tags=["upkeep"], responses=RESPONSES, route_class=StrictRoute)


class UpkeepTaskAnswer(SpecModel):
    """A task of the queue.

    state: queued, running, waiting until `available`, blocked or failed because of `message`, done. requested_by: who
    asked for it; none: the plan. job: the id of its job in the history, while it runs.
    """

    id: int
    namespace: tuple[str, ...]
    table: str
    kind: str
    state: str
    why: str
    message: str | None = None
    estimate: dict[str, Any]
    requested_by: str | None = None
    attempts: int
    available: datetime
    created: datetime
    changed: datetime
    worker: str | None = None
    lease_until: datetime | None = None
    job: UUID | None = None
    counts: dict[str, Any]


class UpkeepTaskList(SpecModel):
    """One page of the queue, by id. warnings: on the first page, of kinds of tasks that no worker does."""

    tasks: tuple[UpkeepTaskAnswer, ...]
    warnings: tuple[str, ...] = ()
    next_page_token: str | None = None


class RequestedTask(SpecModel):
    """A task that was put into the queue, and why."""

    namespace: tuple[str, ...]
    table: str
    kind: str
    why: str


class RequestedTasks(SpecModel):
    """The tasks that were put into the queue; none where nothing is due.

    problems: of tables with wrong policies, and of what the queue can't take until a task of the same table and kind
    has ended. If it can take nothing, the answer is 409. notes: of kinds that were asked for and that no table's
    policies ask for, and what to set.
    """

    tasks: tuple[RequestedTask, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class RequestUpkeep(StrictRequest):
    """Tasks that are to be done now. kinds: only these; none given: all that are due. namespace: and those below it."""

    namespace: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    kinds: Annotated[tuple[str, ...], Field(max_length=50)] = ()


class RequestTableUpkeep(StrictRequest):
    """Tasks of a table that are to be done now. kinds: only these; none given: all that are due.

    where: a condition in SQL, as in `explain`. Only files that may hold such rows are rewritten then, by compact (two
    small files are enough for it) or sort, due or not.
    """

    kinds: Annotated[tuple[str, ...], Field(max_length=50)] = ()
    where: Annotated[str, Field(max_length=10_000)] | None = None


class LakePolicies(StrictRequest):
    """The policies of a whole lake, as properties; `maintenance.automatic` says what it does by itself."""

    policies: Annotated[dict[str, Annotated[str, Field(max_length=2000)]], Field(max_length=_MAX_POLICIES)]


class LakePoliciesAnswer(SpecModel):
    """The policies of a whole lake. settings: those of the server or the warehouse, which they go over."""

    policies: dict[str, str]
    settings: dict[str, str]


class UpkeepPolicy(SpecModel):
    """A policy of a table or namespace. source: settings, lake, a DuckLake option, `namespace <name>` or table."""

    name: str
    value: str
    source: str


class EffectivePoliciesAnswer(SpecModel):
    """The policies of a table or namespace that are set; others have their defaults. problem: what is wrong."""

    policies: tuple[UpkeepPolicy, ...]
    problem: str | None = None


@router.get(_TASKS_PATH)
def list_upkeep_tasks(
    services: AppServices,
    page: PageQuery,
    namespace: NamespaceQuery,
    table: Annotated[str | None, Query(description="of this table; needs a namespace, too")] = None,
    state: Annotated[str | None, Query(description="queued, running, waiting, blocked, failed or done")] = None,
) -> UpkeepTaskList:
    """List the queue of upkeep, of tables that the caller may read."""
    if state is not None and state not in _STATES:
        raise InvalidRequestError(f"{state!r} is no state of a task: there are {', '.join(_STATES)}")
    if table is not None and namespace is None:
        raise InvalidRequestError("table is the name of one in a namespace: give that, too")
    reader = services.caller.principal
    at_most = reader.without_outside()
    wanted = TaskFilter(
        after=page.after_number or 0,
        state=state,
        schema_name=None if namespace is None else to_schema_name(namespace),
        table_name=table,
        visible=at_most.readable_schemas(),
        visible_ids=at_most.readable_ids(),
    )
    with services.database.statement(only_reads=True) as cursor:
        found = queue.list_tasks(cursor, wanted, page.fetch)
        missing = explain_missing_worker(cursor) if page.after_number is None else None
    shown = cut_page(found, page, lambda task: str(task.number))
    answers = reader.filter_readable([_answer(task) for task in shown.items], lambda task: (task.namespace, task.table))
    warnings = () if missing is None else (f"{missing.detail}: {missing.advice}",)
    return UpkeepTaskList(tasks=tuple(answers), warnings=warnings, next_page_token=shown.next_token)


@router.post(_TASKS_PATH, openapi_extra=describe_body(RequestUpkeep))
def request_upkeep(services: AppServices, body: Body) -> RequestedTasks:
    """Put what tables need now into the queue, whatever the lake does by itself."""
    request = parse_body(RequestUpkeep, body)
    namespace = None if request.namespace is None else check_namespace(request.namespace)
    return _request(services, namespace, None, request.kinds)


@router.post(_TABLE_TASKS_PATH, openapi_extra=describe_body(RequestTableUpkeep))
def request_table_upkeep(
    services: AppServices, namespace: NamespacePath, table: TablePath, body: Body
) -> RequestedTasks:
    """Put what a table needs now into the queue."""
    request = parse_body(RequestTableUpkeep, body)
    policies.find_policies(services, namespace, table)
    if request.where is None:
        return _request(services, namespace, table, request.kinds)
    _check_kinds(request.kinds)
    return _answer_request(services, request_part(services, namespace, table, request.kinds, request.where))


@router.get(_POLICIES_PATH)
def read_lake_policies(services: AppServices) -> LakePoliciesAnswer:
    """Read the policies of upkeep of the whole lake."""
    return LakePoliciesAnswer(policies=policies.read_lake_policies(services), settings=dict(services.maintenance))


@router.put(_POLICIES_PATH, openapi_extra=describe_body(LakePolicies))
def set_lake_policies(services: AppServices, body: Body) -> LakePoliciesAnswer:
    """Replace the policies of upkeep of the whole lake."""
    given = policies.set_lake_policies(services, parse_body(LakePolicies, body).policies)
    return LakePoliciesAnswer(policies=given, settings=dict(services.maintenance))


@router.get(_NAMESPACE_POLICIES_PATH)
def read_namespace_policies(services: AppServices, namespace: NamespacePath) -> EffectivePoliciesAnswer:
    """Read the policies of upkeep that a namespace hands on to its tables, and who says each."""
    return _answer_policies(policies.find_policies(services, namespace, None))


@router.get(_TABLE_POLICIES_PATH)
def read_table_policies(services: AppServices, namespace: NamespacePath, table: TablePath) -> EffectivePoliciesAnswer:
    """Read what the policies of upkeep of a table come to, and who says each."""
    return _answer_policies(policies.find_policies(services, namespace, table))


def _answer_policies(found: EffectivePolicies) -> EffectivePoliciesAnswer:
    values = tuple(UpkeepPolicy(name=value.name, value=value.value, source=value.source) for value in found.values)
    return EffectivePoliciesAnswer(policies=values, problem=found.problem)


def _request(
    services: Services, namespace: Namespace | None, table: str | None, kinds: tuple[str, ...]
) -> RequestedTasks:
    _check_kinds(kinds)
    idle = IdleKinds(kinds)
    return _answer_request(services, request_tasks(services, namespace, table, kinds, idle), idle)


def _answer_request(services: Services, found: Sequence[DueTask], idle: IdleKinds | None = None) -> RequestedTasks:
    if found:
        wake_planner(services)
    tasks = tuple(_describe(item) for item in found if item.problem is None)
    problems = tuple(item.problem for item in found if item.problem is not None)
    return RequestedTasks(tasks=tasks, problems=problems, notes=tuple(idle.explain() if idle else ()))


def _check_kinds(kinds: Collection[str]) -> None:
    unknown = sorted(set(kinds) - list_kinds())
    if unknown:
        raise InvalidRequestError(f"{unknown[0]!r} is no kind of upkeep: there are {', '.join(sorted(list_kinds()))}")


def _describe(item: DueTask) -> RequestedTask:
    task = item.task
    return RequestedTask(namespace=task.namespace, table=task.table, kind=task.kind, why=task.why)


def _answer(task: QueuedTask) -> UpkeepTaskAnswer:
    return UpkeepTaskAnswer(
        id=task.number,
        namespace=parse_schema_name(task.schema_name),
        table=task.table_name,
        kind=task.kind,
        state=task.state,
        why=task.why,
        message=task.message,
        estimate=dict(task.estimate),
        requested_by=task.requested_by,
        attempts=task.attempts,
        available=task.available,
        created=task.created,
        changed=task.changed,
        worker=task.worker,
        lease_until=task.lease_until,
        job=task.job,
        counts=dict(task.counts),
    )


_NEEDS: Final[Mapping[tuple[str, str], Need]] = {
    ("GET", _TASKS_PATH): AnyToken(),
    ("POST", _TASKS_PATH): WholeCatalog(privileges=Privilege.ALTER),
    ("POST", _TABLE_TASKS_PATH): InPath((WRITE,), Privilege.ALTER),
    ("GET", _POLICIES_PATH): AnyToken(),
    ("PUT", _POLICIES_PATH): WholeCatalog(privileges=Privilege.ALTER),
    ("GET", _NAMESPACE_POLICIES_PATH): InPath((READ,)),
    ("GET", _TABLE_POLICIES_PATH): InPath((READ,), Privilege.SELECT),
}
ROUTES: Final = FeatureRoutes((router,), _NEEDS, (RequestUpkeep, RequestTableUpkeep, LakePolicies))
