"""Kafka Connect in one process, with Iceberg's sink."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from scripts.backends_job.processes import free_port
from scripts.engines_job.packages import EngineError, kafka_connect_jars

START_SECONDS = 300
WRITE_SECONDS = 300
HOST = "127.0.0.1"
_WORKER = """\
bootstrap.servers={broker}
listeners=http://{host}:{port}
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
connector.client.config.override.policy=All
"""
_LOG = """\
log4j.rootLogger=WARN, stderr
log4j.appender.stderr=org.apache.log4j.ConsoleAppender
log4j.appender.stderr.target=System.err
log4j.appender.stderr.layout=org.apache.log4j.PatternLayout
log4j.appender.stderr.layout.ConversionPattern=%d %p %c: %m%n
"""


class KafkaConnect:
    """A worker that keeps no connectors: whoever starts it again adds them again. Positions are in Kafka."""

    def __init__(self, broker: str, folder: Path) -> None:
        self._broker, self._folder = broker, folder
        self._log = folder / "connect.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._uri = ""

    def start(self) -> None:
        """Start the worker, and wait until it answers; EngineError."""
        port = free_port()
        self._uri = f"http://{HOST}:{port}"
        worker, log = self._folder / "worker.properties", self._folder / "log4j.properties"
        worker.write_text(_WORKER.format(broker=self._broker, host=HOST, port=port, folder=self._folder))
        log.write_text(_LOG)
        command = [str(which("java")), "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dlog4j.configuration=file:{log}"]
        main = ["-cp", f"{kafka_connect_jars()}/*", "org.apache.kafka.connect.cli.ConnectStandalone", str(worker)]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *main], cwd=self._folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self._ask("GET", "/connectors")
            except (OSError, URLError, EngineError):  # it answers 404 while it starts
                time.sleep(0.2)
            else:
                return
        raise EngineError(f"Kafka Connect did not start; it printed:\n{self._read_log()}")

    def kill(self) -> None:
        """End the worker as SIGKILL does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def add(self, name: str, properties: Mapping[str, str]) -> None:
        """Add a sink by its properties. It commits each second, and begins with a topic's first message."""
        config = {
            "tasks.max": "1",
            "iceberg.control.commit.interval-ms": "1000",
            "iceberg.control.commit.timeout-ms": "5000",
            "iceberg.kafka.bootstrap.servers": self._broker,
            "iceberg.kafka.auto.offset.reset": "earliest",
            "consumer.override.auto.offset.reset": "earliest",
            **properties,
        }
        self._ask("POST", "/connectors", {"name": name, "config": config})

    def wait_for(self, name: str, has_written: Callable[[], bool]) -> None:
        """Wait until a sink has written; EngineError if it fails, or takes too long."""
        deadline = time.monotonic() + WRITE_SECONDS
        while not has_written():
            failure = self._find_failure(name)
            if failure or time.monotonic() > deadline:
                raise EngineError(f"{name} has not written: {failure or self._read_log()}")
            time.sleep(0.3)

    def _find_failure(self, name: str) -> str:
        """Return why a connector's task has failed; nothing if it hasn't."""
        try:
            status = self._ask("GET", f"/connectors/{name}/status")
        except EngineError:  # it has none yet
            return ""
        return "\n".join(task.get("trace", "") for task in status["tasks"] if task["state"] == "FAILED")

    def _read_log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        given = None if body is None else json.dumps(body).encode()
        request = Request(f"{self._uri}{path}", given, {"Content-Type": "application/json"}, method=method)
        try:
            with urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except HTTPError as error:
            raise EngineError(f"{method} {path}: {error.read().decode(errors='replace')[:2000]}") from error


@contextmanager
def running_kafka_connect(broker: str, folder: Path) -> Iterator[KafkaConnect]:
    """Run a worker in the block; its files and what it prints go to the folder."""
    worker = KafkaConnect(broker, folder)
    try:
        worker.start()
        yield worker
    finally:
        worker.kill()
