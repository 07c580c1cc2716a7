"""A stock Trino on this machine, with one catalog `lake`, that runs SQL."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scripts.backends_job.processes import free_port
from scripts.engines_job.packages import HERE, EngineError, java_home, trino_home

START_SECONDS = 420
STOP_SECONDS = 30
HOST = "127.0.0.1"
_NOT_YET = "NO_NODES_AVAILABLE"
"""What a Trino says that has just started, and doesn't know yet that it is a node itself."""
_MEMORY = ("-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_OPENED = ("--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED")
_VECTORS = ("--add-modules", "jdk.incubator.vector")
_ATTACHED = ("-XX:+EnableDynamicAgentLoading", "-Djdk.attach.allowAttachSelf=true")


class Trino:
    """A client of the server's statement API. Not for several threads."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._headers = {
            "X-Trino-User": "tests",
            "X-Trino-Catalog": "lake",
            "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",  # without it, timestamps come in milliseconds
        }

    def rows(self, statement: str) -> list[list[Any]]:
        """Run a statement; its rows as JSON has them. EngineError says why it failed."""
        deadline = time.monotonic() + START_SECONDS
        rows, error = self._run(statement)
        while error and error["errorName"] == _NOT_YET and time.monotonic() < deadline:
            time.sleep(0.5)
            rows, error = self._run(statement)
        if error:
            raise EngineError(f"{statement}: {_reasons(error['failureInfo'])}")
        return rows

    def is_ready(self) -> bool:
        """Whether it answers."""
        with suppress(OSError, ValueError):
            return self._ask("GET", "/v1/info").get("starting") is False
        return False

    def _run(self, statement: str) -> tuple[list[list[Any]], dict[str, Any] | None]:
        answer = self._ask("POST", "/v1/statement", statement)
        rows = list(answer.get("data", ()))
        while "nextUri" in answer:
            answer = self._ask("GET", urlsplit(answer["nextUri"]).path)
            rows += answer.get("data", ())
        return rows, answer.get("error")

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        connection = HTTPConnection(HOST, self._port, timeout=120)
        try:
            connection.request(method, path, None if body is None else body.encode(), self._headers)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer


def _reasons(failure: dict[str, Any]) -> str:
    cause = failure.get("cause")
    return f"{failure.get('message')}" + (f"; {_reasons(cause)}" if cause else "")


@contextmanager
def running_trino(folder: Path, catalog: str) -> Iterator[Trino]:
    """Start it and wait until it answers; all of its files go to the folder.

    catalog: the properties of `lake`, as `etc/catalog/lake.properties` has them.
    """
    port = free_port()
    config = _configure(folder, port, catalog)
    home = trino_home()
    program = str(HERE / "TrinoServer.java")
    java = str(java_home() / "bin" / "java")
    given = [f"-Dconfig={config}", "-Dnode.id=one", f"-Dnode.data-dir={folder / 'data'}", "-Dnode.environment=tests"]
    log = folder / "trino.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [java, *_MEMORY, *_OPENED, *_VECTORS, *_ATTACHED, *given, "-cp", f"{home}/lib/*", program, _version()],
            cwd=folder,
            env=os.environ,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    with process:
        try:
            trino = Trino(port)
            _wait(process, trino, log)
            yield trino
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _version() -> str:
    [version] = re.findall("<version>([0-9]{3})<", (HERE / "trino.xml").read_text())
    return str(version)


def _configure(folder: Path, port: int, catalog: str) -> Path:
    catalogs = folder / "etc" / "catalog"
    catalogs.mkdir(parents=True)
    (catalogs / "lake.properties").write_text(catalog)
    config = folder / "etc" / "config.properties"
    settings = {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(port),
        "discovery.uri": f"http://{HOST}:{port}",
        "node.internal-address": HOST,
        "node.bind-ip": HOST,
        "plugin.dir": f"{trino_home()}/plugin",
        "catalog.config-dir": str(catalogs),
    }
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return config


def _wait(process: "subprocess.Popen[bytes]", trino: Trino, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if trino.is_ready():
            return
        time.sleep(0.2)
    raise EngineError(f"Trino did not start; it printed:\n{log.read_text(errors='replace')[-3000:]}")
