"""Map errors to HTTP responses, and validation findings to one sentence."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope

from duckicelake import errors
from duckicelake.errors import InvalidRequestError, restate_rule
from duckicelake.iceberg.model import has_nul
from duckicelake.server.http.pages import load_not_found_page

_MAX_FINDINGS = 5
_MAX_INPUT_CHARS = 60
_MAX_DEPTH = 64
Model = TypeVar("Model", bound=BaseModel)
ERROR_KEY = "duckicelake.error"
"""Where in the ASGI scope the request log finds what its operator has to know of: errors behind 5xx, and damage."""
CONFLICT_KEY = "duckicelake.conflict"
"""Where in it the metrics find what didn't hold of a request that is answered with 409."""
_ROUTES_HINT = "the routes are listed by GET /v1/config and GET /openapi.json"
_URI_HINT = "a client's URI is the server's address alone, without /v1 or another path"
_HTTP_TYPES = {400: "BadRequestException", 404: "NotFoundException", 405: "MethodNotAllowedException"}


def parse_body(model: type[Model], body: bytes) -> Model:
    """Parse the JSON body as the model.

    Raises InvalidRequestError naming line and column where it isn't JSON, and each wrong field otherwise. No text may
    hold a NUL character: Postgres has none.
    """
    if has_nul(body):
        raise InvalidRequestError(
            f"Invalid request: {_locate_nul(body)} holds a NUL character (\\u0000), which can't be stored"
        )
    try:
        return model.model_validate_json(body)
    except ValidationError as invalid:
        raise InvalidRequestError(explain_findings(invalid.errors(include_url=False))) from invalid


def _locate_nul(body: bytes) -> str:
    """Name the first text with a NUL character, or the object of whose keys one has it."""
    try:
        rest: list[tuple[tuple[int | str, ...], Any]] = [((), orjson.loads(body))]
    except orjson.JSONDecodeError:
        return "the body"
    while rest:
        place, value = rest.pop()
        shown = _format_place(place) or "the body"
        if isinstance(value, str) and "\0" in value:
            return shown
        if isinstance(value, dict):
            if any("\0" in key for key in value):
                return f"a key of {shown}"
            rest += reversed([((*place, key), inner) for key, inner in value.items()])
        elif isinstance(value, list):
            rest += reversed([((*place, index), inner) for index, inner in enumerate(value)])
    return "the body"


def explain_findings(findings: Sequence[Any]) -> str:
    """Describe the first findings (`ValidationError.errors()`), with their fields and what is expected."""
    shown = "; ".join(_explain_one(finding) for finding in findings[:_MAX_FINDINGS])
    hidden = len(findings) - _MAX_FINDINGS
    return f"Invalid request: {shown}" + (f"; and {hidden} more" if hidden > 0 else "")


def _explain_one(finding: Any) -> str:
    message = restate_rule(str(finding["msg"]))
    if finding["type"] == "json_invalid":
        return f"the body is not JSON: {message.removeprefix('Invalid JSON: ')}"
    place = _format_place(finding["loc"])
    if finding["type"] == "extra_forbidden":
        return f"{place}: there is no such field"
    given = "" if finding["type"] == "missing" else _format_given(finding.get("input"))
    return f"{place}: {message}{given}" if place else f"the body: {message}{given}"


def _format_place(location: Sequence[int | str]) -> str:
    text = ""
    for part in location[1:] if location[:1] == ("path",) else location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def _format_given(value: object) -> str:
    if isinstance(value, dict | list):
        return ""
    text = repr(value)
    return f" (got {text if len(text) <= _MAX_INPUT_CHARS else text[:_MAX_INPUT_CHARS] + '…'})"


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
class HttpError:
    """The HTTP face of an error class. A hidden one gives the client only a request id."""

    status: int
    type: str
    headers: dict[str, str] = field(default_factory=dict)
    hidden: bool = False


