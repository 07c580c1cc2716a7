"""A run: steps, each an operation and the seed of what it chooses; made at random, done again, and made shorter."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.model.checks import check, check_duckdb, check_everything
from tests.model.lake import Lake
from tests.model.operations import Operation
from tests.model.operations_duckdb import DUCKDB
from tests.model.operations_duckdb_tables import DUCKDB_TABLES
from tests.model.operations_pyiceberg import PYICEBERG
from tests.model.operations_pyiceberg_tables import PYICEBERG_TABLES
from tests.model.operations_server import SERVER

CLIENTS = (DUCKDB, DUCKDB_TABLES, PYICEBERG, PYICEBERG_TABLES, SERVER)
OPERATIONS: dict[str, Operation] = {name: each for client in CLIENTS for name, each in client.operations.items()}
UNSEEN = 0.25
"""How often nobody loads a table through the catalog after what DuckDB did to it."""


OTHERS = 0.1
"""How often tables are checked that nothing was done to."""


@dataclass(frozen=True, slots=True)
class Step:
    """An operation by name. Its seed decides all that it chooses; where it isn't possible it is left out."""

    operation: str
    seed: int

    def __str__(self) -> str:
        return f"{self.operation}:{self.seed}"

    def run(self, lake: Lake) -> None:
        operation, random = OPERATIONS[self.operation], Random(self.seed)
        if not operation.possible(lake):
            return
        before = {id(table): table.main for table in lake.tables}
        target = operation.run(lake, random)
        changed = [table for table in lake.tables if before.get(id(table)) is not table.main]
        touched = [t for t in lake.tables if t is target or t in changed or random.random() < OTHERS]
        native = operation.name.startswith("duckdb.")
        for table in changed if native else touched:
            table.row_ids = {}
        if native and random.random() < UNSEEN:
            for table in touched:
                check_duckdb(lake, table, random)
        else:
            check(lake, touched, random)


def parse(plan: str) -> list[Step]:
    """The steps of a plan as text: what a failed run prints."""
    pairs = (step.rsplit(":", 1) for step in plan.split())
    return [Step(name, int(seed)) for name, seed in pairs]


def chosen(lake: Lake, seed: int, number: int) -> Iterator[Step]:
    """Steps at random; each is possible in the state that the steps before leave the lake in."""
    random = Random(seed)
    for _ in range(number):
        possible = [each for each in OPERATIONS.values() if each.possible(lake)]
        (operation,) = random.choices(possible, [each.weight for each in possible])
        yield Step(operation.name, random.getrandbits(32))


class RunError(AssertionError):
    """A run failed at its last step; `plan` are all its steps."""

    def __init__(self, plan: Sequence[Step], log: Sequence[str]) -> None:
        super().__init__("\n".join([*log, "", f"plan: {' '.join(map(str, plan))}"]))
        self.plan = list(plan)


def run(lake: Lake, steps: Iterator[Step] | Sequence[Step]) -> None:
    """Do the steps and check each, then everything. RunError, with its cause, if anything isn't as it must be."""
    done: list[Step] = []
    try:
        for step in steps:
            done.append(step)
            step.run(lake)
        check_everything(lake, Random(0))
    except Exception as error:
        raise RunError(done, lake.log) from error


def shrunk(plan: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> list[Step]:
    """A shorter plan that still fails: parts are left out, large ones first, while it does."""
    kept, size = list(plan), max(1, len(plan) // 2)
    while size:
        at = 0
        while at < len(kept):
            without = kept[:at] + kept[at + size :]
            if without and fails(without):
                kept = without
            else:
                at += size
        size //= 2
    return kept
