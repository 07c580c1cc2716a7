"""PURE. Where rows go, and how."""

from dataclasses import dataclass
from typing import Final, Literal, cast, get_args

from duckicelake.errors import BadInput
from duckicelake.pipeline.spark_names import sql_name
from duckicelake.rest.names import Namespace, shown

Mode = Literal["append", "overwrite", "overwrite-partitions", "merge"]
MODES: Final = frozenset(get_args(Mode))


@dataclass(frozen=True, slots=True)
class Target:
    """A table by name, and how it is to be laid out; None: as it is, or not at all if it is made."""

    namespace: Namespace
    table: str
    partition_by: str | None = None
    sort_by: str | None = None

    @property
    def sql(self) -> str:
        return sql_name(self.namespace, self.table)

    def __str__(self) -> str:
        return shown(self.namespace, self.table)


@dataclass(frozen=True, slots=True)
class Load:
    """How rows go to a table. quarantine: where bad ones go. keys: of a merge. may_change: columns may be added."""

    target: Target
    quarantine: Target
    mode: Mode = "append"
    keys: tuple[str, ...] = ()
    may_change: bool = True


def load_into(
    target: Target,
    mode: str = "append",
    keys: tuple[str, ...] = (),
    *,
    may_change: bool = True,
    quarantine: Target | None = None,
) -> Load:
    """Check what somebody asked for; the quarantine is `<table>_quarantine` unless it is named. BadInput."""
    if mode not in MODES:
        raise BadInput(f"--mode {mode}: there are {', '.join(sorted(MODES))}")
    if (mode == "merge") != bool(keys):
        raise BadInput("--mode merge and --key go together: rows with equal keys are the same row")
    beside = quarantine or Target(target.namespace, f"{target.table}_quarantine")
    if (beside.namespace, beside.table) == (target.namespace, target.table):
        raise BadInput("Bad records can't go to the table itself: give --quarantine another name")
    return Load(target, beside, cast("Mode", mode), keys, may_change)
