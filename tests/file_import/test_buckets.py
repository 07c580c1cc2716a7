"""Loads and watches of files in a bucket: a real MinIO, and the credentials of the client's environment."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import boto3
import pytest

from tests.cli.test_commands import environment
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


class SlowStore(BaseHTTPRequestHandler):
    """A bucket with one file of 1 GiB, of which 2 MB come in a second."""

    has_begun = Event()
    size = 1 << 30

    def do_GET(self) -> None:
        listed = (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
            "<IsTruncated>false</IsTruncated><KeyCount>1</KeyCount><Contents><Key>in/a.csv</Key>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag><Size>{self.size}</Size>"
            "<StorageClass>STANDARD</StorageClass></Contents></ListBucketResult>"
        ).encode()
        is_list = "list-type" in self.path
        self.send_response(200)
        self.send_header("Content-Length", str(len(listed) if is_list else self.size))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", "x")
        self.end_headers()
        if is_list:
            self.wfile.write(listed)
            return
        try:
            while True:
                self.wfile.write(b"1,2,3,4" * 10_000)
                self.has_begun.set()
                time.sleep(0.035)
        except OSError:
            return

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_ctrl_c_ends_a_load_that_copies_a_large_file(loads: Loads, table: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
    command = ["load", "s3://b/in/", "--table", table, "--yes", "--uri", loads.lake.uri]
    program = [sys.executable, "-m", "duckicelake.cli.main", *command]
    with ThreadingHTTPServer(("127.0.0.1", 0), SlowStore) as store:
        Thread(target=store.serve_forever, daemon=True).start()
        given = environment(AWS_ENDPOINT_URL=f"http://127.0.0.1:{store.server_port}", AWS_ALLOW_HTTP="true", **keys)
        with subprocess.Popen(program, env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert SlowStore.has_begun.wait(60)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=20)
            finally:
                process.kill()
        store.shutdown()
    assert process.returncode == 130, errors
    assert "interrupted: with --run-id" in errors
    assert "Traceback" not in errors
