"""Appends N times to one table through the use cases and prints what each commit writes, by tens of commits.

Bytes of manifests and manifest lists and the number of SQL rows should stay flat: manifests are packed ten at a time,
so a file is rewritten once per order of magnitude. Only metadata.json grows, with the snapshots that it lists. The
reference is the first ten commits of the same run; the last lines are the ratios of the last ten to them.
"""

import argparse
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson
from rich.console import Console
from rich.progress import track
from rich.table import Table

from duckicelake.catalog import namespaces, tables
from duckicelake.catalog.services import Services
from duckicelake.iceberg.manifest import (
    DataFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from duckicelake.iceberg.metadata import TableMetadata, parse_table_metadata
from duckicelake.iceberg.rest import CommitTableRequest, CreateTableRequest
from duckicelake.lake.database import Database
from duckicelake.lake.embedded import EmbeddedPostgres
from duckicelake.lake.format import prepare
from duckicelake.storage.objects import LocalStore
from duckicelake.storage.policy import LocationPolicy

NAMESPACE = ("bench",)
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": i, "name": f"c{i}", "type": "long", "required": False} for i in range(1, 11)],
}


@dataclass
class CountingStore:
    """The local store, counting the bytes that the server writes by kind of file."""

    inner: LocalStore
    written: Counter[str] = field(default_factory=Counter)

    def write(self, location: str, data: bytes) -> None:
        name = location.rsplit("/", 1)[1]
        kind = "list" if name.startswith("snap-") else "metadata" if name.endswith(".json") else "manifest"
        self.written[kind] += len(data)
        self.inner.write(location, data)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


@dataclass
class Cost:
    """What one commit cost."""

    seconds: float
    manifest: int
    lists: int
    metadata: int
    answer: int
    rows: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=300, help="how many commits (default 300)")
    parser.add_argument("--files", type=int, default=5, help="data files in each (default 5)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-bench-"))
    try:
        with EmbeddedPostgres(folder) as postgres:
            report(run(folder, postgres.url, options.commits, options.files))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(folder: Path, url: str, commits: int, files: int) -> list[Cost]:
    warehouse = folder / "warehouse"
    database = Database(url)
    store = CountingStore(LocalStore(warehouse))
    policy = LocationPolicy(str(warehouse))
    services = Services(database, store, policy, "client", lambda: time.time_ns() // 1_000_000)  # type: ignore[arg-type]
    prepare(database, policy.data_path)
    namespaces.create_namespace(services, NAMESPACE, {})
    request = CreateTableRequest.model_validate({"name": "t", "schema": SCHEMA})
    body = tables.create_table(services, NAMESPACE, request).body
    costs = []
    for number in track(range(commits), "commits", console=Console(stderr=True)):
        cost, body = commit(services, store, body, number, files)
        costs.append(cost)
    database.close()
    return costs


def commit(services: Services, store: CountingStore, body: bytes, number: int, files: int) -> tuple[Cost, bytes]:
    """Upload as a client does, then time and count the server's part alone."""
    request = upload(store.inner, parse_table_metadata(orjson.loads(body)["metadata"]), number, files)
    store.written.clear()
    rows, start = count_rows(services), time.perf_counter()
    answer = tables.commit_table(services, NAMESPACE, "t", request).body
    seconds = time.perf_counter() - start
    written = store.written
    cost = Cost(
        seconds, written["manifest"], written["list"], written["metadata"], len(answer), count_rows(services) - rows
    )
    return cost, answer


def count_rows(services: Services) -> int:
    with services.database.reading() as cursor:
        names = cursor.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() "
            "AND (table_name LIKE 'ducklake%' OR table_name LIKE 'duckicelake%')"
        ).fetchall()
        counts = [cursor.execute(f"SELECT count(*) FROM {name}".encode()).fetchone() for (name,) in names]
    return sum(row[0] for row in counts if row)


