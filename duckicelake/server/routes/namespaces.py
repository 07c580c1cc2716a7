"""Namespaces: list, create, load, test, drop, and change properties."""

from collections.abc import Mapping

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from duckicelake.catalog import namespaces
from duckicelake.catalog.services import Services
from duckicelake.iceberg.names import Namespace
from duckicelake.iceberg.rest import CreateNamespaceRequest, UpdateNamespacePropertiesRequest
from duckicelake.server.context import AppServices
from duckicelake.server.endpoints import PREFIX
from duckicelake.server.errors import RESPONSES
from duckicelake.server.idempotency import KeyedAdmission, KeyedServices
from duckicelake.server.limits.bodies import Body, takes
from duckicelake.server.paths import NamespacePath, PageQuery, ParentQuery
from duckicelake.server.validation import parse_body

router = APIRouter(prefix=PREFIX, tags=["namespaces"], responses=RESPONSES)


class NamespaceList(BaseModel):
    """One page of namespaces, each as its full path."""

    model_config = ConfigDict(frozen=True)

    namespaces: tuple[tuple[str, ...], ...]
    next_page_token: str | None = Field(serialization_alias="next-page-token")


class NamespaceAnswer(BaseModel):
    """A namespace with all of its properties, and as `location` where its tables go."""

    model_config = ConfigDict(frozen=True)

    namespace: tuple[str, ...]
    properties: dict[str, str]


class UpdatedPropertiesAnswer(BaseModel):
    """Which keys were set, which were removed, and which of those to remove were not there."""

    model_config = ConfigDict(frozen=True)

    updated: tuple[str, ...]
    removed: tuple[str, ...]
    missing: tuple[str, ...]


@router.get("/namespaces")
def list_namespaces(services: AppServices, parent: ParentQuery, page: PageQuery) -> NamespaceList:
    """List the top level, or the direct children of `parent`."""
    found = namespaces.list_namespaces(services, parent, page)
    return NamespaceList(namespaces=found.items, next_page_token=found.next_token)


@router.post("/namespaces", openapi_extra=takes(CreateNamespaceRequest))
def create_namespace(admit: KeyedAdmission, body: Body) -> NamespaceAnswer:
    """Create a namespace, with properties if wanted."""
    request = parse_body(CreateNamespaceRequest, body)
    services = admit(request)
    properties = namespaces.create_namespace(services, request.namespace, request.properties)
    return _answer(services, request.namespace, properties)


@router.get("/namespaces/{namespace}")
def load_namespace(services: AppServices, namespace: NamespacePath) -> NamespaceAnswer:
    """Load a namespace's properties."""
    return _answer(services, namespace, namespaces.load_namespace(services, namespace))


@router.head("/namespaces/{namespace}", status_code=204)
def namespace_exists(services: AppServices, namespace: NamespacePath) -> Response:
    """Answer 204 if the namespace exists."""
    namespaces.load_namespace(services, namespace)
    return Response(status_code=204)


@router.delete("/namespaces/{namespace}", status_code=204)
def drop_namespace(services: KeyedServices, namespace: NamespacePath) -> Response:
    """Drop an empty namespace."""
    namespaces.drop_namespace(services, namespace)
    return Response(status_code=204)


@router.post("/namespaces/{namespace}/properties", openapi_extra=takes(UpdateNamespacePropertiesRequest))
def update_properties(services: KeyedServices, namespace: NamespacePath, body: Body) -> UpdatedPropertiesAnswer:
    """Set and remove properties in one step."""
    request = parse_body(UpdateNamespacePropertiesRequest, body)
    result = namespaces.update_namespace(services, namespace, request.removals, request.updates)
    return UpdatedPropertiesAnswer(updated=result.updated, removed=result.removed, missing=result.missing)


def _answer(services: Services, namespace: Namespace, properties: Mapping[str, str]) -> NamespaceAnswer:
    return NamespaceAnswer(namespace=namespace, properties=namespaces.with_location(services, namespace, properties))
