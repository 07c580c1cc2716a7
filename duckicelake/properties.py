"""PURE. The table properties `ducklake.*`: names, forms, defaults, and a reader for each."""

import re
from collections.abc import Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Final, NamedTuple

from duckicelake.errors import InvalidRequest, Unsupported

ABSORB_ROWS: Final = "ducklake.absorb-rows"
APPEND_REBASE: Final = "ducklake.append-rebase"
DATA_FORMAT: Final = "write.format.default"
DUCKLAKE_ID: Final = "ducklake.snapshot-id"
"""Of the current snapshot, and in its summary. The server says it; what anybody else says of it is overlooked."""
HOLD: Final = "ducklake.history.hold"
MAX_BYTES: Final = "ducklake.equality-deletes.max-bytes"
MAX_LISTED: Final = "ducklake.max-listed-snapshots"
_NONE: Final[Mapping[str, str]] = {}


class _PropertyForm(NamedTuple):
    """How a value is written: as a regular expression, and as people are told it."""

    pattern: str
    told: str
    default: str


_FORMS: Final[Mapping[str, _PropertyForm]] = {
    ABSORB_ROWS: _PropertyForm(r"\d{1,6}", "a number of rows, up to 999999", "0"),
    APPEND_REBASE: _PropertyForm(r"(?i:true|false)", "true or false", "false"),
    HOLD: _PropertyForm(
        r"\d{1,6} (second|minute|hour|day)s?", "a number of seconds, minutes, hours or days, like '36 hours'", "5 days"
    ),
    MAX_BYTES: _PropertyForm(r"\d{1,18}", "a number of bytes", str(1 << 30)),
    MAX_LISTED: _PropertyForm(r"[1-9]\d{0,8}", "a number from 1 on", "999999999"),
}
_KNOWN: Final = frozenset({*_FORMS, DUCKLAKE_ID})


def check_properties(properties: Mapping[str, str], before: Mapping[str, str] = _NONE) -> None:
    """Check what is new in the properties of a table.

    InvalidRequest for what is misspelt or can't be understood, Unsupported for a format that no file may have.
    """
    changed = {name for name, value in properties.items() if before.get(name) != value}
    for name in sorted(changed - _KNOWN):
        if name.lower().startswith("ducklake.") or name.replace("duckicelake.", "ducklake.") in _KNOWN:
            raise InvalidRequest(f"There is no table property {name}; {_suggest_name(name)}")
    for name in sorted(changed & _FORMS.keys()):
        _get_text(properties, name)
    wanted = properties.get(DATA_FORMAT, "parquet")
    if DATA_FORMAT in changed and wanted.lower() != "parquet":
        raise Unsupported("file-formats", f"{DATA_FORMAT} is {wanted}, and DuckLake reads Parquet only")


def check_property_values(properties: Mapping[str, str]) -> None:
    """InvalidRequest if a property can't be understood; names that are none of ours aren't looked at."""
    for name in _FORMS:
        _get_text(properties, name)


def get_absorbed_rows(properties: Mapping[str, str]) -> int:
    """How many rows an append may have to be inlined."""
    return int(_get_text(properties, ABSORB_ROWS))


def may_rebase_appends(properties: Mapping[str, str]) -> bool:
    """Whether appends may be put on top of others."""
    return _get_text(properties, APPEND_REBASE).lower() == "true"


def get_hold(properties: Mapping[str, str]) -> timedelta:
    """How long snapshots of before a merge or flush stay."""
    number, unit = _get_text(properties, HOLD).rstrip("s").split(" ")
    return timedelta(**{f"{unit}s": int(number)})


def get_max_bytes(properties: Mapping[str, str]) -> int:
    """How much a commit of equality deletes may read."""
    return int(_get_text(properties, MAX_BYTES))


def get_max_listed(properties: Mapping[str, str]) -> int:
    """How many snapshots are listed at most."""
    return int(_get_text(properties, MAX_LISTED))


def _get_text(properties: Mapping[str, str], name: str) -> str:
    form = _FORMS[name]
    text = properties.get(name, form.default)
    if not re.fullmatch(form.pattern, text, re.ASCII):
        raise InvalidRequest(f"The table property {name} is {text!r}: write {form.told}")
    return text


def _suggest_name(name: str) -> str:
    known = {each.partition(".")[2]: each for each in sorted(_FORMS)}
    near = get_close_matches(name.lower().partition(".")[2], known, n=1)
    return f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(known.values())}"
