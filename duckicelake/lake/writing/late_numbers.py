"""PURE. Appends whose numbers are DuckLake's, once other commits got the snapshot ids that they were computed for.

On tables of format version 3 sequence numbers are DuckLake's snapshot ids. Whoever commits to another table meanwhile
need not have an append to this one computed again.
"""

from collections.abc import Mapping
from dataclasses import replace

from duckicelake.lake.additions import SideFiles
from duckicelake.lake.changes import ChangeSet, LakeStep


def at_later(change: ChangeSet, later: int) -> ChangeSet | None:
    """The change as it is computed for snapshot ids that are `later` ones; None if more than numbers depends on them.

    More does where a file was written for it, and where Iceberg's snapshot ids are DuckLake's, too.
    """
    if not all(map(_only_numbers_depend, change.steps)):
        return None
    numbers = {step.ducklake_id: step.ducklake_id + later for step in change.steps if step.ducklake_id is not None}
    last = change.target.last_sequence_number
    return replace(
        change,
        steps=tuple(_step(step, numbers) for step in change.steps),
        target=replace(change.target, last_sequence_number=numbers.get(last, last)),
    )


def _only_numbers_depend(step: LakeStep) -> bool:
    """Whether the step adds files as the client wrote them, in a snapshot with its own number and the client's id."""
    written = any(file.path_is_relative for file in step.data_files) or step.side.deletions or step.side.virtual_files
    changes = step.creation or step.definition or step.ended_files or step.ended_rows or step.delete_files
    numbers = [each.sequence_number for each in step.snapshots if each.proposed_id is None]
    return not (written or changes) and numbers == [step.ducklake_id]


def _step(step: LakeStep, numbers: Mapping[int, int]) -> LakeStep:
    assert step.ducklake_id is not None
    return replace(
        step,
        ducklake_id=numbers[step.ducklake_id],
        snapshots=tuple(replace(each, sequence_number=numbers[each.sequence_number]) for each in step.snapshots),
        side=_side(step.side, numbers),
    )


def _side(side: SideFiles, numbers: Mapping[int, int]) -> SideFiles:
    files = tuple(
        file._replace(
            sequence_number=numbers.get(file.sequence_number, file.sequence_number),
            file_sequence_number=numbers.get(file.file_sequence_number, file.file_sequence_number),
        )
        for file in side.files
    )
    manifests = tuple(
        replace(
            manifest,
            sequence_number=numbers.get(manifest.sequence_number, manifest.sequence_number),
            min_sequence_number=numbers.get(manifest.min_sequence_number, manifest.min_sequence_number),
        )
        for manifest in side.manifests
    )
    return replace(side, files=files, manifests=manifests)
