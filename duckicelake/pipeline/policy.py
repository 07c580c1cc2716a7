"""PURE. How a table is to be kept: by its properties, its namespaces', DuckLake's options and the catalog's defaults.

The catalog says which hold for a table (`GET /pipeline/v1/tables`); here they get their types and defaults.
"""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from duckicelake.errors import BadInput
from duckicelake.pipeline.layout import Order, parse_order

T = TypeVar("T")

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
_AGE: Final = re.compile(r"([0-9]{1,6}) ?(m|h|d)")
_UNITS: Final = {"m": 60_000, "h": HOUR_MS, "d": DAY_MS}
_INTERVAL: Final = re.compile(
    r"([0-9]{1,6}) ?(?:(second|minute|hour|day|week|month|year)s?|([smhdwy]))(?![a-z])", re.IGNORECASE
)
_NAMED: Final = {
    "second": 1000,
    "minute": 60_000,
    "hour": HOUR_MS,
    "day": DAY_MS,
    "week": 7 * DAY_MS,
    "year": 365 * DAY_MS,
}
_INTERVAL_UNITS: Final = {"month": 30 * DAY_MS, **_NAMED, **{name[0]: unit for name, unit in _NAMED.items()}}
_HISTORY: Final = ("history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep")
_EXPIRY: Final = "expire_older_than"
_GC: Final = "gc.enabled"
_SHARED: Final = "shared"
"""What the catalog says instead of false where that is its own word, as for clones and their sources."""
_CODEC: Final = "parquet_compression"
"""DuckLake's options."""
_CODECS: Final = frozenset({"uncompressed", "snappy", "gzip", "zstd", "lz4_raw"})
"""Those of DuckLake's that Spark can write."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Ages are milliseconds, sizes bytes. docs/pipeline.md says what each means, under the name of its property.

    shares_files: with another table, so that only the catalog knows which may be deleted.
    """

    enabled: bool
    flush_rows: int
    flush_age: int
    compacts: bool
    min_files: int
    delete_ratio: float
    codec: str
    order: Order | None
    unsorted_share: float
    excess_deletes: int
    small_manifests: int
    expires: bool
    snapshot_age: int
    snapshots_kept: int
    shares_files: bool
    statistics: bool
    statistics_age: int
    orphans: bool
    orphan_age: int
    orphans_every: int


def policy_of(properties: Mapping[str, str]) -> Policy:
    """The policy that a table's properties say; BadInput names the property that isn't as it should be."""
    return _policy_of(frozenset(properties.items()))


@lru_cache
def _policy_of(items: frozenset[tuple[str, str]]) -> Policy:
    """Cached, as tables by the thousand have few policies."""
    properties, known = dict(items), set[str]()

    def value(name: str, read: Callable[[str], T], default: T, should_be: str) -> T:
        known.add(name)
        text = properties.get(name)
        if text is None:
            return default
        try:
            return read(text.strip())
        except (ValueError, BadInput) as error:
            raise BadInput(f"the property {name} is {text!r}: it should be {should_be}") from error

    def number(name: str, default: int) -> int:
        return value(name, _number, default, "a number from 1 on")

    def age(name: str, default: int) -> int:
        return value(name, _age, default, "an age as 90m, 12h or 3d")

    def flag(name: str, default: bool) -> bool:
        return value(name, _flag, default, "true or false")

    def share(name: str, default: float) -> float:
        return value(name, _share, default, "a share between 0 and 1")

    asks_for_expiry = any(properties.get(name) for name in (*_HISTORY, _EXPIRY))
    shares_files = properties.get(_GC) == _SHARED
    ducklakes = value(_EXPIRY, _interval, 0, "an interval as `7 days` or `1 month 12 hours`, without fractions")
    policy = Policy(
        enabled=flag("maintenance.enabled", True),
        flush_rows=number("maintenance.flush.min-rows", 1000),
        flush_age=age("maintenance.flush.max-age", DAY_MS),
        compacts=flag("maintenance.compaction.enabled", True),
        min_files=number("maintenance.compaction.min-files", 5),
        delete_ratio=share("maintenance.compaction.delete-ratio", 0.3),
        codec=_codec(properties.get(_CODEC, "")),
        order=value("maintenance.sort.order", _order, None, "columns as `day DESC, id`, or `zorder(x, y)`"),
        unsorted_share=share("maintenance.sort.min-share", 0.2),
        excess_deletes=number("maintenance.delete-files.min-excess", 10),
        small_manifests=number("maintenance.manifests.min-small", 50),
        expires=flag("maintenance.expire.enabled", asks_for_expiry) and (shares_files or flag(_GC, True)),
        snapshot_age=max(number(_HISTORY[0], ducklakes or 5 * DAY_MS), ducklakes),
        snapshots_kept=number(_HISTORY[1], 1),
        shares_files=shares_files,
        statistics=flag("maintenance.statistics.enabled", True),
        statistics_age=age("maintenance.statistics.every", 7 * DAY_MS),
        orphans=flag("maintenance.orphans.enabled", True) and not shares_files and flag(_GC, True),
        orphan_age=value("maintenance.orphans.older-than", _long_age, 3 * DAY_MS, "an age of an hour or more, as 3d"),
        orphans_every=age("maintenance.orphans.every", 7 * DAY_MS),
    )
    for name in sorted(properties):
        if name.startswith("maintenance.") and name not in known:
            raise BadInput(f"there is no property {name}{_nearest(name, known)}")
    return policy


def _nearest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else ""


def check_overrides(overrides: Mapping[str, str]) -> None:
    """BadInput for what can't be said for one run: the target size decides what the catalog counts."""
    for name in overrides:
        if not name.startswith(("maintenance.", "history.expire.")):
            raise BadInput(f"{name} can't be given for one run: set the table's property")
    policy_of(overrides)


def _order(text: str) -> Order | None:
    """None for an empty text, which takes a namespace's order back."""
    return parse_order(text) if text else None


def _codec(text: str) -> str:
    """DuckLake's, or zstd."""
    return text.lower() if text.lower() in _CODECS else "zstd"


def _number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,15}", text) or int(text) == 0:
        raise ValueError(text)
    return int(text)


def _age(text: str) -> int:
    match = _AGE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2]]


def _long_age(text: str) -> int:
    """Younger files may be of commits under way."""
    age = _age(text)
    if age < HOUR_MS:
        raise ValueError(text)
    return age


def _interval(text: str) -> int:
    """An interval of DuckDB's, as far as it is whole numbers of units; none is 0."""
    units = [(int(match[1]), (match[2] or match[3]).lower()) for match in _INTERVAL.finditer(text)]
    if _INTERVAL.sub("", text).strip():
        raise ValueError(text)
    return sum(count * _INTERVAL_UNITS[unit] for count, unit in units)


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError(text)
    return share
