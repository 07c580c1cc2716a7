"""PURE. Name the properties of tables and of snapshots, and read those that the server acts on."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Final, NamedTuple

from duckicelake.errors import InvalidRequestError, UnsupportedError

ABSORB_ROWS: Final = "ducklake.absorb-rows"
APPEND_REBASE: Final = "ducklake.append-rebase"
DATA_FORMAT: Final = "write.format.default"
DUCKLAKE_ID: Final = "ducklake.snapshot-id"
"""DuckLake's id of the current snapshot, also in its summary. The server sets it and ignores other values."""
HOLD: Final = "ducklake.history.hold"
INLINED_ROWS: Final = "ducklake.data-inlining-row-limit"
MAX_BYTES: Final = "ducklake.equality-deletes.max-bytes"
MAX_LISTED: Final = "ducklake.max-listed-snapshots"
PROTECTED: Final = "ducklake.protected"
"""Also of views and namespaces. Triggers refuse to drop what says so (migration 0053)."""
SCAN_PLANNING: Final = "ducklake.scan-planning"
VIEW_SECURITY: Final = "ducklake.view-security"
"""Of views: `definer` lends the rights of whoever set it to the view's readers."""

BLOOM_FILTER_PREFIX: Final = "write.parquet.bloom-filter-enabled.column."
BLOOM_FILTER_FPP_PREFIX: Final = "write.parquet.bloom-filter-fpp.column."
"""Of columns that rewritten files have Bloom filters of, and the share of values that a filter lets through wrongly."""
COMPRESSION_CODEC: Final = "write.parquet.compression-codec"
DELETE_AFTER_COMMIT: Final = "write.metadata.delete-after-commit.enabled"
DISTRIBUTION_MODE: Final = "write.distribution-mode"
ENFORCEMENT: Final = "schema.enforcement"
FORMAT_VERSION: Final = "format-version"
FOLLOWS_DELTA: Final = "ducklake.follows-delta"
"""Among the policies of a table that is kept by a Delta log: no one can set it."""
GC_ENABLED: Final = "gc.enabled"
GC_DISABLED: Final[Mapping[str, str]] = {GC_ENABLED: "false"}
"""Set on tables that share files: engines then delete no file of them."""
MANIFEST_MERGE: Final = "commit.manifest-merge.enabled"
MAX_REF_AGE_MS: Final = "history.expire.max-ref-age-ms"
MAX_SNAPSHOT_AGE_MS: Final = "history.expire.max-snapshot-age-ms"
METADATA_FOLDER: Final = "write.metadata.path"
METRICS_MODE_PREFIX: Final = "write.metadata.metrics."
MIN_MANIFESTS_TO_MERGE: Final = "commit.manifest.min-count-to-merge"
MIN_SNAPSHOTS_TO_KEEP: Final = "history.expire.min-snapshots-to-keep"
NAME_MAPPING: Final = "schema.name-mapping.default"
PREVIOUS_VERSIONS: Final = "write.metadata.previous-versions-max"
SORT_ORDER: Final = "duckicelake.sort-order"
"""`{"fields": [{"column": "place.lat", "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]}`."""
TARGET_FILE_BYTES: Final = "write.target-file-size-bytes"
TARGET_MANIFEST_BYTES: Final = "commit.manifest.target-size-bytes"
VECTORIZED_READS: Final = "read.parquet.vectorization.enabled"
WRITE_FOLDERS: Final = ("write.data.path", METADATA_FOLDER, "write.object-storage.path", "write.folder-storage.path")
"""Properties by which clients choose where they write."""
CONSTRAINT_PREFIX: Final = "constraint."
UNVERIFIED_KEY: Final = "constraint-unverified."
"""Begins the property that names the first snapshot whose rows no writer has checked by a constraint."""
UNVERIFIED_HERE_KEY: Final = "constraints.unverified"
"""The key in a snapshot's summary: the constraints by which its rows were not checked, joined by commas."""
DELTA_ENABLED: Final = "delta.enabled"

