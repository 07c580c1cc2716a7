"""One table or view of a lake: look at it, change it."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from duckicelake.client.alteration import build_alteration
from duckicelake.client.diff import TableDiff, parse_diff
from duckicelake.client.models import (
    MAIN_BRANCH,
    ColumnMetrics,
    FileInfo,
    Json,
    PartitionInfo,
    TableInfo,
    ViewInfo,
    build_name,
    sum_partitions,
)
from duckicelake.client.operations import AppendInfo, ExpireInfo, FlushInfo, RestoreInfo, parse_restore
from duckicelake.client.records import parse_record
from duckicelake.client.scan_cost import ExplanationInfo
from duckicelake.errors import BadInputError, JobConflictError
from duckicelake.properties import CONSTRAINT_PREFIX
from duckicelake.rest.client import CatalogClient, encode_namespace, encode_segment
from duckicelake.rest.names import Namespace, parse_table

_LOAD_SNAPSHOTS: Final = "all"
_BOUNDS: Final = ("lower-bounds", "upper-bounds")


class _Relation:
    """What tables and views share: a name, a path, properties."""

    kind: str

    def __init__(self, client: CatalogClient, namespace: Namespace, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name

    @property
    def name(self) -> str:
        """The full name."""
        return build_name(self._namespace, self._name)

    def _path(self, *segments: str) -> str:
        own = "namespaces", encode_namespace(self._namespace), f"{self.kind}s", encode_segment(self._name)
        return self._client.iceberg(*own, *segments)

    def _change_properties(self, updates: Mapping[str, str], removals: Sequence[str]) -> None:
        changes: list[Json] = [{"action": "set-properties", "updates": dict(updates)}] if updates else []
        changes += [{"action": "remove-properties", "removals": list(removals)}] if removals else []
        if changes:
            self._client.change("POST", self._path(), {"requirements": [], "updates": changes})


class Table(_Relation):
    """A table behind its catalog's REST API."""

    kind = "table"

    def load(self) -> TableInfo:
        """Load the table. Raises MissingTableError."""
        return TableInfo(self.name, self._client.load_table(self._namespace, self._name, _LOAD_SNAPSHOTS)["metadata"])

    def files(self, at: int | str | None = None) -> Iterator[FileInfo]:
        """Yield the data files of the current snapshot, or of a snapshot id, branch or tag. The catalog plans it."""
        info = self.load()
        yield from map(partial(_parse_task, info), self._plan(info, at))

    def column_metrics(self, column: str, at: int | str | None = None) -> Iterator[ColumnMetrics]:
        """Yield what the catalog says of a top-level column in each data file of a snapshot; no file is read.

        Raises BadInputError if there is no such column.
        """
        info = self.load()
        found = next((one for one in info.columns if one.name == column), None)
        if found is None:
            names = ", ".join(one.name for one in info.columns)
            raise BadInputError(f"{self.name} has no column {column!r}; it has {names}")
        yield from map(partial(_parse_metrics, found.field_id), self._plan(info, at, column))

    def _plan(self, info: TableInfo, at: int | str | None, *columns: str) -> Iterator[Json]:
        """Yield the scan tasks of a snapshot. columns: with their statistics."""
        if at is None and info.snapshot_id is None:
            return
        body: Json = {"snapshot-id": _resolve(info, at), "filter": True}
        waiting = [self._client.post(self._path("plan"), body | ({"stats-fields": columns} if columns else {}))]
        while waiting:
            answer = waiting.pop()
            yield from answer.get("file-scan-tasks") or ()
            tasks = reversed(answer.get("plan-tasks") or ())
            waiting.extend(self._client.post(self._path("tasks"), {"plan-task": task}) for task in tasks)

    def partitions(self, at: int | str | None = None) -> tuple[PartitionInfo, ...]:
        """Return what each partition of a snapshot has."""
        return sum_partitions(self.files(at))

    def resolve_snapshot(self, at: int | str | None = None) -> int:
        """Return the id of a listed snapshot, or of that which a branch or tag points to (default: main).

        Raises BadInputError if there is none.
        """
        return _resolve(self.load(), at)

    def update_properties(self, updates: Mapping[str, str] | None = None, removals: Sequence[str] = ()) -> None:
        """Set and remove properties."""
        self._change_properties(updates or {}, removals)

    def constraints(self) -> Mapping[str, str]:
        """Return the CHECK constraints: conditions by name."""
        properties = self.load().properties
        return {
            key.removeprefix(CONSTRAINT_PREFIX): condition
            for key, condition in sorted(properties.items())
            if key.startswith(CONSTRAINT_PREFIX)
        }

    def add_constraint(self, name: str, condition: str) -> None:
        """Add or replace a CHECK constraint. Raises BadInputError if a condition can't be one, or rows violate it."""
        self._change_properties({f"{CONSTRAINT_PREFIX}{name}": condition}, ())

    def drop_constraint(self, name: str) -> None:
        """Drop a CHECK constraint. Raises BadInputError if there is none of this name."""
        known = self.constraints()
        if name not in known:
            raise BadInputError(f"{self.name} has no constraint {name!r}; it has {', '.join(known) or 'none'}")
        self._change_properties({}, (f"{CONSTRAINT_PREFIX}{name}",))

    def set_ref(self, name: str, kind: str, snapshot_id: int, *, replaced: int | None = None) -> None:
        """Create a branch or tag, or move one from the snapshot `replaced`; JobConflictError if it isn't there."""
        requirement = {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": replaced}
        update = {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot_id}
        try:
            self._commit([requirement], [update])
        except JobConflictError as error:
            if replaced is not None:
                raise
            raise JobConflictError(f"{self.name} has a branch or tag {name!r} already") from error

    def retain_ref(
        self,
        name: str,
        *,
        max_age: timedelta | None = None,
        max_snapshot_age: timedelta | None = None,
        min_snapshots: int | None = None,
    ) -> None:
        """Say how long a branch or tag is kept, and of a branch its snapshots; what isn't given is the table's rule."""
        ref = next((one for one in self.load().refs if one.name == name), None)
        if ref is None:
            raise BadInputError(f"{self.name} has no branch or tag {name!r}")
        update: dict[str, Json] = {"action": "set-snapshot-ref", "ref-name": name, "type": ref.kind}
        update["snapshot-id"] = ref.snapshot_id
        ages = {"max-ref-age-ms": max_age, "max-snapshot-age-ms": max_snapshot_age}
        update |= {key: int(age.total_seconds() * 1000) for key, age in ages.items() if age is not None}
        update |= {} if min_snapshots is None else {"min-snapshots-to-keep": min_snapshots}
        requirement = {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": ref.snapshot_id}
        self._commit([requirement], [update])

    def drop_ref(self, name: str) -> None:
        """Drop a branch or tag; its snapshots stay until they expire. BadInputError for `main` and unknown ones."""
        ref = _get_ref(self.load(), name)
        if name == MAIN_BRANCH:
            raise BadInputError("main can't be dropped: it is the table's own branch")
        requirement = {"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": ref}
        self._commit([requirement], [{"action": "remove-snapshot-ref", "ref-name": name}])

    def fast_forward(self, branch: str, to: str) -> None:
        """Move a branch to the snapshot of another ref that descends from it. Raises BadInputError if it doesn't."""
        info = self.load()
        old, new = (_get_ref(info, name) for name in (branch, to))
        parents = {snapshot.snapshot_id: snapshot.parent_id for snapshot in info.snapshots}
        at: int | None = new
        while at is not None and at != old:
            at = parents.get(at)
        if at is None:
            raise BadInputError(f"{branch} can't be fast-forwarded to {to}: {to} doesn't descend from it")
        self.set_ref(branch, "branch", new, replaced=old)

    def append(self, rows: Sequence[Mapping[str, Json]], *, branch: str | None = None) -> AppendInfo:
        """Append rows, all or none, to `main` or to another branch.

        For many rows and streams of them there is `Writer`.
        """
        query = {"branch": branch} if branch else None
        return parse_record(AppendInfo, self._client.change("POST", self._path("rows"), list(rows), query))

    def set_column_comment(self, column: str, comment: str | None) -> None:
        """Set or remove the comment of a top-level column. Raises BadInputError if there is no such column."""
        metadata = self.load().metadata
        schema = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
        if column not in {field["name"] for field in schema["fields"]}:
            raise BadInputError(f"{self.name} has no column {column!r}")
        fields = [_comment_field(field, comment) if field["name"] == column else field for field in schema["fields"]]
        updates = [
            {
                "action": "add-schema",
                "schema": {**schema, "fields": fields},
                "last-column-id": metadata["last-column-id"],
            },
            {"action": "set-current-schema", "schema-id": -1},
        ]
        self._commit([{"type": "assert-current-schema-id", "current-schema-id": schema["schema-id"]}], updates)

    def alter(self, changes: Sequence[str]) -> None:
        """Change columns, partitions and order by clauses, as `add column note string`, all or none.

        JobConflictError if another writer changed them meanwhile. Raises BadInputError.
        """
        commit = build_alteration(self.load().metadata, changes)
        if commit["updates"]:
            self._commit(commit["requirements"], commit["updates"])

    def restore(self, to: str, *, is_dry_run: bool = False) -> RestoreInfo:
        """Make `main` what it was at a snapshot, time, branch or tag; return what that does or would do."""
        return parse_restore(self._client.change("POST", self._path("restore"), {"to": to, "dry-run": is_dry_run}))

    def expire(self, older_than: datetime, *, retain_last: int = 1, is_dry_run: bool = False) -> ExpireInfo:
        """Expire older snapshots, and branches and tags older than they may be; return how many."""
        body = {"older-than-ms": int(older_than.timestamp() * 1000), "retain-last": retain_last, "dry-run": is_dry_run}
        done = self._client.change("POST", self._path("expire"), body)
        return ExpireInfo(done["snapshots"], done["left"], done["keeps-files"], tuple(done.get("refs", ())))

    def diff(
        self, since: int | str | None = None, until: int | str | None = None, *, max_files: int = 1000
    ) -> TableDiff:
        """Compare the table at two states: rows and files that came and went, columns, partition spec, sort order.

        A state is a snapshot id, DuckLake's number, a time, a branch or tag. since: None for the parent of the other;
        until: None for the table as it is.
        """
        named = {"from": since, "to": until, "limit": max_files}
        query = {key: str(value) for key, value in named.items() if value is not None}
        return parse_diff(self._client.get(self._path("diff"), query), self.load().column_names)

    def explain(self, where: str | None = None, at: str | None = None) -> ExplanationInfo:
        """Return what a filter would read. where: a condition in DuckDB's SQL; None: all rows."""
        return parse_record(ExplanationInfo, self._client.post(self._path("explain"), {"where": where, "at": at}))

    def clone(self, name: str, *, at: str | None = None, with_history: bool = False) -> "Table":
        """Clone the table, or what it was at a snapshot, time, branch or tag, under another name."""
        namespace, last = parse_table(name)
        path = self._client.iceberg("namespaces", encode_namespace(namespace), "clone")
        source = {"namespace": list(self._namespace), "name": self._name}
        body = {"name": last, "source": source, "at": at, "with-history": with_history}
        self._client.change("POST", path, body)
        return Table(self._client, namespace, last)

    def flush(self) -> FlushInfo:
        """Write the rows in Postgres to files; return how many went to how many files."""
        done = self._client.flush_rows(self._namespace, self._name)
        return FlushInfo(done["rows"], done["deletes"], done["files"], done.get("snapshot-id"))

    def drop(self, *, is_purge: bool = False) -> None:
        """Drop the table. is_purge: delete its files, too."""
        self._client.change("DELETE", self._path(), query={"purgeRequested": "true"} if is_purge else None)

    def unregister(self) -> str:
        """Take the table out of the catalog; return where its metadata.json is. Its files stay."""
        return str(self._client.change("POST", self._path("unregister"), {})["metadata-location"])

    def _commit(self, requirements: list[Json], updates: list[Json]) -> None:
        self._client.change("POST", self._path(), {"requirements": requirements, "updates": updates})


class View(_Relation):
    """A view behind its catalog's REST API."""

    kind = "view"

    def load(self) -> ViewInfo:
        """Load the view. Raises MissingTableError."""
        return ViewInfo(self.name, self._client.get(self._path())["metadata"])

    def update_properties(self, updates: Mapping[str, str] | None = None, removals: Sequence[str] = ()) -> None:
        """Set and remove properties."""
        self._change_properties(updates or {}, removals)

    def redefine(self, schema: Json, version: Json) -> None:
        """Give the view another version with this schema, both as Iceberg's JSON; its ids are the catalog's."""
        requirement = {"type": "assert-view-uuid", "uuid": self.load().metadata["view-uuid"]}
        updates = [
            {"action": "add-schema", "schema": schema},
            {"action": "add-view-version", "view-version": version | {"schema-id": -1}},
            {"action": "set-current-view-version", "view-version-id": -1},
        ]
        self._client.change("POST", self._path(), {"requirements": [requirement], "updates": updates})

    def drop(self) -> None:
        """Drop the view."""
        self._client.change("DELETE", self._path())


def _resolve(info: TableInfo, at: int | str | None) -> int:
    if at is None and info.snapshot_id is not None:
        return info.snapshot_id
    text = MAIN_BRANCH if at is None else str(at)
    if text in {ref.name for ref in info.refs}:
        return _get_ref(info, text)
    if text.removeprefix("-").isdecimal() and int(text) in {snapshot.snapshot_id for snapshot in info.snapshots}:
        return int(text)
    raise BadInputError(f"{info.name} lists no snapshot, branch or tag {text!r}: `duckicelake snapshots {info.name}`")


def _get_ref(info: TableInfo, name: str) -> int:
    for ref in info.refs:
        if ref.name == name:
            return ref.snapshot_id
    raise BadInputError(f"{info.name} has no branch or tag {name!r}; it has {', '.join(ref.name for ref in info.refs)}")


def _comment_field(field: Json, comment: str | None) -> Json:
    rest = {key: value for key, value in field.items() if key != "doc"}
    return rest if comment is None else rest | {"doc": comment}


def _parse_task(info: TableInfo, task: Json) -> FileInfo:
    file = task["data-file"]
    names = info.partition_names(file["spec-id"])
    return FileInfo(
        file["file-path"],
        str(file["file-format"]).lower(),
        file["record-count"],
        file["file-size-in-bytes"],
        dict(zip(names, file.get("partition") or (), strict=False)),
        len(task.get("delete-file-references") or ()),
    )


def _parse_metrics(field_id: int, task: Json) -> ColumnMetrics:
    file = task["data-file"]

    def find(what: str) -> Any:
        counted = file.get(what) or {}
        return dict(zip(counted.get("keys") or (), counted.get("values") or (), strict=True)).get(field_id)

    lower, upper = (None if value is None else bytes.fromhex(value) for value in map(find, _BOUNDS))
    return ColumnMetrics(
        file["record-count"],
        find("column-sizes"),
        find("null-value-counts"),
        find("nan-value-counts"),
        lower,
        upper,
        len(task.get("delete-file-references") or ()),
    )
