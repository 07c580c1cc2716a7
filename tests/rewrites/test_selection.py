"""The files of a group among those of a table: what DuckDB compares each of the table's files with."""

from collections.abc import Sequence

import pytest

from duckicelake.errors import DamagedTableError
from duckicelake.lake.state import FileRow
from duckicelake.maintenance.policy import parse_policy
from duckicelake.rewrites.actions import _check_rows
from duckicelake.rewrites.selection import FilePaths, MemberFile, RewriteGroup, choose_groups
from duckicelake.rewrites.source import write_path_filter


def make_files(paths: Sequence[str], size: int = 1) -> list[MemberFile]:
    return [
        MemberFile(FileRow(number, 0, path, "PARQUET", 0, [], 1, size, {}, 1, number, number), frozenset(), path)
        for number, path in enumerate(paths)
    ]


def choose(files: Sequence[MemberFile], others: Sequence[MemberFile] = ()) -> list[RewriteGroup]:
    policy = parse_policy({"maintenance.compaction.min-files": "2"})
    return choose_groups(files, policy, 100 * len(files), FilePaths([*files, *others]), is_sort=False)


def count_names(files: Sequence[MemberFile], others: Sequence[MemberFile] = ()) -> int:
    """Count the names with which each file of the table is compared."""
    (group,) = choose(files, others)
    return write_path_filter(group).count(".parquet")


@pytest.mark.parametrize("count", [2, 100, 4_000])
def test_files_that_lie_together_are_a_range(count: int) -> None:
    files = make_files([f"f/b{number:05}.parquet" for number in range(count)])
    others = make_files([f"f/{letter}{number}.parquet" for letter in "ac" for number in range(count)], size=50)
    assert count_names(files, others) == 2
    few = make_files([f"f/b{number:05}x.parquet" for number in range(count // 2)])
    assert count_names(files, [*others, *few]) == 2


def test_names_are_listed_where_many_bytes_lie_between() -> None:
    files = make_files([f"f/b{number:05}.parquet" for number in range(100)])
    others = make_files(["f/b00050x.parquet"], size=100)
    assert count_names(files, others) == 102


@pytest.mark.parametrize(("count", "written", "says"), [(1, 1_200, "1,200 rows in 1 file"), (1_200, 1, "1,200 rows:")])
def test_rows_that_are_not_those_of_the_catalog_are_counted(count: int, written: int, says: str) -> None:
    group = RewriteGroup(tuple(make_files([f"f/{number}.parquet" for number in range(count)])), 1)
    with pytest.raises(DamagedTableError, match=says):
        _check_rows(group, written)
