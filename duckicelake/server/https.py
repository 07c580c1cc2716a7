"""Where a proxy ends TLS: requests that reached it in the clear are turned away."""

import re
from typing import Final

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from duckicelake.server.errors import error_response
from duckicelake.server.limits.load import EXEMPT

_HOST: Final = re.compile(rb"[A-Za-z0-9.:\[\]-]+")


class RequireHttps:
    """ASGI middleware: GET and HEAD over http are redirected to https, all else is refused. Probes may ask without."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["scheme"] == "https" or scope["path"] in EXEMPT:
            await self._app(scope, receive, send)
            return
        await _turned_away(scope)(scope, receive, send)


def _turned_away(scope: Scope) -> ASGIApp:
    host = next((value for name, value in scope["headers"] if name == b"host"), b"")
    if scope["method"] in {"GET", "HEAD"} and _HOST.fullmatch(host):
        query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
        return RedirectResponse(f"https://{host.decode()}{scope['path']}{query}", 308)
    message = (
        "This server is spoken to over https alone; nothing was done, and what was sent went over the wire in the clear"
    )
    return error_response(403, "ForbiddenException", message)
