"""Manifests that were written before their metrics had a contract: the next load has them written anew."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest
from pyiceberg.expressions import LessThan
from pyiceberg.expressions.visitors import _StrictMetricsEvaluator
from pyiceberg.table import StaticTable

from duckicelake.bridge.data_files import parse_column_metrics
from duckicelake.iceberg.manifest.reader import read_manifest, read_manifest_list
from duckicelake.iceberg.manifest.writer import write_manifest, write_manifest_list
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.lake.side_tables import written_files
from tests.support.client import local
from tests.support.lakes import Lake, iceberg_rows
from tests.support.seams import fresh

NAN_ROWS = "INSERT INTO t SELECT range + {}, CASE WHEN range = 3 THEN 'NaN'::DOUBLE ELSE range END FROM range(20)"
PLAIN_ROWS = "INSERT INTO t SELECT range + {}, range FROM range(20)"


class OldRelease:
    """Makes a lake what the release before contracts left behind: rows, manifests, lists, and no mark on any."""

    def __init__(self, lake: Lake, url: str) -> None:
        self._lake = lake
        self._url = url

    def leave(self) -> None:
        paths: dict[str, tuple[str, int]] = {}
        self._run("UPDATE duckicelake_file SET metrics = metrics::jsonb - 'nan_value_counts'")
        for _, path in artifacts(self._lake, "manifest"):
            paths[path] = self._rewrite(path, self._manifest(local(path).read_bytes()))
        for object_id, path in artifacts(self._lake, "manifest-list"):
            lines = [
                line.__class__(**{**as_dict(line), **renamed(line.manifest_path, paths)})
                for line in read_manifest_list(local(path).read_bytes())
            ]
            data = write_manifest_list(
                format_version=2, snapshot_id=object_id, parent_snapshot_id=None, sequence_number=1, manifests=lines
            )
            new, _ = self._rewrite(path, data)
            for _, metadata in artifacts(self._lake, "metadata"):
                local(metadata).write_bytes(local(metadata).read_bytes().replace(path.encode(), new.encode()))
        self._run("UPDATE duckicelake_artifact SET facts = (facts::jsonb - 'contract')::json WHERE kind = 'manifest'")

    def _manifest(self, data: bytes) -> bytes:
        """With all bounds and counts of its files' rows, as they were written then."""
        read = read_manifest(data)
        metadata = self._lake.metadata()
        entries = []
        for entry in read.entries:
            ((metrics,),) = self._lake.sql(
                "SELECT metrics FROM duckicelake_file WHERE path = %s", entry.data_file.file_path
            )
            file = entry.data_file.__class__(**{**as_dict(entry.data_file), **parse_column_metrics(metrics)})
            entries.append(entry.__class__(**{**as_dict(entry), "data_file": file}))
        schema: Schema = metadata.schema()
        spec: PartitionSpec = metadata.spec(read.spec_id or 0)
        assert read.content is not None
        return write_manifest(format_version=2, content=read.content, schema=schema, spec=spec, entries=entries)

    def _rewrite(self, path: str, data: bytes) -> tuple[str, int]:
        new = path.replace("/metadata/", "/metadata/old-")
        local(new).write_bytes(data)
        self._run(
            "UPDATE duckicelake_artifact SET path = %s, length = %s, sha256 = %s WHERE path = %s",
            new, len(data), sha256(data).digest(), path,
        )  # fmt: skip
        return new, len(data)

    def _run(self, statement: str, *parameters: object) -> None:
        with psycopg.connect(self._url) as connection:
            connection.execute(statement, parameters)


def artifacts(lake: Lake, kind: str) -> list[tuple[Any, ...]]:
    return lake.sql("SELECT object_id, path FROM duckicelake_artifact WHERE kind = %s ORDER BY object_id", kind)


