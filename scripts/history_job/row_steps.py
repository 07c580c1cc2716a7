"""What a client does with rows alone: posts to the tables that everybody works on, and keys of its own in some others.

A table with keys holds one row of each: `id` is whose upsert it is, and the next one takes its place. Only one client
writes a key, and none goes on with a key that it doesn't know the row of.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from scripts.history_job.client import TABLES, Change, Client, new_key
from scripts.history_job.history import Operation, Outcome, row_ids, row_tokens

KEY_SCHEMA: Final = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "k", "type": "long", "required": True},
    ],
    "identifier-field-ids": [2],
}
KEYS: Final = 3
"""So many of a table does a client work on."""
SIZES: Final = (1, 3, 15)
"""Of batches; DuckLake inlines up to ten rows."""


@dataclass(slots=True)
class RowSteps:
    """`rows`: the id that is there of each key, by table; None: there is none."""

    client: Client
    rows: dict[str, dict[int, int | None]] = field(default_factory=dict)
    made: int = 0
    """Keys that the client has taken so far."""

    def post(self) -> Operation:
        """Insert rows, with a key for the request, or counted by the client."""
        table, number = self.client.random.choice(self.client.session.active_tables()), self.client.next_number()
        ids = row_ids(number, self.client.random.choice(SIZES))
        body = [{"id": id_} for id_ in ids]
        change = Change("post rows", number, "POST", f"{TABLES}/{table}/rows", body, row_tokens(table, ids))
        if self.client.random.random() < 0.5:
            counted = f"{change.path}?app-id={self.client.name}&sequence={number}"
            return self.client.perform(replace(change, path=counted, is_counted=True))
        return self.client.perform(self._keyed(change))

    def upsert(self) -> Operation:
        table, number = self.client.random.choice(self.client.session.keyed_tables), self.client.next_number()
        rows = self._rows_of(table)
        chosen = self.client.random.sample(list(rows), self.client.random.randint(1, KEYS))
        ids = dict(zip(chosen, row_ids(number, len(chosen)), strict=True))
        gone = [rows[key] for key in chosen]
        body = [{"id": id_, "k": key} for key, id_ in ids.items()]
        change = Change(
            "upsert",
            number,
            "POST",
            f"{TABLES}/{table}/rows?mode=upsert",
            body,
            row_tokens(table, list(ids.values())),
            row_tokens(table, [id_ for id_ in gone if id_ is not None]),
        )
        return self._settled(table, ids, self.client.perform(self._keyed(change)))

    def delete(self) -> Operation | None:
        """Delete a row by its key, if there is one."""
        table, number = self.client.random.choice(self.client.session.keyed_tables), self.client.next_number()
        there = {key: id_ for key, id_ in self._rows_of(table).items() if id_ is not None}
        if not there:
            return None
        key, id_ = self.client.random.choice(list(there.items()))
        removes = row_tokens(table, [id_])
        path, body = f"{TABLES}/{table}/rows", {"keys": [{"k": key}]}
        change = Change("delete by key", number, "DELETE", path, body, removes=removes)
        return self._settled(table, {key: None}, self.client.perform(self._keyed(change)))

    def flush(self) -> Operation:
        tables = [*self.client.session.active_tables(), *self.client.session.keyed_tables]
        path = f"{TABLES}/{self.client.random.choice(tables)}/rows/flush"
        return self.client.perform(self._keyed(Change("flush", self.client.next_number(), "POST", path)))

    def _rows_of(self, table: str) -> dict[int, int | None]:
        rows = self.rows.setdefault(table, {})
        while len(rows) < KEYS:
            self.made += 1
            rows[int(self.client.name.removeprefix("c")) * 1_000_000 + self.made] = None
        return rows

    def _settled(self, table: str, after: Mapping[int, int | None], operation: Operation) -> Operation:
        rows = self.rows[table]
        if operation.outcome is Outcome.ACKNOWLEDGED:
            rows.update(after)
        elif operation.outcome is Outcome.UNKNOWN:
            for key in after:
                del rows[key]
        return operation

    def _keyed(self, change: Change) -> Change:
        return replace(change, key=new_key(self.client.random))
