"""What DuckDB and Iceberg clients do to one table at the same time, each operation with its effect on the model.

Both sides aim at the same rows on purpose; `WANTED` lie in files of either side and in the catalog.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from duckicelake.catalog.tables import commit_transaction, drop_table, rename_table
from duckicelake.iceberg.rest import CommitTransactionRequest, RenameTableRequest
from tests.catalog.commit.conflicts import COMPANION, Effect, State, Subject, identifier
from tests.support import engine
from tests.support.client import NS, Client, Draft, Json, Row

Act = Callable[[], object]
WANTED = (2, 6, 42, 53, 91)
DUCK, OTHER = "by_duckdb", "by_iceberg"


@dataclass(frozen=True, slots=True)
class Native:
    """Statements of one DuckDB transaction; they see the table by its id, whatever it is called when they commit.

    `shows_early` says that DuckDB shows them one version too early once another transaction came before: when it
    deletes from a file that has a delete file already, it notes the snapshot of its first attempt.
    """

    statements: Callable[[Subject], tuple[str, ...]]
    effect: Callable[[State, Subject], State | None]
    shows_early: bool = False


@dataclass(frozen=True, slots=True)
class Foreign:
    """What an Iceberg client sends, made from the metadata that it loaded."""

    prepared: Callable[[Client, Subject, Json], Act]
    effect: Effect


def _sql(*statements: str, effect: Callable[[State, Subject], State | None]) -> Native:
    def made(subject: Subject) -> tuple[str, ...]:
        names = {"t": f"lake.ns.{subject.name}", "name": subject.name}
        return tuple(statement.format(**names) for statement in statements)

    return Native(made, lambda state, subject: effect(state, subject) if state.name is not None else None)


def _call(function: str, *options: str) -> str:
    return f"CALL ducklake_{function}('lake', {', '.join(options)})"


def _unchanged(state: State, _: Subject) -> State:
    return state


def _inserted(rows: Iterable[Row]) -> str:
    return f"INSERT INTO {{t}} (id, name) VALUES {', '.join(map(str, rows))}"


def new_rows(first: int, count: int, name: str) -> list[Row]:
    return [(number, f"{name}{number}") for number in range(first, first + count)]


def _insert(first: int, count: int) -> Native:
    rows = new_rows(first, count, "inserted")
    return _sql(_inserted(rows), effect=lambda state, _: state.with_rows(rows))


def _delete(*ids: int) -> Native:
    listed = ", ".join(map(str, ids))
    return _sql(f"DELETE FROM {{t}} WHERE id IN ({listed})", effect=lambda state, _: state.without(ids))


def _update(*ids: int) -> Native:
    listed = ", ".join(map(str, ids))
    statement = f"UPDATE {{t}} SET name = 'updated' || id WHERE id IN ({listed})"
    return _sql(statement, effect=lambda state, _: state.with_names(ids, "updated"))


def _alter(clause: str, effect: Callable[[State], State | None]) -> Native:
    return _sql(f"ALTER TABLE {{t}} {clause}", effect=lambda state, _: effect(state))


def _expire() -> Native:
    def forget(state: State, subject: Subject) -> State:
        kept = "kept" in state.refs
        return state if kept else replace(state, forgotten=state.forgotten | {subject.snapshots[1]})

    def statements(subject: Subject) -> tuple[str, ...]:
        return (_call("expire_snapshots", f"versions => [{subject.versions[subject.snapshots[1]]}]"),)

    return Native(statements, forget)


def _insert_and_delete() -> Native:
    rows = new_rows(160, 2, "inserted")
    statements = (_inserted(rows), "DELETE FROM {t} WHERE id IN (6, 54)")
    return _sql(*statements, effect=lambda state, _: state.with_rows(rows).without((6, 54)))


def _recreated(state: State, subject: Subject) -> State:
    """Another table of the name, without history."""
    columns = (("id", "long"), ("name", "string"))
    gone = frozenset(subject.shown)
    return State(subject.name, 2, frozenset(), columns=columns, forgotten=gone, companion=state.companion)


NATIVE: dict[str, Native] = {
    "insert inlined": _insert(100, 3),
    "insert a file": _insert(120, 20),
    "delete rows of a file": _delete(1, 2),
    "delete many rows of a file": replace(_delete(*range(2, 18)), shows_early=True),
    "delete rows of a client's file": _delete(42, 43),
    "delete a whole file": _delete(*range(51, 63)),
    "delete inlined rows": _delete(91, 92),
    "update inlined rows": _update(91, 93),
    "update rows of a file": _update(6, 7),
    "update many rows": replace(_update(*range(2, 18)), shows_early=True),
    "insert and delete": _insert_and_delete(),
    "add column": _alter(f"ADD COLUMN {DUCK} INTEGER", lambda state: state.with_column(DUCK, "int")),
    "drop column": _alter("DROP COLUMN extra", lambda state: state.with_extra()),
    "rename column": _alter(f"RENAME COLUMN extra TO {DUCK}", lambda state: state.with_extra((DUCK, "int"))),
    "widen type": _alter("ALTER extra SET DATA TYPE BIGINT", lambda state: state.with_extra(("extra", "long"))),
    "set not null": _alter("ALTER id SET NOT NULL", lambda state: replace(state, required=frozenset({"id"}))),
    "partition": _alter("SET PARTITIONED BY (name)", lambda state: replace(state, partitioned_by=("name",))),
    "sort": _alter("SET SORTED BY (id ASC)", lambda state: replace(state, sorted_by=("id",))),
    "comment": _sql(
        "COMMENT ON TABLE {t} IS 'said'",
        effect=lambda state, _: replace(state, properties={**state.properties, "comment": "said"}),
    ),
    "rename table": _sql(
        f"ALTER TABLE {{t}} RENAME TO {{name}}_{DUCK}",
        effect=lambda state, subject: replace(state, name=f"{subject.name}_{DUCK}"),
    ),
    "drop table": _sql("DROP TABLE {t}", effect=lambda state, _: replace(state, name=None)),
    "recreate table": _sql("DROP TABLE {t}", "CREATE TABLE {t} (id BIGINT, name VARCHAR)", effect=_recreated),
    "flush": _sql(_call("flush_inlined_data", "schema_name => 'ns'", "table_name => '{name}'"), effect=_unchanged),
    "merge": _sql(_call("merge_adjacent_files", "'{name}'", "schema => 'ns'"), effect=_unchanged),
    "rewrite": _sql(
        _call("rewrite_data_files", "'{name}'", "schema => 'ns'", "delete_threshold => 0.01"), effect=_unchanged
    ),
    "expire": _expire(),
}


def _commit(request: Callable[[Subject], engine.Request], effect: Effect) -> Foreign:
    def prepared(client: Client, subject: Subject, metadata: Json) -> Act:
        return partial(client.commit, _addressed(metadata, request(subject)(metadata)), subject.name)

    return Foreign(prepared, lambda now, seen, subject: effect(now, seen, subject) if _is_there(now, subject) else None)


def _is_there(state: State, subject: Subject) -> bool:
    """Whether the name still means the table that the client loaded."""
    return state.name == subject.name and ("name", "string") in state.columns


def _addressed(metadata: Json, body: Json) -> Json:
    uuid = {"type": "assert-table-uuid", "uuid": metadata["table-uuid"]}
    return {**body, "requirements": [uuid, *(each for each in body["requirements"] if each["type"] != uuid["type"])]}


def _rows(request: engine.Request, effect: Callable[[State], State]) -> Foreign:
    return _commit(lambda _: request, lambda now, _, __: effect(now))


def _fields(change: Callable[[list[Json], int], list[Json]]) -> engine.Request:
    """Another schema, as Java's library asks for it; `change` gets the fields and the next free id."""

    def made(metadata: Json) -> Json:
        current = metadata["current-schema-id"]
        schema = next(each for each in metadata["schemas"] if each["schema-id"] == current)
        changed = {**schema, "fields": change(schema["fields"], metadata["last-column-id"] + 1)}
        return {
            "requirements": [
                {"type": "assert-current-schema-id", "current-schema-id": current},
                {"type": "assert-last-assigned-field-id", "last-assigned-field-id": metadata["last-column-id"]},
            ],
            "updates": [
                {"action": "add-schema", "schema": changed},
                {"action": "set-current-schema", "schema-id": -1},
            ],
        }

    return made