TXN_APP_ID_KEY: Final = "txn.app-id"
TXN_VERSION_KEY: Final = "txn.version"
"""Keys in the summary of a snapshot that is a producer's batch."""
DELTA_TXN_PREFIX: Final = "delta.txn."
"""Begins keys in the summary of a snapshot from a Delta log, which has the version of each app id there."""
RUN_ID_KEY: Final = "duckicelake.run-id"
RUN_EPOCH_KEY: Final = "duckicelake.run-epoch"
"""Keys in the summary of a snapshot that is an epoch of a pipeline's run."""
JOB_KEY: Final = "duckicelake.job"
"""The key in the summary of a pipeline's snapshot: the id of the job that made it."""
REFRESH_STATE: Final = "refresh-state"
"""The key in the summary of a snapshot of a materialized view: what the refresh has read, as Iceberg's draft says."""
QUERY_SOURCES: Final = "ducklake.query-sources"
"""The key in the summary of a snapshot that is the result of a query: what that has read, in the form of the other."""
_NONE: Final[Mapping[str, str]] = {}
_DEFAULT_PREVIOUS_VERSIONS: Final = 100
_ENFORCEMENT_LEVELS: Final = frozenset({"metrics", "strict"})


class _PropertyForm(NamedTuple):
    """The form of a value, as a regular expression and in words, and its default."""

    pattern: str
    description: str
    default: str


_FORMS: Final[Mapping[str, _PropertyForm]] = {
    ABSORB_ROWS: _PropertyForm(r"\d{1,6}", "a number of rows, up to 999999", "0"),
    APPEND_REBASE: _PropertyForm(r"(?i:true|false)", "true or false", "false"),
    HOLD: _PropertyForm(
        r"\d{1,6} (second|minute|hour|day)s?", "a number of seconds, minutes, hours or days, like '36 hours'", "5 days"
    ),
    MAX_BYTES: _PropertyForm(r"\d{1,18}", "a number of bytes", str(1 << 30)),
    MAX_LISTED: _PropertyForm(r"[1-9]\d{0,8}", "a number from 1 on", "999999999"),
    PROTECTED: _PropertyForm(r"(?i:true|false)", "true or false", "false"),
    SCAN_PLANNING: _PropertyForm(r"auto|client|server", "auto, client or server", "auto"),
}
_KNOWN: Final = frozenset({*_FORMS, DUCKLAKE_ID})

