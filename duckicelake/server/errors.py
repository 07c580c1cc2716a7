"""How errors leave the server: one table from classes to statuses, and one envelope on every path.

The envelope is IcebergErrorResponse of the REST specification: {"error": {"message", "type", "code"}}. Iceberg clients
branch on `type`, so the names are those of Java's exceptions.
"""

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from duckicelake import errors
from duckicelake.server.validation import explain

ERROR_KEY = "duckicelake.error"
"""Where in the ASGI scope the request log finds what its operator has to know of: errors behind 5xx, and damage."""

CONFLICT_KEY = "duckicelake.conflict"
"""Where in it the metrics find what didn't hold of a request that is answered with 409."""


class ErrorModel(BaseModel):
    """What went wrong: for people (`message`), for client libraries (`type`) and as the HTTP status (`code`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message: str
    type: str
    code: int


class ErrorEnvelope(BaseModel):
    """The body of every answer that is not a success."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    error: ErrorModel


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorEnvelope, "description": "The request can't be served as it is"},
    "5XX": {"model": ErrorEnvelope, "description": "The server can't serve it now"},
}
"""For the OpenAPI description of every route."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The HTTP face of an error class. A hidden one tells the client nothing but a request id."""

    status: int
    type: str
    headers: dict[str, str] = field(default_factory=dict)
    hidden: bool = False


_INTERNAL = Answer(500, "InternalServerError", hidden=True)

ANSWERS: dict[type[errors.CatalogError], Answer] = {
    errors.CatalogError: _INTERNAL,
    errors.InvalidRequest: Answer(400, "BadRequestException"),
    errors.InvalidView: Answer(400, "IllegalArgumentException"),  # which Java clients raise as their own check's
    errors.Unprocessable: Answer(422, "UnprocessableEntityException"),
    errors.CommittedBefore: Answer(422, "AlreadyAppliedException"),
    errors.Unsupported: Answer(406, "UnsupportedOperationException"),
    errors.Forgotten: Answer(410, "GoneException"),
    errors.NotFound: Answer(404, "NotFoundException"),
    errors.NoSuchWarehouse: Answer(404, "NoSuchWarehouseException"),
    errors.NoSuchNamespace: Answer(404, "NoSuchNamespaceException"),
    errors.NoSuchTable: Answer(404, "NoSuchTableException"),
    errors.NoSuchView: Answer(404, "NoSuchViewException"),
    errors.NoSuchJob: Answer(404, "NoSuchJobException"),
    errors.FileMissing: Answer(404, "NotFoundException"),
    errors.NotDelta: Answer(404, "NotFoundException"),
    errors.Conflict: Answer(409, "ConflictException"),
    errors.AlreadyExists: Answer(409, "AlreadyExistsException"),
    errors.NamespaceNotEmpty: Answer(409, "NamespaceNotEmptyException"),
    errors.JobHeld: Answer(409, "JobHeldException"),
    errors.JobOver: Answer(409, "JobOverException"),
    errors.AlreadyApplied: Answer(409, "AlreadyAppliedException"),
    errors.CommitFailed: Answer(409, "CommitFailedException"),
    errors.NotAuthenticated: Answer(401, "NotAuthorizedException", {"WWW-Authenticate": "Bearer"}),
    errors.InvalidToken: Answer(401, "NotAuthorizedException", {"WWW-Authenticate": 'Bearer error="invalid_token"'}),
    errors.Forbidden: Answer(403, "ForbiddenException"),
    errors.TooManyRequests: Answer(429, "TooManyRequestsException", {"Retry-After": "1"}),
    errors.ReadOnlyTable: Answer(403, "ReadOnlyTableException"),
    errors.DamagedTable: Answer(422, "DamagedTableException"),
    errors.DamagedLog: Answer(422, "DamagedLogException"),
    errors.CommitStateUnknown: Answer(500, "CommitStateUnknownException"),
    errors.Unavailable: Answer(503, "ServiceUnavailableException", {"Retry-After": "1"}),
    errors.FailedOver: Answer(503, "ServiceUnavailableException", {"Retry-After": "1"}),
    errors.UnknownFormatError: Answer(503, "ServiceUnavailableException", {"Retry-After": "10"}),
    errors.StoreDenied: Answer(500, "ServiceFailureException"),  # which clients don't send again, as they would 503
    errors.StartupError: _INTERNAL,
    errors.InvalidSettings: _INTERNAL,
    errors.LakeInUse: _INTERNAL,
    errors.UnsupportedCatalog: _INTERNAL,
}

_LISTED = "the routes are listed by GET /v1/config and GET /openapi.json"
_URI = "a client's URI is the server's address alone, without /v1 or another path"

_HTTP_TYPES = {400: "BadRequestException", 404: "NotFoundException", 405: "MethodNotAllowedException"}


def error_response(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """The envelope as an answer; the edge strips the body where the request was HEAD."""
    envelope = {"error": {"message": errors.said(message), "type": kind, "code": status}}
    return Response(orjson.dumps(envelope), status, headers, "application/json")


def internal_error(request_id: str) -> Response:
    """The answer to a bug: nothing of the inside, only what finds the log line."""
    return error_response(_INTERNAL.status, _INTERNAL.type, f"Internal server error; request id {request_id}")


def install(app: FastAPI) -> None:
    """Make the app answer every error that it knows with the envelope; unknown ones rise to the edge (`access`)."""
    app.add_exception_handler(errors.CatalogError, _catalog_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)


async def _catalog_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.CatalogError)
    answer = ANSWERS[type(error)]
    if answer.hidden:
        raise error
    if isinstance(error, errors.Conflict):
        request.scope[CONFLICT_KEY] = error.kind
    if answer.status >= 500 or isinstance(error, errors.DamagedTable):
        request.scope[ERROR_KEY] = error
    return error_response(answer.status, answer.type, str(error), answer.headers)


async def _validation_error(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, RequestValidationError)
    return error_response(400, "BadRequestException", explain(error.errors()))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    method, path = request.method, request.scope["path"]
    if error.status_code == 404:
        is_below = path.endswith("/v1/config") or path.count("/v1/") > 1
        message = f"No such route: {method} {path}; {_URI if is_below else _LISTED}"
    elif error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_allowed_methods(request)))
        message = f"{method} is not served for {path}; it takes {headers['Allow']}"
    else:
        message = error.detail
    kind = _HTTP_TYPES.get(error.status_code, HTTPStatus(error.status_code).phrase.replace(" ", "") + "Exception")
    return error_response(error.status_code, kind, message, headers)


def _allowed_methods(request: Request) -> set[str]:
    routes = [route for route in request.app.router.routes if isinstance(route, Route)]
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in matching for method in route.methods or ()}
