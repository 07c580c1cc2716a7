"""Posts of rows that follow each other are one run, which tells now and then how far it is, and ends."""

from datetime import timedelta
from typing import Any

import orjson
import pytest

from duckicelake.changelog.entries import ChangeKind, LoggedChange
from duckicelake.lineage.openlineage.run_kinds import StreamGroups, StreamPace, is_of_stream
from duckicelake.lineage.openlineage.runs import RunChanges, describe_run, format_job_name, group_runs
from tests.support.lineage_changes import LAKE, START, change, report
from tests.support.openlineage import check_event

Json = dict[str, Any]


def post(number: int, seconds: float, **more: Any) -> LoggedChange:
    facts = {"metrics": {"added-records": 10}, "client": {"user-agent": "sensor/1.0"}}
    return change(ChangeKind.APPEND, snapshot=number, seconds=seconds, operation="append_rows", facts=facts, **more)


class Follower:
    """Folds some changes at a time, and keeps what is open as JSON."""

    def __init__(self, pace: StreamPace | None = None) -> None:
        self.pace = pace or StreamPace()
        self.kept: list[Json] = []
        self.events: list[Json] = []
        self.described = 0
        self.reads_elsewhere = False

    def fold(self, *changes: LoggedChange, until: float | None = None) -> None:
        streams = StreamGroups(self.kept, self._describe, self.pace)
        for run in group_runs(report(*changes)):
            assert is_of_stream(run)
            streams.add(format_job_name(run, LAKE), run)
        streams.pass_until(START + timedelta(seconds=until) if until is not None else changes[-1].at)
        self.kept = orjson.loads(orjson.dumps(streams.list_open()))
        self.events += streams.events

    def _describe(self, run: RunChanges) -> Json:
        self.described += 1
        body = describe_run(run, LAKE)
        name = format_job_name(run, LAKE, ["elsewhere"] if self.reads_elsewhere else [])
        return {**body, "job": {**body["job"], "name": name}}

    def types(self) -> list[str]:
        for event in self.events:
            check_event(event)
        return [event["eventType"] for event in self.events]


def rows(event: Json) -> int:
    return int(event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"])


def test_many_posts_are_one_run_of_a_streaming_job() -> None:
    follower = Follower()
    for second in range(30):
        follower.fold(*(post(100 * second + n, second + n / 100) for n in range(100)))
    follower.fold(until=60)
    assert follower.types() == ["START", "RUNNING", "RUNNING", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in follower.events}) == 1
    assert [rows(event) for event in follower.events[1:]] == [10, 10_010, 20_010, 30_000]
    assert follower.events[0]["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert follower.events[-1]["eventTime"] == "2026-11-22T12:00:29.990000Z"
    assert follower.events[-1]["outputs"][0]["outputFacets"]["duckicelake_change"]["position"] == "2999.0"
    assert follower.kept == []
    assert follower.described < 40


def test_the_events_are_the_same_however_the_posts_are_folded() -> None:
    posts = [post(n, n * 0.7) for n in range(60)]
    at_once, one_by_one = Follower(), Follower()
    at_once.fold(*posts)
    at_once.fold(until=100)
    for each in posts:
        one_by_one.fold(each)
    one_by_one.fold(until=100)
    assert at_once.events == one_by_one.events


def test_a_pause_ends_the_run_and_the_next_post_begins_another() -> None:
    follower = Follower()
    follower.fold(post(1, 0), post(2, 1), post(3, 60))
    assert follower.types() == ["START", "RUNNING", "COMPLETE", "START", "RUNNING"]
    assert len({event["run"]["runId"] for event in follower.events}) == 2
    assert rows(follower.events[2]) == 20


def test_a_run_is_cut_when_it_is_long_enough() -> None:
    follower = Follower(StreamPace(longest=timedelta(seconds=20)))
    follower.fold(*(post(n, n) for n in range(45)))
    assert follower.types().count("START") == 3


def test_tables_and_posters_have_runs_of_their_own() -> None:
    follower = Follower()
    follower.fold(post(1, 0), post(2, 0.1, principal="bo"), post(3, 0.2, name="u", object_id=4))
    assert len({event["run"]["runId"] for event in follower.events}) == 3


def test_of_too_many_the_oldest_end() -> None:
    follower = Follower(StreamPace(most=2))
    follower.fold(*(post(n, n / 10, name=f"t{n}", object_id=n) for n in range(5)))
    assert len(follower.kept) == 2
    ended = [event["outputs"][0]["facets"]["duckicelake_table"]["name"] for event in follower.events[-3:]]
    assert ended == ["t0", "t1", "t2"]


@pytest.mark.parametrize(
    ("more", "is_one"),
    [
        ({"operation": "delete_rows"}, True),
        ({"facts": {"summary": {"flink.job-id": "f"}}}, True),
        ({"facts": {"summary": {"spark.sql.streaming.queryId": "q"}}}, True),
        ({}, False),
    ],
)
def test_streams_are_known_by_how_they_write(more: Json, is_one: bool) -> None:
    assert is_of_stream(report(change(ChangeKind.APPEND, **more))) == is_one


def test_stream_that_comes_to_read_elsewhere_shows_its_table_no_more() -> None:
    follower = Follower()
    follower.fold(post(1, 0), post(2, 6))
    follower.reads_elsewhere = True
    follower.fold(post(3, 11))
    follower.reads_elsewhere = False
    follower.fold(post(4, 17), until=80)
    names = [event["job"]["name"] for event in follower.events]
    assert [".several-namespaces." in name for name in names] == [False, False, True, True]
    assert len({name.rpartition(".")[2] for name in names}) == 1
    assert len({event["run"]["runId"] for event in follower.events}) == 1
