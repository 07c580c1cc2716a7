"""python -m scripts.smoke_job [--uri URI --credential ID:SECRET]: on a stack of its own, or on a server that runs."""

import argparse
import sys
from typing import Any
from uuid import uuid4

import httpx
from rich.console import Console

from scripts.demo_job.checks import Checks
from scripts.demo_job.stack import lake_on_servers

COLUMNS = [{"id": 1, "name": "id", "type": "long", "required": False}]
VENDED = {"X-Iceberg-Access-Delegation": "vended-credentials"}


def main() -> int:
    options = parse(sys.argv[1:])
    checks = Checks(Console())
    if options.uri:
        check(options.uri, options.credential, (), checks)
    else:
        with lake_on_servers() as lake:
            secrets = [value for name, value in lake.backend.settings.items() if "SECRET" in name or "DATABASE" in name]
            check(lake.uri, lake.backend.catalog["credential"], secrets, checks)
    return 0 if checks.report() else 1


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/smoke", description="Ask a server for a bit of everything.")
    parser.add_argument(
        "--uri", help="a server that runs; none: one on Postgres and S3 of its own, for as long as needed"
    )
    parser.add_argument("--credential", metavar="ID:SECRET", help="who logs in; none: nobody, the server asks nobody")
    return parser.parse_args(arguments)


def check(uri: str, credential: str | None, secrets: Any, checks: Checks) -> None:
    """All of it in a namespace of its own, which is gone afterwards."""
    answers: list[str] = []
    with httpx.Client(
        base_url=uri, timeout=60, event_hooks={"response": [lambda answer: keep(answer, answers)]}
    ) as client:
        with checks.section("Is it there?"):
            for path in ("/healthz", "/readyz", "/openapi.json"):
                checks.equal(f"GET {path}", 200, client.get(path).status_code)
        if credential:
            with checks.section("Does it ask who comes?"):
                log_in(client, credential, checks)
        with checks.section("Does it keep namespaces and tables?"):
            use(client, f"smoke_{uuid4().hex[:8]}", checks)
        checks.equal("no answer holds a secret of the server's", [], [s for s in secrets if s in "".join(answers)])


def keep(answer: httpx.Response, answers: list[str]) -> None:
    answer.read()
    answers.append(f"{answer.headers}{answer.text}")


def log_in(client: httpx.Client, credential: str, checks: Checks) -> None:
    checks.equal("GET /v1/config without a token", 401, client.get("/v1/config").status_code)
    name, _, secret = credential.partition(":")
    form = {"grant_type": "client_credentials", "client_id": name, "client_secret": "wrong"}
    checks.equal("a wrong secret", 401, client.post("/v1/oauth/tokens", data=form).status_code)
    answer = client.post("/v1/oauth/tokens", data={**form, "client_secret": secret})
    checks.equal("the right secret", 200, answer.status_code)
    client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"


def use(client: httpx.Client, namespace: str, checks: Checks) -> None:
    config = client.get("/v1/config").json()
    checks.equal("it says what it serves", True, "POST /v1/{prefix}/namespaces" in config["endpoints"])
    client.post("/v1/namespaces", json={"namespace": [namespace]})
    checks.equal("the namespace is listed", True, [namespace] in client.get("/v1/namespaces").json()["namespaces"])
    tables = f"/v1/namespaces/{namespace}/tables"
    schema = {"type": "struct", "schema-id": 0, "fields": COLUMNS}
    made = client.post(tables, json={"name": "t", "schema": schema}, headers=VENDED)
    checks.equal("a table is made", 200, made.status_code)
    checks.equal("its location is the warehouse's", True, made.json()["metadata"]["location"].startswith("s3://"))
    vended = client.get(f"{tables}/t", headers=VENDED)
    checks.equal("keys for it are handed out", True, bool(vended.json().get("storage-credentials")))
    again = client.get(f"{tables}/t", headers={"If-None-Match": client.get(f"{tables}/t").headers["ETag"]})
    checks.equal("it is sent once only", 304, again.status_code)
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"smoke": "yes"}}]}
    changed = client.post(f"{tables}/t", json=body).json()
    checks.equal("a commit changes it", "yes", changed["metadata"]["properties"].get("smoke"))
    renamed = {
        "source": {"namespace": [namespace], "name": "t"},
        "destination": {"namespace": [namespace], "name": "u"},
    }
    checks.equal("it is renamed", 204, client.post("/v1/tables/rename", json=renamed).status_code)
    missing = client.get(f"{tables}/t")
    checks.equal("its old name is nobody's", "NoSuchTableException", missing.json()["error"]["type"])
    checks.equal("it is dropped", 204, client.delete(f"{tables}/u").status_code)
    checks.equal("the namespace is dropped", 204, client.delete(f"/v1/namespaces/{namespace}").status_code)


if __name__ == "__main__":
    sys.exit(main())