_POLICY_PATTERN: Final = re.compile(r"maintenance\.[a-z.-]+")
_POLICY_PREFIXES: Final = ("maintenance.", "history.expire.")
_SURE_LIKENESS: Final = 0.85
"""Names that are this alike differ by a letter or an ending."""
_OTHER_POLICIES: Final = (MAX_REF_AGE_MS, MAX_SNAPSHOT_AGE_MS, MIN_SNAPSHOTS_TO_KEEP, TARGET_FILE_BYTES)
_MAINTENANCE_POLICIES: Final = (
    "automatic", "bloom-filters.min-share", "compaction.delete-ratio", "compaction.enabled", "compaction.min-files",
    "delete-files.min-excess", "enabled", "expire.enabled", "flush.max-age", "flush.min-rows", "manifests.min-small",
    "orphans.enabled", "orphans.every", "orphans.older-than", "quiet-hours", "sort.min-share", "sort.order",
    "statistics.enabled", "statistics.every",
)  # fmt: skip
POLICY_NAMES: Final = (*(f"maintenance.{name}" for name in _MAINTENANCE_POLICIES), *_OTHER_POLICIES)
"""The policies that this version knows; a newer one may have put others into the database."""
_BOOLEAN: Final = (r"(?i:true|false)", "true or false")
_COUNT: Final = r"[1-9]\d{0,17}"
_PERIOD: Final = (
    r"\d{1,6} (second|minute|hour|day|week|month|year)s?",
    "a number of seconds, minutes, hours, days, weeks, months or years, like '7 days'",
)
_OPTION_FORMS: Final[Mapping[str, tuple[str, str]]] = {
    "target_file_size": (_COUNT, "a number of bytes"),
    "parquet_compression": (
        r"(?i:uncompressed|snappy|gzip|zstd|brotli|lz4|lz4_raw)",
        "uncompressed, snappy, gzip, zstd, brotli, lz4 or lz4_raw",
    ),
    "parquet_version": (r"(?i:v1|v2)", "V1 or V2"),
    "parquet_compression_level": (r"[1-9]|1\d|2[0-2]", "a number from 1 to 22"),
    "parquet_row_group_size": (_COUNT, "a number of rows"),
    "parquet_row_group_size_bytes": (_COUNT, "a number of bytes"),
    "data_inlining_row_limit": (r"\d{1,9}", "a number of rows"),
    "hive_file_pattern": _BOOLEAN,
    "require_commit_message": _BOOLEAN,
    "per_thread_output": _BOOLEAN,
    "sort_on_insert": _BOOLEAN,
    "write_deletion_vectors": _BOOLEAN,
    "auto_compact": _BOOLEAN,
    "rewrite_delete_threshold": (r"0(\.\d{1,9})?|1(\.0{1,9})?", "a number from 0 to 1"),
    "delete_older_than": _PERIOD,
    "expire_older_than": _PERIOD,
}
"""DuckLake's options of a table: the values that DuckDB's INSERT takes, as a regular expression and in words."""
_ICEBERG_NAMES: Final = {"target_file_size": TARGET_FILE_BYTES, "parquet_compression": COMPRESSION_CODEC}
_OPTIONS_BY_PROPERTY: Final = {
    _ICEBERG_NAMES.get(option, f"ducklake.{option.replace('_', '-')}"): option for option in _OPTION_FORMS
}
_OPTION_PROPERTIES: Final = frozenset(_OPTIONS_BY_PROPERTY) - {TARGET_FILE_BYTES, COMPRESSION_CODEC}
"""Properties that exist for DuckLake's options alone."""
_CODEC_OPTION: Final = "parquet_compression"
_LEVEL_OPTION: Final = "parquet_compression_level"
_UNSAFE_OPTION: Final = "parquet_row_group_size_bytes"
"""Refuses every INSERT of a DuckDB that preserves the order of rows, as it does by default."""


def is_policy(name: str) -> bool:
    """Return whether a property is a policy of maintenance, which a server or a warehouse may have for its tables."""
    return name in _OTHER_POLICIES or _POLICY_PATTERN.fullmatch(name) is not None


def suggest_policy(wrong: str) -> str:
    """Say which policy is meant by a name that is none: the nearest, all that may be, or what policies there are."""
    name = wrong.lower().replace("_", "-")
    prefix = next((prefix for prefix in _POLICY_PREFIXES if name.startswith(prefix)), None)
    if prefix is not None:
        rest = name.removeprefix(prefix)
        rests = [known.removeprefix(prefix) for known in POLICY_NAMES if known.startswith(prefix)]
        near = get_close_matches(rest, rests, n=1, cutoff=_SURE_LIKENESS) or get_close_matches(rest, rests, cutoff=0.5)
        if near:
            return f"did you mean {' or '.join(prefix + match for match in near)}?"
    return f"expected maintenance.…, {', '.join(_OTHER_POLICIES[:-1])} or {_OTHER_POLICIES[-1]}"


def is_like_policy(name: str) -> bool:
    """Return whether a property is a policy or may be one that is misspelt."""
    return is_policy(name) or name.startswith(_POLICY_PREFIXES)