_INTERNAL_ERROR = HttpError(500, "InternalServerError", hidden=True)

HTTP_ERRORS: dict[type[errors.CatalogError], HttpError] = {
    errors.CatalogError: _INTERNAL_ERROR,
    errors.InvalidRequestError: HttpError(400, "BadRequestException"),
    errors.QueryMemoryError: HttpError(400, "BadRequestException"),
    errors.RefusedAddressError: HttpError(400, "BadRequestException"),
    errors.InvalidViewError: HttpError(
        400, "IllegalArgumentException"
    ),  # which Java clients raise as their own check's
    errors.UnprocessableError: HttpError(422, "UnprocessableEntityException"),
    errors.TxnAlreadyCommittedError: HttpError(422, "AlreadyAppliedException"),
    errors.UnsupportedError: HttpError(406, "UnsupportedOperationException"),
    errors.MissingExtraError: HttpError(406, "UnsupportedOperationException"),
    errors.ExpiredError: HttpError(410, "GoneException"),
    errors.NotFoundError: HttpError(404, "NotFoundException"),
    errors.NoSuchWarehouseError: HttpError(404, "NoSuchWarehouseException"),
    errors.NoSuchNamespaceError: HttpError(404, "NoSuchNamespaceException"),
    errors.NoSuchTableError: HttpError(404, "NoSuchTableException"),
    errors.NoSuchViewError: HttpError(404, "NoSuchViewException"),
    errors.NoSuchJobError: HttpError(404, "NoSuchJobException"),
    errors.NoSuchPlanError: HttpError(404, "NoSuchPlanIdException"),
    errors.NoSuchPlanTaskError: HttpError(404, "NoSuchPlanTaskException"),
    errors.FileMissingError: HttpError(404, "NotFoundException"),
    errors.NoDeltaLogError: HttpError(404, "NotFoundException"),
    errors.ConflictError: HttpError(409, "ConflictException"),
    errors.AlreadyExistsError: HttpError(409, "AlreadyExistsException"),
    errors.NamespaceNotEmptyError: HttpError(409, "NamespaceNotEmptyException"),
    errors.ProtectedError: HttpError(409, "ProtectedException"),
    errors.JobHeldError: HttpError(409, "JobHeldException"),
    errors.TaskHeldError: HttpError(409, "TaskHeldException"),
    errors.JobEndedError: HttpError(409, "JobOverException"),
    errors.TxnAlreadyAppliedError: HttpError(409, "AlreadyAppliedException"),
    errors.CommitFailedError: HttpError(409, "CommitFailedException"),
    errors.NotAuthenticatedError: HttpError(
        401, "NotAuthorizedException", {"WWW-Authenticate": 'Bearer realm="duckicelake"'}
    ),
    errors.InvalidTokenError: HttpError(
        401, "NotAuthorizedException", {"WWW-Authenticate": 'Bearer error="invalid_token"'}
    ),
    errors.ForbiddenError: HttpError(403, "ForbiddenException"),
    errors.QuotaExceededError: HttpError(403, "QuotaExceededException"),
    errors.TooManyRequestsError: HttpError(429, "TooManyRequestsException", {"Retry-After": "1"}),
    errors.ReadOnlyTableError: HttpError(403, "ReadOnlyTableException"),
    errors.DamagedTableError: HttpError(422, "DamagedTableException"),
    errors.DamagedLogError: HttpError(422, "DamagedLogException"),
    errors.TaskStoppedError: HttpError(503, "ServiceUnavailableException", {"Retry-After": "1"}),
    errors.CommitStateUnknownError: HttpError(500, "CommitStateUnknownException"),
    errors.UnavailableError: HttpError(503, "ServiceUnavailableException", {"Retry-After": "1"}),
    errors.FailoverError: HttpError(503, "ServiceUnavailableException", {"Retry-After": "1"}),
    errors.UnknownFormatError: HttpError(503, "ServiceUnavailableException", {"Retry-After": "10"}),
    errors.FormatChangeError: HttpError(503, "ServiceUnavailableException", {"Retry-After": "5"}),
    errors.FeatureUnavailableError: HttpError(503, "ServiceUnavailableException", {"Retry-After": "10"}),
    errors.StoreRestingError: HttpError(503, "ServiceUnavailableException", {"Retry-After": "1"}),
    errors.StoreDeniedError: HttpError(
        500, "ServiceFailureException"
    ),  # which clients don't send again, as they would 503
    errors.StartupError: _INTERNAL_ERROR,
    errors.InvalidSettingsError: _INTERNAL_ERROR,
    errors.LakeInUseError: _INTERNAL_ERROR,
    errors.UnsupportedCatalogError: _INTERNAL_ERROR,
}


