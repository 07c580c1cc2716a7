"""PURE. How long the snapshots of before a merge or flush of DuckDB's stay listed (design §6.6).

DuckLake gives the files that it rewrote up; the snapshots that list them stay exact as long as the files are kept.
"""

from collections.abc import Mapping
from datetime import timedelta

from duckicelake.bridge.native import REWRITES_HISTORY, NativeStep
from duckicelake.bridge.table_properties import hold_of
from duckicelake.lake.additions import NewFile
from duckicelake.lake.changes import Hold
from duckicelake.lake.state import FileRow, NativeWindow


def hold(
    step: NativeStep, window: NativeWindow, known: Mapping[int, FileRow | NewFile], properties: Mapping[str, str]
) -> Hold | None:
    """The files that the step gives up, by id, and until when the snapshots that list them stay; None without any.

    `known` has the files that leave. Those that DuckLake still has for its own history aren't given up.
    """
    if not step.change.kinds & REWRITES_HISTORY:
        return None
    gone = window.vanished | {None}  # those without a DuckLake id served inlined rows
    given_up = tuple(file_id for file_id in sorted(step.removed) if known[file_id].ducklake_id in gone)
    if not given_up:
        return None
    return Hold(given_up, step.change.timestamp_ms + hold_of(properties) // timedelta(milliseconds=1))
