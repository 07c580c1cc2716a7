"""Routes whose endpoints take the request as it is: FastAPI describes them, and does no more.

To take a request apart as an endpoint's signature says costs more than to insert ten rows.
"""

import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.types import ASGIApp, Receive, Scope, Send

_PATH_PARAMETER = re.compile(r"\{(\w+)\}")

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]
Model = TypeVar("Model", bound=BaseModel)


class WholeRequestRoute(APIRoute):
    """Its endpoint is a coroutine from the request to the response."""

    def __init__(self, path: str, endpoint: Endpoint, **described: Any) -> None:
        super().__init__(path, endpoint, **described)
        self.app = _app_of(endpoint)


def _app_of(endpoint: Endpoint) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)

    return app


def query_of(request: Request, model: type[Model]) -> Model:
    """The query as a value of the model; RequestValidationError."""
    if not request.scope["query_string"]:
        return model()
    try:
        return model.model_validate(dict(request.query_params))
    except ValidationError as invalid:
        errors = [{**error, "loc": ("query", *error["loc"])} for error in invalid.errors(include_url=False)]
        raise RequestValidationError(errors) from invalid


def parameters_of(path: str, query: type[BaseModel], headers: type[BaseModel]) -> list[dict[str, Any]]:
    """What the description says of a path's parameters, of those of the query, and of the headers."""
    named = [("path", name, {"type": "string", "title": name.title()}) for name in _PATH_PARAMETER.findall(path)]
    named += [("query", *each) for each in _properties(query)]
    named += [("header", *each) for each in _properties(headers)]
    return [_parameter(*each) for each in named]


def _properties(model: type[BaseModel]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, schema in model.model_json_schema()["properties"].items():
        yield name, {key: value for key, value in schema.items() if (key, value) != ("default", None)}


def _parameter(place: str, name: str, schema: dict[str, Any]) -> dict[str, Any]:
    described = {"description": schema["description"]} if "description" in schema else {}
    return {"in": place, "name": name, "required": place == "path", "schema": schema, **described}
