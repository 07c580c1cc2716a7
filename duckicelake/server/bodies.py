"""Request bodies: a limit that holds while they stream in, and their bytes for the endpoint to parse in its thread."""

from typing import Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """ASGI middleware: reading a body larger than `limit` bytes raises HTTP 413, announced or streamed alike."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = _content_length(scope)
        received = 0

        async def receive_within_limit() -> Message:
            nonlocal received
            if announced > self._limit:
                raise self._too_large()
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._limit:
                raise self._too_large()
            return message

        await self._app(scope, receive_within_limit, send)

    def _too_large(self) -> HTTPException:
        detail = f"The body is larger than {self._limit} bytes, which is what DUCKICELAKE_MAX_BODY_BYTES allows"
        return HTTPException(413, detail, {"Connection": "close"})


def _content_length(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _read(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(_read)]


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """The `openapi_extra` of an operation whose body the endpoint parses as this model."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
