"""PURE. What tables need: from how they are and how they are to be kept to jobs, each with the reason in words."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from duckicelake.errors import BadInput
from duckicelake.pipeline.policy import DAY_MS, HOUR_MS, Policy, policy_of
from duckicelake.pipeline.state import TableState
from duckicelake.rest.names import shown


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """Something to be done to one table, and why; `where`: only to files that may hold such rows."""

    kind: str
    namespace: tuple[str, ...]
    table: str
    why: str
    policy: Policy
    target_size: int
    where: str | None = None

    @property
    def is_the_catalogs(self) -> bool:
        """Whether the catalog does it itself."""
        return self.kind == "flush" or (self.kind == "expire" and self.policy.shares_files)

    def __str__(self) -> str:
        return f"{self.kind} {shown(self.namespace, self.table)}: {self.why}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Jobs, those of a table in the order in which they must run; and what is wrong with tables that get none."""

    jobs: tuple[PlannedJob, ...]
    problems: tuple[str, ...] = ()

    @property
    def needs_spark(self) -> bool:
        """Whether there is a job that the catalog doesn't do itself."""
        return not all(job.is_the_catalogs for job in self.jobs)


def plan(tables: Iterable[TableState], now_ms: int, kinds: Collection[str] = ()) -> Plan:
    """What the tables need now. kinds: only these; none given: all. BadInput for one that there isn't."""
    for unknown in set(kinds) - set(KINDS):
        raise BadInput(f"there is no job {unknown!r}: choose of {', '.join(KINDS)}")
    jobs: list[PlannedJob] = []
    problems: list[str] = []
    for table in sorted(tables, key=lambda table: (table.namespace, table.table)):
        try:
            policy = policy_of(table.policies)
        except BadInput as error:
            problems.append(f"{shown(table.namespace, table.table)} is left alone: {error}")
            continue
        if policy.enabled:
            jobs += _jobs(table, policy, now_ms, kinds)
    return Plan(tuple(jobs), tuple(problems))


def _jobs(table: TableState, policy: Policy, now_ms: int, kinds: Collection[str]) -> Iterator[PlannedJob]:
    for kind, reason in _REASONS.items():
        why = reason(table, policy, now_ms) if not kinds or kind in kinds else None
        if why is not None:
            yield PlannedJob(kind, table.namespace, table.table, why, policy, table.target_size)


def _flush(table: TableState, policy: Policy, now_ms: int) -> str | None:
    rows = table.inlined_rows
    if rows and rows >= policy.flush_rows:
        return f"{_count(rows, 'row')} in Postgres, from {policy.flush_rows:,} on they go to a file"
    if rows and now_ms - (table.inlined_oldest_ms or 0) >= policy.flush_age:
        return f"{_count(rows, 'row')} in Postgres, the oldest for longer than {_age(policy.flush_age)}"
    return None


def _sort(table: TableState, policy: Policy, _: int) -> str | None:
    if policy.order is None or not table.bytes:
        return None
    share = table.unsorted_bytes / table.bytes
    if share < policy.unsorted_share:
        return None
    limit = f"from {policy.unsorted_share:.0%} on all is sorted again"
    return f"{share:.0%} of {_size(table.bytes)} aren't sorted by {policy.order}, {limit}"


def _compact(table: TableState, policy: Policy, now_ms: int) -> str | None:
    if not policy.compacts or _sort(table, policy, now_ms) is not None:
        return None
    merged = {files: parts for files, parts in table.small_by_partition.items() if files >= max(policy.min_files, 2)}
    thinned = files_with_deletes(table, policy.delete_ratio)
    reasons = []
    if merged:
        files = sum(files * parts for files, parts in merged.items())
        where = _count(sum(merged.values()), "partition")
        reasons.append(f"{files:,} files in {where} are under 3/4 of the target size of {_size(table.target_size)}")
    if thinned:
        reasons.append(f"{_count(thinned, 'file')} lost {policy.delete_ratio:.0%} of the rows or more")
    return "; ".join(reasons) or None


def files_with_deletes(table: TableState, ratio: float) -> int:
    """How many files have lost at least this share of their rows, as far as tenths tell; 0.25 counts as 0.3."""
    tenth = -int(-ratio * 10 // 1)
    return table.by_deleted_tenths[max(1, min(tenth, 9)) - 1]


def _rewrite_deletes(table: TableState, policy: Policy, _: int) -> str | None:
    excess = table.delete_files - table.files_with_deletes
    if table.format_version != 2 or excess < policy.excess_deletes:
        return None
    return (
        f"{_count(table.delete_files, 'delete file')} for {_count(table.files_with_deletes, 'data file')} with deletes"
    )


def _pack_manifests(table: TableState, policy: Policy, _: int) -> str | None:
    if table.small_manifests < policy.small_manifests:
        return None
    small, manifests = table.small_manifests, _count(table.manifests, "manifest")
    return f"{small:,} of {manifests} have fewer than 1,000 files, and no client laid them out"


def _statistics(table: TableState, policy: Policy, now_ms: int) -> str | None:
    if not policy.statistics or not table.files + table.inlined_rows:
        return None
    if table.described_ms is None:
        return "no snapshot has statistics of distinct values yet"
    is_old = now_ms - table.described_ms >= policy.statistics_age
    if not is_old or table.described_ms >= (table.current_ms or 0):
        return None
    return f"it has changed since its statistics were made, more than {_age(policy.statistics_age)} ago"


def _expire(table: TableState, policy: Policy, now_ms: int) -> str | None:
    if not policy.expires or table.snapshots <= policy.snapshots_kept or table.oldest_ms is None:
        return None
    if now_ms - table.oldest_ms < policy.snapshot_age:
        return None
    age = _age(policy.snapshot_age)
    return f"some of {_count(table.snapshots, 'snapshot')} are older than {age}, which is how long they are kept"


def _remove_orphans(table: TableState, policy: Policy, now_ms: int) -> str | None:
    if not policy.orphans or table.format_version is None or now_ms - (table.cleaned_ms or 0) < policy.orphans_every:
        return None
    looked = (
        "not looked for yet" if table.cleaned_ms is None else f"last looked for {_age(now_ms - table.cleaned_ms)} ago"
    )
    return f"files of writers that failed were {looked}"


_REASONS: Final[dict[str, Callable[[TableState, Policy, int], str | None]]] = {
    "flush": _flush,
    "sort": _sort,
    "compact": _compact,
    "rewrite-deletes": _rewrite_deletes,
    "pack-manifests": _pack_manifests,
    "statistics": _statistics,
    "expire": _expire,
    "remove-orphans": _remove_orphans,
}
KINDS: Final = tuple(_REASONS)
"""All kinds of jobs, in the order in which those of one table run."""


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(size: int) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1024:
            return f"{size:,.0f} {unit}"
        size /= 1024  # type: ignore[assignment]
    return f"{size:,.1f} TB"


def _age(milliseconds: int) -> str:
    if milliseconds >= 2 * DAY_MS:
        return f"{milliseconds // DAY_MS} days"
    return f"{milliseconds // HOUR_MS} hours" if milliseconds >= 2 * HOUR_MS else f"{milliseconds // 60_000} minutes"
