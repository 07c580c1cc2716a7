"""What an operation is: something that one client does to the lake, and its effect on the model."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.model.lake import Lake
from tests.model.model import Table

OnTable = Callable[[Lake, Table, Random], None]
OnLake = Callable[[Lake, Random], None]
When = Callable[[Table], bool]


@dataclass(frozen=True, slots=True)
class Operation:
    """An act with its precondition: the tables that it may be done to. What it chooses, it chooses by the Random."""

    name: str
    act: OnTable
    when: When
    weight: int
    tables_needed: int = 1

    def targets(self, lake: Lake) -> list[Table]:
        return [table for table in lake.tables if self.when(table)]

    def possible(self, lake: Lake) -> bool:
        return len(self.targets(lake)) >= self.tables_needed

    def run(self, lake: Lake, random: Random) -> Table:
        """Do it to one of the tables that it may be done to."""
        target = random.choice(self.targets(lake))
        self.act(lake, target, random)
        return target


@dataclass(frozen=True, slots=True)
class Client:
    """The operations of one client, by name."""

    name: str
    operations: dict[str, Operation] = field(default_factory=dict)

    def may(self, weight: int = 1, when: When = lambda _: True, tables_needed: int = 1) -> Callable[[OnTable], OnTable]:
        """Add the function as an operation on a table for which `when` holds."""

        def add(act: OnTable) -> OnTable:
            name = f"{self.name}.{act.__name__}"
            self.operations[name] = Operation(name, act, when, weight, tables_needed)
            return act

        return add


def has_rows(table: Table) -> bool:
    return bool(table.rows)


def has_snapshots(table: Table) -> bool:
    return bool(table.snapshots)


def is_unpartitioned(table: Table) -> bool:
    return not table.partitioned
