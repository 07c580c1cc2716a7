"""A lake in a bucket: both sides write there, read each other's rows, and leave nothing of it on this machine."""

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from scripts.backends_job.minio import Minio, create_bucket
from scripts.backends_job.stack import Backends
from scripts.demo_job.backend import Backend, on_servers
from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import PROGRAM, RunningLake, info, own_environment, running_lake
from tests.engines.conftest import new_folder
from tests.engines.engines import Engines, Model, Row, append, arrow, assert_same, duck, pyiceberg
from tests.engines.sequences import BIG, COLUMNS, FLUSH, MERGE_FILES, MORE, overwrite_odd, upsert
from tests.support.backends import Bucket

pytestmark = pytest.mark.engine

STEPS = (
    append((1, "one", 10), (2, "two", 20), (3, None, 30)),
    duck(MORE),
    duck("DELETE FROM {t} WHERE id IN (1, 4)"),
    pyiceberg(
        overwrite_odd, "DELETE FROM {t} WHERE id IN (3, 5); INSERT INTO {t} VALUES (3, 'three', 33), (9, 'nine', 99)"
    ),
    duck(BIG.replace("string", "VARCHAR")),
    duck("DELETE FROM {t} WHERE id BETWEEN 100 AND 120"),
    duck("UPDATE {t} SET name = 'changed' WHERE id BETWEEN 115 AND 130"),
    FLUSH,
    pyiceberg(lambda table: table.delete("id = 125"), "DELETE FROM {t} WHERE id = 125"),
    pyiceberg(upsert, "DELETE FROM {t} WHERE id IN (1, 77); INSERT INTO {t} VALUES (1, 'uno', 11), (77, 'new', 7)"),
    MERGE_FILES,
    append((300, "last", 3)),
)
READERS = ("PyIceberg", "DuckDB")


@pytest.fixture(scope="module")
def bucket(minio: Minio) -> Bucket:
    name = f"engines-{uuid4().hex[:12]}"
    create_bucket(minio, name)
    return Bucket(name, minio)


@pytest.fixture(scope="module")
def s3_lake(bucket: Bucket) -> Iterator[RunningLake]:
    with (
        new_folder() as folder,
        running_lake(folder / "lake", folder / "server.log", backend=stored_in(bucket)) as lake,
    ):
        yield lake


def stored_in(bucket: Bucket) -> Backend:
    """The bucket for files, and the Postgres that the server brings for the catalog."""
    backend = on_servers(Backends("", bucket.minio, bucket.name))
    return replace(backend, settings={k: v for k, v in backend.settings.items() if k != "DUCKICELAKE_DATABASE_URL"})


@contextmanager
def clients(lake: RunningLake) -> Iterator[Engines]:
    """All but Spark."""
    with pyiceberg_catalog(lake) as catalog, duckdb_lake(lake) as connection:
        spark: Any = None
        yield Engines(spark, catalog, connection)


def test_both_sides_write_to_a_bucket_and_read_the_same(s3_lake: RunningLake, bucket: Bucket) -> None:
    model = Model()
    with clients(s3_lake) as engines:
        engines.catalog.create_namespace("ns")
        engines.catalog.create_table("ns.t", COLUMNS)
        model.do(duck("CREATE TABLE {t} (id bigint, name string, amount int)"))
        for step in STEPS:
            engines.do(step, "ns.t")
            model.do(step)
            assert_same(engines, "ns.t", model, by=READERS)
    keys = keys_of(bucket)
    assert any(key.startswith("ducklake/") for key in keys)
    assert any(key.startswith("data/ns/t-") and "/metadata/" in key for key in keys)
    assert [path for path in s3_lake.folder.rglob("*") if path.suffix in {".parquet", ".avro", ".puffin"}] == []


