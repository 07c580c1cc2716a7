"""Restoring a table to what it was. Iceberg knows nothing of this route, so it isn't advertised."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from duckicelake.catalog.restore import restore_table
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.errors import RESPONSES
from duckicelake.server.idempotency import KeyedServices
from duckicelake.server.limits.bodies import Body, takes
from duckicelake.server.own_routes import OwnRequest, OwnRoute
from duckicelake.server.paths import NamespacePath, TablePath
from duckicelake.server.validation import parse_body

router = APIRouter(prefix="/v1", tags=["tables"], responses=RESPONSES, route_class=OwnRoute)


class RestoreRequest(OwnRequest):
    """What a table shall be again. to: a snapshot's id, DuckLake's number, a time, a branch or tag, Delta's v7."""

    to: Annotated[str, Field(min_length=1, max_length=2000)]
    dry_run: bool = False


class RestoreAnswer(SpecModel):
    """What it does, or would do; snapshot ids are null where nothing was written. Files are data files."""

    model_config = ConfigDict(frozen=True)

    restored_from: int
    restored_over: int | None = None
    snapshot_id: int | None = None
    ducklake_snapshot_id: int | None = None
    files_added: int
    files_removed: int
    rows_added: int
    rows_removed: int
    changes_definition: bool


@router.post("/namespaces/{namespace}/tables/{table}/restore", openapi_extra=takes(RestoreRequest))
def restore(services: KeyedServices, namespace: NamespacePath, table: TablePath, body: Body) -> RestoreAnswer:
    """Make main what it was at one of the table's snapshots, by a new one: rows, schema, partitioning and order."""
    request = parse_body(RestoreRequest, body)
    done = restore_table(services, namespace, table, request.to, is_dry_run=request.dry_run)
    return RestoreAnswer(
        restored_from=done.restored_from,
        restored_over=done.restored_over,
        snapshot_id=done.snapshot_id,
        ducklake_snapshot_id=done.ducklake_id,
        files_added=done.files_added,
        files_removed=done.files_removed,
        rows_added=done.rows_added,
        rows_removed=done.rows_removed,
        changes_definition=done.changes_definition,
    )
