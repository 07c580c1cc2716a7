"""wrk as a child process: how many requests a second a server answers, and how long they take."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_REPORT = """
done = function(summary, latency, requests)
  io.write(string.format('{"requests":%d,"microseconds":%d,"bytes":%d,"p50":%d,"p99":%d,"failed":%d}',
    summary.requests, summary.duration, summary.bytes, latency:percentile(50), latency:percentile(99),
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status
    + summary.errors.timeout))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk measured; times in milliseconds."""

    per_second: float
    bytes_per_second: float
    p50: float
    p99: float


def wrk(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    connections: int = 32,
    seconds: float = 8,
    threads: int = 1,
    script: str = "",
) -> Load:
    """Load a URL. script: Lua that goes before the report. RuntimeError if any request fails: 4xx and 5xx do."""
    program = shutil.which("wrk")
    if program is None:
        raise RuntimeError("wrk is not installed (Debian and Ubuntu: apt-get install wrk)")
    given = [word for name, value in (headers or {}).items() for word in ("-H", f"{name}: {value}")]
    with tempfile.TemporaryDirectory(prefix="duckicelake-wrk-") as folder:
        path = Path(folder, "report.lua")
        path.write_text(script + _REPORT)
        command = [program, "-c", str(connections), "-t", str(threads), "-d", f"{max(1, round(seconds))}s"]
        ran = subprocess.run([*command, "-s", str(path), *given, url], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout[ran.stdout.rindex("{") :])
    if found["failed"] or not found["requests"]:
        raise RuntimeError(f"{found['failed']} of {found['requests']} requests to {url} failed:\n{ran.stdout}")
    duration = found["microseconds"] / 1e6
    return Load(found["requests"] / duration, found["bytes"] / duration, found["p50"] / 1000, found["p99"] / 1000)
