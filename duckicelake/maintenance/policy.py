"""PURE. Parse the maintenance policy of a table from its properties."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from duckicelake.errors import BadInputError
from duckicelake.maintenance.layout import RowOrder, parse_order
from duckicelake.properties import (
    BLOOM_FILTER_PREFIX,
    GC_ENABLED,
    MAX_REF_AGE_MS,
    MAX_SNAPSHOT_AGE_MS,
    MIN_SNAPSHOTS_TO_KEEP,
    POLICY_NAMES,
    TARGET_FILE_BYTES,
    is_like_policy,
    is_policy,
    parse_ref_age,
    suggest_policy,
)

T = TypeVar("T")

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
_ORDER: Final = "maintenance.sort.order"
_AGE_PATTERN: Final = re.compile(r"([0-9]{1,6}) ?(m|h|d)")
_AGE_UNITS_MS: Final = {"m": 60_000, "h": HOUR_MS, "d": DAY_MS}
_INTERVAL_PATTERN: Final = re.compile(
    r"([0-9]{1,6}) ?(?:(second|minute|hour|day|week|month|year)s?|([smhdwy]))(?![a-z])", re.IGNORECASE
)
_NAMED_UNITS_MS: Final = {
    "second": 1000,
    "minute": 60_000,
    "hour": HOUR_MS,
    "day": DAY_MS,
    "week": 7 * DAY_MS,
    "year": 365 * DAY_MS,
}
_INTERVAL_UNITS_MS: Final = {
    "month": 30 * DAY_MS,
    **_NAMED_UNITS_MS,
    **{name[0]: unit for name, unit in _NAMED_UNITS_MS.items()},
}
_EXPIRY_OPTION: Final = "expire_older_than"
_EXPIRY_PROPERTIES: Final = (MAX_SNAPSHOT_AGE_MS, MIN_SNAPSHOTS_TO_KEEP, _EXPIRY_OPTION)
"""Each asks for expiry."""
_SHARED_PROPERTY: Final = "shared"
"""What the catalog says instead of false where that is its own word, as for clones and their sources."""
_CODEC_OPTION: Final = "parquet_compression"
"""DuckLake's options."""
_PARQUET_CODECS: Final = frozenset({"uncompressed", "snappy", "gzip", "zstd", "lz4_raw"})
"""Those of DuckLake's that Spark can write."""


