"""The kit as a child process. It writes to folders below /tmp that it chooses: one run at a time, and tidied after."""

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT, Popen

WAREHOUSE = "duckicelake"
PLAYGROUND = Path("/tmp")
NAMESPACES = ("ns", "newdb", "ns1", "ns2", "other_ns")
"""The kit asks for tables at file:/tmp/<namespace>/<table>."""

ROOT = Path(__file__).parents[2]


def kit_folder() -> Path:
    """Where the kit is, if it is there."""
    return Path(os.environ.get("RCK_KIT") or ROOT.parent / "shared" / "rck").absolute()


def is_there() -> bool:
    return _program().is_file()


@contextmanager
def alone(playground: Path = PLAYGROUND) -> Iterator[None]:
    """Wait until no other run on this machine uses the kit's folders; leave none behind that weren't there."""
    with (playground / "duckicelake-rck.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        new = [folder for folder in (playground / name for name in NAMESPACES) if not folder.exists()]
        try:
            yield
        finally:
            for folder in new:
                shutil.rmtree(folder, ignore_errors=True)


def run_kit(uri: str, out: Path, planning: str) -> tuple[str, bool]:
    """Run the kit against the server; (what it prints, whether it came to run its tests).

    Its reports go to `out`, `results.tsv` among them. planning: who plans scans, `client` or `server`.
    """
    environment = {
        **os.environ,
        "RCK_URI": f"{uri}/",
        "RCK_WAREHOUSE": WAREHOUSE,
        "RCK_OUT": str(out),
        "RCK_EXTRA": f"-Drck.scan-planning-mode={planning}",
    }
    process = Popen(
        [str(_program())], env=environment, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True, start_new_session=True
    )
    try:
        printed = process.communicate()[0]
        return printed, process.returncode in (0, 1)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _program() -> Path:
    return kit_folder() / "run-rck.sh"
