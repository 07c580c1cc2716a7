"""The law of `test_law` for requests that bring snapshots, real manifests and all, and for every move of refs.

What the catalog numbers itself (design D3) is what it gives: in the target, those numbers stand for the client's.
"""

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import pytest

from duckicelake.bridge.snapshots import set_snapshot_times
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.metadata_builder import apply_updates
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import Snapshot
from tests.support import engine
from tests.support.client import NS, Json, duckdb_rows, new_client, pyiceberg_rows
from tests.support.engine import Request
from tests.support.seams import fresh

OURS = "ducklake.snapshot-id"


def updates(*changes: Json) -> Request:
    return lambda _: {"requirements": [], "updates": list(changes)}


@dataclass(slots=True)
class Engine:
    """Makes requests of one to three acts, each on what the act before it leaves."""

    random: random.Random
    next_id: int = 0
    names: Iterator[int] = field(default_factory=lambda: iter(range(1000)))

    def request(self, metadata: Json) -> Json:
        body = self.act(metadata)(metadata)
        for _ in range(self.random.randrange(3)):
            after = engine.applied(metadata, body)
            more = self.act(after)(after)
            body = {**body, "updates": [*body["updates"], *more["updates"]]}
        return body

    def act(self, metadata: Json) -> Request:
        snapshots = [snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", ())]
        branch = self.random.choice(["main", "main", "b"])
        acts = [self.append(branch), self.rewrite(branch), self.properties(), self.upgrade(metadata)]
        if snapshots:
            chosen = self.random.choice(snapshots)
            acts += [self.staged(), self.tag(chosen), engine.point("main", chosen), engine.point("b", chosen),
                     self.expire(metadata), engine.drop_ref("b"), self.statistics(chosen)]  # fmt: skip
        if "main" in metadata.get("refs", {}):
            acts += [self.drop(), engine.compact(branch)]
        return self.random.choice(acts)

    def append(self, branch: str) -> Request:
        self.next_id += 2
        return engine.append((self.next_id, "a"), (self.next_id + 1, None), branch=branch)

    def rewrite(self, branch: str) -> Request:
        ids = [id_ for id_ in range(self.next_id + 2) if self.random.random() < 0.3]
        return engine.rewrite_rows(ids, (self.next_id + 1000, "rewritten"), branch=branch)

    def staged(self) -> Request:
        """A snapshot that no ref names."""
        append = self.append("main")

        def made(metadata: Json) -> Json:
            return {"requirements": [], "updates": append(metadata)["updates"][:1]}

        return made

    def properties(self) -> Request:
        return updates({"action": "set-properties", "updates": {f"p{next(self.names)}": "x"}})

    def upgrade(self, metadata: Json) -> Request:
        version = min(3, metadata["format-version"] + (self.random.random() < 0.2))
        return updates({"action": "upgrade-format-version", "format-version": version})

    def tag(self, snapshot_id: int) -> Request:
        return engine.point(f"v{next(self.names)}", snapshot_id, "tag")

    def drop(self) -> Request:
        return engine.drop_ref("main") if self.random.random() < 0.2 else engine.drop_ref("v1")

    def expire(self, metadata: Json) -> Request:
        ids = [snapshot["snapshot-id"] for snapshot in metadata["snapshots"]]
        return updates({"action": "remove-snapshots", "snapshot-ids": self.random.sample(ids, min(2, len(ids)))})

    def statistics(self, snapshot_id: int) -> Request:
        file = {"snapshot-id": snapshot_id, "statistics-path": "s3://b/s.puffin", "file-size-in-bytes": 4,
                "file-footer-size-in-bytes": 2, "blob-metadata": []}  # fmt: skip
        partition = {"snapshot-id": snapshot_id, "statistics-path": "s3://b/p.parquet", "file-size-in-bytes": 4}
        return updates(
            {"action": "set-statistics", "statistics": file},
            {"action": "set-partition-statistics", "partition-statistics": partition},
        )


def numbered(target: TableMetadata, base: TableMetadata, found: TableMetadata) -> TableMetadata:
    """The target with the catalog's numbers for the client's, taken from what was found, snapshot by snapshot."""
    known = base.snapshots_by_id
    proposed = [snapshot for snapshot in target.snapshots if snapshot.snapshot_id not in known]
    given = [snapshot for snapshot in found.snapshots if snapshot.snapshot_id not in known]
    ids = {one.snapshot_id: other.snapshot_id for one, other in zip(proposed, given, strict=True)}
    taken = {snapshot.snapshot_id: snapshot for snapshot in found.snapshots}

    def renamed(snapshot_id: int) -> int:
        return ids.get(snapshot_id, snapshot_id)

    def snapshot_of(snapshot: Snapshot) -> Snapshot:
        theirs = taken[renamed(snapshot.snapshot_id)]
        parent = snapshot.parent_snapshot_id
        return snapshot.replace_fields(
            snapshot_id=theirs.snapshot_id,
            parent_snapshot_id=None if parent is None else renamed(parent),
            sequence_number=theirs.sequence_number,
            first_row_id=theirs.first_row_id,
            manifest_list=theirs.manifest_list,
            summary={**snapshot.summary, OURS: theirs.summary[OURS]},
        )

    current = target.current_snapshot_id
    return target.replace_fields(
        snapshots=tuple(map(snapshot_of, target.snapshots)),
        current_snapshot_id=None if current is None else renamed(current),
        refs={name: ref.replace_fields(snapshot_id=renamed(ref.snapshot_id)) for name, ref in target.refs.items()},
        snapshot_log=tuple(
            entry.replace_fields(snapshot_id=renamed(entry.snapshot_id)) for entry in target.snapshot_log
        ),
        statistics=tuple(file.replace_fields(snapshot_id=renamed(file.snapshot_id)) for file in target.statistics),
        partition_statistics=tuple(
            file.replace_fields(snapshot_id=renamed(file.snapshot_id)) for file in target.partition_statistics
        ),
        properties={**target.properties, OURS: found.properties[OURS]},
        last_sequence_number=found.last_sequence_number,
        next_row_id=found.next_row_id,
        metadata_log=found.metadata_log,
    )


def check_numbers(mode: str, base: TableMetadata, found: TableMetadata, client: Mapping[int, Snapshot]) -> None:
    """New snapshots have the numbers that the mode says; `client` are those that the client proposed."""
    for snapshot in found.snapshots:
        if snapshot.snapshot_id in base.snapshots_by_id:
            continue
        ducklake_id = int(snapshot.summary[OURS])
        if mode == "ducklake":
            assert snapshot.snapshot_id == ducklake_id
        else:
            assert snapshot.snapshot_id in client
        if found.format_version == 3 or (mode == "ducklake" and found.format_version == 2):
            assert snapshot.sequence_number >= ducklake_id
        elif found.format_version == 2:
            assert snapshot.sequence_number == client[snapshot.snapshot_id].sequence_number
    if base.next_row_id is not None and found.next_row_id is not None:
        assert found.next_row_id >= base.next_row_id


@pytest.mark.parametrize("mode", ["client", "ducklake"])
@pytest.mark.parametrize("seed", range(4))
def test_snapshots_and_refs_that_are_committed_are_projected(
    services: Services, ducklake: duckdb.DuckDBPyConnection, seed: int, mode: Any
) -> None:
    moment = [time.time_ns() // 1_000_000]
    client = new_client(replace(services, snapshot_ids=mode, clock=lambda: moment[0]))
    client.create(properties={"format-version": str(1 + seed % 3)})
    made: list[Json] = []
    requests = Engine(random.Random(seed))
    for step in range(14):
        base = load_current_table(fresh(client.services), NS, "t").metadata
        body = {"requirements": [], "updates": requests.request(base.to_json())["updates"]}
        made.append(body)
        moment[0] += 1000
        request = CommitTableRequest.model_validate(body)
        proposed = set_snapshot_times(request.updates, base, moment[0])
        target = apply_updates(base, proposed, moment[0])

        answer = client.commit(body)

        found = load_current_table(fresh(client.services), NS, "t").metadata
        client_snapshots = {u.snapshot.snapshot_id: u.snapshot for u in request.updates if hasattr(u, "snapshot")}
        check_numbers(mode, base, found, client_snapshots)
        assert found.replace_fields() == numbered(target, base, found), made
        assert pyiceberg_rows(answer) == duckdb_rows(ducklake), made
        if step % 4 == 3:
            ducklake.execute(f"INSERT INTO lake.ns.t VALUES ({10_000 + step}, 'DuckDB')")