def _added(fields: list[Json], free: int) -> list[Json]:
    return [*fields, {"id": free, "name": OTHER, "type": "int", "required": False}]


def _renamed(fields: list[Json], _: int) -> list[Json]:
    return [{**each, "name": OTHER} if each["name"] == "extra" else each for each in fields]


def _replaced(*rows: Row) -> engine.Request:
    """Another schema and nothing but these rows, whatever was there: what REPLACE TABLE AS sends."""

    def made(metadata: Json) -> Json:
        schema = _fields(lambda fields, free: _added(fields[:2], free))(metadata)
        draft = Draft(metadata, "overwrite", format_version=metadata["format-version"], branch=None)
        staged = draft.body([draft.manifest([draft.data_file(rows)])], parent_snapshot_id=None)
        main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": draft.snapshot_id}
        leave = {"action": "remove-snapshot-ref", "ref-name": "main"}
        return {
            "requirements": schema["requirements"],
            "updates": [leave, *schema["updates"], *staged["updates"], main],
        }

    return made


def _properties(metadata: Json) -> Json:
    return {"requirements": [], "updates": [{"action": "set-properties", "updates": {OTHER: "yes"}}]}


def _upgrade(metadata: Json) -> Json:
    return {"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]}


def _with_companion(request: engine.Request, effect: Callable[[State], State]) -> Foreign:
    def prepared(client: Client, subject: Subject, metadata: Json) -> Act:
        body = _addressed(metadata, request(metadata))
        properties = {"requirements": [], "updates": [{"action": "set-properties", "updates": {subject.name: "yes"}}]}
        changes = [{"identifier": identifier(name), **change}
                   for name, change in ((subject.name, body), (COMPANION, properties))]  # fmt: skip
        request_ = CommitTransactionRequest.model_validate({"table-changes": changes})
        return partial(commit_transaction, client.services, request_)

    def both(now: State, _: State, subject: Subject) -> State | None:
        changed = replace(effect(now), companion=frozenset({subject.name}))
        return changed if _is_there(now, subject) else None

    return Foreign(prepared, both)


def _rename() -> Foreign:
    def prepared(client: Client, subject: Subject, _: Json) -> Act:
        names = {"source": identifier(subject.name), "destination": identifier(f"{subject.name}_{OTHER}")}
        return partial(rename_table, client.services, RenameTableRequest.model_validate(names))

    def renamed(now: State, _: State, subject: Subject) -> State | None:
        return replace(now, name=f"{subject.name}_{OTHER}") if now.name == subject.name else None

    return Foreign(prepared, renamed)


def _drop(*, purge: bool) -> Foreign:
    return Foreign(
        lambda client, subject, _: partial(drop_table, client.services, NS, subject.name, purge),
        lambda now, _, subject: replace(now, name=None) if now.name == subject.name else None,
    )


def _ref(name: str, type_: str, which: int) -> Foreign:
    """Point at one of the older snapshots, which must not be expired."""

    def pointed(now: State, _: State, subject: Subject) -> State | None:
        snapshot = subject.snapshots[which]
        if snapshot in now.forgotten:
            return None
        if name == "main":
            return replace(now, rows=subject.shown[snapshot])
        return replace(now, refs={**now.refs, name: subject.shown[snapshot]})

    return _commit(lambda subject: engine.point(name, subject.snapshots[which], type_), pointed)


def _forget() -> Foreign:
    def made(subject: Subject) -> engine.Request:
        return engine.expire(set(subject.snapshots) - set(subject.snapshots[1:3]))

    def forgotten(now: State, _: State, subject: Subject) -> State:
        return replace(now, forgotten=now.forgotten | set(subject.snapshots[1:3]))

    return _commit(made, forgotten)


def _on_branch(*rows: Row) -> Foreign:
    return _commit(
        lambda _: engine.append(*rows, branch="audit"),
        lambda now, seen, _: replace(now, refs={**now.refs, "audit": seen.rows | set(rows)}),
    )


_NEW = new_rows(200, 2, "appended")
FOREIGN: dict[str, Foreign] = {
    "append": _rows(engine.append(*_NEW), lambda state: state.with_rows(_NEW)),
    "delete rows": _rows(engine.delete_rows(WANTED), lambda state: state.without(WANTED)),
    "delete other rows": _rows(engine.delete_rows((19, 44, 66, 94)), lambda state: state.without((19, 44, 66, 94))),
    "delete equal": _rows(engine.delete_equal(*WANTED, 100), lambda state: state.without((*WANTED, 100))),
    "rewrite rows": _rows(engine.rewrite_rows((6, 91), (6, "new"), *_NEW),
                          lambda state: state.without((6, 91)).with_rows([(6, "new"), *_NEW])),
    "compact": _rows(engine.compact(), lambda state: state),
    "overwrite": _rows(engine.then(engine.delete_rows(WANTED), engine.append(*_NEW)),
                       lambda state: state.without(WANTED).with_rows(_NEW)),
    "append to branch": _on_branch(*_NEW),
    "roll back": _ref("main", "branch", 3),
    "tag": _ref("kept", "tag", 1),
    "expire": _forget(),
    "add column": _rows(_fields(_added), lambda state: state.with_column(OTHER, "int")),
    "drop column": _commit(lambda _: _fields(lambda fields, _: fields[:2]), lambda now, _, __: now.with_extra()),
    "rename column": _commit(lambda _: _fields(_renamed), lambda now, _, __: now.with_extra((OTHER, "int"))),
    "set properties": _rows(_properties, lambda state: replace(state, properties={**state.properties, OTHER: "yes"})),
    "rename table": _rename(),
    "drop table": _drop(purge=False),
    "purge table": _drop(purge=True),
    "replace table": _rows(_replaced(*_NEW), lambda state: replace(
        state, rows=frozenset(_NEW), columns=(*state.columns[:2], (OTHER, "int")))),
    "upgrade": _rows(_upgrade, lambda state: replace(state, format_version=3)),
    "commit two tables": _with_companion(engine.append(*_NEW), lambda state: state.with_rows(_NEW)),
}  # fmt: skip
