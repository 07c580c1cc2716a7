"""PURE. Plan maintenance: from the state and the policy of tables to jobs with reasons."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from duckicelake.errors import BadInputError, MissingTableError, format_count
from duckicelake.maintenance.layout import RowOrder, RowSortKey, parse_order, parse_sort_keys
from duckicelake.maintenance.policy import DAY_MS, HOUR_MS, JOB_KINDS, MIN_DELETE_RATIO, MaintenancePolicy, parse_policy
from duckicelake.maintenance.task import TaskEstimate, UpkeepTask, estimate_rewrite
from duckicelake.rest.names import format_name, parse_table

_DELETES_VERSION: Final = 2
"""Iceberg's first format version with delete files."""
_DONE_BY_SORT: Final = frozenset({"compact", "bloom-filters"})
"""What a sort does as well, as it writes all files."""


@dataclass(frozen=True, slots=True)
class MaintenanceState:
    """One table; sizes are bytes, times milliseconds since the epoch.

    small_by_partition: in how many partitions there are so many files under 3/4 of the target size, which fewer could
    hold. by_deleted_tenths: how many files have lost a tenth of their rows or more, two tenths, … nine tenths.
    sorted_by: the order in which a job wrote all files, in the columns' present names; None: none did, it didn't say,
    or only the settings of a server ask for one. sortable_columns: in lower case; None: it didn't say.
    has_single_values: whether any column has, not only structs, lists, maps, variants and geometries.
    """

    namespace: tuple[str, ...]
    table: str
    policies: Mapping[str, str] = field(default_factory=dict)
    format_version: int | None = None
    target_size: int = 512 * 1024 * 1024
    files: int = 0
    bytes: int = 0
    deleted: int = 0
    unsorted_bytes: int = 0
    unfiltered_bytes: int = 0
    sorted_by: str | None = None
    sortable_columns: Sequence[str] | None = None
    by_deleted_tenths: tuple[int, ...] = (0,) * 9
    small_by_partition: Mapping[int, int] = field(default_factory=dict)
    small_files: int = 0
    small_bytes: int = 0
    inlined_rows: int = 0
    inlined_oldest_ms: int | None = None
    files_with_deletes: int = 0
    delete_files: int = 0
    snapshots: int = 0
    oldest_ms: int | None = None
    refs_end_ms: int | None = None
    branch_age_ms: int | None = None
    current_ms: int | None = None
    described_ms: int | None = None
    cleaned_ms: int | None = None
    manifests: int = 0
    small_manifests: int = 0
    plain_deletes: int = 0
    has_single_values: bool = True


_STATE_FIELDS: Final = {
    state_field.name.replace("_", "-"): state_field.name for state_field in fields(MaintenanceState)
}


def parse_state(fields_json: Mapping[str, Any]) -> MaintenanceState:
    """Return the table's state from the catalog's JSON."""
    values = {_STATE_FIELDS[key]: value for key, value in fields_json.items() if key in _STATE_FIELDS}
    values["namespace"] = tuple(values["namespace"])
    values["by_deleted_tenths"] = tuple(values["by_deleted_tenths"])
    values["small_by_partition"] = {int(files): parts for files, parts in values["small_by_partition"].items()}
    return MaintenanceState(**values)


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs, those of a table in the order in which they must run; and what is wrong with tables that get none."""

    jobs: tuple[UpkeepTask, ...]
    problems: tuple[str, ...] = ()

    @property
    def needs_spark(self) -> bool:
        """Whether there is a job that the catalog doesn't do itself."""
        return not all(job.is_the_catalogs for job in self.jobs)


