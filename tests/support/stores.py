"""Emulators of Google Cloud Storage and Azure's blobs, and the token services of Google as far as they can be run."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, unquote

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from duckicelake.storage.azure import AzureOptions
from duckicelake.storage.gcs import GcsOptions, ServiceAccountKey
from scripts.backends_job.azurite import Azurite, running_azurite
from scripts.backends_job.fake_gcs import FakeGcs, running_fake_gcs
from tests.support.backends import NUMBERS

EMAIL = "lake@project.iam.gserviceaccount.com"


@cache
def make_rsa_key() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


@cache
def make_key_file() -> str:
    """A service account's key, as Google Cloud's JSON file has it."""
    pem = make_rsa_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return json.dumps({"client_email": EMAIL, "private_key": pem, "private_key_id": "1"})


@dataclass
class TokenService:
    """Google's token services, which check keys' signatures, and note what tokens were asked for.

    seconds: of tokens. boundaries: the access boundary of each downscoped token.
    """

    endpoint: str = ""
    seconds: int = 3600
    given: list[str] = field(default_factory=list)
    boundaries: dict[str, dict[str, object]] = field(default_factory=dict)

    def answer(self, path: str, form: dict[str, str], token: str) -> tuple[int, dict[str, object]]:
        match path:
            case "/token":
                return self._exchange_key(form["assertion"])
            case "/v1/token":
                return self._downscope(form)
            case _ if path.endswith(":generateAccessToken"):
                return self._shorten(token, form)
        return 404, {"error": "not_found"}

    def _exchange_key(self, assertion: str) -> tuple[int, dict[str, object]]:
        try:
            jwt.decode(
                assertion, make_rsa_key().public_key(), ["RS256"], audience=f"{self.endpoint}/token", leeway=86400
            )  # clocks of tests run ahead
        except jwt.PyJWTError:
            return 400, {"error": "invalid_grant", "error_description": assertion}
        return 200, {"access_token": self._give("server"), "expires_in": self.seconds, "token_type": "Bearer"}

    def _downscope(self, form: dict[str, str]) -> tuple[int, dict[str, object]]:
        if form["subject_token"] not in self.given:
            return 401, {"error": "invalid_token"}
        token = self._give("downscoped")
        self.boundaries[token] = json.loads(unquote(form["options"]))
        return 200, {"access_token": token, "token_type": "Bearer"}

    def _shorten(self, token: str, form: dict[str, str]) -> tuple[int, dict[str, object]]:
        if token not in self.given:
            return 401, {"error": "invalid_token"}
        return 200, {"accessToken": self._give(f"short-{form['lifetime']}"), "expireTime": "2099-01-01T00:00:00Z"}

    def _give(self, kind: str) -> str:
        self.given.append(f"{kind}-{len(self.given)}")
        return self.given[-1]


@contextmanager
def running_token_service() -> Iterator[TokenService]:
    service = TokenService()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            is_json = self.headers.get("Content-Type", "").startswith("application/json")
            form = json.loads(body) if is_json else {name: values[0] for name, values in parse_qs(body).items()}
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            status, answer = service.answer(self.path, form, token)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()


@dataclass(frozen=True, slots=True)
class GcsBucket:
    """An empty bucket; `uri` is `gs://<name>`."""

    name: str
    fake: FakeGcs
    tokens: TokenService

    @property
    def uri(self) -> str:
        return f"gs://{self.name}"

    def options(self) -> GcsOptions:
        """How the server reaches it."""
        key = ServiceAccountKey.parse(make_key_file())
        return GcsOptions(endpoint=self.fake.endpoint, sts_endpoint=self.tokens.endpoint, key=key)


@dataclass(frozen=True, slots=True)
class AzureContainer:
    """An empty container."""

    name: str
    azurite: Azurite

    @property
    def uri(self) -> str:
        return f"abfss://{self.name}@{self.azurite.account}.dfs.core.windows.net"

    def options(self) -> AzureOptions:
        """How the server reaches it."""
        return AzureOptions(endpoint=self.azurite.endpoint, account_key=self.azurite.key)


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[FakeGcs]:
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-gcs-"))
    try:
        with running_fake_gcs(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-azurite-"))
    try:
        with running_azurite(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def gcs_bucket(fake_gcs: FakeGcs) -> Iterator[GcsBucket]:
    name = f"bucket-{next(NUMBERS)}"
    fake_gcs.create_bucket(name)
    with running_token_service() as tokens:
        yield GcsBucket(name, fake_gcs, tokens)


@pytest.fixture
def azure_container(azurite: Azurite) -> AzureContainer:
    name = f"container-{next(NUMBERS)}"
    azurite.create_container(name)
    return AzureContainer(name, azurite)
