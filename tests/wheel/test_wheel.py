"""The wheel: what is in it, how much it brings, and that it serves a lake for each Python and each kind of machine."""

import os
import re
import signal
import socket
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from duckicelake import __version__
from tests.test_packaging import PYTHONS
from tests.wheel.conftest import Installation, clean_environment

pytestmark = [pytest.mark.wheel, pytest.mark.timeout(900)]
MAX_INSTALLED_BYTES = 250_000_000
INSTALLERS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence.pth", "wheel")
"""What the environment has before anything is installed."""
START_SECONDS = 60.0


@contextmanager
def serving(base: Installation, folder: Path, *options: str, **environment: str) -> Iterator[str]:
    """The URI of a server that a user starts in the folder."""
    output = folder.parent / f"{folder.name}.out"
    with output.open("wb") as stream:
        server = subprocess.Popen(
            [str(base.programs / "duckicelake"), "serve", "--port", "0", *options],
            cwd=folder,
            env=clean_environment() | environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
        try:
            until = time.monotonic() + START_SECONDS
            while (found := re.search(r"serves (http\S+)", output.read_text())) is None:
                assert server.poll() is None, output.read_text()
                assert time.monotonic() < until, output.read_text()
                time.sleep(0.1)
            yield found.group(1)
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(START_SECONDS) == 0, output.read_text()


def refuse(base: Installation, folder: Path, *options: str, **environment: str) -> str:
    """The one line by which `serve` refuses to start in the folder."""
    done = base.run("serve", "--port", "0", *options, cwd=folder, **environment)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "empty"
    made.mkdir()
    return made


def test_wheel_has_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(f"duckicelake-{__version__}.dist-info/METADATA").decode()
    assert {name.partition("/")[0] for name in names} == {"duckicelake", f"duckicelake-{__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", "~"))]
    for needed in ("py.typed", "console/assets/index.html", "server/ui/index.html", "lake/migrations/schema.txt"):
        assert f"duckicelake/{needed}" in names
    assert any(name.endswith(".sql") for name in names)
    assert f"duckicelake-{__version__}.dist-info/licenses/LICENSE" in names
    assert "License-Expression: Apache-2.0" in metadata
    assert "Description-Content-Type: text/markdown" in metadata


def test_sdist_has_what_builds_the_wheel_and_no_tests(distributions: Path) -> None:
    (path,) = distributions.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        roots = {name.split("/")[1] for name in archive.getnames()}
    assert {"duckicelake", "docs", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"} <= roots
    assert not roots & {"tests", "console", "build", ".venv", "requirements.lock"}


def test_base_installation_is_small(base: Installation) -> None:
    paths = [path for path in base.library.iterdir() if not path.name.startswith(INSTALLERS)]
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*"))]
    size = sum(file.stat().st_size for file in files if file.is_file() and "__pycache__" not in file.parts)
    assert size <= MAX_INSTALLED_BYTES
    extras = {"boto3", "botocore", "deltalake", "numpy", "obstore", "pyarrow", "pyspark", "zstandard"}
    assert {path.name for path in paths} & extras == set()


@pytest.mark.parametrize("version", PYTHONS)
def test_each_python_serves_a_lake_that_pyiceberg_writes(
    install: Callable[[str], Installation], version: str, folder: Path
) -> None:
    with serving(install(version), folder) as uri:
        catalog = RestCatalog("lake", uri=uri)
        catalog.create_namespace("zoo")
        birds = pa.table({"name": ["penguin", "duck"], "legs": pa.array([2, 2], pa.int32())})
        table = catalog.create_table("zoo.birds", birds.schema)
        table.append(birds)
        table.delete("name = 'duck'")
        assert catalog.load_table("zoo.birds").scan().to_arrow().to_pylist() == [{"name": "penguin", "legs": 2}]
        assert "<title>" in httpx.get(f"{uri}/ui").raise_for_status().text


def test_what_needs_an_extra_names_its_install_in_one_line(base: Installation, folder: Path) -> None:
    with serving(base, folder) as uri, httpx.Client(base_url=uri) as client:
        client.post("/v1/namespaces", json={"namespace": ["zoo"]}).raise_for_status()
        schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
        client.post("/v1/namespaces/zoo/tables", json={"name": "t", "schema": schema}).raise_for_status()
        rows = client.post("/v1/namespaces/zoo/tables/t/rows", json=[{"id": 1}])
        assert (rows.status_code, "'duckicelake[arrow]'" in rows.json()["error"]["message"]) == (406, True)
        query = client.post("/sql/v1/query", json={"sql": "SELECT 1"})
        assert (query.status_code, "pip install 'duckicelake[" in query.json()["error"]["message"]) == (406, True)
        assert not [name for name in client.get("/v1/config").json()["endpoints"] if "/plan" in name]
        for command, extra in (
            (("sql", "SELECT 1", "--uri", uri), "arrow"),
            (("mcp", "--uri", uri), "mcp"),
        ):
            done = base.run(*command, cwd=folder)
            assert done.returncode != 0
            assert f"'duckicelake[{extra}]'" in done.stderr, command
            assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": "/nonexistent"},
        dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    ],
    ids=["no home", "proxy that is silent"],
)
def test_server_starts_whatever_the_machine_lacks(
    base: Installation, folder: Path, environment: dict[str, str]
) -> None:
    with serving(base, folder, **environment) as uri:
        assert httpx.get(f"{uri}/readyz").is_success


