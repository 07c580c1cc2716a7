"""Delta tables in S3: read in their place, followed, and copied where folders don't say what DuckLake must know."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from duckdb_extensions import import_extension
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.delta.import_.importer import DeltaImport, import_table
from duckicelake.delta.import_.sync import adopt_table, find_source, sync
from duckicelake.delta.log.reader import DeltaLog
from duckicelake.errors import UnsupportedError
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.postgres.embedded import EmbeddedPostgres
from tests.conftest import new_duckdb
from tests.delta.import_.tables import (
    VECTORS,
    again,
    column,
    defined,
    gone,
    new_table,
    vector_file,
    with_features,
    written,
)
from tests.delta.import_.versions import Rows, duckdb_rows, rows, table_metadata, versions
from tests.delta.logs import HandMade, protocol
from tests.support.backends import Bucket
from tests.support.client import NS, new_client
from tests.support.s3_lakes import s3_lake


@pytest.fixture
def services(postgres: EmbeddedPostgres, bucket: Bucket) -> Iterator[Services]:
    with s3_lake(postgres, bucket) as found:
        new_client(found)
        yield found


@pytest.fixture
def lake(services: Services, bucket: Bucket, extensions: None) -> Iterator[duckdb.DuckDBPyConnection]:
    import_extension("httpfs")
    minio = bucket.minio
    with new_duckdb() as duck:
        duck.execute("LOAD httpfs")
        duck.execute(
            f"CREATE SECRET s (TYPE s3, KEY_ID '{minio.access_key}', SECRET '{minio.secret_key}', URL_STYLE 'path', "
            f"ENDPOINT '{minio.endpoint.removeprefix('http://')}', USE_SSL false, REGION 'us-east-1')"
        )
        yield duck.execute(build_duckdb_attach(services.database.url)).execute("USE lake")


def uploaded(services: Services, table: HandMade) -> str:
    """Where the table's files are then."""
    root = f"{services.policy.warehouse}/delta/t"
    for path in table.folder.rglob("*"):
        if path.is_file():
            services.store.write(f"{root}/{path.relative_to(table.folder)}", path.read_bytes())
    return root


def test_table_in_s3_is_read_where_it_is_and_copied_only_if_asked_to(
    services: Services, lake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    table = new_table(tmp_path / "t")
    columns = (column("v", "long", 1, "col-v"), column("p", "string", 2, "col-p"))
    first = written(table, "ab/0.parquet", pa.table({"col-v": [1, 2]}), partitionValues={"col-p": "x y"})
    plain = written(table, "cd/1.parquet", pa.table({"col-v": [3]}), {}, partitionValues={"col-p": None})
    mapped = {"delta.columnMapping.mode": "name"}
    definition = defined(*columns, partition_by=["p"], **mapped)
    table.commit(0, with_features("columnMapping", *VECTORS), definition, first, plain)
    deleted = dict(vector_file(table, "dv.bin", 0))
    root = uploaded(services, table)
    deleted["pathOrInlineDv"] = f"{root}/dv.bin"
    table.commit(1, gone(first), again(first, deleted))
    uploaded(services, table)
    with pytest.raises(UnsupportedError, match="--copy-for-duckdb"):
        import_table(services, DeltaImport(root, NS, "t"))
    report = import_table(services, DeltaImport(root, NS, "t", copies=True))
    assert (report.versions, report.files, report.rows) == (2, 2, 3)
    whole = pa.table({"v": [1, 2, 3], "p": ["x y", "x y", None]})
    found = versions(table_metadata(services))
    assert duckdb_rows(lake, found[0][1]) == rows(whole)
    assert duckdb_rows(lake, found[1][1]) == rows(whole.slice(1))


def test_table_in_s3_is_followed_until_it_is_adopted(
    services: Services, bucket: Bucket, lake: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    table = new_table(tmp_path / "t")
    first = written(table, "0.parquet", pa.table({"v": [1, 2]}))
    table.commit(0, protocol(), defined(column("v", "long")), first)
    root = uploaded(services, table)
    import_table(services, DeltaImport(root, NS, "t", following=True))
    table.commit(1, written(table, "1.parquet", pa.table({"v": [3]})))
    table.commit(2, gone(first))
    uploaded(services, table)
    assert sync(services, find_source(services, "ns.t"), DeltaLog(services.store, root)).position.version == 2
    for version, values in enumerate(([1, 2], [1, 2, 3], [3])):
        iceberg_id, ducklake_id = versions(table_metadata(services))[version]
        expected = rows(pa.table({"v": values}))
        assert duckdb_rows(lake, ducklake_id) == iceberg_rows(services, bucket, iceberg_id) == expected
    with pytest.raises(duckdb.Error, match=r"duckicelake delta adopt ns\.t"):
        lake.execute("INSERT INTO ns.t VALUES (9)")
    adopt_table(services, "ns.t")
    lake.execute("INSERT INTO ns.t VALUES (9)")
    assert iceberg_rows(services, bucket) == rows(pa.table({"v": [3, 9]}))


def iceberg_rows(services: Services, bucket: Bucket, snapshot_id: int | None = None) -> Rows:
    minio, place = bucket.minio, load_current_table(services, NS, "t").location
    keys = {"s3.access-key-id": minio.access_key, "s3.secret-access-key": minio.secret_key}
    access = {"s3.endpoint": minio.endpoint, "s3.region": minio.region, **keys}
    return rows(StaticTable.from_metadata(place, access).scan(snapshot_id=snapshot_id).to_arrow())
