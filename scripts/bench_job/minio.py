"""One client's appends to a table on MinIO, against the round trips to MinIO that an append can't do without.

Those are three, one after the other: the client's manifest list is read, then its manifest, and then a manifest, a list
and a metadata.json are written at the same time. The reference makes just these calls, with files as long as the
server's own, by the same library, in turns with the appends. What is left is the server's, Postgres and HTTP included,
less what it gains by reading manifests under the names that clients give them before it is told.

The same appends to a lake in local files, and to Iceberg's Java reference server on the same MinIO, tell how quick the
machine is today. Java's server writes metadata.json only, and lists all snapshots.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import orjson

from duckicelake.iceberg.manifest.reader import read_manifest_list
from duckicelake.storage.protocol import ObjectStore
from duckicelake.storage.s3 import S3Options, S3Store
from duckicelake.storage.s3_requests import DEFAULT_REGION
from duckicelake.storage.threads import run_in_parallel
from scripts.backends_job.stack import Backends, running_backends
from scripts.bench_job.client import Appender, Files, Json, LocalFiles, Rest, milliseconds
from scripts.bench_job.results import Result, Target, number, options_of, p50, p99, report
from scripts.bench_job.servers import Bench, java_is_there, running_bench, running_java
from scripts.demo_job.backend import on_servers

WARM_UP = 20
LISTED = 100
JAVA_COMMITS = 100


def main() -> None:
    options = options_of(__doc__, commits=(300, "how many appends"))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="duckicelake-bench-"))
        Path(folder).chmod(0o755)
        backends = stack.enter_context(running_backends(Path(folder)))
        commits = 100 if options.quick else options.commits
        with running_bench(backend=on_servers(backends)) as bench:
            results = measure(bench, store_of(backends), commits)
        results += [*local(commits), *java(backends, min(commits, JAVA_COMMITS))]
    report(f"Appends of one file on MinIO, the newest {LISTED} snapshots listed", results, options)


def measure(bench: Bench, store: ObjectStore, commits: int) -> list[Result]:
    appender = warm(Rest(bench.uri, bench.headers), store)
    trips = RoundTrips(store, f"{appender.metadata['location']}/metadata/round-trips")
    alone: list[float] = []
    for _ in range(commits):
        appender.append()
        alone.append(trips.once(appender.metadata))
    took, needed = milliseconds(appender.seconds), milliseconds(alone)
    overhead = p50(took) - p50(needed)
    name = f"commit on MinIO: {number(p50(took))} ms, of which round trips {number(p50(needed))} ms; overhead"
    return [
        Result(name, overhead, "ms", Target("≤", 5), p50(needed), "ms round trips", p50(took), p99(took)),
        Result("round trips to MinIO alone", p50(needed), "ms", None, None, "", p50(needed), p99(needed)),
    ]


def local(commits: int) -> Iterator[Result]:
    with running_bench() as bench:
        took = appended(warm(Rest(bench.uri, bench.headers), LocalFiles()), commits)
    yield Result("the same appends, files on this machine", p50(took), "ms", None, None, "", p50(took), p99(took))


def java(backends: Backends, commits: int) -> Iterator[Result]:
    if not java_is_there():
        return
    with running_java(java_on(backends)) as uri:
        took = appended(warm(Rest(uri), store_of(backends)), commits)
    name = f"{commits} of them, Java's reference server on MinIO"
    yield Result(name, p50(took), "ms", None, None, "", p50(took), p99(took))


def warm(rest: Rest, store: Files) -> Appender:
    rest.create_namespace()
    metadata = rest.create_table("t", properties={"ducklake.max-listed-snapshots": str(LISTED)})
    appender = Appender(rest, store, "t", metadata)
    for _ in range(WARM_UP):
        appender.append()
    appender.seconds.clear()
    return appender


def appended(appender: Appender, commits: int) -> list[float]:
    """Milliseconds of each commit."""
    for _ in range(commits):
        appender.append()
    return milliseconds(appender.seconds)


@dataclass(slots=True)
class RoundTrips:
    """What a commit reads and writes, without the commit."""

    store: ObjectStore
    folder: str

    def once(self, metadata: Json) -> float:
        """Seconds that the calls of one append take, with files as long as those of the table's newest snapshot."""
        listed = self.store.read(metadata["snapshots"][-1]["manifest-list"])
        manifest, document = bytes(read_manifest_list(listed)[0].manifest_length), orjson.dumps(metadata)
        uploads = [f"{self.folder}/{uuid4()}" for _ in range(2)]
        for upload, data in zip(uploads, (listed, manifest), strict=True):
            self.store.write(upload, data)
        before = time.perf_counter()
        for upload in uploads:
            self.store.read(upload)
        run_in_parallel(lambda data: self.store.write(f"{self.folder}/{uuid4()}", data), (manifest, listed, document))
        return time.perf_counter() - before


def store_of(backends: Backends) -> S3Store:
    """The bucket by the administrator's hands."""
    minio = backends.minio
    options = S3Options(
        endpoint=minio.endpoint,
        path_style=True,
        access_key_id=minio.access_key,
        secret_access_key=minio.secret_key,
    )
    return S3Store(f"s3://{backends.bucket}", options)


def java_on(backends: Backends) -> dict[str, str]:
    """Variables that have Java's reference server keep its files in the bucket."""
    minio = backends.minio
    return {
        "CATALOG_WAREHOUSE": f"s3://{backends.bucket}/java",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": minio.endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "AWS_ACCESS_KEY_ID": minio.access_key,
        "AWS_SECRET_ACCESS_KEY": minio.secret_key,
        "AWS_REGION": DEFAULT_REGION,
    }


if __name__ == "__main__":
    main()
