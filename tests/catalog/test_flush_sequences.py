"""The server's flush in the middle of whatever both sides do, at random: every row is read once, and no other."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.flush import flush_rows
from tests.support.client import NS
from tests.support.seams import Interrupted, fresh
from tests.support.table_history import FLUSH, MERGE, History, Rows

STEPS = 24
SEEDS = (1, pytest.param(2, marks=pytest.mark.model))


class Sequence:
    """Acts on one table, which Iceberg clients load after each."""

    def __init__(self, table: History, chance: random.Random, maintenance: tuple[str, ...]) -> None:
        self.table, self.chance, self.maintenance = table, chance, maintenance

    def some(self) -> list[int]:
        ids = self.table.ids()
        return self.chance.sample(ids, min(len(ids), self.chance.choice((1, 2, 5))))

    def append(self) -> None:
        self.table.append(number=3)

    def delete(self) -> None:
        if ids := self.some():
            self.table.delete("main", ids)

    def overwrite(self) -> None:
        if ids := self.some():
            self.table.overwrite("main", ids[:1])

    def insert(self) -> None:
        self.table.insert(self.chance.choice((1, 2, 15)))

    def delete_in_duckdb(self) -> None:
        self.table.delete_in_duckdb(self.some())

    def update_in_duckdb(self) -> None:
        self.table.rename_in_duckdb(self.some(), f"u{self.chance.randrange(1000)}-")

    def maintain_in_duckdb(self) -> None:
        """Without `ducklake_rewrite_data_files`, after which DuckDB takes older versions to have only newer values."""
        self.table.duckdb(self.chance.choice(self.maintenance))

    def add_column(self) -> None:
        self.table.duckdb(f"ALTER TABLE lake.ns.t ADD COLUMN c{next(self.table.numbers)} INTEGER DEFAULT 3")

    def flush(self) -> None:
        """Flush, and let others do something once the rows are read."""
        shown: list[Rows] = [self.table.rows()]

        def meanwhile() -> None:
            for _ in range(self.chance.choice((1, 1, 2, 3))):
                self.chance.choice(self.acts)()
            shown.append(self.table.rows())

        services = replace(fresh(self.table.services), store=Interrupted(self.table.services.store, [meanwhile]))
        flush_rows(services, NS, "t")
        self.table.shown[self.table.head()] = shown[-1]
        self.table.note()

    @property
    def acts(self) -> list[Callable[[], None]]:
        return [
            self.append, self.delete, self.overwrite, self.insert, self.insert, self.delete_in_duckdb,
            self.delete_in_duckdb, self.update_in_duckdb, self.maintain_in_duckdb, self.add_column,
        ]  # fmt: skip

    def check(self) -> None:
        self.table.check_main()
        assert examine_tables(self.table.services.database)[0] == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "maintenance",
    [pytest.param((MERGE,), marks=pytest.mark.model, id="merge"), pytest.param((MERGE, FLUSH), id="merge-and-flush")],
)
def test_flushes_between_acts_of_both_sides(history: History, seed: int, maintenance: tuple[str, ...]) -> None:
    """After DuckDB's own flush two delete files of a data file may hold in versions of before (MISSING.md)."""
    sequence = Sequence(history, random.Random(seed), maintenance)
    history.append(number=6)
    for number in range(STEPS):
        act = sequence.chance.choice([*sequence.acts, *[sequence.flush] * 6])
        act()
        if number % 4 == 3 or act == sequence.flush:
            sequence.check()
    sequence.check()
    if FLUSH not in maintenance:
        history.check()
