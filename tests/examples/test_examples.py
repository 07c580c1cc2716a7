"""Each example does what its README says, in an environment of its own, from an empty lake."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import duckicelake
from scripts.backends_job.processes import free_port
from tests.support.documents import ROOT
from tests.support.guides import run_guide
from tests.support.waits import wait_until

PROGRAMS = ROOT / "build" / "examples-venv" / "bin"
"""Of the environment that `scripts/examples` makes."""
PAGES = tuple(f"{folder}README.md" for folder in (
    "examples/dagster/", "examples/dbt/", "examples/dlt/", "examples/notebook/", "examples/stream/"
))  # fmt: skip
LOCKED = dict(re.findall(r"^([\w.-]+)==([^ ;]+)", (ROOT / "examples" / "requirements.lock").read_text(), re.MULTILINE))


@pytest.fixture
def examples() -> Iterator[Path]:
    """A copy of all examples, in a folder with a short name: the sockets of Postgres lie in it."""
    with tempfile.TemporaryDirectory(prefix="ex-") as name:
        Path(name).chmod(0o755)
        yield Path(shutil.copytree(ROOT / "examples", Path(name) / "x"))


@pytest.mark.examples
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_example_does_what_it_says(page: str, examples: Path) -> None:
    run_guide(page, examples / page.split("/")[1], PROGRAMS, seconds=800)


def test_every_example_is_run_and_listed() -> None:
    assert sorted(f"examples/{path.parent.name}/README.md" for path in (ROOT / "examples").glob("*/README.md")) == [
        *PAGES
    ]
    listed = re.findall(r"^\| \[\w+\]\((\w+/README\.md)\)", (ROOT / "examples" / "README.md").read_text(), re.MULTILINE)
    assert sorted(f"examples/{page}" for page in listed) == [*PAGES]


def test_lock_has_what_the_examples_ask_for() -> None:
    for path in (ROOT / "examples").glob("*/requirements.txt"):
        for requirement in map(Requirement, path.read_text().split()):
            assert requirement.name == "duckicelake" or requirement.specifier.contains(LOCKED[requirement.name])


@contextmanager
def serving(folder: Path) -> Iterator[dict[str, str]]:
    """The environment of programs of an example, beside a server of an empty lake."""
    port = free_port()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DUCKICELAKE_")},
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "DUCKICELAKE_CLIENT_URI": f"http://localhost:{port}",
        "DAGSTER_HOME": str(folder),
    }
    server = subprocess.Popen(["duckicelake", "serve", "--port", str(port)], cwd=folder, env=environment)
    try:
        command = ["curl", "--silent", "--fail", f"http://localhost:{port}/readyz"]
        wait_until(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0, 120)
        yield environment
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def ask(environment: dict[str, str], statement: str) -> list[dict[str, int]]:
    with duckicelake.connect(environment["DUCKICELAKE_CLIENT_URI"]) as lake:
        rows: list[dict[str, int]] = lake.sql(statement).rows()
        return rows


def count_rows(environment: dict[str, str], table: str) -> int:
    with duckicelake.connect(environment["DUCKICELAKE_CLIENT_URI"]) as lake:
        return sum(size.rows or 0 for size in lake.sizes() if size.name == table)


@contextmanager
def running(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a program in the block, then kill it with all that it started."""
    program = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.wait(60)


@pytest.mark.examples
def test_stream_that_is_killed_in_the_middle_doubles_and_loses_nothing(examples: Path) -> None:
    folder, command = examples / "stream", ["python", "readings.py", "20000"]
    with serving(folder) as environment:
        with running(command, folder, environment):
            wait_until(lambda: count_rows(environment, "plant.readings") > 1000)
        assert count_rows(environment, "plant.readings") < 60_000
        subprocess.run(command, cwd=folder, env=environment, check=True)
        found = ask(environment, "SELECT count(*) AS n, count(DISTINCT (line, number)) AS d FROM plant.readings")
    assert found == [{"n": 60_000, "d": 60_000}]


@pytest.mark.examples
@pytest.mark.timeout(900)
def test_sensor_starts_a_run_for_what_came_while_its_daemon_was_killed(examples: Path) -> None:
    folder = examples / "dagster"
    orders = ["python", str(examples / "orders.py")]
    daemon = ["dagster-daemon", "run", "--python-file", "definitions.py"]

    def is_counted(environment: dict[str, str], number: int) -> bool:
        """Return whether the regions have so many orders together; before the first run there is no such table."""
        with duckicelake.connect(environment["DUCKICELAKE_CLIENT_URI"]) as lake:
            if not any(name.name == "sales.by_region" for name in lake.list("sales")):
                return False
        return ask(environment, "SELECT sum(orders)::INT AS n FROM sales.by_region") == [{"n": number}]

    with serving(folder) as environment:
        subprocess.run([*orders, "1"], cwd=folder, env=environment, check=True)
        with running(daemon, folder, environment):
            wait_until(lambda: is_counted(environment, 100), 300)
        subprocess.run([*orders, "3"], cwd=folder, env=environment, check=True)
        with running(daemon, folder, environment):
            wait_until(lambda: is_counted(environment, 300), 300)