def check_properties(properties: Mapping[str, str], before: Mapping[str, str] = _NONE) -> None:
    """Check the properties of a table that differ from `before`.

    Raises:
        InvalidRequestError: a name is misspelt, or a value has another form.
        UnsupportedError: the file format is not Parquet.

    """
    changed = {name for name, value in properties.items() if before.get(name) != value}
    for name in sorted(changed - _KNOWN - _OPTION_PROPERTIES):
        if name.lower().startswith("ducklake.") or name.replace("duckicelake.", "ducklake.") in _KNOWN:
            raise InvalidRequestError(f"There is no table property {name}; {_suggest_name(name)}")
    for name in sorted(changed & _FORMS.keys()):
        _get_text(properties, name)
    for name in sorted(changed & _OPTION_PROPERTIES):
        _check_form(name, properties[name], *_OPTION_FORMS[_OPTIONS_BY_PROPERTY[name]])
    wanted = properties.get(DATA_FORMAT, "parquet")
    if DATA_FORMAT in changed and wanted.lower() != "parquet":
        raise UnsupportedError("file-formats", f"{DATA_FORMAT} is {wanted}, and DuckLake reads Parquet only")


def check_property_values(properties: Mapping[str, str]) -> None:
    """Check the values of all `ducklake.*` properties; InvalidRequestError for another form."""
    for name in _FORMS:
        _get_text(properties, name)


def check_protection(properties: Mapping[str, str]) -> None:
    """Check the value that says whether a view or namespace is protected; InvalidRequestError for another form."""
    _get_text(properties, PROTECTED)


def is_definer_view(properties: Mapping[str, str]) -> bool:
    """Return whether a view is to lend its definer's rights; InvalidRequestError for another value."""
    text = properties.get(VIEW_SECURITY, "invoker").lower()
    if text not in {"definer", "invoker"}:
        raise InvalidRequestError(f"The view property {VIEW_SECURITY} is {text!r}: write definer or invoker")
    return text == "definer"


def build_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Build DuckLake's options of a table that has these properties: those that DuckDB's INSERT takes."""
    options = {
        option: text.upper() if option == "parquet_version" else text.lower()
        for name, option in _OPTIONS_BY_PROPERTY.items()
        if (text := properties.get(name)) is not None
        and option != _UNSAFE_OPTION
        and re.fullmatch(_OPTION_FORMS[option][0], text, re.ASCII)
    }
    if options.get(_CODEC_OPTION) != "zstd":  # DuckDB takes a level with no other codec
        options.pop(_LEVEL_OPTION, None)
    return options


def merge_options(properties: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of a table that has these options in DuckLake.

    A property leaves that became an option which is gone. One that is no option stays: DuckLake never had it. So do
    codec and level, which may be no options for what others say.
    """
    known = build_options(properties)
    gone = {_get_option_property(option) for option in known.keys() - options.keys() - {_CODEC_OPTION, _LEVEL_OPTION}}
    shown = {_get_option_property(option): text for option, text in options.items() if known.get(option) != text}
    kept = {name: text for name, text in properties.items() if name not in gone}
    return kept | {name: text for name, text in shown.items() if name not in _KNOWN}


def is_option(name: str) -> bool:
    """Return whether the property is an option of DuckLake's."""
    return name in _OPTIONS_BY_PROPERTY


def _get_option_property(option: str) -> str:
    """Return the property of an option, which a later DuckDB may have added."""
    return _ICEBERG_NAMES.get(option, f"ducklake.{option.replace('_', '-')}")


def find_claims(properties: Mapping[str, str]) -> dict[str, str]:
    """Name the optional features that the table uses, each with the first property that says so."""
    constraints = [key for key in properties if key.startswith(CONSTRAINT_PREFIX)]
    claims = {"constraints": min(constraints)} if constraints else {}
    return claims | ({"delta": DELTA_ENABLED} if properties.get(DELTA_ENABLED, "false") != "false" else {})


