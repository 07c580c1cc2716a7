"""The Delta log of a table in S3, whose files lie in two folders of the bucket."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from duckdb_extensions import import_extension

from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.postgres.embedded import EmbeddedPostgres
from tests.conftest import new_duckdb
from tests.delta.export.readers import keep, rows_of
from tests.support.backends import Bucket
from tests.support.lakes import Lake
from tests.support.s3_lakes import s3_lake


@pytest.fixture
def services(postgres: EmbeddedPostgres, bucket: Bucket) -> Iterator[Services]:
    with s3_lake(postgres, bucket) as found:
        yield found


def secret(bucket: Bucket) -> str:
    host = bucket.minio.endpoint.removeprefix("http://")
    keys = f"KEY_ID '{bucket.minio.access_key}', SECRET '{bucket.minio.secret_key}'"
    return f"CREATE SECRET s (TYPE s3, {keys}, ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false, REGION 'us-east-1')"


@pytest.fixture
def lake(services: Services, bucket: Bucket, extensions: None) -> Iterator[Lake]:
    import_extension("httpfs")
    with new_duckdb() as duck:
        duck.execute("LOAD httpfs")
        duck.execute(secret(bucket))
        duck.execute(build_duckdb_attach(services.database.url))
        yield Lake(services, duck.execute("USE lake"))


@pytest.fixture
def delta(bucket: Bucket) -> Iterator[duckdb.DuckDBPyConnection]:
    import_extension("delta")
    with duckdb.connect(config={"threads": 2, "allow_unsigned_extensions": True}) as duck:
        duck.execute("LOAD delta; LOAD httpfs")
        yield duck.execute(secret(bucket))


def delta_rs(bucket: Bucket, root: str) -> pa.Table:
    options = {
        "AWS_ACCESS_KEY_ID": bucket.minio.access_key,
        "AWS_SECRET_ACCESS_KEY": bucket.minio.secret_key,
        "AWS_ENDPOINT_URL": bucket.minio.endpoint,
        "AWS_REGION": bucket.minio.region,
        "AWS_ALLOW_HTTP": "true",
    }
    table = DeltaTable(root, storage_options=options)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t"))


def test_duckdb_reads_in_s3_what_lies_below_the_table(
    lake: Lake, bucket: Bucket, delta: duckdb.DuckDBPyConnection
) -> None:
    lake.run(
        "CREATE TABLE t (a BIGINT, b VARCHAR)",
        "ALTER TABLE t SET PARTITIONED BY (b)",
        "INSERT INTO t VALUES (1, 'inlined'), (2, 'inlined'), (3, 'too')",
    )
    lake.commit({"action": "set-properties", "updates": {"delta.enabled": "true"}})
    root = keep(lake).root
    lake.run("DELETE FROM t WHERE a = 2")
    keep(lake)
    expected = lake.duck_rows("main.t")
    assert rows_of(delta_rs(bucket, root)) == expected
    assert rows_of(delta.execute(f"FROM delta_scan('{root}')").to_arrow_table()) == expected
    lake.run("INSERT INTO t SELECT range + 10, 'x/y %20' FROM range(100)", "DELETE FROM t WHERE a BETWEEN 20 AND 60")
    keep(lake)
    assert rows_of(delta_rs(bucket, root)) == lake.duck_rows("main.t")
    with pytest.raises(duckdb.HTTPException, match=r"/\.\./\.\./\.\./ducklake/"):
        delta.execute(f"FROM delta_scan('{root}')").fetchall()
