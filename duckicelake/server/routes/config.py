"""GET /v1/config: what a client must know before its first request."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.catalog.idempotency import LIFETIME
from duckicelake.errors import NoSuchWarehouse
from duckicelake.server.context import AppContext
from duckicelake.server.endpoints import ENDPOINTS, PREFIX
from duckicelake.server.errors import RESPONSES

router = APIRouter(prefix=PREFIX, tags=["config"], responses=RESPONSES)


_JAVA_FILES = {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
"""Which of Java's implementations reads S3; its default is Hadoop's."""


class CatalogConfig(BaseModel):
    """Properties that clients put below (`defaults`) and above (`overrides`) their own; routes they may call."""

    model_config = ConfigDict(frozen=True)

    defaults: dict[str, str] = {}
    overrides: dict[str, str] = {}
    endpoints: tuple[str, ...] = ENDPOINTS
    idempotency_key_lifetime: timedelta = Field(default=LIFETIME, serialization_alias="idempotency-key-lifetime")
    """Its presence is what makes clients send keys."""


@router.get("/config")
async def get_config(
    context: AppContext,
    warehouse: Annotated[str | None, Query(description="name or location of the warehouse; may be left out")] = None,
) -> CatalogConfig:
    """Read the catalog's configuration."""
    if warehouse and warehouse.rstrip("/") not in context.warehouses:
        raise NoSuchWarehouse(f"No such warehouse: {warehouse}; this server has {_listed(context.warehouses)}")
    access = context.services.access.client
    return CatalogConfig(defaults={**access, **_JAVA_FILES} if access else {})


def _listed(names: frozenset[str]) -> str:
    return " or ".join(sorted(names))
