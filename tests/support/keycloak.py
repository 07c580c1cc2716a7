"""A server of Keycloak on a copy of its folder, with one realm."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL
from typing import Any

import httpx

from scripts.backends_job.processes import free_port
from scripts.engines_job.packages import keycloak_home
from tests.support.waits import wait_until

REALM = "lake"
CLIENT = "lake-console"
AUDIENCE = "lake"
SESSION_SECONDS = 60
"""How long Keycloak keeps who has signed in: its tokens end with that, renewed ones as well."""
USER, PASSWORD = "ann", "pictures of ducks"
START_SECONDS = 600


@contextmanager
def run_keycloak(folder: Path, redirect: str) -> Iterator[str]:
    """Run Keycloak in the block, and yield the issuer of its realm. redirect: the console's own address of logins."""
    home = Path(shutil.copytree(keycloak_home(), folder / "keycloak", copy_function=shutil.copy))
    imported = home / "data" / "import"
    imported.mkdir(parents=True)
    (imported / "realm.json").write_text(json.dumps(build_realm(redirect)))
    port = free_port()
    settings = [f"--http-port={port}", "--http-host=127.0.0.1", "--import-realm", "--log-level=warn"]
    command = ["sh", str(home / "bin" / "kc.sh"), "start-dev", *settings]
    inherited = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment = inherited | {"JAVA_OPTS_KC_HEAP": "-Xms64m -Xmx400m"}
    log = folder / "keycloak.log"
    issuer = f"http://127.0.0.1:{port}/realms/{REALM}"
    with (
        log.open("wb") as said,
        subprocess.Popen(command, stdout=said, stderr=said, env=environment, start_new_session=True) as process,
    ):
        try:
            wait_until(lambda: process.poll() is not None or answers(issuer), seconds=START_SECONDS)
            assert process.poll() is None, log.read_text()
            yield issuer
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, SIGKILL)


def answers(issuer: str) -> bool:
    """Whether the realm is there."""
    try:
        return httpx.get(f"{issuer}/.well-known/openid-configuration").status_code == 200
    except httpx.TransportError:
        return False


def build_realm(redirect: str) -> Mapping[str, Any]:
    """Build a realm as docs/how-to/sign-in.md describes it, with a user in the group `analysts`."""
    into = {"access.token.claim": "true", "id.token.claim": "false"}
    mappers = [
        _build_mapper("audience", "oidc-audience-mapper", {**into, "included.custom.audience": AUDIENCE}),
        _build_mapper("groups", "oidc-group-membership-mapper", {**into, "claim.name": "groups", "full.path": "false"}),
    ]
    client = {
        "clientId": CLIENT,
        "publicClient": True,
        "standardFlowEnabled": True,
        "redirectUris": [redirect],
        "attributes": {
            "pkce.code.challenge.method": "S256",
            "post.logout.redirect.uris": redirect.removesuffix("/login"),
        },
        "protocolMappers": mappers,
    }
    user = {
        "username": USER,
        "enabled": True,
        "email": "ann@lake.example",
        "emailVerified": True,
        "firstName": "Ann",
        "lastName": "Example",
        "credentials": [{"type": "password", "value": PASSWORD, "temporary": False}],
        "groups": ["/analysts"],
    }
    return {
        "realm": REALM,
        "enabled": True,
        "sslRequired": "none",
        "ssoSessionMaxLifespan": SESSION_SECONDS,
        "groups": [{"name": "analysts"}],
        "users": [user],
        "clients": [client],
    }


def _build_mapper(name: str, kind: str, config: Mapping[str, str]) -> Mapping[str, Any]:
    return {"name": name, "protocol": "openid-connect", "protocolMapper": kind, "config": config}
