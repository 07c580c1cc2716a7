"""Routes whose endpoints take the request as it is: FastAPI describes them, and does no more.

To take a request apart as an endpoint's signature says costs more than to insert ten rows.
"""

import re
from collections.abc import Iterator
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from duckicelake.server.quick_routes import QuickRoute

_PATH_PARAMETER = re.compile(r"\{(\w+)\}")

Model = TypeVar("Model", bound=BaseModel)


WholeRequestRoute = QuickRoute


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