def build_error_response(status: int, kind: str, message: str, headers: dict[str, str] | None = None) -> Response:
    """Build an error response; `RequestLogMiddleware` strips the body for HEAD."""
    envelope = {"error": {"message": errors.shorten(message), "type": kind, "code": status}}
    return Response(orjson.dumps(envelope), status, headers, "application/json")


def build_internal_error(request_id: str) -> Response:
    """Build the response to a bug, which says only by what id to find the log line."""
    return build_error_response(
        _INTERNAL_ERROR.status, _INTERNAL_ERROR.type, f"Internal server error; request id {request_id}"
    )


def install_error_handlers(app: FastAPI) -> None:
    """Make the app answer every error that it knows with the envelope; unknown ones rise to the edge (`access`)."""
    app.add_exception_handler(errors.CatalogError, _handle_catalog_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_error)


async def _handle_catalog_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.CatalogError)
    return answer_catalog_error(request.scope, error)


def answer_catalog_error(scope: Scope, error: errors.CatalogError) -> Response:
    """Build the response to an error, and leave in the scope what the request log says of it; raise a hidden one."""
    answer = HTTP_ERRORS[type(error)]
    if answer.hidden:
        raise error
    if isinstance(error, errors.ConflictError):
        scope[CONFLICT_KEY] = error.kind
    if answer.status >= 500 or isinstance(error, errors.DamagedTableError):
        scope[ERROR_KEY] = error
    return build_error_response(answer.status, answer.type, str(error), answer.headers)


async def _handle_validation_error(request: Request, error: Exception) -> Response:  # noqa: ARG001
    assert isinstance(error, RequestValidationError)
    return build_error_response(400, "BadRequestException", explain_findings(error.errors()))


async def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    method, path = request.method, request.scope["path"]
    if error.status_code == 404 and _is_for_reader(request):
        return _answer_with_page(path)
    if error.status_code == 404:
        is_below = path.endswith("/v1/config") or path.count("/v1/") > 1
        message = f"No such route: {method} {path}; {_URI_HINT if is_below else _ROUTES_HINT}"
    elif error.status_code == 405:
        headers["Allow"] = ", ".join(sorted(_find_allowed_methods(request)))
        message = f"{method} is not served for {path}; it takes {headers['Allow']}"
    else:
        message = error.detail
    kind = _HTTP_TYPES.get(error.status_code, HTTPStatus(error.status_code).phrase.replace(" ", "") + "Exception")
    return build_error_response(error.status_code, kind, message, headers)


def _is_for_reader(request: Request) -> bool:
    """Return whether a browser asks in order to show the answer: programs, and scripts of pages, don't ask for HTML."""
    return request.method in {"GET", "HEAD"} and "text/html" in request.headers.get("accept", "")


def _answer_with_page(path: str) -> Response:
    page = load_not_found_page(min(path.count("/") - 1, _MAX_DEPTH)).answer(None)
    page.status_code = 404
    page.headers["Vary"] = "Accept"
    return page


def _find_allowed_methods(request: Request) -> set[str]:
    routes = [route for route in request.app.router.routes if isinstance(route, Route)]
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for route in matching for method in route.methods or ()}
