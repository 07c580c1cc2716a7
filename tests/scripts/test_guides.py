"""Tutorials and how-tos do what they say: each is run from its first block to its last, in an empty folder."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from duckicelake.lake.ducklake.database import build_attach_source
from scripts.backends_job.processes import free_port
from tests.support.documents import PAGES, Snippet, snippets

GUIDES = sorted(page for page in PAGES if page.startswith(("docs/tutorials/", "docs/how-to/")) and snippets(page))
URI = "http://localhost:8181"
WAIT = "for _ in $(seq 300); do curl --fail --silent {uri}/readyz >/dev/null && break; sleep 0.1; done\n"


def write_script(steps: Sequence[Snippet], places: dict[str, str]) -> str:
    """Join the blocks: the one that serves runs in the background, Python and files are here-documents."""
    lines = ["set -euo pipefail", "trap 'kill -TERM $server; wait $server' EXIT"]
    for step in steps:
        code = step.placed(places)
        if step.name == "serve":
            lines += [f"{code.strip()} >server.log 2>&1 & server=$!", WAIT.format(uri=places[URI])]
        elif step.language == "bash":
            lines.append(code)
        elif step.name.endswith(".py"):
            lines.append(f"cat >{step.name} <<'END'\n{code}END")
        else:
            lines.append(f"python - <<'END'\n{code}END")
    return "\n".join(lines)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a short name: the sockets of Postgres lie in it."""
    with tempfile.TemporaryDirectory(prefix="guide-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.commands
@pytest.mark.parametrize("page", GUIDES)
def test_guide_does_what_it_says(page: str, folder: Path, empty_database_url: str) -> None:
    steps = snippets(page)
    port = free_port()
    places = {
        URI: f"http://localhost:{port}",
        "postgresql://localhost/mylake": shlex.quote(empty_database_url),
        "ducklake:postgres:dbname=mylake host=localhost": build_attach_source(empty_database_url),
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    settings = {name: value for name, value in os.environ.items() if not name.startswith("DUCKICELAKE_")}
    ran = subprocess.run(
        ["bash", "-c", write_script(steps, places)],
        cwd=folder,
        env={**settings, "PATH": path, "DUCKICELAKE_PORT": str(port)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    log = folder / "server.log"
    assert ran.returncode in (0, -signal.SIGTERM), ran.stdout + ran.stderr + (log.read_text() if log.exists() else "")
    printed = " ".join(ran.stdout.split())
    for promised in (line for step in steps for line in step.promised):
        place = printed.find(" ".join(promised.split()))
        assert place >= 0, f"{promised!r} isn't printed, or not in its turn:\n{ran.stdout}{ran.stderr}"
        printed = printed[place:]
