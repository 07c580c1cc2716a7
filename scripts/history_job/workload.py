"""What clients do: each step is chosen by the client's own random numbers and made on what it has just loaded."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyiceberg.table import StaticTable

from duckicelake.errors import CatalogError
from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from duckicelake.properties import APPEND_REBASE, BLOOM_FILTER_PREFIX, MAX_SNAPSHOT_AGE_MS
from scripts.history_job.client import NAMESPACE, TABLES, Change, Client, NoAnswer, new_key, now
from scripts.history_job.drafts import MARK, SCHEMA, Draft
from scripts.history_job.history import MOST_ROWS, Observation, Operation, Outcome, Token, row_ids, row_tokens
from scripts.history_job.row_steps import KEY_SCHEMA, RowSteps

Json = dict[str, Any]
KEYED: Final = 0.8
"""How many of the requests have a key."""
TRIES: Final = 4
"""How often a client that lost a race loads and tries again, as engines do."""
GLANCES: Final = 0.3
"""How often a client loads a table with no other snapshots than refs name, before it loads all of it."""


class NothingToDo(Exception):  # noqa: N818 - says what happened
    """The table has nothing of what the step needs."""


@dataclass(slots=True)
class Slot:
    """A table of one client's own, which it creates, renames and drops; `made_by` is the operation that did."""

    name: str
    made_by: int | None = None


