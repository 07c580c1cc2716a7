"""When versions were committed, and TIMESTAMP AS OF; delta-rs is the oracle where it answers as Delta does."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duckicelake.errors import DamagedLogError, ExpiredError, InvalidRequestError
from tests.delta.logs import START_MS, Action, HandMade, add, metadata, protocol, write_parquet
from tests.support.examples import count_examples


@pytest.fixture
def table(tmp_path: Path) -> HandMade:
    return HandMade(tmp_path / "t")


def at(time_ms: int) -> Action:
    return {"commitInfo": {"inCommitTimestamp": time_ms, "operation": "WRITE"}}


def times(table: HandMade) -> list[int]:
    log = table.log
    return [commit.timestamp_ms for commit in log.commits(log.oldest() - 1, log.newest())]


def test_times_of_files_never_go_back(table: HandMade) -> None:
    table.begin()
    for version, time in enumerate([500, 500, 400, 5000], 1):
        table.commit(version, add(f"f{version}"), at_ms=START_MS + time)
    assert times(table) == [START_MS + each for each in (0, 500, 501, 502, 5000)]
    log = table.log
    asked = (0, 499, 500, 501, 502, 4999, 5000)
    assert [log.version_at(START_MS + each) for each in asked] == [0, 0, 1, 2, 3, 3, 4]
    assert log.snapshot(3).timestamp_ms == START_MS + 502


def test_time_out_of_the_table_is_refused_by_name(table: HandMade) -> None:
    table.begin()
    table.commit(1, add("f"))
    with pytest.raises(
        InvalidRequestError, match=r"wasn't there at 2023-11-14 22:13:19\.999.*version 0, the oldest, is of"
    ):
        table.log.version_at(START_MS - 1)
    with pytest.raises(
        InvalidRequestError, match=r"is after the newest version of .*, which is 1 of 2023-11-14 22:13:21"
    ):
        table.log.version_at(START_MS + 1001)


def test_time_before_what_a_cleaned_log_shows_is_forgotten(table: HandMade) -> None:
    table.begin()
    table.commit(1, add("f"))
    write_parquet(table.path(f"{1:020}.checkpoint.parquet"), [protocol(), metadata(), add("f")])
    table.path(f"{0:020}.json").unlink()
    with pytest.raises(ExpiredError, match="version 1, the oldest"):
        table.log.version_at(START_MS + 999)
    assert table.log.version_at(START_MS + 1000) == 1


def test_commits_state_their_times_from_the_first_version_on(table: HandMade) -> None:
    features = protocol(1, 7)
    features["protocol"]["writerFeatures"] = ["inCommitTimestamp"]
    configuration = metadata({"delta.enableInCommitTimestamps": "true"})
    table.commit(0, at(1000), features, configuration, at_ms=START_MS)
    table.commit(1, at(2000), add("a"), at_ms=START_MS - 5)
    assert times(table) == [1000, 2000]
    assert [table.log.version_at(each) for each in (1000, 1999, 2000)] == [0, 0, 1]
    table.commit(2, add("b"))
    with pytest.raises(DamagedLogError, match=r"0{19}2\.json has no commitInfo with an inCommitTimestamp"):
        times(table)


def enabled_midway(table: HandMade) -> None:
    """Versions 0 and 1 by their files' times, from 2 on by what they state; the file of 1 was touched later."""
    table.begin()
    table.commit(1, add("a"), at_ms=START_MS + 90_000)
    since = {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(START_MS + 2000),
    }
    table.commit(2, at(START_MS + 2000), metadata(since))
    table.commit(3, at(START_MS + 3000), add("b"))


def test_commits_state_their_times_from_a_version_on(table: HandMade) -> None:
    enabled_midway(table)
    assert times(table) == [START_MS + each for each in (0, 90_000, 2000, 3000)]
    log = table.log
    assert [log.version_at(START_MS + each) for each in (0, 1999, 2000, 2999, 3000)] == [0, 0, 2, 2, 3]


def test_what_begins_while_a_log_is_open_counts(table: HandMade) -> None:
    table.begin()
    log = table.log
    assert log.version_at(START_MS) == 0
    enabled_midway(table)
    assert (log.newest(), log.snapshot(3).timestamp_ms) == (3, START_MS + 3000)


def test_metadata_of_a_checkpoint_says_so_too(table: HandMade) -> None:
    enabled_midway(table)
    configuration = {"delta.enableInCommitTimestamps": "true"}
    write_parquet(table.path(f"{2:020}.checkpoint.parquet"), [protocol(), metadata(configuration), add("a")])
    table.path(f"{0:020}.json").unlink()
    table.path(f"{1:020}.json").unlink()
    assert times(table) == [START_MS + 2000, START_MS + 3000]


@settings(max_examples=count_examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_delta_rs_finds_the_same_version(tmp_path_factory: pytest.TempPathFactory, seconds: list[int]) -> None:
    """Log files in order of time: delta-rs doesn't mend times that go back, and takes the last for what is later."""
    table = HandMade(tmp_path_factory.mktemp("any") / "t")
    moments = [START_MS + 1000 * second for second in sorted(set(seconds))]
    for version, moment in enumerate(moments):
        actions = [protocol(), metadata()] if version == 0 else [add(f"f{version}")]
        table.commit(version, {"commitInfo": {"timestamp": moment}}, *actions, at_ms=moment)
    log, theirs = table.log, DeltaTable(table.folder)
    for asked in range(moments[0], moments[-1] + 1, 500):
        theirs.load_as_version(datetime.fromtimestamp(asked / 1000, UTC))
        assert log.version_at(asked) == theirs.version()
