"""The OpenAPI description of what this server serves, generated from the app."""

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from duckicelake.catalog.jobs import BeginJob, EndJob, RenewJob
from duckicelake.catalog.maintenance import FindOrphans
from duckicelake.iceberg.reports import MetricsReport
from duckicelake.iceberg.rest import (
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    CreateViewRequest,
    RegisterTableRequest,
    RegisterViewRequest,
    RemoteSignRequest,
    RenameTableRequest,
    UpdateNamespacePropertiesRequest,
)
from duckicelake.server.hooks import load_routes
from duckicelake.server.routes.events import QueryEventsRequest
from duckicelake.server.routes.table_operations import CloneTableRequest, ExpireRequest, RestoreRequest

REQUEST_MODELS: tuple[type[BaseModel], ...] = (
    BeginJob,
    CommitTableRequest,
    CommitTransactionRequest,
    CommitViewRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    CreateViewRequest,
    EndJob,
    CloneTableRequest,
    ExpireRequest,
    FindOrphans,
    MetricsReport,
    QueryEventsRequest,
    RegisterTableRequest,
    RestoreRequest,
    RegisterViewRequest,
    RemoteSignRequest,
    RenameTableRequest,
    RenewJob,
    UpdateNamespacePropertiesRequest,
)
"""Bodies that endpoints parse in their own thread, which FastAPI therefore does not see."""


def render_document(app: FastAPI) -> str:
    """Render the document for `openapi/duckicelake.json`."""
    return json.dumps(describe_app(app), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def describe_app(app: FastAPI) -> dict[str, Any]:
    """Build the OpenAPI document, the same on every machine."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    models = (*REQUEST_MODELS, *(model for feature in load_routes() for model in feature.request_models))
    _, definitions = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    document["components"]["schemas"].update(definitions["$defs"])
    return document
