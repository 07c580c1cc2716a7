"""On a full disk, metrics of workers still take new labels, so no request fails for being counted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from duckicelake.errors import UnavailableError
from duckicelake.server.telemetry.shared_files import SHARED_FOLDER_VARIABLE, reserve_metric_files

OPENAPI = Path(__file__).parents[3] / "openapi"
COUNT_ALL = """
import json, resource, sys
from typing import get_args
from duckicelake.catalog.context.meter import Phase, Retry, Task
from duckicelake.server.telemetry.metrics import Metrics

metrics = Metrics(dict)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
for method, route in json.load(sys.stdin):
    for status in (200, 304, 404, 500):
        metrics.request_started()
        metrics.request_ended(method, route, status, 0.1)
for call in ("read", "write", "write_all", "exists", "list", "delete", "size", "open", "copy", "sizes"):
    with metrics.store_call(call):
        pass
for phase in get_args(Phase):
    metrics.took(phase, 0.1)
for reason in get_args(Retry):
    metrics.count_retry(reason)
for task in get_args(Task):
    metrics.task_failed(task)
sys.stdout.write(metrics.render().decode())
"""


def test_every_route_is_counted_on_a_full_disk(tmp_path: Path) -> None:
    routes = [
        (method.upper(), path)
        for document in OPENAPI.glob("*.json")
        for path, operations in json.loads(document.read_text())["paths"].items()
        for method in operations
    ]
    counted = subprocess.run(
        [sys.executable, "-c", COUNT_ALL],
        input=json.dumps(routes),
        env=os.environ | {SHARED_FOLDER_VARIABLE: str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert counted.returncode == 0, counted.stderr
    for method, route in routes:
        assert f'duckicelake_requests_total{{method="{method}",route="{route}",status="5xx"}} 1.0' in counted.stdout
        assert f'duckicelake_request_seconds_count{{method="{method}",route="{route}"}} 4.0' in counted.stdout
    assert len(routes) > 50


def test_disk_that_is_full_at_the_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"No room for metrics in .*/none: .*; free some, or set TMPDIR"):
        reserve_metric_files(tmp_path / "none")
