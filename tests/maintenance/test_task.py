"""What tasks cost and gain, and the hours in which none is done."""

from datetime import UTC, datetime

import pytest

from duckicelake.errors import BadInputError
from duckicelake.maintenance.policy import AUTOMATIC, QUIET_HOURS, parse_policy
from duckicelake.maintenance.task import DUCKLAKE_SNAPSHOT, TaskEstimate, estimate_rewrite, format_counts


def moment(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("hours", "now", "ends"),
    [
        ("22:00-06:00", "2026-03-01T21:59", None),
        ("22:00-06:00", "2026-03-01T22:00", "2026-03-02T06:00"),
        ("22:00-06:00", "2026-03-02T05:59", "2026-03-02T06:00"),
        ("22:00-06:00", "2026-03-02T06:00", None),
        ("08:00-18:00 Europe/Berlin", "2026-07-01T06:00", "2026-07-01T16:00"),
        ("08:00-18:00 Europe/Berlin", "2026-01-01T06:30", None),
        ("22:00-06:00 Europe/Berlin", "2026-03-28T22:00", "2026-03-29T04:00"),  # an hour less: summer time begins
    ],
)
def test_quiet_hours_end(hours: str, now: str, ends: str | None) -> None:
    quiet = parse_policy({QUIET_HOURS: hours}).quiet
    assert quiet is not None
    assert quiet.find_end(moment(now)) == (None if ends is None else moment(ends))


@pytest.mark.parametrize("hours", ["22-6", "24:00-06:00", "06:00-06:00", "22:00-06:00 Mars/Olympus", "22:00"])
def test_wrong_quiet_hours_are_refused(hours: str) -> None:
    with pytest.raises(BadInputError, match="it should be hours as 22:00-06:00 Europe/Berlin"):
        parse_policy({QUIET_HOURS: hours})


def test_kinds_that_are_done_alone() -> None:
    assert parse_policy({}).automatic == frozenset()
    assert parse_policy({AUTOMATIC: "none"}).automatic == frozenset()
    assert parse_policy({AUTOMATIC: "flush, expire"}).automatic == {"flush", "expire"}
    with pytest.raises(BadInputError, match="it should be none, or kinds of flush"):
        parse_policy({AUTOMATIC: "flush,everything"})


def test_estimate_of_a_rewrite() -> None:
    found = estimate_rewrite(table_files=100, table_bytes=100 << 20, files=90, bytes_=90 << 20, files_left=1)
    assert (found.files_read, found.bytes_read, found.files_saved) == (90, 90 << 20, 89)
    assert found.planning_speedup == pytest.approx(100 / 11)
    assert found.scan_speedup > 3
    assert found.rank > TaskEstimate(files_read=90, bytes_read=90 << 20, files_saved=9).rank
    assert TaskEstimate.from_json(found.to_json()).files_saved == 89


@pytest.mark.parametrize(
    ("name", "singular"),
    [
        ("added files", "1 added file"),
        ("rows in Postgres", "1 row in Postgres"),
        ("files looked at", "1 file looked at"),
        ("data files with deletes", "1 data file with deletes"),
        ("removed branches and tags", "1 removed branch or tag"),
        ("bytes", "1 byte"),
        ("quarantined", "1 quarantined"),
    ],
)
def test_counts_have_the_number_of_their_noun(name: str, singular: str) -> None:
    assert format_counts({name: 1}) == singular
    assert format_counts({name: 1200}) == f"1,200 {name}"
    assert format_counts({name: 0, DUCKLAKE_SNAPSHOT: 7, "engine": "1.2"}) == "1.2 engine"
