"""A lean Iceberg client: it uploads what an engine would and times the server's answers alone."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

import orjson

from duckicelake.iceberg.manifest.entry import (
    DataFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from duckicelake.iceberg.manifest.reader import read_manifest_list
from duckicelake.iceberg.manifest.writer import write_manifest, write_manifest_list
from duckicelake.iceberg.partition import UNPARTITIONED
from duckicelake.iceberg.schema import Schema
from scripts.client_manifests import line_of

Json = dict[str, Any]
NAMESPACE: Final = "bench"
_ids = count(10**12)


class Files(Protocol):
    """Where the client's files go; `scripts/bench_job/s3_files` has another."""

    def read(self, location: str) -> bytes: ...

    def write(self, location: str, data: bytes) -> None: ...


class LocalFiles:
    """Folders of this machine. Nothing is synced: what a client's upload costs isn't measured."""

    def read(self, location: str) -> bytes:
        return Path(location.removeprefix("file:")).read_bytes()

    def write(self, location: str, data: bytes) -> None:
        path = Path(location.removeprefix("file:"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class Refused(Exception):  # noqa: N818 - says what happened
    """An answer that is none of the statuses that were expected."""

    def __init__(self, method: str, path: str, status: int, body: bytes) -> None:
        super().__init__(f"{method} {path}: {status} {body[:500].decode(errors='replace')}")
        self.status = status


class Rest:
    """One kept connection to a server. Not for several threads."""

    def __init__(self, uri: str, headers: Mapping[str, str] | None = None, prefix: str = "/v1") -> None:
        address = urlsplit(uri)
        self._connection = HTTPConnection(address.hostname or "", address.port, timeout=120)
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._prefix = prefix

    def send(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """(status, body) of an answer, whatever it is."""
        data = None if body is None else orjson.dumps(body)
        self._connection.request(method, self._prefix + path, data, {**self._headers, **(headers or {})})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        """The body of a 2xx answer; Refused for any other."""
        status, answer = self.send(method, path, body)
        if status >= 300:
            raise Refused(method, path, status, answer)
        return answer

    def create_namespace(self, name: str = NAMESPACE) -> None:
        self.ask("POST", "/namespaces", {"namespace": [name]})

    def create_table(
        self,
        name: str,
        *,
        columns: int = 10,
        properties: Mapping[str, str] | None = None,
        namespace: str = NAMESPACE,
    ) -> Json:
        """Create a table of `columns` longs, c1 and following; its metadata."""
        request = {"name": name, "schema": schema(columns), "properties": dict(properties or {})}
        created: Json = orjson.loads(self.ask("POST", f"/namespaces/{namespace}/tables", request))["metadata"]
        return created

    def load(self, name: str, *, query: str = "", namespace: str = NAMESPACE) -> Json:
        """A table's metadata. query: as `?snapshots=refs`."""
        answer = self.ask("GET", f"/namespaces/{namespace}/tables/{name}{query}")
        loaded: Json = orjson.loads(answer)["metadata"]
        return loaded

    def close(self) -> None:
        self._connection.close()


def schema(columns: int) -> Json:
    fields = [{"id": i, "name": f"c{i}", "type": "long", "required": False} for i in range(1, columns + 1)]
    return {"type": "struct", "schema-id": 0, "fields": fields}


@dataclass(slots=True)
class Appender:
    """Appends to one table as an engine does: uploads a manifest and a list, commits, goes on from the answer.

    `seconds` are what the server took for each commit; uploads aren't in them. Data files are named, not written.
    """

    rest: Rest
    files: Files
    name: str
    metadata: Json
    namespace: str = NAMESPACE
    requires_main: bool = True
    """Whether each commit is on condition that no one else has moved main, as engines' commits are."""
    seconds: list[float] = field(default_factory=list)
    conflicts: int = 0

    @property
    def path(self) -> str:
        return f"/namespaces/{self.namespace}/tables/{self.name}"

    def append(self, files: int = 1) -> Json:
        """Append files, loading and trying again after a 409; the new metadata."""
        while True:
            request = self.prepare(files)
            before = time.perf_counter()
            status, answer = self.rest.send("POST", self.path, request)
            took = time.perf_counter() - before
            if status == 409:
                self.conflicts += 1
                self.metadata = self.rest.load(self.name, namespace=self.namespace)
                continue
            if status != 200:
                raise Refused("POST", self.path, status, answer)
            self.seconds.append(took)
            self.metadata = orjson.loads(answer)["metadata"]
            return self.metadata

    def prepare(self, files: int = 1) -> Json:
        """Upload what a commit of so many files needs; the request."""
        snapshot_id, unique = next(_ids) << 20 | hash(self.name) & 0xFFFFF, uuid4()
        parent = self._current()
        line = self._manifest(snapshot_id, f"{unique}", files)
        kept = read_manifest_list(self.files.read(parent["manifest-list"])) if parent else ()
        sequence = int(self.metadata.get("last-sequence-number", 0)) + 1
        parent_id = parent["snapshot-id"] if parent else None
        listed = write_manifest_list(
            format_version=2,
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=sequence,
            manifests=(line, *kept),
        )
        path = f"{self.metadata['location']}/metadata/snap-{snapshot_id}-0-{unique}.avro"
        self.files.write(path, listed)
        snapshot = {
            "snapshot-id": snapshot_id,
            **({"parent-snapshot-id": parent_id} if parent else {}),
            "sequence-number": sequence,
            "timestamp-ms": time.time_ns() // 1_000_000,
            "manifest-list": path,
            "summary": {"operation": "append", "added-data-files": str(files), "added-records": str(1000 * files)},
            "schema-id": self.metadata["current-schema-id"],
        }
        requirements: list[Json] = [{"type": "assert-table-uuid", "uuid": self.metadata["table-uuid"]}]
        if self.requires_main:
            requirements.append({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent_id})
        updates = [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
        ]
        identifier = {"namespace": [self.namespace], "name": self.name}
        return {"identifier": identifier, "requirements": requirements, "updates": updates}

    def _current(self) -> Json | None:
        current = self.metadata.get("current-snapshot-id")
        return next(
            (each for each in reversed(self.metadata.get("snapshots", ())) if each["snapshot-id"] == current), None
        )

    def _manifest(self, snapshot_id: int, unique: str, files: int) -> ManifestFile:
        fields = self.metadata["schemas"][-1]["fields"]
        entries = [
            ManifestEntry(
                EntryStatus.ADDED,
                snapshot_id,
                None,
                None,
                data_file(f"{self.metadata['location']}/data/{uuid4()}.parquet", len(fields), snapshot_id + number),
            )
            for number in range(files)
        ]
        data = write_manifest(
            format_version=2,
            content=ManifestContent.DATA,
            schema=Schema.model_validate(self.metadata["schemas"][-1]),
            spec=UNPARTITIONED,
            entries=entries,
        )
        path = f"{self.metadata['location']}/metadata/{unique}-m0.avro"
        self.files.write(path, data)
        return line_of(path, data, entries, snapshot_id)


def data_file(path: str, columns: int, value: int) -> DataFile:
    """A file of 1,000 rows with the statistics that engines give each column, all of them `value`."""
    bound = value.to_bytes(8, "little")
    ids = range(1, columns + 1)
    return DataFile(
        content=FileContent.DATA,
        file_path=path,
        file_format="PARQUET",
        partition=(),
        record_count=1000,
        file_size_in_bytes=100_000,
        column_sizes=dict.fromkeys(ids, 9000),
        value_counts=dict.fromkeys(ids, 1000),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds=dict.fromkeys(ids, bound),
        upper_bounds=dict.fromkeys(ids, bound),
    )


def timed(act: Callable[[], object], times: int) -> list[float]:
    """Seconds that each of so many calls took."""
    found = []
    for _ in range(times):
        before = time.perf_counter()
        act()
        found.append(time.perf_counter() - before)
    return found


def milliseconds(seconds: Sequence[float]) -> list[float]:
    return [each * 1000 for each in seconds]
