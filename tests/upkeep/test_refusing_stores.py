"""A store that fails in the middle of a task: the queue says how, nothing is left behind, the next attempt succeeds."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import duckdb
import pytest
from duckdb_extensions import import_extension

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.gc import find_orphans
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.maintenance.policy import AUTOMATIC
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.storage.s3 import S3Store
from duckicelake.upkeep.planner import request_tasks
from duckicelake.upkeep.worker import Worker
from tests.storage.s3_proxy import BREAK_OFF, Proxy, Request, proxy_of
from tests.support.backends import Bucket
from tests.support.client import NS, Client, duckdb_rows
from tests.support.s3_lakes import s3_lake
from tests.support.seams import fresh
from tests.upkeep.test_queue import LIMITS, make_ready, only, set_policies

Duck = duckdb.DuckDBPyConnection
Spoil = Callable[[Request], int | None]
EVER = 2**62
POLICIES = {
    AUTOMATIC: "none",
    "maintenance.flush.min-rows": "3",
    "maintenance.compaction.min-files": "2",
    "maintenance.sort.order": "",
}


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[Proxy]:
    with proxy_of(bucket.minio.endpoint) as opened:
        yield opened


@pytest.fixture
def services(postgres: EmbeddedPostgres, bucket: Bucket, proxy: Proxy) -> Iterator[Services]:
    """A lake whose server reaches its bucket through the proxy."""
    with s3_lake(postgres, bucket) as opened:
        set_policies(opened, POLICIES)
        options = replace(bucket.options(), endpoint=proxy.endpoint)
        client = {**opened.access.client, "s3.endpoint": f"{proxy.endpoint}/"}
        with closing(S3Store(opened.policy.warehouse, options)) as store:
            yield replace(opened, store=store, access=replace(opened.access, client=client))


@pytest.fixture
def duck(services: Services, bucket: Bucket, extensions: None) -> Iterator[Duck]:
    """DuckDB on the same lake, which reaches the bucket itself."""
    import_extension("httpfs")
    minio = bucket.minio
    with duckdb.connect() as connection:
        connection.execute("LOAD ducklake; LOAD postgres_scanner; LOAD httpfs")
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{minio.access_key}', SECRET '{minio.secret_key}', "
            f"ENDPOINT '{minio.endpoint.removeprefix('http://')}', USE_SSL false, URL_STYLE 'path', "
            f"REGION '{minio.region}')"
        )
        connection.execute(build_duckdb_attach(services.database.url))
        yield connection


def fail_with(status: int, method: str, suffix: str = "") -> Spoil:
    return lambda request: status if request.method == method and request.path.split("?")[0].endswith(suffix) else None


def deny_one_file() -> Spoil:
    """Deny reads of the data file of a bucket that is read first."""
    denied: dict[str, str] = {}

    def spoil(request: Request) -> int | None:
        path = request.path.split("?")[0]
        if request.method != "GET" or not path.endswith(".parquet"):
            return None
        return 403 if denied.setdefault(path.split("/")[1], path) == path else None

    return spoil


FAULTS: dict[str, tuple[Spoil, str]] = {
    "writes are denied": (fail_with(403, "PUT"), "403.*let the server's key get, put, delete"),
    "the store is busy": (fail_with(503, "PUT"), "answers 503|doesn't answer"),
    "answers to writes are lost": (fail_with(BREAK_OFF, "PUT"), "doesn't answer"),
    "reads are denied": (fail_with(403, "GET", ".parquet"), "403.*let the server's key get"),
    "reads of one file are denied": (deny_one_file(), "403.*let the server's key get"),
    "reads break off": (fail_with(BREAK_OFF, "GET", ".parquet"), "doesn't answer"),
}


def insert_rows(duck: Duck) -> None:
    duck.execute("CALL lake.set_option('data_inlining_row_limit', 1000)")
    duck.execute("INSERT INTO lake.ns.t SELECT range, 'x' FROM range(5)")


def insert_files(duck: Duck) -> None:
    duck.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    for number in range(3):
        duck.execute(f"INSERT INTO lake.ns.t SELECT range + {number} * 10, 'x' FROM range(10)")


KINDS: dict[str, Callable[[Duck], None]] = {
    "flush": insert_rows,
    "compact": insert_files,
    "statistics": insert_files,
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
def test_store_that_fails_keeps_a_task_waiting(
    services: Services, duck: Duck, proxy: Proxy, kind: str, fault: str
) -> None:
    spoil, says = FAULTS[fault]
    if kind == "flush" and fault.startswith("reads"):
        pytest.skip("a flush reads no file")
    client = Client(services)
    duck.execute("CREATE SCHEMA lake.ns")
    client.create()
    KINDS[kind](duck)
    client.metadata()
    before, files = duckdb_rows(duck), list_snapshots(client)
    request_tasks(services, NS, "t", (kind,))
    proxy.spoil = spoil
    assert Worker(LIMITS).work(fresh(services))
    proxy.spoil = lambda _: None
    found = only(services)
    assert (found.state, re.search(says, str(found.message)) is not None) == ("waiting", True), found.message
    assert duckdb_rows(duck) == before
    assert list_snapshots(Client(fresh(services))) == files
    assert [file.location for file in find_orphans(fresh(services), EVER)] == []
    make_ready(services)
    assert Worker(LIMITS).work(fresh(services))
    assert only(services).state == "done", only(services).message
    assert duckdb_rows(duck) == before
    assert [file.location for file in find_orphans(fresh(services), EVER)] == []


def cut_off(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize("change", [None, cut_off], ids=["missing", "cut off"])
def test_damaged_file_in_a_bucket_is_left_out_by_name(
    services: Services, duck: Duck, change: Callable[[bytes], bytes] | None
) -> None:
    client = Client(services)
    duck.execute("CREATE SCHEMA lake.ns")
    client.create()
    insert_files(duck)
    client.metadata()
    before = duckdb_rows(duck)
    files = "SELECT data_file FROM ducklake_list_files('lake', 't', schema => 'ns') ORDER BY data_file"
    path = duck.execute(files).fetchall()[1][0]
    data = services.store.read(path)
    services.store.delete(path)
    if change is not None:
        services.store.write(path, change(data))
    request_tasks(services, NS, "t", ("compact",))
    assert Worker(LIMITS).work(fresh(services))
    found = only(services)
    assert (found.state, found.counts.get("rewritten files")) == ("done", 2), found.message
    assert re.search(f"Left out: .*{path}.*{'is missing' if change is None else 'read'}", str(found.message)), found
    services.store.delete(path)
    services.store.write(path, data)
    assert duckdb_rows(duck) == before


def list_snapshots(client: Client) -> list[int]:
    return [snapshot["snapshot-id"] for snapshot in client.metadata()["snapshots"]]
