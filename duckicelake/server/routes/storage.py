"""Access to the files of a table: keys that are renewed, and requests to S3 that are signed."""

from typing import Annotated

import orjson
from fastapi import APIRouter, Query, Response

from duckicelake.catalog.access import delegation
from duckicelake.iceberg.rest import RemoteSignRequest
from duckicelake.server.context import AppServices
from duckicelake.server.endpoints import PREFIX
from duckicelake.server.errors import RESPONSES
from duckicelake.server.limits.bodies import Body, takes
from duckicelake.server.paths import NamespacePath, TablePath
from duckicelake.server.routes.tables import TABLE
from duckicelake.server.validation import parse_body

router = APIRouter(prefix=PREFIX, tags=["storage"], responses=RESPONSES)


@router.get(f"{TABLE}/credentials")
def load_credentials(
    services: AppServices,
    namespace: NamespacePath,
    table: TablePath,
    prefix: Annotated[str | None, Query(description="only the credentials for this prefix")] = None,
) -> Response:
    """Give keys for a table's files, as far as the caller may read or write it."""
    answer = delegation.load_credentials(services, namespace, table, prefix)
    return Response(answer, headers={"Cache-Control": "no-store"}, media_type="application/json")


@router.post(f"{TABLE}/sign", openapi_extra=takes(RemoteSignRequest))
def sign_request(services: AppServices, namespace: NamespacePath, table: TablePath, body: Body) -> Response:
    """Sign a request to the object store, if it touches nothing but the table's files."""
    signed = delegation.sign(services, namespace, table, delegation.asked_by(parse_body(RemoteSignRequest, body)))
    answer = {"uri": signed.uri, "headers": {name: [value] for name, value in signed.headers.items()}}
    headers = {"Cache-Control": "private" if signed.is_reusable else "no-cache"}
    return Response(orjson.dumps(answer), headers=headers, media_type="application/json")