def test_server_starts_where_there_is_ipv6_alone(base: Installation, folder: Path) -> None:
    with serving(base, folder, "--host", "::1") as uri:
        assert uri.startswith("http://[::1]:")
        assert httpx.get(f"{uri}/readyz").is_success


@pytest.mark.parametrize("name", ["a b ü'\"x", f"{'x' * 150}/{'y' * 150}"], ids=["quotes", "long"])
def test_lake_is_served_whatever_its_folder_is_called(base: Installation, folder: Path, name: str) -> None:
    named = folder / name
    named.mkdir(parents=True)
    with serving(base, named) as uri:
        assert httpx.get(f"{uri}/readyz").is_success


def test_lake_is_served_again_after_postgres_was_killed(base: Installation, folder: Path) -> None:
    lock = folder / "lake" / "postgres" / "postmaster.pid"
    with serving(base, folder):
        os.kill(int(lock.read_text().split()[0]), signal.SIGKILL)
    assert lock.exists()
    with serving(base, folder) as uri:
        assert httpx.get(f"{uri}/readyz").is_success


def test_folder_that_holds_something_else_is_named(base: Installation, folder: Path) -> None:
    kept = folder / "lake" / "postgres" / "thesis.txt"
    kept.parent.mkdir(parents=True)
    kept.touch()
    line = refuse(base, folder)
    assert f"can't make its data in {kept.parent}" in line
    assert "exists but is not empty" in line
    assert kept.exists()


def test_taken_port_is_named(base: Installation, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"port {port} of 127.0.0.1 is in use" in refuse(base, folder, "--port", str(port))


def test_lake_in_s3_names_the_extra_for_it(base: Installation, folder: Path) -> None:
    assert "Lakes in S3 need botocore: pip install 'duckicelake[s3]'" in refuse(
        base, folder, DUCKICELAKE_WAREHOUSE="s3://bucket/lake"
    )


def test_lake_that_is_a_file_is_named(base: Installation, folder: Path) -> None:
    (folder / "lake").touch()
    assert "the lake can't be kept in" in refuse(base, folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts file systems")
@pytest.mark.parametrize(
    ("options", "reason"), [("ro", "Read-only file system"), ("size=1m", "No space left on device")]
)
def test_file_system_that_takes_no_lake_is_named(base: Installation, folder: Path, options: str, reason: str) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=False).returncode != 0:
        pytest.skip("this container may not mount")
    try:
        assert reason in refuse(base, folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
