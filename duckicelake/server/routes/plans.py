"""Routes that plan scans: all in the first answer, or its first page and plan tasks for the rest.

They change nothing, so they take no `Idempotency-Key`: DuckDB sends one of another UUID version, which is ignored.
"""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from duckicelake.catalog import scan_plans, tables
from duckicelake.catalog.plan_tasks import check_size
from duckicelake.errors import NoSuchPlanError
from duckicelake.iceberg.rest import FetchScanTasksRequest, PlanTableScanRequest
from duckicelake.server.http.compression import build_json_response
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import FastRoute
from duckicelake.server.http.scope import PREFIX
from duckicelake.server.routes.dependencies import AppServices, Body, NamespacePath, TablePath, describe_body
from duckicelake.server.routes.tables import TABLE

plan_router = APIRouter(prefix=PREFIX, tags=["planning"], responses=RESPONSES, route_class=FastRoute)
plan_id_router = APIRouter(prefix=PREFIX, tags=["planning"], responses=RESPONSES)
Agent = Annotated[str | None, Header(alias="X-Client-Version")]
AcceptEncoding = Annotated[str | None, Header(description="gzip and zstd, for answers beyond 10 kB")]


@plan_router.post(f"{TABLE}/plan", openapi_extra=describe_body(PlanTableScanRequest))
def plan_table_scan(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    body: Body,
    agent: Agent = None,
    accept_encoding: AcceptEncoding = None,
) -> Response:
    """Plan which files a scan reads.

    Unlike in the specification, the answer has no `plan-id`: it is complete, and nothing of it is kept. Clients accept
    that, and Java spares a DELETE for each scan. Tasks beyond the first 2,000 are fetched by `plan-tasks`.
    """
    check_size(body)
    request = parse_body(PlanTableScanRequest, body)
    answer = scan_plans.plan_table_scan(services, namespace, table, request, body, agent or "")
    return build_json_response(answer, accept_encoding)


@plan_router.post(f"{TABLE}/tasks", openapi_extra=describe_body(FetchScanTasksRequest))
def fetch_scan_tasks(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    body: Body,
    agent: Agent = None,
    accept_encoding: AcceptEncoding = None,
) -> Response:
    """Fetch the tasks of a plan task that a plan named. It is valid while the table lists the plan's snapshot."""
    token = parse_body(FetchScanTasksRequest, body).plan_task
    answer = scan_plans.fetch_scan_tasks(services, namespace, table, token, agent or "")
    return build_json_response(answer, accept_encoding)


@plan_id_router.get(f"{TABLE}/plan/{{plan_id}}")
def fetch_planning_result(services: AppServices, namespace: NamespacePath, table: TablePath, plan_id: str) -> Response:
    """Answer 404: every plan is complete in its first answer."""
    tables.table_exists(services, namespace, table)
    raise NoSuchPlanError(f"No such plan: {plan_id}; plans of this catalog are complete at once and have no id")


@plan_id_router.delete(f"{TABLE}/plan/{{plan_id}}", status_code=204)
def cancel_planning(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    plan_id: str,  # noqa: ARG001
) -> Response:
    """Answer 204: nothing of a plan is kept."""
    tables.table_exists(services, namespace, table)
    return Response(status_code=204)
