"""Pages that are run from their first block to their last, in a folder, by a shell."""

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts.backends_job.processes import free_port
from tests.support.documents import Snippet, snippets

URI = "http://localhost:8181"
_WAIT = "for _ in $(seq 600); do curl --fail --silent {uri}/readyz >/dev/null && break; sleep 0.1; done\n"
_TERMINAL_COLOURS = re.compile(r"\x1b\[\d*m")


def write_script(steps: Sequence[Snippet], places: dict[str, str]) -> str:
    """Join the blocks: the one that serves runs in the background, Python and files are here-documents."""
    lines = ["set -euo pipefail", "trap 'kill -TERM $server; wait $server' EXIT"]
    for step in steps:
        code = step.placed(places)
        if step.name == "serve":
            lines += [f"{code.strip()} >server.log 2>&1 & server=$!", _WAIT.format(uri=places[URI])]
        elif step.language == "bash":
            lines.append(code)
        elif step.name.endswith(".py"):
            lines.append(f"cat >{step.name} <<'END'\n{code}END")
        else:
            lines.append(f"python - <<'END'\n{code}END")
    return "\n".join(lines)


def run_guide(
    page: str, folder: Path, programs: Path, places: dict[str, str] | None = None, seconds: int = 240
) -> None:
    """Run the blocks of a page in a folder, and compare what they print with what the page says.

    programs: the folder of `python` and `duckicelake`. places: what the page names, and what a test has in its place.
    """
    steps, port = snippets(page), free_port()
    settings = {name: value for name, value in os.environ.items() if not name.startswith("DUCKICELAKE_")}
    ran = subprocess.run(
        ["bash", "-c", write_script(steps, {URI: f"http://localhost:{port}", **(places or {})})],
        cwd=folder,
        env={**settings, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "DUCKICELAKE_PORT": str(port)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    log = folder / "server.log"
    assert ran.returncode in (0, -signal.SIGTERM), ran.stdout + ran.stderr + (log.read_text() if log.exists() else "")
    printed = " ".join(_TERMINAL_COLOURS.sub("", ran.stdout).split())
    for promised in (line for step in steps for line in step.promised):
        place = printed.find(" ".join(promised.split()))
        assert place >= 0, f"{promised!r} isn't printed, or not in its turn:\n{ran.stdout}{ran.stderr}"
        printed = printed[place:]
