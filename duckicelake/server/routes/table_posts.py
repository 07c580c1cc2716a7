"""What engines post all the time: commits, reports of their scans, and new tables."""

from fastapi import APIRouter, Response

from duckicelake.catalog import tables
from duckicelake.iceberg.reports import MetricsReport
from duckicelake.iceberg.rest import CommitTableRequest, CreateTableRequest
from duckicelake.server.caching import conditional
from duckicelake.server.context import AppContext, AppServices
from duckicelake.server.delegation import AccessWish
from duckicelake.server.endpoints import PREFIX
from duckicelake.server.errors import RESPONSES
from duckicelake.server.idempotency import KeyedServices
from duckicelake.server.limits.bodies import Body, takes
from duckicelake.server.paths import NamespacePath, TablePath
from duckicelake.server.quick.routes import QuickRoute
from duckicelake.server.routes.tables import TABLE
from duckicelake.server.validation import parse_body

router = APIRouter(prefix=PREFIX, tags=["tables"], responses=RESPONSES, route_class=QuickRoute)


@router.post(TABLE, openapi_extra=takes(CommitTableRequest))
def commit_table(services: KeyedServices, namespace: NamespacePath, table: TablePath, body: Body) -> Response:
    """Commit updates if the requirements hold."""
    committed = tables.commit_table(services, namespace, table, parse_body(CommitTableRequest, body))
    return conditional(committed.body, committed.etag)


@router.post(f"{TABLE}/metrics", status_code=204, openapi_extra=takes(MetricsReport))
def report_metrics(
    context: AppContext, services: AppServices, namespace: NamespacePath, table: TablePath, body: Body
) -> Response:
    """Take an engine's report of a scan or a commit, count it, and remember what was read."""
    report = parse_body(MetricsReport, body)
    tables.table_exists(services, namespace, table)
    services.reads.note_report(services.caller, namespace, table, report)
    context.metrics.report_received(report.report_type)
    return Response(status_code=204)


@router.post("/namespaces/{namespace}/tables", openapi_extra=takes(CreateTableRequest))
def create_table(services: KeyedServices, namespace: NamespacePath, wish: AccessWish, body: Body) -> Response:
    """Create a table, or stage its creation for a later commit."""
    loaded = tables.create_table(services, namespace, parse_body(CreateTableRequest, body), wish)
    return conditional(loaded.body, loaded.etag)
