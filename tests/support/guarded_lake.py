"""A lake on MinIO with a table under policies, its server, and who asks: for tests of what they can't find out."""

import base64
import hashlib
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
from duckdb_extensions import import_extension

from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.principals import add_member
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.lake.ducklake.dropped import set_retention
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.auth.oauth_clients import OAuthClient
from scripts.backends_job.minio import Minio, create_bucket
from tests.conftest import new_duckdb
from tests.support.backends import NUMBERS, Bucket
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.s3_lakes import s3_lake
from tests.support.servers import running

HIDDEN_REGION, HIDDEN_EMAIL, HIDDEN_ID = "zone-7f3a91", "qz9b1c.secret@example.org", 7_316_425_911_037
SHOWN_EMAIL = "wx4d2e.shown@example.org"
ROWS = [
    {"id": 1, "region": "eu", "email": SHOWN_EMAIL},
    {"id": HIDDEN_ID, "region": HIDDEN_REGION, "email": HIDDEN_EMAIL},
]
COLUMNS = [
    {"id": 1, "name": "id", "type": "long", "required": False},
    {"id": 2, "name": "region", "type": "string", "required": False},
    {"id": 3, "name": "email", "type": "string", "required": False},
]
SCOPES = {"root": "*", "ann": "ns:sales:*", "boss": "ns:sales:*", "engine": "ns:sales:*"}


def list_needles() -> list[bytes]:
    """Spellings of what the policies hide from ann: values, their bounds in metadata and plans, their hashes."""
    texts = [HIDDEN_REGION, HIDDEN_EMAIL, SHOWN_EMAIL, str(HIDDEN_ID)]
    raw = [text.encode() for text in texts]
    cut = [text.encode()[:6] for text in (HIDDEN_REGION, HIDDEN_EMAIL, SHOWN_EMAIL)]
    number = struct.pack("<q", HIDDEN_ID)
    hashes = [hashlib.sha256(text).hexdigest().encode() for text in raw]
    encoded = [base64.b64encode(value).rstrip(b"=") for value in (*raw, number)]
    encoded += [value.hex().encode() for value in (*raw, number)]
    encoded += [value.hex().upper().encode() for value in (*raw, number)]
    return [*raw, *cut, number, *hashes, *encoded]


@dataclass
class GuardedLake:
    """The lake, whose table `sales.eu.t` shows ann the rows of region eu, and no email."""

    services: Services
    http: httpx.Client
    tokens: dict[str, str]
    bucket: Bucket

    def ask(self, who: str, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return self.http.request(method, path, json=body, headers={**bearing(self.tokens[who]), **headers})

    def done(self, method: str, path: str, body: Any = None, who: str = "root") -> Any:
        answer = self.ask(who, method, path, body)
        assert answer.is_success, (method, path, answer.text)
        return answer.json() if answer.content else None

    def add_policy(self, name: str, table: str = "t", **more: Any) -> dict[str, Any]:
        on = {"table": {"namespace": ["sales", "eu"], "name": table}} if "tag" not in more else {}
        added: dict[str, Any] = self.done("POST", "/management/v1/policies", {"name": name, **on, **more})
        return added

    def make_table(self, name: str) -> None:
        path = "/v1/namespaces/sales%1Feu/tables"
        schema = {"type": "struct", "schema-id": 0, "fields": COLUMNS}
        self.done("POST", path, {"name": name, "schema": schema, "properties": {"format-version": "2"}})
        self.done("POST", f"{path}/{name}/rows", ROWS)
        self.done("POST", f"{path}/{name}/rows/flush")

    def guard(self, table: str = "t") -> None:
        self.add_policy(f"regions-of-{table}", table, condition="region = 'eu'", exempt=["boss"])
        self.add_policy(f"emails-of-{table}", table, column="email", mask="replace-with-null", exempt=["boss"])

    @contextmanager
    def duckdb(self) -> Iterator[Any]:
        import_extension("httpfs")
        minio = self.bucket.minio
        with new_duckdb() as connection:
            connection.execute("LOAD httpfs")
            connection.execute(
                f"CREATE SECRET (TYPE s3, KEY_ID '{minio.access_key}', SECRET '{minio.secret_key}', "
                f"ENDPOINT '{minio.endpoint.removeprefix('http://')}', USE_SSL false, URL_STYLE 'path', "
                f"REGION '{minio.region}')"
            )
            yield connection.execute(build_duckdb_attach(self.services.database.url))


@contextmanager
def serve_guarded(postgres: EmbeddedPostgres, minio: Minio) -> Iterator[GuardedLake]:
    bucket = Bucket(f"bucket-{next(NUMBERS)}", minio)
    create_bucket(minio, bucket.name)
    with ExitStack() as stack:
        services = stack.enter_context(s3_lake(postgres, bucket))
        services = replace(services, rights=RightsCache.of_first(services.database))
        server = Server()
        clients = [OAuthClient(who, SECRET, tuple(scopes.split())) for who, scopes in SCOPES.items()]
        uri = stack.enter_context(running(server.app(services, server.authentication(*clients))))
        http = stack.enter_context(httpx.Client(base_url=uri, timeout=60))
        lake = GuardedLake(services, http, {who: token(http, who) for who in SCOPES}, bucket)
        for namespace in (["sales"], ["sales", "eu"]):
            lake.done("POST", "/v1/namespaces", {"namespace": namespace})
        for name in SCOPES:
            lake.done("POST", "/management/v1/principals", {"name": name, "kind": "service"})
        add_member(services, "trusted-engine", "engine")
        with services.database.transaction() as cursor:
            set_retention(cursor, 3600)
        lake.make_table("t")
        lake.guard()
        yield lake
