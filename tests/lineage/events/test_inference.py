"""Which reads become inputs of a write, and above all which must not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duckicelake.lineage.events.inference import (
    INFERENCE_WINDOW,
    LIVES,
    ApplicationWrite,
    InferenceMethod,
    InferredInput,
    ReadKind,
    infer_inputs,
    name_application,
)

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
A, B, C, D = 1, 2, 3, 4
SPARK = "spark local-1795359550242"


@dataclass(frozen=True)
class Read:
    """As the catalog records it."""

    table_id: int
    kind: ReadKind = ReadKind.SCAN
    ago: float = 10.0
    application: str | None = SPARK
    session: str = "token"
    principal: str = "etl"
    projected: Sequence[str] = ()
    filtered: Sequence[str] = ()
    snapshot_id: int | None = None
    id: int = 0

    @property
    def at(self) -> datetime:
        return NOW - timedelta(seconds=self.ago)

    @property
    def table(self) -> str:
        return f"ns.{'abcd'[self.table_id - 1]}"


WRITE = ApplicationWrite(NOW, "etl", "token", SPARK, frozenset({C}), "append")
UNNAMED = replace(WRITE, application=None)


def scan(table_id: int, ago: float = 10.0, **more: object) -> Read:
    return replace(Read(table_id, ReadKind.SCAN, ago), **more)  # type: ignore[arg-type]


def load(table_id: int, ago: float = 10.0, **more: object) -> Read:
    return replace(Read(table_id, ReadKind.LOAD, ago, application=None), **more)  # type: ignore[arg-type]


def found(reads: Sequence[Read], write: ApplicationWrite = WRITE) -> dict[str, float]:
    return {each.table: each.confidence for each in infer_inputs(write, reads)}


def test_scans_of_the_application_become_inputs_with_their_columns() -> None:
    reads = [
        scan(A, 9, id=7, projected=("id", "x"), filtered=("x",), snapshot_id=17),
        scan(B, 8, id=8, projected=("id",), filtered=()),
    ]
    method = InferenceMethod.SCAN_OF_APPLICATION
    assert infer_inputs(WRITE, reads) == [
        InferredInput(A, "ns.a", 17, 0.9, method, (7,), ("id", "x"), ("x",)),
        InferredInput(B, "ns.b", None, 0.9, method, (8,), ("id",), ()),
    ]


WRONG = {
    "another principal": (scan(A, principal="other"), WRITE),
    "another application": (scan(A, application="spark local-2"), WRITE),
    "another application in the same session": (scan(A, application="spark local-2"), UNNAMED),
    "an application that isn't named, of a write that names one": (scan(A, application=None), WRITE),
    "another session": (load(A, session="other"), UNNAMED),
    "another connection": (load(A, session="here:2"), replace(UNNAMED, session="here:1")),
    "the same id on another machine, nobody logged in": (
        scan(A, session="there:1"),
        replace(WRITE, session="here:1"),
    ),
    "after the write": (scan(A, -1), WRITE),
    "at the same time": (scan(A, 0), WRITE),
    "longer ago than the window": (load(A, INFERENCE_WINDOW.total_seconds() + 1), UNNAMED),
    "longer ago than an application lives": (scan(A, LIVES * INFERENCE_WINDOW.total_seconds() + 1), WRITE),
    "the target's own load": (load(C), UNNAMED),
    "the target's own lookup": (load(C, kind=ReadKind.LOOKUP), UNNAMED),
    "the target's own scan, as MERGE does": (scan(C), WRITE),
    "a load in a session by an application that isn't named": (load(A), WRITE),
    "a load by a query of Trino's": (load(A), replace(WRITE, application="trino 20261122_1")),
    "a report of a commit": (scan(A, kind=ReadKind.REPORT), WRITE),
    "a write": (scan(A, kind=ReadKind.WRITE), WRITE),
    "a compaction": (scan(A), replace(WRITE, operation="replace")),
    "a write of DuckDB's": (scan(A), replace(WRITE, principal=None, session=None)),
    "a write that nobody knows the session of": (load(A, session=""), replace(UNNAMED, session="")),
}


@pytest.mark.parametrize(("read", "write"), WRONG.values(), ids=WRONG.keys())
def test_no_input_is_guessed_from(read: Read, write: ApplicationWrite) -> None:
    assert found([read], write) == {}


def test_loads_count_little_and_less_without_login() -> None:
    connection = replace(UNNAMED, session="here:1")
    assert found([load(A)], UNNAMED) == {"ns.a": 0.4}
    assert found([load(A, session="here:1")], connection) == {"ns.a": 0.3}


@pytest.mark.parametrize("report", [scan(B, application=None), scan(C, kind=ReadKind.REPORT, application=None)])
def test_loads_of_an_application_that_reports_count_for_nothing(report: Read) -> None:
    assert "ns.a" not in found([load(A), report], UNNAMED)


def plan(table_id: int, ago: float = 10.0, **more: object) -> Read:
    return replace(Read(table_id, ReadKind.PLAN, ago, application=None), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("write", [WRITE, UNNAMED], ids=["named", "unnamed"])
def test_a_planned_scan_counts_in_its_session_whoever_names_the_application(write: ApplicationWrite) -> None:
    made = plan(A, projected=["id"], filtered=["name"])
    (only,) = infer_inputs(write, [made, load(A, session=str(write.session))])
    assert (only.table, only.confidence, only.method) == ("ns.a", 0.6, InferenceMethod.PLAN_IN_SESSION)
    assert (only.projected, only.filtered) == (("id",), ("name",))
    assert infer_inputs(write, [plan(A, session="other"), plan(B, principal="else"), plan(C), plan(D, -1.0)]) == []
    assert infer_inputs(write, [plan(A, INFERENCE_WINDOW.total_seconds() + 1)]) == []


def test_a_client_whose_scans_are_planned_reports_only_commits() -> None:
    report = Read(C, ReadKind.REPORT)
    assert [guess.table for guess in infer_inputs(WRITE, [report, plan(A), load(B)])] == ["ns.a"]


def test_another_table_of_the_same_transaction_is_no_input() -> None:
    assert found([scan(A), scan(D)], replace(WRITE, outputs=frozenset({C, D}))) == {"ns.a": 0.9}


def test_a_scan_before_the_target_was_looked_up_counts_less() -> None:
    lookup = load(C, 5, kind=ReadKind.LOOKUP)
    assert found([scan(A, 9), lookup, scan(B, 2)]) == {"ns.b": 0.9, "ns.a": 0.45}


def test_a_refresh_of_the_target_before_its_commit_is_no_lookup() -> None:
    assert found([scan(A, 9), load(C, 1)]) == {"ns.a": 0.9}


def test_reads_before_the_previous_write_count_only_where_there_are_no_later_ones() -> None:
    previous = scan(D, 5, kind=ReadKind.WRITE)
    assert found([scan(A, 9), previous, scan(B, 2)]) == {"ns.b": 0.9}
    assert found([scan(A, 9), previous]) == {"ns.a": 0.27}


def test_an_update_that_scans_its_own_table_alone_has_no_inputs() -> None:
    assert found([scan(A, 9), scan(D, 5, kind=ReadKind.WRITE), scan(C, 2)]) == {}


def test_reads_long_before_the_previous_write_are_over() -> None:
    assert found([scan(A, 5000), scan(D, 4000, kind=ReadKind.WRITE)]) == {}


def test_a_long_application_still_counts_though_less() -> None:
    assert found([scan(A, 5000)]) == {"ns.a": 0.45}


def test_scans_of_one_table_are_joined() -> None:
    reads = [
        scan(A, 9, id=1, snapshot_id=1, projected=("id",), filtered=("x",)),
        scan(A, 8, id=2, snapshot_id=2, projected=("y",)),
    ]
    (only,) = infer_inputs(WRITE, reads)
    assert (only.snapshot_id, only.evidence, set(only.projected), only.filtered) == (2, (1, 2), {"id", "y"}, ("x",))


@pytest.mark.parametrize(
    ("named", "application"),
    [
        ({"engine-name": "spark", "app-id": "application_1_2"}, "spark application_1_2"),
        ({"spark.app.id": "local-1"}, "spark local-1"),
        ({"trino_query_id": "2026_1"}, "trino 2026_1"),
        ({"flink.job-id": "0a"}, "flink 0a"),
        ({"app-id": "x"}, "engine x"),
        ({"app-id": 5, "spark.app.id": ""}, None),
        ({}, None),
    ],
)
def test_applications_are_named_by_engine_and_id(named: dict[str, object], application: str | None) -> None:
    assert name_application(named) == application


names = st.sampled_from(["etl", "other", "anonymous"])
sessions = st.sampled_from(["token", "other", "here:1", "here:2", "there:1", ""])
applications = st.sampled_from([None, SPARK, "spark local-2", "trino 1"])
reads = st.builds(
    Read,
    table_id=st.sampled_from([A, B, C, D]),
    kind=st.sampled_from(list(ReadKind)),
    ago=st.floats(-100, 30_000),
    application=applications,
    session=sessions,
    principal=names,
)
writes = st.builds(
    ApplicationWrite,
    at=st.just(NOW),
    principal=st.one_of(st.none(), names),
    session=st.one_of(st.none(), sessions),
    application=applications,
    outputs=st.frozensets(st.sampled_from([A, B, C, D]), min_size=1),
    operation=st.sampled_from(["append", "overwrite", "delete", "replace", None]),
)


@given(st.lists(reads, max_size=12), writes)
def test_no_guess_crosses_principals_applications_or_time(made: list[Read], write: ApplicationWrite) -> None:
    numbered = [replace(read, id=number) for number, read in enumerate(made)]
    for guess in infer_inputs(write, numbered):
        assert 0 < guess.confidence < 1
        assert guess.table_id not in write.outputs
        for read in (numbered[number] for number in guess.evidence):
            assert read.kind in (ReadKind.SCAN, ReadKind.LOAD, ReadKind.LOOKUP, ReadKind.PLAN)
            assert read.table_id == guess.table_id
            is_plan = read.kind == ReadKind.PLAN and read.application is None
            assert (read.principal, is_plan or read.application) == (write.principal, is_plan or write.application)
            assert read.at < write.at
            if write.application is None or is_plan:
                assert read.session == write.session
                assert write.at - read.at <= INFERENCE_WINDOW
            elif ":" in read.session:
                assert write.session is not None
                assert read.session.split(":")[0] == write.session.split(":")[0]


@given(st.lists(reads, max_size=8), writes, reads)
def test_a_stranger_never_changes_a_guess(made: list[Read], write: ApplicationWrite, stranger: Read) -> None:
    assert infer_inputs(write, [*made, replace(stranger, principal="stranger")]) == infer_inputs(write, made)
