"""Routing by the path as the client encoded it.

ASGI servers decode paths before the app routes them, which loses `%2F` and `%1F` inside names.
"""

from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send


class RawPaths:
    """ASGI middleware: routes and path parameters see the path undecoded."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        raw = scope.get("raw_path")
        if raw is not None:
            scope["path"] = raw.decode("latin-1")
        return self._app(scope, receive, send)