@pytest.mark.more_engines
def test_lost_metadata_is_written_again_and_lost_data_is_named(folder: Path, minio: Minio) -> None:
    create_bucket(minio, "losing")
    bucket = Bucket("losing", minio)
    backend = stored_in(bucket)
    with running_lake(folder / "lake", folder / "first.log", backend=backend) as lake, clients(lake) as engines:
        engines.catalog.create_namespace("ns")
        engines.catalog.create_table("ns.t", COLUMNS)
        for step in STEPS[:3]:
            engines.do(step, "ns.t")
        before = engines.read("ns.t", by=READERS)
    lose(bucket, [key for key in keys_of(bucket) if key.endswith((".avro", ".metadata.json"))])
    with running_lake(folder / "lake", folder / "second.log", backend=backend) as lake, clients(lake) as engines:
        assert engines.read("ns.t", by=READERS) == before
        found = told(lake, "doctor")
        assert found.returncode == 0, found.stdout
        assert f"{bucket.uri} is readable and writable, lists its files and takes conditional writes" in found.stdout
        lose(bucket, [key for key in keys_of(bucket) if key.startswith("data/") and key.endswith(".parquet")])
        assert "isn't in the store" in told(lake, "doctor").stdout


@pytest.mark.more_engines
def test_files_with_odd_names_and_types_are_read(s3_lake: RunningLake) -> None:
    """DuckDB's folder is named by the schema, Iceberg's by the table; of unsigned numbers clients get a copy."""
    with clients(s3_lake) as engines:
        engines.duck.execute("""CREATE SCHEMA lake."o d+d%41é"; USE lake."o d+d%41é" """)
        engines.duck.execute("CREATE TABLE u AS SELECT i::UINTEGER AS u, i::VARCHAR AS s FROM range(40) r(i)")
        engines.duck.execute("DELETE FROM u WHERE u < 15")
        table = engines.catalog.load_table(("o d+d%41é", "u"))
        assert sorted(table.scan().to_arrow()["u"].to_pylist()) == list(range(15, 40))
        engines.catalog.create_table(("o d+d%41é", "t %+é"), COLUMNS).append(arrow_rows(engines, [(1, "one", 1)]))
        assert engines.duck.sql('FROM "t %+é"').fetchall() == [(1, "one", 1)]


def arrow_rows(engines: Engines, rows: list[Row]) -> pa.Table:
    return arrow(engines.catalog.load_table(("o d+d%41é", "t %+é")), rows)


def test_duckdb_gets_in_by_the_secret_that_info_shows(s3_lake: RunningLake, bucket: Bucket) -> None:
    secret = str(info(s3_lake.folder, own_environment(s3_lake.backend.settings))["duckdb-secret"])
    assert bucket.minio.secret_key not in secret
    filled = secret.replace("<key>", bucket.minio.access_key).replace("<secret>", bucket.minio.secret_key)
    lake = replace(s3_lake, backend=replace(s3_lake.backend, duckdb=("LOAD httpfs", filled)))
    with duckdb_lake(lake) as connection:
        connection.execute("CREATE TABLE lake.t AS FROM range(100)")
        assert connection.sql("SELECT count(*) FROM lake.t").fetchall() == [(100,)]


@pytest.mark.more_engines
def test_what_keeps_a_server_from_its_bucket_is_one_line_without_secrets(folder: Path, bucket: Bucket) -> None:
    backend = stored_in(bucket)
    settings = {**backend.settings, "DUCKICELAKE_S3_SECRET_ACCESS_KEY": "geheim"}
    with (
        pytest.raises(RuntimeError, match="correct DUCKICELAKE_S3_SECRET_ACCESS_KEY") as caught,
        running_lake(folder / "lake", folder / "server.log", backend=replace(backend, settings=settings)),
    ):
        pass
    assert "geheim" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def told(lake: RunningLake, command: str) -> subprocess.CompletedProcess[str]:
    environment = own_environment(lake.backend.settings)
    words = [PROGRAM, command, "--lake", str(lake.folder)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


def keys_of(bucket: Bucket) -> list[str]:
    with closing(bucket.minio.client()) as client:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket.name)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]


def lose(bucket: Bucket, keys: list[str]) -> None:
    assert keys
    with closing(bucket.minio.client()) as client:
        for key in keys:
            client.delete_object(Bucket=bucket.name, Key=key)
