"""Routes of no specification but ours: what they don't know of a query or a body is refused.

What is overlooked isn't done, whatever it was for: a misspelt `limit` would be no limit. Routes that others specify
overlook it, for their clients may send what a newer version of the specification has.
"""

from collections.abc import Iterable
from typing import Any

from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Header, Path
from fastapi.routing import APIRoute
from pydantic import ConfigDict
from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.quick.routes import QuickRoute


class OwnRequest(SpecModel):
    """A body with the fields of the model, and no others."""

    model_config = ConfigDict(extra="forbid")


class OwnRoute(APIRoute):
    """Takes the query parameters of its endpoint's signature, and no others."""

    def __init__(self, path: str, endpoint: Any, **described: Any) -> None:
        super().__init__(path, endpoint, **described)
        app = self.app
        elsewhere = Path | Header
        known = {each.alias for each in get_flat_params(self.dependant) if not isinstance(each.field_info, elsewhere)}

        async def checked(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["query_string"]:
                _check(QueryParams(scope["query_string"]), known)
            await app(scope, receive, send)

        self.app = checked


class QuickOwnRoute(OwnRoute, QuickRoute):
    """The same of a route that takes requests apart by itself."""


def _check(given: Iterable[str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            takes = f"this route takes {', '.join(sorted(known))}" if known else "this route takes none"
            raise InvalidRequest(f"Invalid request: query.{name}: there is no such parameter; {takes}")
