"""Engines that have no keys for S3 read and write a lake there: what they need, the catalog gives them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.utils.concurrent import ExecutorFactory

from scripts.backends_job.minio import KMS_KEY, Minio
from scripts.demo_job.backend import CLIENT, SECRET
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import PROGRAM, RunningLake, own_environment
from tests.engines.guarded import CREDENTIAL, guarded_lake

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"name {number}" for number in range(100)]})


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of S3 in the environment, in files of the home folder or on the network."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


@pytest.fixture(scope="module")
def lake(minio: Minio) -> Iterator[RunningLake]:
    """With a namespace `ns`, and in it a table that DuckDB made by its `ducklake` extension."""
    with guarded_lake(minio, "without-keys") as running:
        with duckdb_lake(running) as owner:
            owner.execute("CREATE SCHEMA lake.ns")
            owner.execute("CREATE TABLE lake.ns.born_in_duckdb AS SELECT range AS id FROM range(1000)")
        yield running


def pyiceberg(lake: RunningLake, **properties: str) -> RestCatalog:
    oauth = {"credential": CREDENTIAL, "oauth2-server-uri": f"{lake.uri}/v1/oauth/tokens"}
    return RestCatalog("lake", uri=lake.uri, **oauth, **properties)


def pyiceberg_work(catalog: RestCatalog, name: str) -> None:
    table = catalog.create_table(f"ns.{name}", ROWS.schema)
    table.append(ROWS)
    table.overwrite(ROWS.slice(0, 10), overwrite_filter="id < 50")
    table.delete("id = 99")
    read = catalog.load_table(f"ns.{name}").scan().to_arrow()
    assert sorted(read["id"].to_pylist()) == [*range(10), *range(50, 99)]


def test_pyiceberg_works_with_vended_keys(lake: RunningLake) -> None:
    catalog = pyiceberg(lake)
    pyiceberg_work(catalog, "keys")
    # Of several credentials PyIceberg takes the one for the metadata file, and reads all files by it.
    assert catalog.load_table("ns.born_in_duckdb").scan().to_arrow().num_rows == 1000
    assert catalog.load_credentials("ns.keys", catalog.load_table("ns.keys").location() + "/x")["s3.session-token"]
    catalog.close()


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """PyIceberg's threads share one fsspec file system, whose signer each takes out and in again as it opens it.

    A request of another thread that comes between goes unsigned, and is refused (PyIceberg 0.12, MISSING.md).
    """
    with ThreadPoolExecutor(1) as executor:
        monkeypatch.setattr(ExecutorFactory, "_instance", executor)
        monkeypatch.setattr(ExecutorFactory, "_instance_pid", os.getpid())
        yield


@pytest.mark.more_engines
def test_pyiceberg_works_with_signatures(lake: RunningLake, one_thread: None) -> None:
    catalog = pyiceberg(lake, **{"header.X-Iceberg-Access-Delegation": "remote-signing"})
    pyiceberg_work(catalog, "signatures")
    assert catalog.load_table("ns.born_in_duckdb").scan().to_arrow().num_rows == 1000
    catalog.close()


def test_duckdbs_iceberg_extension_works_with_vended_keys(lake: RunningLake) -> None:
    for extension in ("iceberg", "avro", "httpfs"):
        import_extension(extension)
    with duckdb.connect() as connection:
        connection.execute("LOAD httpfs; LOAD avro; LOAD iceberg")
        connection.execute(
            f"CREATE SECRET (TYPE iceberg, CLIENT_ID '{CLIENT}', CLIENT_SECRET '{SECRET}', "
            f"OAUTH2_SERVER_URI '{lake.uri}/v1/oauth/tokens')"
        )
        connection.execute(f"ATTACH '' AS ice (TYPE iceberg, ENDPOINT '{lake.uri}')")
        assert connection.sql("SELECT count(*), sum(id) FROM ice.ns.born_in_duckdb").fetchall() == [(1000, 499500)]
        connection.execute("CREATE TABLE ice.ns.t (id BIGINT, name VARCHAR)")
        connection.execute("INSERT INTO ice.ns.t SELECT range, 'name ' || range FROM range(100)")
        connection.execute("DELETE FROM ice.ns.t WHERE id < 50")
        assert connection.sql("SELECT count(*), sum(id) FROM ice.ns.t").fetchall() == [(50, 3725)]


@pytest.mark.more_engines
def test_doctor_tries_the_keys_that_clients_get(lake: RunningLake) -> None:
    command = [PROGRAM, "doctor", "--lake", str(lake.folder)]
    environment = own_environment(lake.backend.settings)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "STS gives keys for clients that reach one table and nothing else" in " ".join(done.stdout.split())
    assert done.returncode == 0


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_works_with_vended_keys_and_with_signatures(lake: RunningLake) -> None:
    run_spark(lake)


@pytest.mark.spark
@pytest.mark.more_engines
@pytest.mark.timeout(900)
def test_spark_encrypts_with_the_key_that_the_server_names(minio: Minio) -> None:
    """By vended keys and by signatures, its data, delete and metadata files, and those that the server writes."""
    settings = {"DUCKICELAKE_S3_SSE": "kms", "DUCKICELAKE_S3_KMS_KEY": KMS_KEY}
    with guarded_lake(minio, "encrypted", settings) as lake:
        with duckdb_lake(lake) as owner:
            owner.execute("CREATE SCHEMA lake.ns")
            owner.execute("CREATE TABLE lake.ns.born_in_duckdb AS SELECT range AS id FROM range(1000)")
        run_spark(lake)
        bucket, _, prefix = lake.backend.settings["DUCKICELAKE_WAREHOUSE"].removeprefix("s3://").partition("/")
        with closing(minio.client()) as client:
            below = f"{prefix}/data/ns/".lstrip("/")
            listed = client.list_objects_v2(Bucket=bucket, Prefix=below)["Contents"]
            keys = [found["Key"] for found in listed if "born_in_duckdb" not in found["Key"]]
            heads = {key: client.head_object(Bucket=bucket, Key=key) for key in keys}
    assert {key.rpartition(".")[2] for key in keys} >= {"parquet", "avro", "json"}
    encrypted = {key: head.get("SSEKMSKeyId", "").rpartition(":")[2] for key, head in heads.items()}
    assert encrypted == dict.fromkeys(keys, KMS_KEY)


def run_spark(lake: RunningLake) -> None:
    command = [sys.executable, "-m", "tests.engines.spark_without_keys", lake.uri, CREDENTIAL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr[-20000:]
    told = json.loads(done.stdout.rpartition("TOLD ")[2])
    for work in told.values():
        assert work["rows"] == [91, 5905]
        assert work["duckdb"] == [1000, 499500]
        assert work["rows after"] == [91, 5905]
        assert work["cleaned"]["deleted_data_files_count"] > 0
        assert work["made"] == [91]
    assert "Failed to refresh storage credentials" not in done.stderr