@dataclass(slots=True)
class Worker:
    """One client at work. `storage` is what PyIceberg needs to reach the files."""

    client: Client
    storage: dict[str, str] = field(default_factory=dict)
    slot: Slot | None = None
    rows: RowSteps = field(init=False)

    def __post_init__(self) -> None:
        self.rows = RowSteps(self.client)

    def step(self) -> None:
        """One operation; a refused one is tried again some times, as another operation on what is there then."""
        self.client.session.attempted += 1
        act = self.client.random.choices(list(_STEPS), weights=list(_STEPS.values()))[0]
        for _ in range(TRIES):
            try:
                operation = act(self)
            except (NoAnswer, NothingToDo, CatalogError):  # of the store, which a client can't do without either
                break
            if operation is None or operation.outcome is not Outcome.REFUSED or operation.must_fail:
                break
        self.client.session.progressed()

    # Steps on tables that everybody works on

    def append(self) -> Operation:
        draft, table = self._draft()
        ids = row_ids(draft.number, self.client.random.randint(1, 5))
        body = draft.commit([draft.adding(draft.data_file(ids)), *draft.parent_manifests()], "append")
        return self._commit("append", table, draft.number, body, row_tokens(table, ids))

    def overwrite(self) -> Operation:
        """Take one file away, and add another in the same snapshot."""
        draft, table = self._draft()
        file, gone = self._some_file(draft)
        ids = row_ids(draft.number, self.client.random.randint(1, 5))
        kept = draft.without(draft.parent_manifests(), file.file_path)
        body = draft.commit([draft.adding(draft.data_file(ids)), *kept], "overwrite")
        return self._commit("overwrite", table, draft.number, body, row_tokens(table, ids), row_tokens(table, gone))

    def delete(self) -> Operation:
        """Delete one row by position; in format version 3, take its file away."""
        draft, table = self._draft()
        file, gone = self._some_file(draft)
        if draft.is_v3:
            manifests = draft.without(draft.parent_manifests(), file.file_path)
        else:
            position = self.client.random.randrange(len(gone))
            gone = [gone[position]]
            manifests = [draft.adding(draft.position_delete(file, position)), *draft.parent_manifests()]
        body = draft.commit(manifests, "delete")
        return self._commit("delete", table, draft.number, body, frozenset(), row_tokens(table, gone))

    def add_column(self) -> Operation:
        table, metadata = self._load()
        number = self.client.next_number()
        name, last = f"c{number}", metadata["last-column-id"] + 1
        fields = [*_schema(metadata)["fields"], {"id": last, "name": name, "type": "int", "required": False}]
        return self._alter("add column", table, metadata, number, fields, adds=frozenset({("column", table, name)}))

    def drop_column(self) -> Operation:
        table, metadata = self._load()
        columns = [each for each in _schema(metadata)["fields"] if each["name"] != "id"]
        if not columns:
            raise NothingToDo
        gone = self.client.random.choice(columns)
        fields = [each for each in _schema(metadata)["fields"] if each is not gone]
        removes = frozenset({("column", table, gone["name"])})
        return self._alter("drop column", table, metadata, self.client.next_number(), fields, removes=removes)

    def set_property(self) -> Operation:
        table, metadata = self._load()
        uuid = {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}
        return self._commit("set property", table, self.client.next_number(), {"requirements": [uuid], "updates": []})

    def tag(self) -> Operation:
        table, metadata = self._load()
        number, snapshots = self.client.next_number(), metadata.get("snapshots", ())
        if not snapshots:
            raise NothingToDo
        update = {
            "action": "set-snapshot-ref",
            "ref-name": f"t{number}",
            "type": "tag",
            "snapshot-id": self.client.random.choice(snapshots)["snapshot-id"],
        }
        body = {"requirements": [], "updates": [update]}
        return self._commit("tag", table, number, body, frozenset({("tag", table, f"t{number}")}))

    def several_tables(self, *, must_fail: bool = False) -> Operation:
        """Append to two or three tables in one transaction; if it must fail, the last one's requirement is false."""
        tables, number = self.client.session.active_tables(), self.client.next_number()
        chosen = self.client.random.sample(tables, self.client.random.randint(2, len(tables)))
        changes, adds = [], set()
        for part, table in enumerate(chosen):
            draft, _ = self._draft(table, number)
            ids = row_ids(number, MOST_ROWS)[part * 10 : part * 10 + self.client.random.randint(1, 3)]
            body = draft.commit([draft.adding(draft.data_file(ids)), *draft.parent_manifests()], "append")
            changes.append({"identifier": {"namespace": [NAMESPACE], "name": table}, **body})
            adds |= {*row_tokens(table, ids), ("mark", table, number)}
        if must_fail:
            changes[-1]["requirements"].append({"type": "assert-table-uuid", "uuid": str(uuid4())})
        change = Change(
            "transaction that must fail" if must_fail else "transaction",
            number,
            "POST",
            "/v1/transactions/commit",
            {"table-changes": changes},
            frozenset(adds),
            must_fail=must_fail,
        )
        return self.client.perform(self._keyed(change))

    def fail_several_tables(self) -> Operation:
        return self.several_tables(must_fail=True)

    def read_rows(self) -> None:
        """What PyIceberg reads from the files that a load names."""
        session = self.client.session
        table, invoked = self.client.random.choice([*session.active_tables(), *session.keyed_tables]), now()
        if self.client.load(table) is None:
            raise NothingToDo
        _, answer = self.client.remembered[table]
        try:
            rows = pyiceberg_rows(answer["metadata-location"], self.storage)
        except OSError:  # the store's, which PyIceberg doesn't try again
            return
        tokens = tuple(("row", table, id_) for id_ in rows)
        domains = frozenset({("row", table)})
        observation = Observation("PyIceberg", invoked, now(), domains, tokens, table)
        session.history.observations.append(observation)

    # Steps on the client's own table

    def use_slot(self) -> Operation | None:
        """Create a table, rename it, drop it, in turns; what comes of it is looked at each time."""
        slot = self.slot
        if slot is None or slot.made_by is None:
            return self._create_slot(slot)
        act = self._drop_slot if slot.name.endswith("-renamed") or self.client.random.random() < 0.5 else self._rename
        operation = act(slot, slot.made_by)
        if operation.outcome is Outcome.UNKNOWN:
            self.slot = None
        elif self.slot is not None:
            self.client.load(self.slot.name)
        return operation

    def _create_slot(self, slot: Slot | None) -> Operation:
        number = self.client.next_number()
        slot = slot or Slot(f"own-{self.client.name}-{number}")
        body = {"name": slot.name, "schema": SCHEMA, "properties": {MARK: str(number)}}
        adds: frozenset[Token] = frozenset({("table", slot.name, number)})
        operation = self._perform_own(Change("create table", number, "POST", TABLES, body, adds))
        if operation.outcome is Outcome.ACKNOWLEDGED:
            self.slot = Slot(slot.name, number)
            self.client.load(slot.name)
        elif operation.outcome is Outcome.UNKNOWN:
            self.slot = None
        return operation

    def _drop_slot(self, slot: Slot, made_by: int) -> Operation:
        removes: frozenset[Token] = frozenset({("table", slot.name, made_by)})
        change = Change("drop table", self.client.next_number(), "DELETE", f"{TABLES}/{slot.name}", removes=removes)
        operation = self._perform_own(change)
        if operation.outcome is Outcome.ACKNOWLEDGED:
            self.slot = Slot(slot.name.removesuffix("-renamed"))
            self.client.load(slot.name)
        return operation

    def _rename(self, slot: Slot, made_by: int) -> Operation:
        new_name = f"{slot.name}-renamed"
        names = {"source": slot.name, "destination": new_name}
        body = {role: {"namespace": [NAMESPACE], "name": name} for role, name in names.items()}
        adds: frozenset[Token] = frozenset({("table", new_name, made_by)})
        removes: frozenset[Token] = frozenset({("table", slot.name, made_by)})
        number = self.client.next_number()
        change = Change("rename table", number, "POST", "/v1/tables/rename", body, adds, removes)
        operation = self._perform_own(change)
        if operation.outcome is Outcome.ACKNOWLEDGED:
            self.slot = Slot(new_name, made_by)
            self.client.load(slot.name)
        return operation

    def _perform_own(self, change: Change) -> Operation:
        """Always with a key: a doubled DROP without one would drop what was made anew since."""
        return self.client.perform(replace(change, key=new_key(self.client.random)))

    # What steps are made of

    def _load(self, table: str | None = None) -> tuple[str, Json]:
        table = table or self.client.random.choice(self.client.session.active_tables())
        if self.client.random.random() < GLANCES:
            self.client.glance(table)
        metadata = self.client.load(table)
        if metadata is None:
            raise NothingToDo
        return table, metadata

    def _draft(self, table: str | None = None, number: int | None = None) -> tuple[Draft, str]:
        name, metadata = self._load(table)
        number = number or self.client.next_number()
        return Draft(self.client.session.store, metadata, number, self.client.random), name

    def _some_file(self, draft: Draft) -> tuple[DataFile, list[int]]:
        """A data file of the table, whoever wrote it, and the ids in it."""
        lines = [line for line in draft.parent_manifests() if line.content.value == 0]
        self.client.random.shuffle(lines)
        for line in lines:
            files = [each.data_file for each in draft.live(line) if each.data_file.content is FileContent.DATA]
            if files:
                file = self.client.random.choice(files)
                return file, draft.ids_in(file)
        raise NothingToDo

    def _alter(
        self,
        kind: str,
        table: str,
        metadata: Json,
        number: int,
        fields: list[Json],
        adds: frozenset[Token] = frozenset(),
        removes: frozenset[Token] = frozenset(),
    ) -> Operation:
        schema_id = max(each["schema-id"] for each in metadata["schemas"]) + 1
        schema = {"type": "struct", "schema-id": schema_id, "fields": fields}
        current, last = metadata["current-schema-id"], metadata["last-column-id"]
        body = {
            "requirements": [
                {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]},
                {"type": "assert-current-schema-id", "current-schema-id": current},
                {"type": "assert-last-assigned-field-id", "last-assigned-field-id": last},
            ],
            "updates": [
                {"action": "add-schema", "schema": schema},
                {"action": "set-current-schema", "schema-id": -1},
            ],
        }
        return self._commit(kind, table, number, body, adds, removes)

    def _commit(
        self,
        kind: str,
        table: str,
        number: int,
        body: Json,
        adds: frozenset[Token] = frozenset(),
        removes: frozenset[Token] = frozenset(),
    ) -> Operation:
        """Commit to one table. What makes no snapshot leaves a property, so that it can be found all the same."""
        if not any(update["action"] == "add-snapshot" for update in body["updates"]):
            marked = {"action": "set-properties", "updates": {f"{MARK}.{number}": kind}}
            body = {**body, "updates": [*body["updates"], marked]}
        mark: Token = ("mark", table, number)
        change = Change(kind, number, "POST", f"{TABLES}/{table}", body, adds | {mark}, removes)
        return self.client.perform(self._keyed(change))

    def _keyed(self, change: Change) -> Change:
        has_key = self.client.random.random() < KEYED
        return replace(change, key=new_key(self.client.random)) if has_key else change


