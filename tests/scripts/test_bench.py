"""The benchmarks' own arithmetic, and that their client appends as engines do."""

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.manifest.reader import read_manifest_list
from duckicelake.server.app import create_app
from scripts.bench_job.client import Appender, LocalFiles, Refused, Rest
from scripts.bench_job.commit import append, floor
from scripts.bench_job.commit_limits import limits
from scripts.bench_job.everything import markdown, scripts
from scripts.bench_job.results import Result, Target, p50, p99, percentile, read_results, report
from tests.support.servers import running

LOADS = Result("loads", 9000, "/s", Target("≥", 0.6, "ratio"), 12000, "bare", 1.5, 9.25)


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [([3.0, 1.0, 2.0], 50, 2.0), ([1.0, 2.0], 50, 1.0), ([1.0], 99, 1.0), (list(range(1, 101)), 99, 99)],
)
def test_percentile_is_a_value_that_so_many_do_not_exceed(values: list[float], percent: float, found: float) -> None:
    assert percentile(values, percent) == found


def test_percentile_of_nothing_reaches_no_target() -> None:
    assert Result("x", p99([]), "ms", Target("≤", 5)).is_reached is False
    assert Result("x", p50([]), "ms", Target("≥", 5)).is_reached is False


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        (Target("≥", 9000), True),
        (Target("≥", 9001), False),
        (Target("≤", 9000), True),
        (Target("≤", 8999), False),
        (Target("≥", 0.75, "ratio"), True),
        (Target("≥", 0.76, "ratio"), False),
        (Target("≤", 0.75, "ratio"), True),
        (Target("≤", 0.74, "ratio"), False),
        (None, None),
    ],
)
def test_target_is_held_against_the_value_or_the_ratio(target: Target | None, reached: bool | None) -> None:
    assert Result("loads", 9000, "/s", target, 12000).is_reached is reached


def test_ratio_without_a_reference_reaches_nothing() -> None:
    assert Result("loads", 9000, "/s", Target("≥", 0.1, "ratio")).is_reached is False


def test_results_come_back_as_they_were_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = [LOADS, Result("plain", 1.0, "ms")]
    report("Title", results, argparse.Namespace(json=tmp_path / "found"))
    assert read_results(tmp_path / "found") == results
    shown = capsys.readouterr().out
    for text in ("Title", "ok ≥ 0.6x", "9,000 /s", "12,000 bare", "0.75x", "9.25", "plain"):
        assert text in shown


def test_markdown_has_a_row_for_each_result() -> None:
    lines = markdown("Title", [LOADS]).splitlines()
    assert lines[-1] == "| loads | ok ≥ 0.6x | 9,000 /s | 12,000 bare | 0.75x | 1.5 | 9.25 |"
    assert len({line.count("|") for line in lines[2:]}) == 1


def test_every_benchmark_can_be_run_by_all_of_them() -> None:
    folder = Path(__file__).parents[2] / "scripts" / "bench"
    assert {"growth", "limits", "minio"} <= set(scripts())
    for name in scripts():
        assert (folder / name).stat().st_mode & 0o111, name


@pytest.fixture
def rest(services: Services) -> Iterator[Rest]:
    with running(create_app(services)) as uri:
        client = Rest(uri)
        client.create_namespace()
        yield client
        client.close()


def test_client_appends_on_what_others_have_appended(rest: Rest) -> None:
    metadata = rest.create_table("t", columns=3)
    first, second = (Appender(rest, LocalFiles(), "t", metadata) for _ in range(2))
    first.append(files=2)
    second.append()
    assert (first.conflicts, second.conflicts) == (0, 1)
    assert len(first.seconds) == len(second.seconds) == 1
    snapshots = rest.load("t")["snapshots"]
    listed = [read_manifest_list(LocalFiles().read(each["manifest-list"])) for each in snapshots]
    assert [sum(line.added_files_count or 0 for line in lines) for lines in listed] == [2, 3]
    assert snapshots[1]["parent-snapshot-id"] == snapshots[0]["snapshot-id"]


def test_parts_of_a_commit_are_measured_of_what_was_committed(services: Services) -> None:
    with running(create_app(services)) as uri:
        commits = append(Rest(uri), 3, {}, early=2)
    assert len(commits.seconds) == 3
    assert commits.cpu_milliseconds(0, 3) >= 0
    assert len(read_manifest_list(commits.early.manifest_list)) == 2
    assert len(read_manifest_list(commits.last.manifest_list)) == 3
    assert len(commits.early.answer) < len(commits.last.answer)
    parts = list(limits(commits.last, 2))
    assert [part.name.partition(" alone")[0] for part in parts] == ["HTTP", "Postgres", "encoding", "files"]
    assert min(floor(parts)) > 0


def test_client_says_what_was_refused(rest: Rest) -> None:
    with pytest.raises(Refused, match=r"GET /namespaces/bench/tables/none: 404 .*NoSuchTableException"):
        rest.load("none")