def plan_jobs(tables: Iterable[MaintenanceState], now_ms: int, kinds: Collection[str] = ()) -> Plan:
    """Return what the tables need now. kinds: only these; none given: all. BadInputError for one that there isn't."""
    for unknown in set(kinds) - set(JOB_KINDS):
        raise BadInputError(f"there is no job {unknown!r}: choose of {', '.join(JOB_KINDS)}")
    jobs: list[UpkeepTask] = []
    problems: list[str] = []
    for table in sorted(tables, key=lambda table: (table.namespace, table.table)):
        try:
            policy = parse_policy(table.policies)
        except BadInputError as error:
            problems.append(f"{format_name(table.namespace, table.table)} is left alone: {error}")
            continue
        if policy.enabled:
            jobs += _plan_table(table, policy, now_ms, kinds)
    return Plan(tuple(jobs), tuple(problems))


def _plan_table(
    table: MaintenanceState, policy: MaintenancePolicy, now_ms: int, kinds: Collection[str]
) -> Iterator[UpkeepTask]:
    for kind in JOB_KINDS:
        if (kinds and kind not in kinds) or _is_left_to_sort(kind, table, policy, kinds):
            continue
        why = _REASONS[kind](table, policy, now_ms)
        if why is not None:
            estimate = _estimate(kind, table, policy)
            yield UpkeepTask(kind, table.namespace, table.table, why, policy, table.target_size, estimate=estimate)


def _is_left_to_sort(kind: str, table: MaintenanceState, policy: MaintenancePolicy, kinds: Collection[str]) -> bool:
    """Return whether a sort that is due does the job as well: one of the same kinds, or of the same workers.

    One whose order names columns that the table doesn't have can't be done, and does nothing as well.
    """
    if kind not in _DONE_BY_SORT or _explain_sort(table, policy, 0) is None or not _can_sort(table, policy):
        return False
    if kinds:
        return "sort" in kinds
    return "sort" in policy.automatic or kind not in policy.automatic


def _can_sort(table: MaintenanceState, policy: MaintenancePolicy) -> bool:
    if policy.order is None or table.sortable_columns is None:
        return True
    return {key.part.name.lower() for key in policy.order.keys}.issubset(table.sortable_columns)


