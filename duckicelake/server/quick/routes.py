"""Routes that take requests apart by themselves: FastAPI describes them, and does no more.

An endpoint says what it takes in its signature, as ever. To solve that as FastAPI does costs more than to insert ten
rows, for it does so anew for each request; here it is done once. Signatures may hold less for it: the request, and in
`Annotated` coroutines to depend on, headers that are text, and a model of the query; those coroutines also names in the
path. What else they hold is refused when the route is made.
"""

from collections.abc import Awaitable, Callable, Mapping
from inspect import Parameter, iscoroutinefunction, signature
from typing import Annotated, Any, TypeVar, get_args, get_origin

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends, Header, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

Model = TypeVar("Model", bound=BaseModel)
Function = Callable[..., Any]
Argument = Callable[[Request, list[Any]], Any]
"""What a function is given: from the request, and from what the functions before it gave."""


class QuickRoute(APIRoute):
    """Its endpoint gives the response; one that is no coroutine function runs in a thread."""

    def __init__(self, path: str, endpoint: Function, **described: Any) -> None:
        super().__init__(path, endpoint, **described)
        self.app = _app_of(endpoint, _Signatures(self.param_convertors))


def _app_of(endpoint: Function, signatures: "_Signatures") -> ASGIApp:
    arguments, steps = signatures.arguments(endpoint), signatures.steps
    is_coroutine = iscoroutinefunction(endpoint)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        results: list[Any] = []
        for function, needed in steps:
            results.append(await function(*[argument(request, results) for argument in needed]))
        given = [argument(request, results) for argument in arguments]
        response: Response = await (endpoint(*given) if is_coroutine else run_in_threadpool(endpoint, *given))
        await response(scope, receive, send)

    return app


class _Signatures:
    """Reads signatures: of an endpoint, and of what it depends on. names: those in the path.

    steps: the functions to be called for each request, each once and after those that it depends on.
    """

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = names
        self._places: dict[Function, int] = {}
        self.steps: list[tuple[Callable[..., Awaitable[Any]], tuple[Argument, ...]]] = []

    def arguments(self, function: Function) -> tuple[Argument, ...]:
        """Of the function, in their order; TypeError for what only FastAPI understands."""
        return tuple(self._argument(each) for each in signature(function, eval_str=True).parameters.values())

    def _argument(self, parameter: Parameter) -> Argument:
        name, (kind, *marks) = parameter.name, _parts(parameter.annotation)
        match marks:
            case [] if kind is Request:
                return _request
            case [] if kind is str and name in self._names:
                return lambda request, _: request.scope["path_params"][name]
            case [Depends(dependency=function)] if iscoroutinefunction(function):
                place = self._place(function)
                return lambda _, results: results[place]
            case [Header() as header]:
                return _header(header.alias or name.replace("_", "-"), kind, parameter.default)
            case [Query()] if issubclass(kind, BaseModel):
                return lambda request, _: _query(request, kind)
        raise TypeError(f"{parameter} is nothing that a quick route can find in a request")

    def _place(self, function: Function) -> int:
        if function not in self._places:
            needed = self.arguments(function)
            self._places[function] = len(self.steps)
            self.steps.append((function, needed))
        return self._places[function]


def _parts(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)


def _request(request: Request, _: list[Any]) -> Request:
    return request


def _header(name: str, kind: Any, default: object) -> Argument:
    if kind == str | None:
        return lambda request, _: request.headers.get(name, default)
    if kind == list[str] | None:
        return lambda request, _: request.headers.getlist(name) or default
    raise TypeError(f"A quick route gives the header {name} as text or as list of texts, or None")


def _query(request: Request, model: type[Model]) -> Model:
    """The query as a value of the model; RequestValidationError."""
    if not request.scope["query_string"]:
        return model()
    try:
        return model.model_validate(dict(request.query_params))
    except ValidationError as invalid:
        errors = [{**error, "loc": ("query", *error["loc"])} for error in invalid.errors(include_url=False)]
        raise RequestValidationError(errors) from invalid
