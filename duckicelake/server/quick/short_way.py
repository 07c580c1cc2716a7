"""The short way to routes that take requests apart by themselves: past FastAPI's layers and its list of routes."""

from fastapi import FastAPI, Request
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from duckicelake.server.quick.routes import QuickRoute


class ShortWay:
    """Tries the routes that are asked most often; what an endpoint raises is answered as the app's handlers say."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._routes = [route for route in app.router.routes if isinstance(route, QuickRoute)]

    async def answers(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Whether it was a request for one of the routes, and has its answer."""
        for route in self._routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                scope.update(found, app=self._app)
                await self._answer(route, scope, receive, send)
                return True
        return False

    async def _answer(self, route: QuickRoute, scope: Scope, receive: Receive, send: Send) -> None:
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
