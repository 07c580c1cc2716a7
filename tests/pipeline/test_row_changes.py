"""The way from one snapshot to another."""

from typing import Any

import pytest

from duckicelake.errors import BadInputError
from duckicelake.pipeline.main_history import SnapshotStep, list_steps


def snapshot(number: int, parent: int | None, operation: str = "overwrite", **more: Any) -> dict[str, Any]:
    summary = {"operation": operation, "ducklake.snapshot-id": str(number // 100)}
    return {"snapshot-id": number, "parent-snapshot-id": parent, "summary": summary, **more}


ROW_IDS: dict[str, Any] = {"first-row-id": 0}
SNAPSHOTS = [
    snapshot(100, None, "append"),
    snapshot(200, 100),
    snapshot(250, 100),
    snapshot(300, 200, "replace", **ROW_IDS),
    snapshot(400, 300, **ROW_IDS),
]


def metadata(*snapshots: dict[str, Any]) -> dict[str, Any]:
    return {"current-snapshot-id": 400, "snapshots": snapshots}


WHOLE = metadata(*SNAPSHOTS)


def test_steps_follow_main_and_say_how_rows_can_be_compared() -> None:
    assert list_steps(WHOLE, None, None) == [
        SnapshotStep(100, None, only_adds=True),
        SnapshotStep(200, 100),
        SnapshotStep(300, 200, only_moves=True),
        SnapshotStep(400, 300, by_row_id=True),
    ]
    assert [step.snapshot_id for step in list_steps(WHOLE, 100, 300)] == [200, 300]
    assert list_steps(WHOLE, 400, None) == list_steps(WHOLE, 200, 200) == []
    assert list_steps({"current-snapshot-id": -1}, None, None) == []


def test_first_snapshot_has_row_ids_of_its_own() -> None:
    (step,) = list_steps({"current-snapshot-id": 1, "snapshots": [snapshot(1, None, **ROW_IDS)]}, None, None)
    assert step.by_row_id


def test_snapshots_go_by_ducklakes_numbers_too() -> None:
    assert [step.snapshot_id for step in list_steps(WHOLE, 1, 3)] == [200, 300]


@pytest.mark.parametrize(
    ("after", "upto", "report"),
    [
        (250, None, "Snapshot 250 isn't in main's history"),
        (300, 200, "Snapshot 200 comes before 300"),
        (7, None, "doesn't have snapshot 7, or not any more; the oldest from which changes are known is 100"),
        (None, 8, "doesn't have snapshot 8"),
    ],
)
def test_where_there_is_no_way_the_message_says_so(after: int | None, upto: int | None, report: str) -> None:
    with pytest.raises(BadInputError, match=report):
        list_steps(WHOLE, after, upto)


def test_history_that_has_expired_is_not_passed_over() -> None:
    for after, report in ((None, "its beginning"), (100, "snapshot 100"), (1, "snapshot 1")):
        with pytest.raises(
            BadInputError, match=f"{report}, or not any more; the oldest from which changes are known is 200"
        ):
            list_steps(metadata(*SNAPSHOTS[1:]), after, None)
    assert [step.snapshot_id for step in list_steps(metadata(*SNAPSHOTS[1:]), 200, None)] == [300, 400]


def test_snapshot_that_has_expired_is_no_loss_where_the_next_one_only_moved_rows() -> None:
    assert [step.snapshot_id for step in list_steps(metadata(*SNAPSHOTS[3:]), 200, None)] == [300, 400]
