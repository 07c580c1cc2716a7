"""Engines log in with what they have: an id and a secret, and tokens that end while they work."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import httpx
import pytest
from duckdb_extensions import import_extension
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, OAuthError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import Row, SparkSession

from duckicelake.server.auth.oauth_clients import hash_secret
from scripts.demo_job.server import RunningLake, running_lake
from tests.engines.conftest import new_folder

pytestmark = pytest.mark.engine

SECRET = "battery:staple"
TOKEN_SECONDS = 5
TRIES = 5
IDS = Schema(NestedField(1, "id", LongType(), required=False))


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningLake]:
    """A server that wants to know who asks; with two workers, which must accept each other's tokens."""
    clients = f"etl:{hash_secret(SECRET)}|ns:sales:* ns:shared:r,root:{SECRET}|*"
    settings = {
        "DUCKICELAKE_OAUTH_CLIENTS": clients,
        "DUCKICELAKE_OAUTH_TOKEN_SECONDS": str(TOKEN_SECONDS),
        "DUCKICELAKE_REQUIRE_AUTH": "1",
        "DUCKICELAKE_WORKERS": "2",
    }
    with new_folder() as path, running_lake(path / "lake", path / "server.log", settings) as running:
        with pyiceberg(running, f"root:{SECRET}") as root:
            for namespace in ("sales", "shared", "secret"):
                root.create_namespace(namespace)
            root.create_table("shared.t", IDS)
        yield running
        log = (path / "server.log").read_text()
        assert SECRET not in log
        assert "argon2" not in log
        assert re.search(r"eyJ[\w-]+\.", log) is None, "a token was logged"


def pyiceberg(lake: RunningLake, credential: str) -> RestCatalog:
    return RestCatalog(
        "lake", uri=lake.uri, credential=credential, **{"oauth2-server-uri": f"{lake.uri}/v1/oauth/tokens"}
    )


def renewals(lake: RunningLake) -> int:
    form = {"grant_type": "client_credentials", "client_id": "root", "client_secret": SECRET}
    token = httpx.post(f"{lake.uri}/v1/oauth/tokens", data=form, timeout=60).json()["access_token"]
    text = httpx.get(f"{lake.uri}/metrics", headers={"Authorization": f"Bearer {token}"}, timeout=60).text
    found = re.search(r'duckicelake_logins_total\{outcome="exchange"\} (\d+)', text)
    return int(found[1]) if found else 0


def patiently(spark: SparkSession, statement: str) -> list[Row]:
    """Run it; again while the client, on a busy machine, is late with its next token."""
    for _ in range(TRIES):
        with suppress_late_token():
            return spark.sql(statement).collect()
        time.sleep(1)
    return spark.sql(statement).collect()


@contextmanager
def suppress_late_token() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as error:
        if "The token has expired" not in str(error):
            raise


@pytest.mark.more_engines
def test_pyiceberg_logs_in_again_when_its_token_has_ended(guarded: RunningLake) -> None:
    with pyiceberg(guarded, f"etl:{SECRET}") as catalog:
        assert catalog.list_namespaces() == [("sales",), ("shared",)]
        catalog.create_table("sales.p", IDS)
        assert catalog.load_table("shared.t").schema() == IDS
        with pytest.raises(ForbiddenError, match="scopes don't allow"):
            catalog.load_table("secret.t")
        with pytest.raises(ForbiddenError, match="scopes don't allow"):
            catalog.drop_table("shared.t")
        time.sleep(TOKEN_SECONDS + 1)
        assert catalog.list_tables("sales") == [("sales", "p")]


def test_pyiceberg_with_a_wrong_secret_is_answered_so(guarded: RunningLake) -> None:
    with pytest.raises(OAuthError, match="No client has this id and secret"):
        pyiceberg(guarded, "etl:wrong")


@pytest.mark.spark
def test_spark_works_on_while_its_tokens_end(guarded: RunningLake, spark: SparkSession) -> None:
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": guarded.uri,
        ".credential": f"etl:{SECRET}",
        ".oauth2-server-uri": f"{guarded.uri}/v1/oauth/tokens",
        ".header.X-Iceberg-Access-Delegation": "vended-credentials",
        ".cache-enabled": "false",
    }
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.guarded{name}", value)
    before = renewals(guarded)
    patiently(spark, "CREATE TABLE guarded.sales.s (id bigint)")
    for number in range(2):
        time.sleep(TOKEN_SECONDS + 1)
        patiently(spark, f"INSERT INTO guarded.sales.s VALUES ({number})")
    assert [row.id for row in patiently(spark, "SELECT id FROM guarded.sales.s ORDER BY id")] == [0, 1]
    assert renewals(guarded) >= before + 2
    assert [row.namespace for row in patiently(spark, "SHOW NAMESPACES IN guarded")] == ["sales", "shared"]
    # On S3 it doesn't get as far as the catalog: the keys of who may only read don't write.
    refusal = "ForbiddenException" if guarded.backend.minio is None else "AccessDeniedException"
    with pytest.raises(Py4JJavaError, match=refusal):
        patiently(spark, "INSERT INTO guarded.shared.t VALUES (1)")


@pytest.mark.more_engines
def test_duckdbs_iceberg_extension_logs_in(guarded: RunningLake) -> None:
    for extension in ("httpfs", "avro", "iceberg"):
        import_extension(extension)
    with duckdb.connect() as connection:
        connection.execute("LOAD httpfs; LOAD avro; LOAD iceberg")
        connection.execute(
            f"CREATE SECRET (TYPE iceberg, CLIENT_ID 'etl', CLIENT_SECRET '{SECRET}', "
            f"OAUTH2_SERVER_URI '{guarded.uri}/v1/oauth/tokens')"
        )
        connection.execute(f"ATTACH '' AS rest (TYPE iceberg, ENDPOINT '{guarded.uri}')")
        assert connection.execute("SELECT count(*) FROM rest.shared.t").fetchall() == [(0,)]
        with pytest.raises(duckdb.Error):
            connection.execute("SELECT * FROM rest.secret.t")