def _estimate(kind: str, table: MaintenanceState, policy: MaintenancePolicy) -> TaskEstimate:
    """Compute what a task costs and gains."""
    if kind == "sort":
        left = -(-table.bytes // table.target_size)
        return estimate_rewrite(table.files, table.bytes, table.files, table.bytes, min(table.files, left))
    if kind == "compact":
        return _estimate_compaction(table, policy)
    if kind == "rewrite-deletes":
        saved = table.delete_files - table.files_with_deletes
        whole = table.files + table.delete_files
        return TaskEstimate(table.delete_files, 0, saved, whole / max(1, whole - saved), 1.0)
    if kind == "pack-manifests":
        left = max(1, table.manifests - table.small_manifests + -(-table.small_manifests // policy.small_manifests))
        return TaskEstimate(table.small_manifests, 0, table.manifests - left, table.manifests / left, 1.0)
    if kind == "bloom-filters":
        return TaskEstimate(table.files, table.unfiltered_bytes)
    if kind == "statistics":
        return TaskEstimate(table.files, table.bytes)
    return TaskEstimate()


def _estimate_compaction(table: MaintenanceState, policy: MaintenancePolicy) -> TaskEstimate:
    merged = _find_mergeable(table, policy)
    small = sum(files * parts for files, parts in merged.items())
    small_bytes = table.small_bytes * small // max(1, table.small_files)
    left = max(sum(merged.values()), -(-small_bytes // table.target_size))
    thinned = min(count_files_with_deletes(table, policy.delete_ratio), max(0, table.files - small))
    thinned_bytes = table.bytes * thinned // max(1, table.files)
    return estimate_rewrite(table.files, table.bytes, small + thinned, small_bytes + thinned_bytes, left + thinned)


def _find_mergeable(table: MaintenanceState, policy: MaintenancePolicy) -> dict[int, int]:
    """Find partitions with enough small files: how many have how many."""
    least = max(policy.min_files, 2)
    return {files: parts for files, parts in table.small_by_partition.items() if files >= least}


def _explain_flush(table: MaintenanceState, policy: MaintenancePolicy, now_ms: int) -> str | None:
    rows = table.inlined_rows
    if rows and rows >= policy.flush_rows:
        return f"{format_count(rows, 'row')} in Postgres, from {policy.flush_rows:,} on they go to a file"
    if rows and now_ms - (table.inlined_oldest_ms or 0) >= policy.flush_age:
        return f"{format_count(rows, 'row')} in Postgres, the oldest for longer than {_format_age(policy.flush_age)}"
    return None


def _explain_sort(table: MaintenanceState, policy: MaintenancePolicy, _: int) -> str | None:
    if policy.order is None or not table.bytes:
        return None
    if table.sorted_by is not None and table.sorted_by.lower() != str(policy.order).lower():
        return f"{format_size(table.bytes)} are sorted by {table.sorted_by}, and the table asks for {policy.order}"
    share = table.unsorted_bytes / table.bytes
    if share < policy.unsorted_share:
        return None
    limit = f"from {policy.unsorted_share:.0%} on all is sorted again"
    return f"{share:.0%} of {format_size(table.bytes)} aren't sorted by {policy.order}, {limit}"


def _explain_compaction(table: MaintenanceState, policy: MaintenancePolicy, _: int) -> str | None:
    if not policy.compacts:
        return None
    merged = _find_mergeable(table, policy)
    thinned = count_files_with_deletes(table, policy.delete_ratio)
    reasons = []
    if merged:
        files = sum(files * parts for files, parts in merged.items())
        where = format_count(sum(merged.values()), "partition")
        reasons.append(
            f"{files:,} files in {where} are under 3/4 of the target size of {format_size(table.target_size)}"
        )
    if thinned:
        reasons.append(f"{format_count(thinned, 'file')} lost {policy.delete_ratio:.0%} of the rows or more")
    return "; ".join(reasons) or None


def _explain_filters(table: MaintenanceState, policy: MaintenancePolicy, _: int) -> str | None:
    share = table.unfiltered_bytes / max(table.bytes, 1)
    if not policy.filter_columns or share < policy.unfiltered_share:
        return None
    columns = ", ".join(policy.filter_columns)
    return f"{share:.0%} of {format_size(table.bytes)} may have no Bloom filters, which the table asks for: {columns}"


def count_files_with_deletes(table: MaintenanceState, ratio: float) -> int:
    """Return how many files have lost at least this share of their rows, in tenths; 0.25 counts as 0.3."""
    tenth = -int(-ratio * 10 // 1)
    return table.by_deleted_tenths[max(1, min(tenth, 9)) - 1]


def _explain_delete_rewrite(table: MaintenanceState, policy: MaintenancePolicy, _: int) -> str | None:
    if (table.format_version or 0) < _DELETES_VERSION:
        return None
    if table.delete_files - table.files_with_deletes >= policy.excess_deletes:
        delete_files = format_count(table.delete_files, "delete file")
        return f"{delete_files} for {format_count(table.files_with_deletes, 'data file')} with deletes"
    if table.plain_deletes >= policy.excess_deletes:
        return f"{format_count(table.plain_deletes, 'delete file')} from before the table had deletion vectors"
    return None


def _explain_manifest_packing(table: MaintenanceState, policy: MaintenancePolicy, _: int) -> str | None:
    if table.small_manifests < policy.small_manifests:
        return None
    small, manifests = table.small_manifests, format_count(table.manifests, "manifest")
    return f"{small:,} of {manifests} have fewer than 1,000 files, and no client laid them out"


def _explain_statistics(table: MaintenanceState, policy: MaintenancePolicy, now_ms: int) -> str | None:
    if not (policy.statistics and table.has_single_values and table.files + table.inlined_rows):
        return None
    if table.described_ms is None:
        return "no snapshot has statistics of distinct values yet"
    is_old = now_ms - table.described_ms >= policy.statistics_age
    if not is_old or table.described_ms >= (table.current_ms or 0):
        return None
    return f"it has changed since its statistics were made, more than {_format_age(policy.statistics_age)} ago"


def _explain_expiry(table: MaintenanceState, policy: MaintenancePolicy, now_ms: int) -> str | None:
    if not policy.expires:
        return None
    if table.refs_end_ms is not None and now_ms > table.refs_end_ms:
        return "a branch or tag is older than it may be"
    if table.snapshots <= policy.snapshots_kept or table.oldest_ms is None:
        return None
    limit = max(min(policy.snapshot_age, table.branch_age_ms or policy.snapshot_age), policy.ducklake_age)
    if now_ms - table.oldest_ms < limit:
        return None
    age = _format_age(limit)
    return f"some of {format_count(table.snapshots, 'snapshot')} are older than {age}, which is how long they are kept"


def _explain_orphan_removal(table: MaintenanceState, policy: MaintenancePolicy, now_ms: int) -> str | None:
    if not policy.orphans or table.format_version is None or now_ms - (table.cleaned_ms or 0) < policy.orphans_every:
        return None
    looked = (
        "not looked for yet"
        if table.cleaned_ms is None
        else f"last looked for {_format_age(now_ms - table.cleaned_ms)} ago"
    )
    return f"files of writers that failed were {looked}"


_REASONS: Final[dict[str, Callable[[MaintenanceState, MaintenancePolicy, int], str | None]]] = {
    "flush": _explain_flush,
    "sort": _explain_sort,
    "compact": _explain_compaction,
    "bloom-filters": _explain_filters,
    "rewrite-deletes": _explain_delete_rewrite,
    "pack-manifests": _explain_manifest_packing,
    "statistics": _explain_statistics,
    "expire": _explain_expiry,
    "remove-orphans": _explain_orphan_removal,
}


def format_size(size: int) -> str:
    """Format a number of bytes with a unit of powers of 1000, as the console and the other commands do."""
    number = float(size)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            break
        number /= 1000
    return f"{number:,.{0 if unit == 'bytes' or number >= 100 else 1}f} {unit}"


def _format_age(milliseconds: int) -> str:
    if milliseconds >= 2 * DAY_MS:
        return f"{milliseconds // DAY_MS} days"
    return f"{milliseconds // HOUR_MS} hours" if milliseconds >= 2 * HOUR_MS else f"{milliseconds // 60_000} minutes"


def parse_order_options(sort_by: str | None, zorder_by: str | None) -> RowOrder | None:
    """Return the order that rows are to be in within files; None: as they lie. BadInputError."""
    if sort_by is not None and zorder_by is not None:
        raise BadInputError("--sort-by and --zorder-by are two ways to lay out the same rows: give one of them")
    if zorder_by is None:
        return None if sort_by is None else parse_order(sort_by)
    keys = parse_sort_keys(zorder_by)
    if any(key != RowSortKey(key.part) or key.part.transform != "identity" for key in keys):
        raise BadInputError(f"--zorder-by takes plain columns, as day,customer, not {zorder_by!r}")
    return RowOrder(keys, is_zorder=True)


def plan_optimization(
    tables: Iterator[MaintenanceState], name: str, order: RowOrder | None, where: str | None, target_size: int | None
) -> Plan:
    """Return the one job: with an order all files are rewritten, without one those that are small or have deletes.

    `where` limits it to files that may hold such rows. Later plans don't compare the policy's order with another one.
    MissingTableError if the catalog doesn't have the table.
    """
    namespace, table = parse_table(name)
    state = next(tables, None)
    if state is None:
        raise MissingTableError(f"there is no table {format_name(namespace, table)}")
    policy = parse_policy(state.policies)
    wanted = replace(policy, order=order or policy.order, min_files=2, delete_ratio=MIN_DELETE_RATIO)
    return Plan(
        (
            UpkeepTask(
                kind="compact" if order is None else "sort",
                namespace=namespace,
                table=table,
                why="asked for" + (f", where {where}" if where else ""),
                policy=wanted,
                target_size=target_size or state.target_size,
                where=where,
                notes_order=order is None or order == policy.order,
            ),
        )
    )
