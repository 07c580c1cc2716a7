"""PURE. How long the snapshots of before a merge or flush of DuckDB's stay listed (design §6.6).

DuckLake gives the files that it rewrote up; the snapshots that list them stay exact as long as the files are kept.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from duckicelake.bridge.native import REWRITES_HISTORY, NativeStep
from duckicelake.errors import InvalidRequest
from duckicelake.lake.changes import Hold, NewFile
from duckicelake.lake.state import FileRow, NativeWindow

HOLD: Final = "ducklake.history.hold"
DEFAULT_HOLD: Final = "5 days"
_DURATION: Final = re.compile(r"(\d{1,6}) (second|minute|hour|day)s?", re.ASCII)


def hold_of(properties: Mapping[str, str]) -> timedelta:
    """What the table says about how long such snapshots stay; InvalidRequest if it isn't a duration."""
    text = properties.get(HOLD, DEFAULT_HOLD)
    said = _DURATION.fullmatch(text)
    if said is None:
        raise InvalidRequest(
            f"The table property {HOLD} is {text!r}: write a number of seconds, minutes, hours or days, like '36 hours'"
        )
    number, unit = said.groups()
    return timedelta(**{f"{unit}s": int(number)})


def check_hold(properties: Mapping[str, str]) -> None:
    """InvalidRequest unless `hold_of` can tell."""
    hold_of(properties)


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
