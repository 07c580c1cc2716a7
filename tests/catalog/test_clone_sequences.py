"""Two or three tables that share files, and whatever may happen to them, against what each must show."""

import random
from collections.abc import Callable

import duckdb

from duckicelake.catalog import tables
from duckicelake.catalog.clone import CloneRequest, clone_table
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.expiry import expire_snapshots
from duckicelake.catalog.gc import delete_orphans, find_orphans
from duckicelake.catalog.restore import restore_table
from tests.support.client import NS
from tests.support.foreign_catalog import CLEANERS
from tests.support.seams import fresh
from tests.support.table_history import FLUSH, MERGE, History

STEPS = 20
MOST = 3


class Family:
    """Tables by name. Every act notes what tables show from then on."""

    def __init__(self, first: History, chance: random.Random) -> None:
        self.tables = {first.name: first}
        self.services, self.duck = first.services, first.duck
        self.chance = chance
        self.made = 0

    @property
    def one(self) -> History:
        return self.chance.choice([*self.tables.values()])

    def some(self, table: History) -> list[int]:
        ids = table.ids()
        return self.chance.sample(ids, min(len(ids), 3))

    def append(self) -> None:
        self.one.append(number=3)

    def delete(self) -> None:
        table = self.one
        if ids := self.some(table):
            table.delete("main", ids)

    def insert(self) -> None:
        self.one.insert(self.chance.choice((2, 15)))

    def delete_in_duckdb(self) -> None:
        table = self.one
        table.delete_in_duckdb(self.some(table))

    def maintain(self) -> None:
        before = {table.name: table.rows() for table in self.tables.values()}
        self.duck.execute(self.chance.choice((FLUSH, MERGE))).fetchall()
        for table in self.tables.values():
            table.shown[table.head()] = before[table.name]

    def clone(self) -> None:
        source = self.one
        if len(self.tables) == MOST:
            return self.drop()
        self.made += 1
        name, whole = f"c{self.made}", self.chance.random() < 0.5
        at = self.chance.choice(sorted(source.snapshot_ids()))
        clone_table(self.services, NS, name, CloneRequest((NS, source.name), str(at), whole))
        clone = History(self.services, self.duck, source.format_version, name=name)
        clone.numbers = iter(range(1000 * self.made, 1000 * (self.made + 1)))
        clone.shown = dict(source.shown)
        self.tables[name] = clone
        return None

    def restore(self) -> None:
        table = self.one
        target = self.chance.choice(sorted(table.snapshot_ids()))
        done = restore_table(self.services, NS, table.name, str(target))
        if done.snapshot_id is not None:
            table.shown[done.snapshot_id] = table.shown[target]

    def expire(self) -> None:
        expire_snapshots(self.services, NS, self.one.name, 1 << 60)

    def drop(self) -> None:
        if len(self.tables) > 1:
            name = self.chance.choice([*self.tables])
            del self.tables[name]
            if self.chance.random() < 0.7:
                tables.drop_table(self.services, NS, name, purge=True)
            else:
                self.duck.execute(f"DROP TABLE lake.ns.{name}")

    def clean(self) -> None:
        for statement in CLEANERS:
            self.duck.execute(statement).fetchall()
        delete_orphans(self.services, find_orphans(fresh(self.services), 1 << 60))

    def check(self) -> None:
        for table in self.tables.values():
            table.check_main()


def test_tables_that_share_files_keep_their_rows(
    history: History, ducklake: duckdb.DuckDBPyConnection, services: Services
) -> None:
    family = Family(history, random.Random(history.format_version))
    acts: list[Callable[[], None]] = [
        family.append, family.delete, family.insert, family.insert, family.delete_in_duckdb, family.maintain,
        family.clone, family.clone, family.restore, family.expire, family.drop, family.clean,
    ]  # fmt: skip
    history.append(number=6)
    history.insert(4)
    history.head()
    for number in range(STEPS):
        act = family.chance.choice(acts)
        act()
        if number % 4 == 3 or act in (family.clean, family.drop):
            family.check()
    family.clean()
    family.check()
    assert services.database is history.services.database
    assert ducklake is history.duck
