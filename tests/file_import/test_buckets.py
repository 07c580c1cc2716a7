"""Loads and watches of files in a bucket: a real MinIO, and the credentials of the client's environment."""

from collections.abc import Callable, Iterator
from contextlib import closing

import boto3
import pytest

from tests.file_import.conftest import Loads
from tests.support.backends import Bucket

pytestmark = pytest.mark.commands
Put = Callable[[str, str], None]


@pytest.fixture
def put(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Write an object; the environment has the keys of the bucket."""
    minio = bucket.minio
    named = {
        "AWS_ENDPOINT_URL": minio.endpoint,
        "AWS_ACCESS_KEY_ID": minio.access_key,
        "AWS_SECRET_ACCESS_KEY": minio.secret_key,
        "AWS_REGION": minio.region,
        "AWS_ALLOW_HTTP": "true",
    }
    for name, text in named.items():
        monkeypatch.setenv(name, text)
    with closing(boto3.client("s3", region_name=minio.region)) as client:

        def put_object(key: str, content: str) -> None:
            client.put_object(Bucket=bucket.name, Key=key, Body=content.encode())

        yield put_object


def test_patterns_and_prefixes_of_a_bucket(loads: Loads, table: str, bucket: Bucket, put: Put) -> None:
    put("in/day=1/a.csv", "id,x\n1,a\n")
    put("in/day=2/b.csv", "id,x\n2,b\nx,c\n")
    put("in/day=2/_c.csv", "id,x\n3,c\n")
    put("in/day=2/notes.md", "none")
    root = f"s3://{bucket.name}"
    made = loads.run(f"{root}/in/", "--table", table, "--yes", "--schema", "id long, x string")
    assert (made["files"], made["rows"], made["quarantined"]) == (2, 2, 1)
    assert loads.rows(f"SELECT source FROM lake.{table}_quarantine") == [(f"{root}/in/day=2/b.csv",)]
    assert loads.run(f"{root}/in/day=*/a.csv", "--table", table)["rows"] == 1
    assert loads.run(f"{root}/in/day=1/a.csv", "--table", table)["rows"] == 1
    assert "has no files" in loads.run(f"{root}/none/", "--table", table, code=2)["message"]
    assert "can't be" in loads.run("s3://not-there-at-all/in/", "--table", table, code=2)["message"]


def test_watch_of_a_prefix(loads: Loads, table: str, bucket: Bucket, put: Put) -> None:
    root = f"s3://{bucket.name}"
    options = ("--schema", "id long", "--archive", f"{root}/loaded")
    for number in range(5):
        put(f"in/{number}.csv", f"id\n{number}\n")
    put("in/bad.json", "{")
    put("in/worse.parquet", "{")
    *_, end = loads.watch(f"{root}/in", table, *options, "--bad-rows", "fail")
    assert (end["files"], end["rows"], end["failed"]) == (5, 5, 2)
    put("in/0.csv", "id\n7\n")
    put("in/bad.json", '{"id": 8}')
    *_, end = loads.watch(f"{root}/in", table, *options, "--bad-rows", "fail")
    assert (end["files"], end["failed"]) == (2, 1)
    assert loads.rows(f"SELECT id FROM lake.{table} ORDER BY 1") == [(0,), (1,), (2,), (3,), (4,), (7,), (8,)]
    assert loads.watch(f"{root}/in", table, *options)[-1]["files"] == 0
    assert loads.run(f"{root}/loaded/*.csv", "--table", table)["files"] == 5
