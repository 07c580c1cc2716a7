"""OPA itself, with the policy of docs/governance.md."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest

from duckicelake.catalog.context.outside import OutsideQuestion
from duckicelake.catalog.context.privileges import Privilege
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.errors import UnavailableError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.auth.oauth_clients import OAuthClient
from duckicelake.server.auth.opa import OpaDecisions, OpaOptions
from scripts.backends_job.processes import free_port
from tests.conftest import new_lake, services_of
from tests.support.client import SCHEMA
from tests.support.documents import PAGES
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.opa import PATH, find_opa
from tests.support.servers import running

OPA = find_opa()
POLICY = re.search(r"```rego\n(.*?)```", PAGES["docs/governance.md"], re.DOTALL)


@contextmanager
def running_opa(folder: Path) -> Iterator[str]:
    """Run OPA with the documented policy; yield the rule's URL."""
    assert OPA is not None
    assert POLICY is not None
    (folder / "policy.rego").write_text(POLICY[1])
    port = free_port()
    command = [OPA, "run", "--server", "--addr", f"127.0.0.1:{port}", "--disable-telemetry", "policy.rego"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL, env={"PATH": os.environ["PATH"]}) as process:
        try:
            until = monotonic() + 30
            while not is_up(f"http://127.0.0.1:{port}/health"):
                assert monotonic() < until
                sleep(0.05)
            yield f"http://127.0.0.1:{port}{PATH}"
        finally:
            process.terminate()


def is_up(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.more_engines
@pytest.mark.skipif(OPA is None, reason="needs OPA: $OPA, or opa on the PATH")
def test_documented_policy_decides(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    server = Server()
    with (
        new_lake(postgres, tmp_path) as url,
        running_opa(tmp_path) as rule,
        closing(open_lake_database(url, pool_size=4)) as database,
        closing(OpaDecisions(OpaOptions(rule, seconds=10))) as decisions,
    ):
        services = replace(services_of(database, tmp_path), rights=RightsCache.of_first(database, decisions))
        open_services = services_of(database, tmp_path)
        clients = [OAuthClient("root", SECRET, ("*",)), OAuthClient("svc-etl", SECRET, ("*",))]
        with (
            running(server.app(open_services, server.authentication(*clients))) as uri,
            httpx.Client(base_url=uri, timeout=60) as http,
        ):
            headers = bearing(token(http, "root"))
            for namespace in ("hr", "sales"):
                http.post("/v1/namespaces", json={"namespace": [namespace]}, headers=headers).raise_for_status()
                body = {"name": "t", "schema": SCHEMA}
                http.post(f"/v1/namespaces/{namespace}/tables", json=body, headers=headers).raise_for_status()
        with (
            running(server.app(services, server.authentication(*clients))) as uri,
            httpx.Client(base_url=uri, timeout=60) as http,
        ):
            headers = bearing(token(http, "svc-etl"))
            assert http.get("/v1/namespaces/sales/tables/t", headers=headers).status_code == 200
            assert http.get("/v1/namespaces/hr/tables/t", headers=headers).status_code == 403
            assert http.get("/v1/namespaces/hr/tables", headers=headers).status_code == 403
            found = http.get("/v1/namespaces", headers=headers).json()["namespaces"]
            assert found == [["main"], ["sales"]]
            assert http.delete("/v1/namespaces/sales/tables/t", headers=headers).status_code == 403
            headers = bearing(token(http, "root"))
            assert http.delete("/v1/namespaces/sales/tables/t", headers=headers).status_code == 204
        other = OpaDecisions(OpaOptions(rule.replace("/allow", "/absent")))
        with closing(other), pytest.raises(UnavailableError, match="no such rule"):
            other.decide("ann", (), "duckicelake", [OutsideQuestion(Privilege.SELECT, ((), ""))])
