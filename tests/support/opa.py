"""An HTTP server that speaks OPA's API, with a policy in Python; and where OPA itself is."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from time import sleep
from typing import Any

PATH = "/v1/data/duckicelake/allow"
Policy = Callable[[str, str, str], bool]
"""(user, operation, object) → whether; the object is as sales.orders, sales, or * for the warehouse."""


@dataclass
class OpaServer:
    """What it decides by, and what it was asked."""

    url: str = ""
    policy: Policy = lambda _user, _operation, _object: True
    inputs: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    answer: bytes | None = None
    """What it answers instead of a decision."""
    status: int = 200
    seconds: float = 0
    at_once: int = 0
    most_at_once: int = 0

    @property
    def asked(self) -> list[tuple[str, str]]:
        """(Object, operation), of all inputs."""
        items = [item for one in self.inputs for item in one["action"]["filterResources"]]
        return [(find_object(item), item["operation"]) for item in items]

    def decide(self, given: dict[str, Any]) -> dict[str, Any]:
        user = given["context"]["identity"]["user"]
        wanted = given["action"]["filterResources"]
        allowed = [
            index for index, item in enumerate(wanted) if self.policy(user, item["operation"], find_object(item))
        ]
        return {"result": allowed}


def find_object(item: dict[str, Any]) -> str:
    if "catalog" in item:
        return "*"
    named = item.get("table") or item["schema"]
    return ".".join((named["schemaName"], *([named["tableName"]] if "tableName" in named else [])))


@contextmanager
def deciding() -> Iterator[OpaServer]:
    """Run it on a free port of loopback."""
    opa = OpaServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            opa.at_once += 1
            opa.most_at_once = max(opa.most_at_once, opa.at_once)
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            opa.inputs.append(given)
            opa.tokens.append(self.headers["Authorization"])
            sleep(opa.seconds)
            decided = opa.decide(given) if self.path == PATH else {}
            body = json.dumps(decided).encode() if opa.answer is None else opa.answer
            opa.at_once -= 1
            self.send_response(opa.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        opa.url = f"http://127.0.0.1:{server.server_port}{PATH}"
        yield opa
        server.shutdown()


def find_opa() -> str | None:
    """OPA's program, if there is one: $OPA, or on the PATH."""
    return os.environ.get("OPA") or shutil.which("opa")