AUTOMATIC: Final = "maintenance.automatic"
QUIET_HOURS: Final = "maintenance.quiet-hours"
JOB_KINDS: Final = (
    "flush",
    "sort",
    "compact",
    "bloom-filters",
    "rewrite-deletes",
    "pack-manifests",
    "statistics",
    "expire",
    "remove-orphans",
)
"""All kinds of jobs, in the order in which those of one table run."""
PIPELINE_KINDS: Final = tuple(kind for kind in JOB_KINDS if kind != "bloom-filters")
"""Those that Spark does. It writes Bloom filters itself, and can't choose the files that have none."""
MIN_DELETE_RATIO: Final = 1e-9
"""Of a file that has lost any row."""
_MAX_DELETE_RATIO: Final = 0.9
OPT_IN_KINDS: Final = frozenset({"expire", "remove-orphans"})
"""Kinds that delete for ever: workers do them only where a policy that was set, or a request, names them."""
ORPHANS_ENABLED: Final = "maintenance.orphans.enabled"
_QUIET_PATTERN: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)\s*-\s*([01]\d|2[0-3]):([0-5]\d)(?:\s+(\S+))?")
_DAY_MINUTES: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Hours of each day, in a time zone; past midnight where they end before they begin. Both in minutes of the day."""

    begins: int
    ends: int
    zone: ZoneInfo

    def find_end(self, now_ms: int) -> int | None:
        """Find when the hours end that a moment is in; None if it is in none. Both in milliseconds since the epoch."""
        now = datetime.fromtimestamp(now_ms / 1000, self.zone)
        minute = now.hour * 60 + now.minute
        into = (minute - self.begins) % _DAY_MINUTES
        if into >= (self.ends - self.begins) % _DAY_MINUTES:
            return None
        ends = now.replace(hour=self.ends // 60, minute=self.ends % 60, second=0, microsecond=0)
        if ends <= now:
            ends += timedelta(days=1)
        return int(ends.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class MaintenancePolicy:
    """Ages are milliseconds, sizes bytes. docs/pipeline.md says what each means, under the name of its property.

    shares_files: with another table, so that only the catalog knows which may be deleted. automatic: kinds of tasks
    that the lake's own workers do. chosen: those of OPT_IN_KINDS for which a policy was set; no default asks for them.
    quiet: when workers do nothing. filter_columns: for which the table asks for Bloom filters. ref_age: of branches and
    tags that say none; None: they stay. ducklake_age: how long DuckLake keeps snapshots; 0: it doesn't say.
    """

    enabled: bool
    flush_rows: int
    flush_age: int
    compacts: bool
    min_files: int
    delete_ratio: float
    codec: str
    order: RowOrder | None
    unsorted_share: float
    filter_columns: tuple[str, ...]
    unfiltered_share: float
    excess_deletes: int
    small_manifests: int
    expires: bool
    snapshot_age: int
    snapshots_kept: int
    ref_age: int | None
    ducklake_age: int
    shares_files: bool
    statistics: bool
    statistics_age: int
    orphans: bool
    orphan_age: int
    orphans_every: int
    automatic: frozenset[str] = frozenset()
    chosen: frozenset[str] = frozenset()
    quiet: QuietHours | None = None


def parse_policy(properties: Mapping[str, str]) -> MaintenancePolicy:
    """Return the policy that a table's properties say; BadInputError names the property that isn't as it should be."""
    return _parse_policy(frozenset(properties.items()))


@lru_cache
def _parse_policy(items: frozenset[tuple[str, str]]) -> MaintenancePolicy:
    """Parse a policy, once for each text: tables by the thousand have few policies."""
    properties = dict(items)

    def value(name: str, read: Callable[[str], T], default: T, should_be: str) -> T:
        text = properties.get(name)
        if text is None:
            return default
        try:
            return read(text.strip())
        except (ValueError, BadInputError) as error:
            raise BadInputError(f"the property {name} is {text!r}: it should be {should_be}") from error

    def number(name: str, default: int) -> int:
        return value(name, _parse_number, default, "a number from 1 on")

    def age(name: str, default: int) -> int:
        return value(name, _parse_age, default, "an age as 90m, 12h or 3d")

    def flag(name: str, default: bool) -> bool:
        return value(name, _parse_flag, default, "true or false")

    def share(name: str, default: float) -> float:
        return value(name, _parse_share, default, "a share between 0 and 1")

    asks_for_expiry = any(properties.get(name) for name in _EXPIRY_PROPERTIES)
    shares_files = properties.get(GC_ENABLED) == _SHARED_PROPERTY
    automatic = value(AUTOMATIC, _parse_kinds, frozenset[str](), f"none, or kinds of {', '.join(JOB_KINDS)}")
    expires = flag("maintenance.expire.enabled", asks_for_expiry)
    orphans = flag(ORPHANS_ENABLED, True)
    ducklakes = value(
        _EXPIRY_OPTION, _parse_interval, 0, "an interval as `7 days` or `1 month 12 hours`, without fractions"
    )
    policy = MaintenancePolicy(
        enabled=flag("maintenance.enabled", True),
        flush_rows=number("maintenance.flush.min-rows", 1000),
        flush_age=age("maintenance.flush.max-age", DAY_MS),
        compacts=flag("maintenance.compaction.enabled", True),
        min_files=number("maintenance.compaction.min-files", 5),
        delete_ratio=value("maintenance.compaction.delete-ratio", _parse_delete_ratio, 0.3, "a share from 0 to 1"),
        codec=_parse_codec(properties.get(_CODEC_OPTION, "")),
        order=value(_ORDER, _parse_order, None, "columns as `day DESC, id`, or `zorder(x, y)`"),
        unsorted_share=share("maintenance.sort.min-share", 0.2),
        filter_columns=find_filter_columns(properties),
        unfiltered_share=share("maintenance.bloom-filters.min-share", 0.2),
        excess_deletes=number("maintenance.delete-files.min-excess", 10),
        small_manifests=number("maintenance.manifests.min-small", 50),
        expires=expires and (shares_files or flag(GC_ENABLED, True)),
        snapshot_age=max(number(MAX_SNAPSHOT_AGE_MS, ducklakes or 5 * DAY_MS), ducklakes),
        snapshots_kept=number(MIN_SNAPSHOTS_TO_KEEP, 1),
        ref_age=value(MAX_REF_AGE_MS, parse_ref_age, None, "milliseconds, from 1 on"),
        ducklake_age=ducklakes,
        shares_files=shares_files,
        statistics=flag("maintenance.statistics.enabled", True),
        statistics_age=age("maintenance.statistics.every", 7 * DAY_MS),
        orphans=orphans and not shares_files and flag(GC_ENABLED, True),
        orphan_age=value(
            "maintenance.orphans.older-than", _parse_long_age, 3 * DAY_MS, "an age of an hour or more, as 3d"
        ),
        orphans_every=age("maintenance.orphans.every", 7 * DAY_MS),
        automatic=automatic,
        chosen=_find_chosen(automatic, expires=expires, orphans=orphans and ORPHANS_ENABLED in properties),
        quiet=value(QUIET_HOURS, parse_quiet_hours, None, "hours as 22:00-06:00 Europe/Berlin"),
    )
    number(TARGET_FILE_BYTES, 1)  # SQL has read it already, and takes the default for what is none
    for name in sorted(properties):
        if name.startswith("maintenance.") and name not in POLICY_NAMES:
            raise BadInputError(f"there is no property {name}; {suggest_policy(name)}")
    return policy


def _find_chosen(automatic: frozenset[str], *, expires: bool, orphans: bool) -> frozenset[str]:
    """Find the kinds of OPT_IN_KINDS that policies name."""
    asked = {"expire": expires, "remove-orphans": orphans}
    return (automatic & OPT_IN_KINDS) | {kind for kind, is_asked in asked.items() if is_asked}


def find_filter_columns(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Find the columns for which the table asks for Bloom filters."""
    asked = [name for name, value in properties.items() if name.startswith(BLOOM_FILTER_PREFIX) and _is_true(value)]
    return tuple(sorted(name.removeprefix(BLOOM_FILTER_PREFIX) for name in asked))


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


