"""PURE. What becomes of a commit if nobody else commits first: its DuckLake snapshots, and the files of its version."""

from dataclasses import replace

from duckicelake.lake.changes import ChangeSet, VersionFiles, Written, WrittenFile


def expected_of(table_id: int, change: ChangeSet) -> Written:
    """What becomes of a change if nobody commits before: its snapshots follow the one up to which it was checked."""
    first = change.checked_upto + 1
    snapshots = tuple(range(first, first + len(change.steps)))
    return Written(table_id, snapshots, change.checked_upto + len(snapshots), change)


def is_as_expected(written: Written) -> bool:
    """Whether nobody committed between the moment up to which a change was checked and its own."""
    return written.caught_up_to == written.change.checked_upto + len(written.snapshots)


def with_files(change: ChangeSet, files: tuple[WrittenFile, ...]) -> ChangeSet:
    """The change with what was written for the version that it is expected to make."""
    assert change.table_id is not None
    expected = expected_of(change.table_id, change)
    return replace(change, files=VersionFiles(expected.snapshots, expected.caught_up_to, files))