def upload(store: LocalStore, metadata: TableMetadata, number: int, files: int) -> CommitTableRequest:
    """What a client writes before it commits an append: a manifest and a list; the data files are only named."""
    snapshot_id, sequence = 10**12 + number, metadata.last_sequence_number + 1
    current = metadata.current_snapshot()
    parents = read_manifest_list(store.read(current.manifest_list or "")) if current else ()
    entries = [
        ManifestEntry(EntryStatus.ADDED, snapshot_id, None, None, data_file(metadata.location, number, file))
        for file in range(files)
    ]
    data = write_manifest(
        format_version=2,
        content=ManifestContent.DATA,
        schema=metadata.schema(),
        spec=metadata.spec(),
        entries=entries,
    )
    manifest_path = f"{metadata.location}/metadata/client-{number}-m0.avro"
    store.write(manifest_path, data)
    line = ManifestFile(
        manifest_path,
        len(data),
        0,
        ManifestContent.DATA,
        sequence,
        sequence,
        snapshot_id,
        files,
        0,
        0,
        files * 1000,
        0,
        0,
    )
    manifest_list = f"{metadata.location}/metadata/client-{number}.avro"
    listed = write_manifest_list(
        format_version=2,
        snapshot_id=snapshot_id,
        parent_snapshot_id=current.snapshot_id if current else None,
        sequence_number=sequence,
        manifests=(line, *(replace(parent) for parent in parents)),
    )
    store.write(manifest_list, listed)
    snapshot = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": current.snapshot_id if current else None,
        "sequence-number": sequence,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "manifest-list": manifest_list,
        "summary": {"operation": "append"},
        "schema-id": 0,
    }
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        {"action": "set-snapshot-ref", "ref-name": "main", "snapshot-id": snapshot_id, "type": "branch"},
    ]
    return CommitTableRequest.model_validate({"requirements": [], "updates": updates})


def data_file(location: str, number: int, file: int) -> DataFile:
    bound = (number * 1000).to_bytes(8, "little")
    columns = range(1, 11)
    return DataFile(
        content=FileContent.DATA,
        file_path=f"{location}/data/{number:05d}-{file:05d}.parquet",
        file_format="PARQUET",
        partition=(),
        record_count=1000,
        file_size_in_bytes=100_000,
        column_sizes=dict.fromkeys(columns, 9000),
        value_counts=dict.fromkeys(columns, 1000),
        null_value_counts=dict.fromkeys(columns, 0),
        lower_bounds=dict.fromkeys(columns, bound),
        upper_bounds=dict.fromkeys(columns, bound),
    )


def report(costs: list[Cost]) -> None:
    table = Table(title="Mean of ten commits")
    for heading in ("commits", "ms", "manifest bytes", "list bytes", "SQL rows", "metadata.json bytes", "answer bytes"):
        table.add_column(heading, justify="right")
    tens = [costs[start : start + 10] for start in range(0, len(costs), 10)]
    shown = [(index, ten) for index, ten in enumerate(tens) if index in {0, 1, 2, 4, 9, 19} or index == len(tens) - 1]
    for index, ten in shown:
        table.add_row(f"{index * 10 + 1}-{index * 10 + len(ten)}", *(f"{value:,.1f}" for value in means(ten)))
    Console().print(table)
    first, last = means(tens[0]), means(tens[-1])
    names = ("time", "manifests", "lists", "rows", "metadata.json", "answer")
    print("last ten / first ten: " + "  ".join(f"{n} {b / a:.2f}" for n, a, b in zip(names, first, last, strict=True)))
    total = sum(cost.manifest for cost in costs) / (len(costs) * means(tens[0])[1])
    print(f"manifest bytes of all commits, packing included / those of the first ten, commit by commit: {total:.2f}")


def means(costs: list[Cost]) -> list[float]:
    columns = [
        [cost.seconds * 1000 for cost in costs],
        [cost.manifest for cost in costs],
        [cost.lists for cost in costs],
        [cost.rows for cost in costs],
        [cost.metadata for cost in costs],
        [cost.answer for cost in costs],
    ]
    return [sum(column) / len(column) for column in columns]


if __name__ == "__main__":
    main()
