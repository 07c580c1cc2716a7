"""Login by the device flow of a real OpenID Connect provider, whose tokens a real server reads."""

import json
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from duckicelake.catalog.context.services import Services
from duckicelake.cli.main import app
from duckicelake.errors import BadCredentialsError, BadInputError
from duckicelake.rest.login import LoginKeeper, LoginTokens, begin_login
from duckicelake.server.auth.oidc import OidcProvider, OidcVerifier
from tests.server.auth.test_oidc import AUDIENCE, Issuer
from tests.support.logins import Server

KEYRING = """
import json, os
from keyring.backend import KeyringBackend

class FileKeyring(KeyringBackend):
    priority = 1

    def _all(self):
        return json.load(open(os.environ["TEST_KEYRING"])) if os.path.exists(os.environ["TEST_KEYRING"]) else {}

    def set_password(self, service, username, password):
        json.dump(self._all() | {username: password}, open(os.environ["TEST_KEYRING"], "w"))

    def get_password(self, service, username):
        return self._all().get(username)

    def delete_password(self, service, username):
        json.dump({k: v for k, v in self._all().items() if k != username}, open(os.environ["TEST_KEYRING"], "w"))
"""


@dataclass
class DeviceIssuer(Issuer):
    """An issuer with a device flow. pending: polls that it lets wait; refusal: what it says then."""

    pending: int = 1
    refusal: str | None = None
    refreshed: int = 0
    lives: int = 3600
    seen: list[dict[str, str]] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, Any]:
        status, body = super().answer(path)
        if path == "/.well-known/openid-configuration":
            names = {"device_authorization": "device", "token": "token", "authorization": "authorize"}
            body |= {f"{name}_endpoint": f"{self.uri}/{path}" for name, path in names.items()}
        return status, body

    def answer_form(self, path: str, form: dict[str, str]) -> tuple[int, Any]:
        self.seen.append(form)
        if form.get("client_id", "cli") != "cli":
            return 401, {"error": "invalid_client", "error_description": "no such client"}
        if path == "/device":
            return 200, {
                "device_code": "d1",
                "user_code": "WDJB-MJHT",
                "verification_uri": f"{self.uri}/activate",
                "interval": 0.05,
                "expires_in": 5,
            }
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] != f"r{self.refreshed}":
                return 400, {"error": "invalid_grant"}
            self.refreshed += 1
            return self._give()
        if self.pending:
            self.pending -= 1
            return 400, {"error": "authorization_pending"}
        return (400, {"error": self.refusal}) if self.refusal else self._give()

    def _give(self) -> tuple[int, Any]:
        access = self.token(scope="admins")
        return 200, {"access_token": access, "refresh_token": f"r{self.refreshed}", "expires_in": self.lives}