def as_dict(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def renamed(path: str, paths: dict[str, tuple[str, int]]) -> dict[str, object]:
    new, length = paths[path]
    return {"manifest_path": new, "manifest_length": length}


@pytest.fixture
def old_release(lake: Lake, database_url: str) -> Callable[[], Lake]:
    """Leave the lake as an old release did; give it with a server that has just started."""

    def leave() -> Lake:
        OldRelease(lake, database_url).leave()
        return Lake(fresh(lake.services), lake.duck)

    return leave


@pytest.fixture
def lake(services: Any, ducklake: Any) -> Lake:
    found = Lake(services, ducklake)
    found.run("CALL lake.set_option('data_inlining_row_limit', 0)", "CREATE TABLE t (id BIGINT, x DOUBLE)")
    return found


def unmarked(lake: Lake) -> int:
    ((count,),) = lake.sql(
        "SELECT count(*) FROM duckicelake_artifact WHERE kind = 'manifest' AND facts ->> 'contract' IS NULL"
    )
    return int(count)


def promises(static: StaticTable, snapshot_id: int) -> list[str]:
    """The files that a client would delete as a whole by `x < 100`."""
    snapshot = static.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    strict = _StrictMetricsEvaluator(static.schema(), LessThan("x", 100.0))
    files = [e.data_file for m in snapshot.manifests(static.io) for e in m.fetch_manifest_entry(static.io)]
    return [Path(file.file_path).name for file in files if strict.eval(file)]


def test_all_listed_snapshots_are_served_with_manifests_that_keep_the_contract(
    lake: Lake, old_release: Callable[[], Lake]
) -> None:
    for number, rows in enumerate((NAN_ROWS, PLAIN_ROWS, NAN_ROWS)):
        lake.run(rows.format(number * 100))
        lake.static()
    before = lake.static()
    rows = {each.snapshot_id: iceberg_rows(before, each.snapshot_id) for each in before.snapshots()}
    version = lake.sql("SELECT version FROM duckicelake_table")[0][0]

    upgraded = old_release()
    spoilt = StaticTable.from_metadata(lake.sql("SELECT path FROM duckicelake_artifact WHERE kind = 'metadata' "
                                                "ORDER BY object_id DESC LIMIT 1")[0][0])  # fmt: skip
    assert len(promises(spoilt, spoilt.snapshots()[-1].snapshot_id)) == 3

    static = upgraded.static()

    assert unmarked(lake) == 0
    assert lake.sql("SELECT version FROM duckicelake_table")[0][0] > version
    assert {each.snapshot_id: iceberg_rows(static, each.snapshot_id) for each in static.snapshots()} == rows
    plain = lake.sql("SELECT path FROM ducklake_data_file ORDER BY data_file_id")[1][0]
    kept = [promises(static, each.snapshot_id) for each in static.snapshots()]
    assert kept == [[], [plain], [plain]], "bounds stay where DuckLake knows that there is no NaN"
    assert not set(manifest_paths(static)) & set(manifest_paths(spoilt))
    again = Lake(fresh(lake.services), lake.duck).static()
    assert again.metadata_location == static.metadata_location


def manifest_paths(static: StaticTable) -> list[str]:
    return [m.manifest_path for snapshot in static.snapshots() for m in snapshot.manifests(static.io)]


def test_table_that_promised_nothing_keeps_its_version(lake: Lake, old_release: Callable[[], Lake]) -> None:
    lake.run("ALTER TABLE t DROP COLUMN x", "INSERT INTO t SELECT range FROM range(20)")
    lake.static()
    before = lake.sql("SELECT version FROM duckicelake_table")

    upgraded = old_release()
    assert unmarked(lake) == 1

    assert manifest_paths(upgraded.static()) == [path for _, path in artifacts(lake, "manifest")]
    assert lake.sql("SELECT version FROM duckicelake_table") == before
    assert unmarked(lake) == 0


def test_servers_that_load_at_the_same_time_make_one_version(
    lake: Lake, old_release: Callable[[], Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.run(NAN_ROWS.format(0))
    lake.static()
    upgraded = old_release()
    faster = Lake(fresh(lake.services), lake.duck)
    locked = written_files.is_at_version

    def is_at(cursor: Any, table_id: int, version: int) -> bool:
        monkeypatch.setattr(written_files, "is_at_version", locked)
        faster.static()
        return locked(cursor, table_id, version)

    monkeypatch.setattr(written_files, "is_at_version", is_at)

    assert upgraded.static().metadata_location == faster.static().metadata_location
    assert orjson.loads(local(faster.static().metadata_location).read_bytes())["current-snapshot-id"]
