"""Drivers and catalogs that are killed at any moment: every row is there once, every bad record is put aside once."""

import itertools
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb
import pytest

from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.backends_job.processes import free_port
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import PROGRAM, RunningLake, info, own_environment, stop, wait_until_ready

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(1800)]

ROWS = 200
SCHEMA = "id long, v string"


class Catalog:
    """A server that can be killed and started again under the same address, and the drivers that write to it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._folder, self._environment = folder, own_environment({})
        self._starts = 0
        self._drivers: list[subprocess.Popen[bytes]] = []
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._starts += 1
        lake, log = self._folder / "lake", self._folder / f"server{self._starts}.log"
        lake.mkdir(exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [PROGRAM, "serve", "--lake", str(lake), "--port", str(self.port)],
                env=self._environment, cwd=lake, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
        wait_until_ready(process, log)
        return process

    def die_and_rise(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def driver(self, *arguments: object) -> subprocess.Popen[bytes]:
        """`duckicelake pipeline …`, in a Spark of its own.

        What it says goes to a file: into a pipe that nobody reads, it would stop in the middle of its words.
        """
        command = [PROGRAM, "pipeline", *map(str, arguments), "--uri", self.uri, "--master", "local[2]", "--json"]
        for setting in ("spark.driver.memory=1g", "spark.sql.shuffle.partitions=2"):
            command += ["--conf", setting]
        with (self._folder / "drivers.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        self._drivers.append(process)
        return process

    def said(self) -> str:
        """The last words of the drivers."""
        return (self._folder / "drivers.log").read_text()[-3000:]

    def ended(self, driver: subprocess.Popen[bytes]) -> str:
        out, _ = driver.communicate(timeout=600)
        assert driver.returncode == 0, self.said()
        return out.decode()

    def stop(self) -> None:
        stop(self._process)
        for driver in self._drivers:
            if driver.poll() is None:
                killed(driver)

    @contextmanager
    def duckdb(self) -> Iterator[duckdb.DuckDBPyConnection]:
        lake = self._folder / "lake"
        attach = str(info(lake, self._environment)["ducklake-attach"])
        with duckdb_lake(RunningLake(lake, self.uri, attach)) as connection:
            yield connection


@pytest.fixture
def catalog_to_kill(folder: Path) -> Iterator[Catalog]:
    catalog = Catalog(folder)
    try:
        yield catalog
    finally:
        catalog.stop()


def killed(driver: subprocess.Popen[bytes]) -> None:
    """The driver, and then its JVM, which lives on for a moment and has its standard output till then."""
    driver.send_signal(signal.SIGKILL)
    driver.communicate(timeout=60)


def records(first: int, last: int) -> str:
    """A header, good records, and one bad one."""
    return "id,v\n" + "".join(f"{number},v{number}\n" for number in range(first, last)) + f"bad{first},x\n"


def assert_each_once(duck: duckdb.DuckDBPyConnection, rows: int, bad: list[str]) -> None:
    counted = duck.sql("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM lake.k.t").fetchall()
    assert counted == [(rows, rows, 0, rows - 1)]
    aside = duck.sql("SELECT record, reason FROM lake.k.t_quarantine ORDER BY record").fetchall()
    assert aside == sorted((f"{each},x", f"id: '{each}' is no bigint") for each in bad)


def test_run_that_is_killed_between_its_two_commits_goes_on_where_it_was(
    catalog_to_kill: Catalog, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(records(0, 5000))
    arguments = ("ingest", path, "--table", "k.t", "--schema", SCHEMA, "--run-id", "r")
    client = CatalogClient(Connection(catalog_to_kill.uri))
    first = catalog_to_kill.driver(*arguments)
    while client.run(("k",), "t", "r") is None:
        assert first.poll() is None, catalog_to_kill.said()
        time.sleep(0.02)
    killed(first)
    assert client.run(("k",), "t_quarantine", "r of k.t") is None
    second = json.loads(catalog_to_kill.ended(catalog_to_kill.driver(*arguments)))
    assert (second["result"], second["rows"], second["quarantined"]) == ("done", 5000, 1)
    with catalog_to_kill.duckdb() as duck:
        assert_each_once(duck, 5000, ["bad0"])


def test_stream_loses_and_doubles_nothing_while_driver_and_catalog_are_killed(
    catalog_to_kill: Catalog, tmp_path: Path
) -> None:
    incoming, seed = tmp_path / "incoming", int(os.environ.get("DUCKICELAKE_TEST_SEED", time.time_ns() % 10**6))
    print(f"seed {seed}")
    moments = random.Random(seed)
    incoming.mkdir()
    (incoming / "0.csv").write_text(records(0, ROWS))

    enough = threading.Event()
    numbers = itertools.count(1)

    def produce() -> None:
        while not enough.wait(2):
            number = next(numbers)
            whole = tmp_path / f"{number}.csv"
            whole.write_text(records(number * ROWS, (number + 1) * ROWS))
            whole.rename(incoming / whole.name)

    arguments = ("ingest", incoming, "--format", "csv", "--table", "k.t", "--schema", SCHEMA, "--follow",
                 "--checkpoint", tmp_path / "checkpoint", "--every", "0")  # fmt: skip
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for kill_the in ("driver", "catalog"):
            stream = catalog_to_kill.driver(*arguments)
            wait_for_more_epochs(catalog_to_kill, stream)
            time.sleep(moments.uniform(0, 1.5))
            if kill_the == "catalog":
                catalog_to_kill.die_and_rise()
                wait_for_more_epochs(catalog_to_kill, stream)
            killed(stream)
    finally:
        enough.set()
        producer.join()
    catalog_to_kill.ended(catalog_to_kill.driver(*arguments, "--until-idle"))
    files = next(numbers)
    with catalog_to_kill.duckdb() as duck:
        assert_each_once(duck, files * ROWS, [f"bad{number * ROWS}" for number in range(files)])
        assert duck.sql("SELECT count(DISTINCT run_id) FROM lake.k.t_quarantine").fetchall() == [(1,)]


def wait_for_more_epochs(catalog: Catalog, stream: subprocess.Popen[bytes]) -> None:
    """Until the stream has committed something that wasn't there."""
    client = CatalogClient(Connection(catalog.uri))
    before = snapshots(client)
    while snapshots(client) <= before:
        assert stream.poll() is None, catalog.said()
        time.sleep(0.1)


def snapshots(client: CatalogClient) -> int:
    with suppress(Exception):
        return len(client.load_table(("k",), "t")["metadata"]["snapshots"])
    return 0
