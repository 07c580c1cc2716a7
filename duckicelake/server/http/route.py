"""Route classes that read signatures once, and that refuse unknown parameters."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from inspect import Parameter, iscoroutinefunction, signature
from typing import Annotated, Any, TypeVar, get_args, get_origin

from fastapi import FastAPI, Request, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends, Header, Path, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import SpecModel

Model = TypeVar("Model", bound=BaseModel)
Function = Callable[..., Any]
Argument = Callable[[Request, list[Any]], Any]
"""Finds an argument in the request, or in the results of the functions that ran before."""


class FastRoute(APIRoute):
    """A route whose endpoint returns the response; an endpoint that is no coroutine function runs in a thread.

    It skips FastAPI's solving of dependencies and validation of responses, for the routes that are called most often.
    """

    def __init__(self, path: str, endpoint: Function, **described: Any) -> None:
        super().__init__(path, endpoint, **described)
        self.app = _build_app(endpoint, _SignatureReader(self.param_convertors))


def _build_app(endpoint: Function, signatures: "_SignatureReader") -> ASGIApp:
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


class _SignatureReader:
    """Read the signatures of an endpoint and of its dependencies. names: the parameters of the path.

    steps: the dependencies that a request calls, in order, with their arguments.
    """

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = names
        self._places: dict[Function, int] = {}
        self.steps: list[tuple[Callable[..., Awaitable[Any]], tuple[Argument, ...]]] = []

    def arguments(self, function: Function) -> tuple[Argument, ...]:
        """Build the function's arguments, in order; TypeError for what only FastAPI understands."""
        return tuple(self._argument(parameter) for parameter in signature(function, eval_str=True).parameters.values())

    def _argument(self, parameter: Parameter) -> Argument:
        name, (kind, *marks) = parameter.name, _split_annotation(parameter.annotation)
        match marks:
            case [] if kind is Request:
                return lambda request, _: request
            case [] if kind is str and name in self._names:
                return lambda request, _: request.scope["path_params"][name]
            case [Depends(dependency=function)] if iscoroutinefunction(function):
                place = self._place(function)
                return lambda _, results: results[place]
            case [Header() as header]:
                return _build_header_argument(header.alias or name.replace("_", "-"), kind, parameter.default)
            case [Query()] if issubclass(kind, BaseModel):
                return lambda request, _: _parse_query(request, kind)
        raise TypeError(f"Unsupported parameter {parameter} of a FastRoute: use APIRoute")

    def _place(self, function: Function) -> int:
        if function not in self._places:
            needed = self.arguments(function)
            self._places[function] = len(self.steps)
            self.steps.append((function, needed))
        return self._places[function]


def _split_annotation(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)


def _build_header_argument(name: str, kind: Any, default: object) -> Argument:
    if kind == str | None:
        return lambda request, _: request.headers.get(name, default)
    if kind == list[str] | None:
        return lambda request, _: request.headers.getlist(name) or default
    raise TypeError(f"Unsupported type of header {name} in a FastRoute: expected str | None or list[str] | None")


def _parse_query(request: Request, model: type[Model]) -> Model:
    """Parse the query as the model; RequestValidationError."""
    if not request.scope["query_string"]:
        return model()
    try:
        return model.model_validate(dict(request.query_params))
    except ValidationError as invalid:
        errors = [{**error, "loc": ("query", *error["loc"])} for error in invalid.errors(include_url=False)]
        raise RequestValidationError(errors) from invalid


class StrictRequest(SpecModel):
    """A body with the fields of the model, and no others."""

    model_config = ConfigDict(extra="forbid")


class StrictRoute(APIRoute):
    """A route that refuses query parameters which its endpoint doesn't have."""

    def __init__(self, path: str, endpoint: Any, **described: Any) -> None:
        super().__init__(path, endpoint, **described)
        app = self.app
        elsewhere = Path | Header
        known = {
            param.alias for param in get_flat_params(self.dependant) if not isinstance(param.field_info, elsewhere)
        }

        async def check_and_answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["query_string"]:
                _check_query(QueryParams(scope["query_string"]), known)
            await app(scope, receive, send)

        self.app = check_and_answer


class StrictFastRoute(StrictRoute, FastRoute):
    """A FastRoute that refuses unknown query parameters."""


def _check_query(given: Iterable[str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            takes = f"this route takes {', '.join(sorted(known))}" if known else "this route takes none"
            raise InvalidRequestError(f"Invalid request: query.{name}: there is no such parameter; {takes}")


class FastRouter:
    """Route requests to the FastRoutes of an app, with the app's error handlers."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._routes = [route for route in app.router.routes if isinstance(route, FastRoute)]

    def find(self, scope: Scope) -> ASGIApp | None:
        """Find the app that answers a request for one of the routes; None for another request."""
        for route in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                scope.update(found, app=self._app)
                return partial(self._answer, route)
        return None

    async def _answer(self, route: FastRoute, scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = False

        async def send_on(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await route.app(scope, receive, send_on)
        except Exception as error:
            handlers = self._app.exception_handlers
            handler = next((handlers[kind] for kind in type(error).__mro__ if kind in handlers), None)
            if handler is None or is_begun:
                raise
            response = await handler(Request(scope, receive), error)  # type: ignore[misc]
            await response(scope, receive, send)