def read_constraint_texts(properties: Mapping[str, str]) -> dict[str, str]:
    """Read the texts of a table's constraints, by name."""
    return {
        key.removeprefix(CONSTRAINT_PREFIX): text
        for key, text in properties.items()
        if key.startswith(CONSTRAINT_PREFIX)
    }


def add_unverified(properties: Mapping[str, str], names: Sequence[str], snapshot_id: int) -> dict[str, str]:
    """Add to the properties that these constraints are unverified from a snapshot on, unless they already are."""
    return {**{f"{UNVERIFIED_KEY}{name}": str(snapshot_id) for name in names}, **properties}


def get_absorbed_rows(properties: Mapping[str, str]) -> int:
    """Get the number of rows up to which an append is inlined."""
    return int(_get_text(properties, ABSORB_ROWS))


def may_rebase_appends(properties: Mapping[str, str]) -> bool:
    """Return whether an append is rebased on concurrent commits."""
    return _get_text(properties, APPEND_REBASE).lower() == "true"


def get_hold(properties: Mapping[str, str]) -> timedelta:
    """Get how long snapshots from before a merge or flush are kept."""
    number, unit = _get_text(properties, HOLD).rstrip("s").split(" ")
    return timedelta(**{f"{unit}s": int(number)})


def get_max_bytes(properties: Mapping[str, str]) -> int:
    """Get how many bytes a commit of equality deletes may read."""
    return int(_get_text(properties, MAX_BYTES))


def get_scan_planning_mode(properties: Mapping[str, str], format_version: int) -> str | None:
    """Get who must plan scans, `client` or `server`; None where the client may choose.

    Java loses row lineage of format version 3 where the server plans, so `auto` is `client` there.
    """
    wanted = _get_text(properties, SCAN_PLANNING)
    if wanted == "auto":
        return "client" if format_version >= 3 else None
    return wanted


def get_max_listed(properties: Mapping[str, str]) -> int:
    """Get the largest number of snapshots that are listed."""
    return int(_get_text(properties, MAX_LISTED))


def get_max_previous_versions(properties: Mapping[str, str]) -> int:
    """Get how many entries the metadata log keeps: at least one; the default where the property is no number."""
    text = properties.get(PREVIOUS_VERSIONS, "")
    return max(1, int(text)) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else _DEFAULT_PREVIOUS_VERSIONS


def parse_ref_age(text: str) -> int:
    """Parse for how many milliseconds a branch or tag is kept, up to the largest long. Raises ValueError.

    `maintenance.sql` has the same pattern.
    """
    if not re.fullmatch(r"0*[1-9][0-9]{0,18}", text.strip()):
        raise ValueError(text)
    return int(text)


def is_gc_disabled(properties: Mapping[str, str]) -> bool:
    """Return whether engines must not delete files of the table."""
    return properties.get(GC_ENABLED, "").lower() == "false"


def is_schema_enforced(properties: Mapping[str, str]) -> bool:
    """Return whether a commit checks the footers of its files; InvalidRequestError for an unknown level."""
    level = properties.get(ENFORCEMENT, "metrics")
    if level not in _ENFORCEMENT_LEVELS:
        raise InvalidRequestError(f"The table property {ENFORCEMENT} is {level!r}: write strict or metrics")
    return level == "strict"


def _get_text(properties: Mapping[str, str], name: str) -> str:
    form = _FORMS[name]
    text = properties.get(name, form.default)
    _check_form(name, text, form.pattern, form.description)
    return text


def _check_form(name: str, text: str, pattern: str, description: str) -> None:
    if not re.fullmatch(pattern, text, re.ASCII):
        raise InvalidRequestError(f"The table property {name} is {text!r}: write {description}")


def _suggest_name(wrong: str) -> str:
    known = {name.partition(".")[2]: name for name in sorted({*_FORMS, *_OPTION_PROPERTIES})}
    near = get_close_matches(wrong.lower().partition(".")[2], known, n=1)
    return f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(known.values())}"