def parse_quiet_hours(text: str) -> QuietHours | None:
    """Parse `22:00-06:00 Europe/Berlin`; without a zone it is UTC, and an empty text is none. Raises ValueError."""
    if not text:
        return None
    match = _QUIET_PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(text)
    begins, ends = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
    if begins == ends:
        raise ValueError(text)
    try:
        return QuietHours(begins, ends, ZoneInfo(match[5] or "UTC"))
    except (ZoneInfoNotFoundError, OSError) as error:
        raise ValueError(text) from error


def _parse_kinds(text: str) -> frozenset[str]:
    """Parse kinds of jobs; `none` and an empty text are none."""
    kinds = frozenset(kind.strip() for kind in text.split(",")) - {"", "none"}
    if kinds - set(JOB_KINDS):
        raise ValueError(text)
    return kinds


def check_overrides(overrides: Mapping[str, str]) -> None:
    """Raise BadInputError for what can't be said for one run: the target size and the order decide what is counted."""
    for name in overrides:
        if not is_like_policy(name) or name in {TARGET_FILE_BYTES, _ORDER}:
            hint = ", or run `pipeline optimize --sort-by`" if name == _ORDER else ""
            raise BadInputError(f"{name} can't be given for one run: set the table's property{hint}")
        if name.startswith("history.expire.") and not is_policy(name):
            raise BadInputError(f"there is no property {name}; {suggest_policy(name)}")
    parse_policy(overrides)


def _parse_order(text: str) -> RowOrder | None:
    """Parse an order; None for an empty text, which takes a namespace's order back."""
    return parse_order(text) if text else None


def _parse_codec(text: str) -> str:
    """Return DuckLake's, or zstd."""
    return text.lower() if text.lower() in _PARQUET_CODECS else "zstd"


def _parse_number(text: str) -> int:
    if not re.fullmatch("[0-9]{1,15}", text) or int(text) == 0:
        raise ValueError(text)
    return int(text)


def _parse_age(text: str) -> int:
    match = _AGE_PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _AGE_UNITS_MS[match[2]]


def _parse_long_age(text: str) -> int:
    """Parse an age of at least an hour, since younger files may be of commits under way."""
    age = _parse_age(text)
    if age < HOUR_MS:
        raise ValueError(text)
    return age


def _parse_interval(text: str) -> int:
    """Return an interval of DuckDB's, as far as it is whole numbers of units; none is 0."""
    units = [(int(match[1]), (match[2] or match[3]).lower()) for match in _INTERVAL_PATTERN.finditer(text)]
    if _INTERVAL_PATTERN.sub("", text).strip():
        raise ValueError(text)
    return sum(count * _INTERVAL_UNITS_MS[unit] for count, unit in units)


def _parse_flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError(text)
    return text.lower() == "true"


def _parse_delete_ratio(text: str) -> float:
    """Parse the share of its rows that a file has lost; 0 is any, as in DuckLake. Statistics count up to 9 tenths."""
    share = float(text)
    if not 0 <= share <= 1:
        raise ValueError(text)
    return min(max(share, MIN_DELETE_RATIO), _MAX_DELETE_RATIO)


def _parse_share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise ValueError(text)
    return share
