"""Iceberg clients and DuckDB do whatever they like in any order, and every snapshot shows what it always showed."""

import random
from collections.abc import Callable

import pytest

from tests.catalog.history import FLUSH, MERGE, History


class Actor:
    """Does one thing after the other to a table, whatever the specification allows."""

    def __init__(self, seed: int, history: History) -> None:
        self.random = random.Random(seed)
        self.history = history
        self.staged: list[int] = []
        self.log: list[str] = []

    def act(self) -> None:
        acts: list[Callable[[], object]] = [
            self.append, self.append, self.delete, self.delete, self.overwrite, self.compact, self.stage, self.pick,
            self.move, self.move, self.branch, self.insert, self.insert, self.delete_in_duckdb, self.delete_in_duckdb,
            self.rename, self.flush, self.merge, self.clean, self.forget,
        ]  # fmt: skip
        chosen = self.random.choice(acts)
        self.log.append(chosen.__name__)
        chosen()

    def branches(self) -> list[str]:
        refs = self.history.metadata()["refs"]
        return [name for name, ref in refs.items() if ref["type"] == "branch"]

    def somewhere(self) -> str:
        return self.random.choice(["main", *self.branches()])

    def listed(self) -> list[int]:
        return sorted(self.history.snapshot_ids())

    def some(self, ref: str = "main", most: int = 3) -> list[int]:
        ids = self.history.ids(ref)
        return self.random.sample(ids, min(len(ids), self.random.randint(1, most)))

    def append(self) -> None:
        self.history.append(self.somewhere(), self.random.randint(1, 4))

    def delete(self) -> None:
        ref = self.somewhere()
        if ids := self.some(ref):
            self.history.delete(ref, ids)

    def overwrite(self) -> None:
        ref = self.somewhere()
        if ids := self.some(ref, 1):
            self.history.overwrite(ref, ids)

    def compact(self) -> None:
        ref = self.somewhere()
        if self.history.ids(ref):
            self.history.compact(ref)

    def stage(self) -> None:
        self.staged.append(self.history.append(None))

    def pick(self) -> None:
        """Each once, as clients refuse to publish one twice."""
        self.staged = [each for each in self.staged if each in self.history.snapshot_ids()]
        if self.staged:
            staged = self.staged.pop()
            rows = self.history.shown[staged] - self.history.rows()
            if len(rows) >= 3:
                self.history.cherry_pick(staged)

    def move(self) -> None:
        self.history.set_ref(self.somewhere(), self.random.choice(self.listed()))

    def branch(self) -> None:
        name, target = f"b{self.random.randint(1, 3)}", self.random.choice(self.listed())
        self.history.set_ref(name, target)

    def insert(self) -> None:
        self.history.insert(self.random.choice([1, 3, 12]))

    def delete_in_duckdb(self) -> None:
        self.history.delete_in_duckdb(self.some(most=self.random.choice([2, 14])))

    def rename(self) -> None:
        self.history.rename_in_duckdb(self.some(), f"v{len(self.log)}-")

    def flush(self) -> None:
        self.history.duckdb(FLUSH)

    def merge(self) -> None:
        self.history.duckdb(MERGE)

    def clean(self) -> None:
        if self.random.random() < 0.5:
            self.history.clean_in_duckdb()

    def forget(self) -> None:
        refs = {ref["snapshot-id"] for ref in self.history.metadata()["refs"].values()}
        loose = [each for each in self.listed() if each not in refs]
        self.history.expire(self.random.sample(loose, len(loose) // 3))


@pytest.mark.parametrize("history", ["client-2", "client-3", "ducklake-2", "ducklake-3"], indirect=True)
@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_acts_keeps_every_snapshot(history: History, seed: int) -> None:
    history.append()
    actor = Actor(seed, history)
    for number in range(20):
        actor.act()
        try:
            history.check_main()
            if number % 7 == 6:
                history.check()
        except AssertionError as error:
            raise AssertionError(actor.log) from error
    history.check()