@contextmanager
def issuing() -> Iterator[DeviceIssuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*running.answer(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._send(*running.answer_form(self.path, {key: values[0] for key, values in parse_qs(body).items()}))

        def _send(self, status: int, body: Any) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = DeviceIssuer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        server.shutdown()
        thread.join()


@pytest.fixture
def issuer() -> Iterator[DeviceIssuer]:
    with issuing() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's configuration folder, and no keyring."""
    monkeypatch.setenv("DUCKICELAKE_CLIENT_PROFILES", str(tmp_path / "config" / "profiles.toml"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    return tmp_path / "config"


@pytest.fixture
def lake(services: Services, issuer: DeviceIssuer, serve: Callable[[FastAPI], httpx.Client]) -> str:
    """The URI of a server that trusts the issuer."""
    server = Server()
    provider = OidcProvider(issuer.uri, AUDIENCE, server.clock, scopes={"admins": ("*",)})
    http = serve(server.app(services, server.authentication(provider=OidcVerifier(provider))))
    return str(http.base_url).rstrip("/")


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return result.output


def log_in(lake: str, issuer: DeviceIssuer) -> str:
    return run("login", "--uri", lake, "--issuer", issuer.uri, "--client-id", "cli", "--no-browser")


def test_login_is_used_until_logout(lake: str, issuer: DeviceIssuer, home: Path) -> None:
    assert "run duckicelake login" in run("ls", "--uri", lake, code=5)
    shown = log_in(lake, issuer)
    assert f"Open {issuer.uri}/activate and confirm the code WDJB-MJHT" in shown
    (file,) = home.glob("logins.json")
    assert f"the tokens are in {file}" in shown
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert issuer.seen[0]["scope"] == "openid offline_access"
    caller = json.loads(run("whoami", "--uri", lake, "--json"))
    assert (caller["principal"], caller["authenticated"], caller["scopes"]) == ("ann", True, ["*"])
    assert "login      ok, as ann" in run("status", "--uri", lake)
    assert f"logged out of {lake}" in run("logout", "--uri", lake)
    assert "there was no login" in run("logout", "--uri", lake)
    assert "login      refused" in run("status", "--uri", lake, code=5)
    assert file.read_text() == "{}"


def test_server_names_the_issuer(lake: str, issuer: DeviceIssuer, home: Path) -> None:
    answer = httpx.get(f"{lake}/.well-known/oauth-protected-resource").json()
    assert (answer["resource"], answer["authorization_servers"]) == (lake, [issuer.uri])
    for headers, start in (({}, 'realm="duckicelake"'), ({"Authorization": "Bearer x.y.z"}, 'error="invalid_token"')):
        for path in ("/v1/config", "/v1/namespaces", "/v1/whoami", "/management/v1/me/tokens"):
            challenge = httpx.get(lake + path, headers=headers).headers["www-authenticate"]
            assert challenge == f'Bearer {start}, resource_metadata="{lake}/.well-known/oauth-protected-resource"'
    assert "give --client-id" in run("login", "--uri", lake, "--no-browser", code=2)
    assert f"Open {issuer.uri}/activate" in run("login", "--uri", lake, "--client-id", "cli", "--no-browser")
    assert "login      ok, as ann" in run("status", "--uri", lake)


def test_profile_names_the_issuer(lake: str, issuer: DeviceIssuer, home: Path) -> None:
    home.mkdir()
    text = f'[work]\nuri = "{lake}"\noidc-issuer = "{issuer.uri}"\noidc-client-id = "cli"\n'
    (home / "profiles.toml").write_text(text)
    run("login", "--profile", "work", "--no-browser")
    assert json.loads(run("whoami", "--profile", "work", "--json"))["principal"] == "ann"


def test_expired_token_is_renewed_once_by_many(lake: str, issuer: DeviceIssuer, home: Path) -> None:
    issuer.lives = 0
    log_in(lake, issuer)
    issuer.lives = 3600
    keepers = [LoginKeeper(lake) for _ in range(8)]
    found: list[str | None] = []
    threads = [threading.Thread(target=lambda keeper=keeper: found.append(keeper.find_token())) for keeper in keepers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert issuer.refreshed == 1
    assert len(set(found)) == 1
    assert json.loads(run("whoami", "--uri", lake, "--json"))["principal"] == "ann"


def test_login_that_can_not_be_renewed_has_ended(lake: str, issuer: DeviceIssuer, home: Path) -> None:
    LoginKeeper(lake).keep(LoginTokens("old", "stolen", time.time(), f"{issuer.uri}/token", "cli"))
    assert "has ended: run duckicelake login once more" in run("ls", "--uri", lake, code=5)
    LoginKeeper(lake).keep(LoginTokens("old", None, time.time(), f"{issuer.uri}/token", "cli"))
    with pytest.raises(BadCredentialsError, match="has ended"):
        LoginKeeper(lake).find_token()


def test_given_credentials_take_the_place_of_the_login(lake: str, issuer: DeviceIssuer, home: Path) -> None:
    log_in(lake, issuer)
    assert "login      refused" in run("status", "--uri", lake, "--token", "wrong", code=5)
    assert run("ls", "--uri", lake.replace("127.0.0.1", "localhost"), code=5), "a login is for one URI"


@pytest.mark.parametrize("refusal", ["access_denied", "expired_token"])
def test_refused_login_keeps_nothing(lake: str, issuer: DeviceIssuer, home: Path, refusal: str) -> None:
    issuer.refusal = refusal
    arguments = ("login", "--uri", lake, "--issuer", issuer.uri, "--client-id", "cli", "--no-browser")
    assert re.search("The login (was refused|failed)", run(*arguments, code=5))
    assert not (home / "logins.json").exists()


def test_wrong_issuers_are_refused(issuer: DeviceIssuer, lake: str, home: Path) -> None:
    assert "give --client-id, or a profile with oidc-client-id" in run("login", "--uri", lake, code=2)
    with pytest.raises(BadInputError, match="must start with https://"):
        begin_login("http://login.example.com", "cli")
    with pytest.raises(BadCredentialsError, match="refuses the client 'other'"):
        begin_login(issuer.uri, "other")
    issuer.says = "https://elsewhere.example.com"
    with pytest.raises(BadInputError, match="is of another issuer"):
        begin_login(issuer.uri, "cli")


def test_keyring_keeps_the_tokens_where_there_is_one(tmp_path: Path, home: Path) -> None:
    (tmp_path / "filekeyring.py").write_text(KEYRING)
    program = (
        "from duckicelake.rest.login import LoginKeeper, LoginTokens\n"
        "keeper = LoginKeeper('https://lake')\n"
        "print(keeper.keep(LoginTokens('secret', None, 9e12, 'https://i/token', 'cli')))\n"
        "print(keeper.find_token(), keeper.forget(), keeper.find_token())\n"
    )
    environment = {
        "PYTHONPATH": str(tmp_path),
        "PYTHON_KEYRING_BACKEND": "filekeyring.FileKeyring",
        "TEST_KEYRING": str(tmp_path / "held.json"),
        "DUCKICELAKE_CLIENT_PROFILES": str(home / "profiles.toml"),
        "HOME": str(tmp_path),
    }
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["the keyring", "secret True None"]
    assert "secret" not in (home / "logins.json").read_text()
