"""Both sides in turn, at random: whatever engines and DuckDB do to one table, both read the rows that a model has."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import duckdb
import pytest

from duckicelake.catalog.services import Services
from tests.catalog import engine
from tests.catalog.client import Client, Row, assert_files, duckdb_rows, pyiceberg_rows
from tests.catalog.engine import Request
from tests.catalog.seams import fresh

Rows = dict[int, str | None]
FLUSH = "CALL ducklake_flush_inlined_data('lake', schema_name => 'ns', table_name => 't')"
MERGE = "CALL ducklake_merge_adjacent_files('lake', 't', schema => 'ns')"
REWRITE = "CALL ducklake_rewrite_data_files('lake', 't', schema => 'ns', delete_threshold => 0)"
EXPIRE = "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 HOUR)"
CLEAN = "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)"
ORPHANS = "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)"


@dataclass
class Table:
    """A table that both sides change, with what each branch, tag and snapshot must read as."""

    client: Client
    duck: duckdb.DuckDBPyConnection
    random: random.Random
    refs: dict[str, Rows] = field(default_factory=lambda: {"main": {}})
    history: dict[int, Rows] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    next_id: int = 0

    @property
    def main(self) -> Rows:
        return self.refs["main"]

    def step(self) -> None:
        steps: list[tuple[int, Callable[[], None]]] = [
            (6, self.append), (4, self.delete), (4, self.overwrite), (2, self.rewrite), (2, self.compact),
            (3, self.on_branch), (2, self.roll_back), (1, self.publish), (1, self.tag), (1, self.drop_ref),
            (1, self.forget), (6, self.duck_insert), (4, self.duck_delete), (4, self.duck_update),
            (2, self.duck_transaction), (4, self.maintain),
        ]  # fmt: skip
        (act,) = self.random.choices([act for _, act in steps], [weight for weight, _ in steps])
        act()
        self.check()

    def check(self) -> None:
        answer = self.client.load()
        metadata = answer["metadata"]
        assert_files(answer)
        assert duckdb_rows(self.duck) == sorted(self.main.items())
        current = metadata.get("current-snapshot-id")
        assert pyiceberg_rows(answer) == sorted(self.main.items())
        listed = {snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", ())}
        if current is not None:
            self.history[current] = dict(self.main)
        self.history = {id_: rows for id_, rows in self.history.items() if id_ in listed}
        for name, rows in self.refs.items():
            if name in metadata.get("refs", {}):
                assert pyiceberg_rows(answer, metadata["refs"][name]["snapshot-id"]) == sorted(rows.items()), name
        for id_ in self.random.sample(sorted(self.history), min(2, len(self.history))):
            assert pyiceberg_rows(answer, id_) == sorted(self.history[id_].items()), f"snapshot {id_}"

    def commit(self, what: str, request: Request) -> None:
        self.log.append(f"client {what}")
        self.client.commit(request(self.client.metadata()))

    def run(self, *statements: str) -> None:
        self.log += [f"duckdb {statement}" for statement in statements]
        for statement in statements:
            self.duck.execute(statement).fetchall()

    def new_rows(self, at_most: int = 14) -> list[Row]:
        count = self.random.randint(1, at_most)
        rows = [(self.next_id + i, self.random.choice([None, "", f"r{self.next_id + i}"])) for i in range(count)]
        self.next_id += count
        return rows

    def some(self, rows: Rows) -> list[int]:
        chance = self.random.choice([0.1, 0.5, 1])
        return [id_ for id_ in rows if self.random.random() < chance]

    def append(self, branch: str = "main") -> None:
        rows = self.new_rows()
        self.commit(f"append {len(rows)} to {branch}", engine.append(*rows, branch=branch))
        self.refs[branch].update(rows)

    def delete(self, branch: str = "main") -> None:
        ids = self.some(self.refs[branch])
        if ids:
            kinds = [engine.delete_rows(ids, branch), engine.delete_positions(ids, branch),
                     engine.delete_equal(*ids, branch=branch)]  # fmt: skip
            self.commit(f"delete {ids} from {branch}", self.random.choice(kinds))
            self.refs[branch] = {id_: name for id_, name in self.refs[branch].items() if id_ not in ids}

    def overwrite(self, branch: str = "main") -> None:
        """As PyIceberg does: delete, then append, two snapshots in one request."""
        ids, rows = self.some(self.refs[branch]), self.new_rows(3)
        if not ids:
            return
        delete = self.random.choice([engine.delete_rows(ids, branch), engine.rewrite_rows(ids, branch=branch)])
        self.commit(f"overwrite {ids} in {branch}", engine.then(delete, engine.append(*rows, branch=branch)))
        self.refs[branch] = {id_: name for id_, name in self.refs[branch].items() if id_ not in ids} | dict(rows)

    def rewrite(self, branch: str = "main") -> None:
        ids = self.some(self.refs[branch])
        if ids:
            rows = [(id_, "rewritten") for id_ in ids]
            self.commit(f"rewrite {ids} in {branch}", engine.rewrite_rows(ids, *rows, branch=branch))
            self.refs[branch].update(rows)

    def compact(self, branch: str = "main") -> None:
        if self.refs[branch]:
            self.commit(f"compact {branch}", engine.compact(branch))

    def on_branch(self) -> None:
        known = "current-snapshot-id" in self.client.metadata()
        if not known:
            return
        self.refs.setdefault("b", dict(self.main))
        acts = [self.append, self.append, self.delete, self.overwrite, self.rewrite, self.compact]
        before = len(self.log)
        self.random.choice(acts)("b")
        if len(self.log) == before and "b" not in self.client.metadata()["refs"]:
            del self.refs["b"]

    def roll_back(self) -> None:
        if self.history:
            id_ = self.random.choice(sorted(self.history))
            self.commit(f"roll back to {id_}", engine.point("main", id_))
            self.refs["main"] = dict(self.history[id_])

    def publish(self) -> None:
        refs = self.client.metadata().get("refs", {})
        if "b" in refs:
            self.commit("set main to b", engine.point("main", refs["b"]["snapshot-id"]))
            self.refs["main"] = dict(self.refs["b"])

    def tag(self) -> None:
        if self.history and "v" not in self.refs:
            id_ = self.random.choice(sorted(self.history))
            self.commit(f"tag {id_}", engine.point("v", id_, "tag"))
            self.refs["v"] = dict(self.history[id_])

    def drop_ref(self) -> None:
        names = sorted(self.refs.keys() - {"main"})
        if names:
            name = self.random.choice(names)
            self.commit(f"drop {name}", engine.drop_ref(name))
            del self.refs[name]

    def forget(self) -> None:
        kept = [id_ for id_ in self.history if self.random.random() < 0.5]
        self.commit("expire", engine.expire(kept))

    def duck_insert(self) -> None:
        rows = self.new_rows()
        self.run(f"INSERT INTO lake.ns.t VALUES {', '.join(map(literal, rows))}")
        self.main.update(rows)

    def duck_delete(self) -> None:
        ids = self.some(self.main)
        if ids:
            self.run(f"DELETE FROM lake.ns.t WHERE id IN ({', '.join(map(str, ids))})")
            self.refs["main"] = {id_: name for id_, name in self.main.items() if id_ not in ids}

    def duck_update(self) -> None:
        ids = self.some(self.main)
        if ids:
            self.run(f"UPDATE lake.ns.t SET name = 'updated' WHERE id IN ({', '.join(map(str, ids))})")
            self.main.update(dict.fromkeys(ids, "updated"))

    def duck_transaction(self) -> None:
        self.run("BEGIN")
        for _ in range(self.random.randint(2, 3)):
            self.random.choice([self.duck_insert, self.duck_delete, self.duck_update])()
        self.run("COMMIT")

    def maintain(self) -> None:
        acts = [(FLUSH,), (FLUSH,), (MERGE,), (MERGE,), (REWRITE,), (EXPIRE,), (EXPIRE, CLEAN, ORPHANS), (FLUSH, MERGE)]
        self.run(*self.random.choice(acts))


def literal(row: Row) -> str:
    return f"({row[0]}, {'NULL' if row[1] is None else repr(row[1])})"


def fuzz(services: Services, duck: duckdb.DuckDBPyConnection, seed: int, mode: str, version: int, steps: int) -> None:
    client = Client(replace(fresh(services), snapshot_ids=mode))
    client.create(properties={"format-version": str(version)})
    table = Table(client, duck, random.Random(seed))
    try:
        for _ in range(steps):
            table.step()
    except Exception as error:
        error.add_note("\n".join(table.log))
        raise


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("mode", ["client", "ducklake"])
def test_both_sides_read_what_the_model_has(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, mode: str, version: int, seed: int
) -> None:
    fuzz(services, ducklake, seed, mode, version, steps=14)
