"""Flushing of inlined rows into data files. Iceberg knows nothing of this route, so it isn't advertised."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.catalog.flush import flush_rows
from duckicelake.server.errors import RESPONSES
from duckicelake.server.idempotency import KeyedServices
from duckicelake.server.own_routes import OwnRoute
from duckicelake.server.paths import NamespacePath, TablePath

router = APIRouter(prefix="/v1", tags=["rows"], responses=RESPONSES, route_class=OwnRoute)


class FlushAnswer(BaseModel):
    """What became of inlined rows. rows: versions of rows; snapshot_id: DuckLake's, None if nothing was inlined."""

    model_config = ConfigDict(frozen=True)

    files: int
    rows: int
    deletes: int
    snapshot_id: int | None = Field(serialization_alias="snapshot-id")


@router.post("/namespaces/{namespace}/tables/{table}/rows/flush")
def flush_table_rows(services: KeyedServices, namespace: NamespacePath, table: TablePath) -> FlushAnswer:
    """Write the rows that the table keeps in Postgres to data files, sorted and partitioned, with all history."""
    flushed = flush_rows(services, namespace, table)
    return FlushAnswer(files=flushed.files, rows=flushed.rows, deletes=flushed.deletes, snapshot_id=flushed.snapshot_id)
