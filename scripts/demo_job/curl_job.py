"""The server as curl sees it: plain HTTP and JSON."""

import json
import subprocess
from typing import Any

from pyiceberg.catalog import Catalog

from scripts.demo_job.checks import Checks
from scripts.demo_job.server import RunningLake
from scripts.demo_job.spark_job import NAMESPACE

SHOWN = 150


def show(lake: RunningLake, catalog: Catalog, checks: Checks) -> None:
    config = get(lake, "/v1/config", checks)
    checks.equal("curl: /v1/config lists LoadTable", True, LOAD_TABLE in json.loads(config)["endpoints"])
    flights = json.loads(get(lake, f"/v1/namespaces/{NAMESPACE}/tables/flights", checks))
    checks.equal("curl: LoadTable has PyIceberg's current snapshot", current_snapshot(catalog), current(flights))
    missing = json.loads(get(lake, f"/v1/namespaces/{NAMESPACE}/tables/trains", checks, status=404))
    checks.equal("curl: a missing table is named in the error", "NoSuchTableException", missing["error"]["type"])
    checks.equal("curl: /metrics is Prometheus text", True, get(lake, "/metrics", checks).startswith("# HELP"))
    get(lake, "/healthz", checks)
    get(lake, "/readyz", checks)


LOAD_TABLE = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"


def get(lake: RunningLake, path: str, checks: Checks, status: int = 200) -> str:
    """The body that curl prints; shown abbreviated, its status asserted."""
    command = ["curl", "--silent", "--show-error", "--write-out", "\n%{http_code}", *login(lake), f"{lake.uri}{path}"]
    printed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True).stdout
    body, _, code = printed.rpartition("\n")
    shown = " ".join(body.split())
    checks.console.print(f"  $ curl {lake.uri}{path}", markup=False, highlight=False)
    checks.console.print(f"    {shown[:SHOWN]}{'…' if len(shown) > SHOWN else ''}", markup=False, highlight=False)
    checks.equal(f"curl: {path} answers {status}", str(status), code)
    return body


def login(lake: RunningLake) -> list[str]:
    """The header of who is logged in, where that is asked for."""
    if "credential" not in lake.backend.catalog:
        return []
    form = ["--data", "grant_type=client_credentials", "--user", lake.backend.catalog["credential"]]
    command = ["curl", "--silent", "--show-error", "--fail", *form, f"{lake.uri}/v1/oauth/tokens"]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True)
    return ["--header", f"Authorization: Bearer {json.loads(answer.stdout)['access_token']}"]


def current(loaded: dict[str, Any]) -> int:
    return int(loaded["metadata"]["current-snapshot-id"])


def current_snapshot(catalog: Catalog) -> int | None:
    snapshot = catalog.load_table((NAMESPACE, "flights")).current_snapshot()
    return snapshot.snapshot_id if snapshot else None
