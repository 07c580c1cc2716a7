"""Summaries of native snapshots count as Java's SnapshotSummary does."""

import pytest

from duckicelake.bridge.snapshots import SnapshotTotals, summarize_snapshot
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.state import FileRow

DATA = FileRow(
    file_id=1,
    content=FileContent.DATA,
    path="/data",
    file_format="PARQUET",
    spec_id=0,
    partition=[],
    record_count=100,
    file_size_in_bytes=5000,
    metrics={},
    added_snapshot_id=1,
    sequence_number=1,
    file_sequence_number=1,
)
POSITIONS = DATA._replace(content=FileContent.POSITION_DELETES, path="/pos", record_count=3, file_size_in_bytes=70)
EQUALITY = DATA._replace(content=FileContent.EQUALITY_DELETES, path="/eq", record_count=2, file_size_in_bytes=60)
VECTOR = POSITIONS._replace(
    path="/dv",
    file_format="PUFFIN",
    record_count=5,
    file_size_in_bytes=900,
    metrics={"content_offset": 4, "content_size_in_bytes": 44, "referenced_data_file": "/data"},
)
BEFORE = SnapshotTotals(
    data_files=2, delete_files=3, records=200, files_size=10_000, position_deletes=9, equality_deletes=4
)


def changes(added: list[FileRow], removed: list[FileRow]) -> dict[str, int]:
    """The summary's counts without the totals."""
    summary = summarize_snapshot("overwrite", added, removed, BEFORE)
    return {key: int(value) for key, value in summary.items() if key[:5] != "total" and key != "operation"}


def test_vectors_are_counted_as_such_and_by_their_own_bytes() -> None:
    assert changes([VECTOR], [POSITIONS]) == {
        "added-delete-files": 1,
        "added-dvs": 1,
        "added-position-deletes": 5,
        "added-files-size": 44,
        "removed-delete-files": 1,
        "removed-position-delete-files": 1,
        "removed-position-deletes": 3,
        "removed-files-size": 70,
        "changed-partition-count": 1,
    }


def test_equality_deletes_are_no_position_deletes() -> None:
    assert changes([EQUALITY, DATA], [VECTOR]) == {
        "added-data-files": 1,
        "added-records": 100,
        "added-delete-files": 1,
        "added-equality-delete-files": 1,
        "added-equality-deletes": 2,
        "added-files-size": 5060,
        "removed-delete-files": 1,
        "removed-dvs": 1,
        "removed-position-deletes": 5,
        "removed-files-size": 44,
        "changed-partition-count": 1,
    }


def parent(summary: dict[str, str]) -> Snapshot:
    return Snapshot(snapshot_id=1, sequence_number=1, timestamp_ms=1, manifest_list="", summary=summary)


def test_totals_go_on_from_those_of_the_parent() -> None:
    summary = summarize_snapshot("overwrite", [VECTOR, EQUALITY, DATA], [POSITIONS], BEFORE)
    assert SnapshotTotals.from_parent(parent(summary)) == SnapshotTotals(
        data_files=3,
        delete_files=4,
        records=300,
        files_size=10_000 + 44 + 60 + 5000 - 70,
        position_deletes=11,
        equality_deletes=6,
    )
    assert SnapshotTotals.from_parent(None) == SnapshotTotals(0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("text", [None, "", "x", "-1", "1.5", "9" * 30])
def test_total_that_the_parent_does_not_state_is_left_out(text: str | None) -> None:
    """As by Java's SnapshotProducer.updateTotal: a total from 0 on would be wrong."""
    stated = {"total-data-files": "2"} | ({} if text is None else {"total-records": text})
    before = SnapshotTotals.from_parent(parent(stated))
    assert before == SnapshotTotals(2, None, None, None, None, None)
    summary = summarize_snapshot("append", [DATA], [], before)
    assert {name: total for name, total in summary.items() if name.startswith("total-")} == {"total-data-files": "3"}


def test_total_that_would_be_less_than_nothing_is_left_out() -> None:
    summary = summarize_snapshot("delete", [], [DATA, DATA], SnapshotTotals(1, 0, 500, 0, 0, 0))
    totals = {name: total for name, total in summary.items() if name.startswith("total-")}
    assert totals == {
        "total-delete-files": "0",
        "total-records": "300",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }
