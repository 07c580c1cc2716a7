"""What clients commit whose requests are made here, free to do what the specification allows and PyIceberg doesn't."""

import json
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from duckicelake.catalog import tables
from duckicelake.catalog.tables import commit_transaction
from duckicelake.iceberg.manifest.entry import FileContent, ManifestFile
from duckicelake.iceberg.rest import CommitTransactionRequest, RegisterTableRequest
from tests.model.checks import check_schema
from tests.model.choices import some_ids
from tests.model.drafts import Preparation, prepare
from tests.model.lake import Lake
from tests.model.model import Table, Version, shaped
from tests.model.operations import Client, has_rows, has_snapshots
from tests.model.operations_pyiceberg import usable
from tests.model.values import some_value
from tests.support.client import Json, live, set_ref
from tests.support.engine import applied

SERVER = Client("server")


def begins_unpartitioned(table: Table) -> bool:
    """Whether its spec 0 has no fields, so that files of any rows may be added under it."""
    return table.begins_unpartitioned


def writable_with_rows(table: Table) -> bool:
    return begins_unpartitioned(table) and has_rows(table)


def version_of(table: Table, branch: str) -> Version:
    return table.main if branch == "main" else table.branches[branch]


def set_version(table: Table, branch: str, version: Version) -> None:
    if branch == "main":
        table.main = version
    else:
        table.branches[branch] = version


def somewhere(table: Table, random: Random) -> str:
    """A branch, main as often as all others together."""
    return random.choice(["main", *sorted(table.branches)[:1]])


def start(lake: Lake, table: Table, operation: str, branch: str | None = "main") -> Preparation:
    metadata = lake.metadata(table)
    check_schema(table, metadata)
    return prepare(table, lake.reader, metadata, operation, branch)


def finish(lake: Lake, what: str, made: Preparation, manifests: Sequence[ManifestFile]) -> None:
    lake.commit(made.table, what, made.draft.body(manifests))


# Rows


@SERVER.may(weight=5, when=begins_unpartitioned)
def append(lake: Lake, table: Table, random: Random) -> None:
    branch, rows = somewhere(table, random), lake.new_rows(table, random.randint(1, 12), random)
    made = start(lake, table, "append", branch)
    finish(lake, f"append {rows} to {branch}", made, append_manifests(made, rows))
    set_version(table, branch, version_of(table, branch).having(*rows))


def append_manifests(made: Preparation, rows: Sequence[Any]) -> list[ManifestFile]:
    return [made.draft.manifest([made.data_file(rows)]), *made.draft.parent_manifests]


def delete_somewhere(lake: Lake, table: Table, random: Random, what: str, manifests: Any) -> None:
    """Delete rows of a branch by `manifests`, which makes a snapshot's of a preparation and ids."""
    branch = somewhere(table, random)
    if version_of(table, branch).rows:
        ids = some_ids(version_of(table, branch), random)
        made = start(lake, table, "delete", branch)
        finish(lake, f"delete {ids} from {branch} {what}", made, manifests(made, ids))
        set_version(table, branch, version_of(table, branch).lacking(ids))


@SERVER.may(weight=4, when=lambda table: has_rows(table) and table.format_version == 2)
def delete_positions(lake: Lake, table: Table, random: Random) -> None:
    delete_somewhere(lake, table, random, "by position", positions_manifests)


def positions_manifests(made: Preparation, ids: Sequence[int]) -> list[ManifestFile]:
    return [*made.position_deletes(made.places(ids)), *made.draft.parent_manifests]


@SERVER.may(weight=4, when=lambda table: has_rows(table) and table.format_version == 3)
def delete_by_vectors(lake: Lake, table: Table, random: Random) -> None:
    delete_somewhere(lake, table, random, "by vectors", vector_manifests)


def vector_manifests(made: Preparation, ids: Sequence[int]) -> list[ManifestFile]:
    places = made.places(ids)
    return [*made.vectors(places), *made.without(places, vectors_only=True)]


@SERVER.may(weight=2, when=lambda table: writable_with_rows(table) and not table.renamed_by_registration)
def delete_equal(lake: Lake, table: Table, random: Random) -> None:
    delete_somewhere(
        lake,
        table,
        random,
        "by equality",
        lambda made, ids: [*made.equality_deletes(ids), *made.draft.parent_manifests],
    )


def delete_manifests(made: Preparation, ids: Sequence[int]) -> list[ManifestFile]:
    return (positions_manifests if made.draft.format_version < 3 else vector_manifests)(made, ids)


@SERVER.may(weight=3, when=writable_with_rows)
def update_on_read(lake: Lake, table: Table, random: Random) -> None:
    """Merge-on-read: one snapshot deletes positions and adds the changed rows."""
    rows = changed_rows(table, some_ids(table.main, random), random)
    made = start(lake, table, "overwrite")
    deletes = delete_manifests(made, [row[0] for row in rows])
    finish(lake, f"update to {rows}", made, [made.draft.manifest([made.data_file(rows)]), *deletes])
    table.main = table.main.having(*rows)


@SERVER.may(weight=3, when=writable_with_rows)
def update_on_write(lake: Lake, table: Table, random: Random) -> None:
    """Copy-on-write: the files that hold the rows are written again."""
    rows = changed_rows(table, some_ids(table.main, random), random)
    made = start(lake, table, "overwrite")
    paths = made.places([row[0] for row in rows]).keys()
    after = table.main.having(*rows)
    kept = [after.rows[id_] for id_ in sorted(made.live_ids(paths))]
    finish(lake, f"rewrite with {rows}", made, [made.draft.manifest([made.data_file(kept)]), *made.without(paths)])
    table.main = after


def changed_rows(table: Table, ids: Sequence[int], random: Random) -> list[Any]:
    if len(table.columns) == 1:
        return [table.rows[id_] for id_ in ids]
    column = random.choice(table.columns[1:])
    value = some_value(column, random, required=column.key in table.required)
    return [{**table.rows[id_], column.key: value} for id_ in ids]


@SERVER.may(weight=2, when=writable_with_rows)
def compact(lake: Lake, table: Table, random: Random) -> None:
    """All data files become one, without deletes; also those of a branch."""
    branch = somewhere(table, random)
    version = version_of(table, branch)
    if version.rows:
        made = start(lake, table, "replace", branch)
        paths = {entry.data_file.file_path for _, entry in made.data}
        file = made.data_file(version.rows[id_] for id_ in sorted(version.rows))
        finish(lake, f"compact {branch}", made, [made.draft.manifest([file]), *made.without(paths)])


@SERVER.may(weight=2, when=writable_with_rows)
def several_snapshots(lake: Lake, table: Table, random: Random) -> None:
    """One request of two snapshots, as PyIceberg's overwrite makes."""
    ids, rows = some_ids(table.main, random), lake.new_rows(table, 3, random)
    made = start(lake, table, "delete")
    first = made.draft.body(delete_manifests(made, ids))
    following = prepare(table, lake.reader, applied(made.draft.metadata, first), "append")
    second = following.draft.body(append_manifests(following, rows))
    lake.commit(table, f"delete {ids} and append {rows}", {**first, "updates": [*first["updates"], *second["updates"]]})
    table.main = table.main.lacking(ids).having(*rows)


@SERVER.may(when=begins_unpartitioned, tables_needed=2)
def several_tables(lake: Lake, table: Table, random: Random) -> None:
    """One transaction that appends to two tables."""
    other = random.choice([each for each in lake.tables if each is not table])
    if not begins_unpartitioned(other):
        return
    changes = []
    for each in (table, other):
        rows = lake.new_rows(each, random.randint(1, 4), random)
        made = start(lake, each, "append")
        identifier = {"namespace": [each.namespace], "name": each.name}
        changes.append({"identifier": identifier, **made.draft.body(append_manifests(made, rows))})
        each.main = each.main.having(*rows)
    lake.log.append(f"server append to {table.identifier} and {other.identifier}")
    commit_transaction(lake.services, CommitTransactionRequest.model_validate({"table-changes": changes}))


# Refs and history


@SERVER.may(when=begins_unpartitioned)
def stage(lake: Lake, table: Table, random: Random) -> None:
    """A snapshot that no ref names."""
    rows = lake.new_rows(table, random.randint(1, 4), random)
    made = start(lake, table, "append", None)
    metadata = lake.commit(table, f"stage {rows}", made.draft.body(append_manifests(made, rows)))
    (new,) = snapshot_ids(metadata) - snapshot_ids(made.draft.metadata)
    table.snapshots[new] = table.main.having(*rows)
    table.staged[new] = tuple(rows)


def snapshot_ids(metadata: Json) -> set[int]:
    return {int(each["snapshot-id"]) for each in metadata.get("snapshots", ())}


@SERVER.may(weight=2, when=lambda table: bool(table.staged))
def cherry_pick(lake: Lake, table: Table, random: Random) -> None:
    """Add the files of a staged snapshot to main. Each is picked once, and not where its rows are there already."""
    staged = random.choice(list(table.staged))
    rows = [shaped(table.columns, row) for row in table.staged.pop(staged)]
    made = start(lake, table, "append")
    if staged not in snapshot_ids(made.draft.metadata) or any(row[0] in table.rows for row in rows):
        return
    source = replace(made.draft, built_on=staged)
    entries = [entry for line in source.parent_manifests for entry in live(line) if entry.snapshot_id == staged]
    files = [replace(each.data_file, first_row_id=None) for each in entries if is_data(each)]
    manifests = [made.draft.manifest(files), *made.draft.parent_manifests]
    finish(lake, f"pick {staged}", made, manifests)
    table.main = table.main.having(*rows)


def is_data(entry: Any) -> bool:
    return bool(entry.data_file.content is FileContent.DATA)


def point(lake: Lake, table: Table, name: str, snapshot_id: int, type_: str = "branch") -> None:
    update = set_ref(name, snapshot_id, type_)
    lake.commit(table, f"set {name} to {snapshot_id}", {"requirements": [], "updates": [update]})


@SERVER.may(weight=2, when=has_snapshots)
def roll_back(lake: Lake, table: Table, random: Random) -> None:
    if not (snapshots := lake.listed(table)):
        return
    target = random.choice(snapshots)
    point(lake, table, "main", target)
    table.main = usable(table, target)


@SERVER.may(weight=2, when=has_snapshots)
def branch(lake: Lake, table: Table, random: Random) -> None:
    """Make a branch, or set one elsewhere."""
    if not (snapshots := lake.listed(table)):
        return
    name, target = random.choice(["b", *sorted(table.branches)]), random.choice(snapshots)
    point(lake, table, name, target)
    table.branches[name] = usable(table, target)


@SERVER.may(weight=2, when=lambda table: bool(table.branches))
def publish(lake: Lake, table: Table, random: Random) -> None:
    """Set main to where a branch is."""
    name = random.choice(sorted(table.branches))
    point(lake, table, "main", lake.metadata(table)["refs"][name]["snapshot-id"])
    table.main = table.branches[name]


@SERVER.may(when=lambda table: bool(table.branches))
def drop_branch(lake: Lake, table: Table, random: Random) -> None:
    name = random.choice(sorted(table.branches))
    body = {"requirements": [], "updates": [{"action": "remove-snapshot-ref", "ref-name": name}]}
    lake.commit(table, f"drop {name}", body)
    del table.branches[name]


@SERVER.may(when=has_snapshots)
def expire(lake: Lake, table: Table, random: Random) -> None:
    """All snapshots leave history but those that refs name."""
    metadata = lake.metadata(table)
    refs = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    gone = sorted(snapshot_ids(metadata) - refs)
    body = {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": gone}]}
    lake.commit(table, f"expire {gone}", body)


@SERVER.may(when=lambda table: table.format_version == 2)
def upgrade(lake: Lake, table: Table, random: Random) -> None:
    if lake.format_version > 2:
        update = {"action": "upgrade-format-version", "format-version": 3}
        lake.commit(table, "upgrade", {"requirements": [], "updates": [update]})
        table.format_version = 3


@SERVER.may(when=lambda table: not table.files_without_ids)
def register_again(lake: Lake, table: Table, random: Random) -> None:
    """Give the table up and take it back, under another name if one is free.

    Not with a name mapping: then files are read, and those that DuckDB wrote for the old table may not be.
    """
    lake.log.append(f"server register {table.identifier} again")
    answer = json.loads(tables.unregister_table(lake.services, (table.namespace,), table.name))
    name = random.choice([table.name, *lake.free_names(table.namespace)])
    request = RegisterTableRequest(name=name, metadata_location=answer["metadata-location"])
    tables.register_table(lake.services, (table.namespace,), request)
    table.renamed_by_registration |= name != table.name
    table.name = name
    table.versions.clear()
