"""PURE. The table that rows go to, how they are written, and its name in Spark."""

from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from duckicelake.errors import BadInputError
from duckicelake.rest.names import Namespace, format_name, quote_name

CATALOG_NAME: Final = "lake"
WriteMode = Literal["append", "overwrite", "overwrite-partitions", "merge"]
WRITE_MODES: Final = frozenset(get_args(WriteMode))


def format_sql_name(namespace: Namespace, table: str) -> str:
    """Return a table of the catalog in Spark's SQL."""
    return quote_name(CATALOG_NAME, *namespace, table)


@dataclass(frozen=True, slots=True)
class Target:
    """A table by name, and how it is to be laid out; None: as it is, or not at all if it is made."""

    namespace: Namespace
    table: str
    partition_by: str | None = None
    sort_by: str | None = None

    @property
    def sql(self) -> str:
        return format_sql_name(self.namespace, self.table)

    def __str__(self) -> str:
        return format_name(self.namespace, self.table)


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """How rows go to a table. quarantine: where bad ones go. keys: of a merge. may_change: columns may be added."""

    target: Target
    quarantine: Target
    mode: WriteMode = "append"
    keys: tuple[str, ...] = ()
    may_change: bool = True


def build_load_request(
    target: Target,
    mode: str = "append",
    keys: tuple[str, ...] = (),
    *,
    may_change: bool = True,
    quarantine: Target | None = None,
) -> LoadRequest:
    """Check a request to load; the quarantine is `<table>_quarantine` unless it is named. BadInputError."""
    if mode not in WRITE_MODES:
        raise BadInputError(f"--mode {mode}: there are {', '.join(sorted(WRITE_MODES))}")
    if (mode == "merge") != bool(keys):
        raise BadInputError("--mode merge and --key go together: rows with equal keys are the same row")
    beside = quarantine or Target(target.namespace, f"{target.table}_quarantine")
    if (beside.namespace, beside.table) == (target.namespace, target.table):
        raise BadInputError("Bad records can't go to the table itself: give --quarantine another name")
    return LoadRequest(target, beside, cast("WriteMode", mode), keys, may_change)
