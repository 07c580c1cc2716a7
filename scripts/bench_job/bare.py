"""The reference for loads and commits: a bare Starlette route that sends the same bytes, on the installed uvicorn.

    python -m scripts.bench_job.bare FILE [ETAG]

GET /body answers with the file; GET /unchanged with 304 and the ETag; POST to any path reads what it is sent and
answers with the file. It prints its URI.
"""

import socket
import sys
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn import Config, Server


def app_of(data: bytes, etag: str) -> Starlette:
    async def body(request: Request) -> Response:  # noqa: ARG001
        return Response(data, media_type="application/json", headers={"ETag": etag})

    async def unchanged(request: Request) -> Response:  # noqa: ARG001
        return Response(status_code=304, headers={"ETag": etag})

    async def taken(request: Request) -> Response:
        await request.body()
        return await body(request)

    posted = Route("/{path:path}", taken, methods=["POST"])
    return Starlette(routes=[Route("/body", body), Route("/unchanged", unchanged), posted])


def main() -> None:
    data = Path(sys.argv[1]).read_bytes()
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    app = app_of(data, sys.argv[2] if len(sys.argv) > 2 else '"etag"')
    Server(Config(app, lifespan="off", ws="none", log_config=None, access_log=False)).run([listener])


if __name__ == "__main__":
    main()