_STEPS: Final[dict[Callable[[Worker], Operation | None], int]] = {
    Worker.append: 36,
    Worker.overwrite: 9,
    Worker.delete: 9,
    Worker.add_column: 3,
    Worker.drop_column: 1,
    Worker.set_property: 8,
    Worker.tag: 5,
    Worker.several_tables: 12,
    Worker.fail_several_tables: 3,
    Worker.read_rows: 6,
    Worker.use_slot: 8,
    lambda worker: worker.rows.post(): 14,
    lambda worker: worker.rows.upsert(): 10,
    lambda worker: worker.rows.delete(): 4,
    lambda worker: worker.rows.flush(): 2,
}
"""How often each is chosen, of 130."""


def pyiceberg_rows(metadata_location: str, storage: dict[str, str]) -> list[int]:
    """The ids that PyIceberg reads from the files alone."""
    read: pa.Table = StaticTable.from_metadata(metadata_location, storage).scan(selected_fields=("id",)).to_arrow()
    ids: list[int] = read["id"].to_pylist()
    return ids


def _schema(metadata: Json) -> Json:
    schema: Json = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    return schema


def create_tables(client: Client) -> None:
    """The namespace, the tables that everybody works on, and those with keys.

    Every third has format version 3, and every other one rebases appends.
    """
    client.http.post("/v1/namespaces", json={"namespace": [NAMESPACE]}).raise_for_status()
    for place, name in enumerate(client.session.lasting_tables()):
        number = client.next_number()
        properties = {
            MARK: str(number),
            "format-version": "3" if place % 3 == 2 else "2",
            APPEND_REBASE: "true" if place % 2 else "false",
            **({MAX_SNAPSHOT_AGE_MS: "2000"} if name in client.session.expiring else {}),
            **({f"{BLOOM_FILTER_PREFIX}id": "true"} if place % 4 == 1 else {}),
        }
        schema = KEY_SCHEMA if name in client.session.keyed_tables else SCHEMA
        body = {"name": name, "schema": schema, "properties": properties}
        adds: frozenset[Token] = frozenset({("table", name, number)})
        operation = client.perform(Change("create table", number, "POST", TABLES, body, adds))
        assert operation.outcome is Outcome.ACKNOWLEDGED, operation.answers
