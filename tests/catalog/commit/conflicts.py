"""A table that DuckDB and an Iceberg client change at the same time: what everybody must see of it, and what they see.

`State` is the model. An operation's effect gives the next one, or None where the operation makes no sense any more.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import duckdb
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from duckicelake.errors import NoSuchTableError
from duckicelake.iceberg.manifest.entry import DataFile, EntryStatus, FileContent
from duckicelake.iceberg.manifest.reader import read_manifest, read_manifest_list
from tests.support.client import NS, Client, Json, Row, local
from tests.support.contents import deleted_by, read_rows
from tests.support.seams import fresh
from tests.support.table_history import Rows, rows_of

COMPANION = "companion"
"""A table that changes only together with another one."""
OURS = {"ducklake.snapshot-id", "format-version"}
OF_NEW_TABLES = {"write.parquet.compression-codec": "zstd"}
"""Properties of tables that a client creates."""


@dataclass(frozen=True, slots=True)
class State:
    """What both sides must see of a table; `name` is None once it is dropped.

    `refs` are the rows of tags and branches, `forgotten` the snapshots that were expired, `companion` the properties
    that the companion got.
    """

    name: str | None
    format_version: int
    rows: Rows
    columns: tuple[tuple[str, str], ...] = (("id", "long"), ("name", "string"), ("extra", "int"))
    required: frozenset[str] = frozenset()
    partitioned_by: tuple[str, ...] = ()
    sorted_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    refs: Mapping[str, Rows] = field(default_factory=dict)
    forgotten: frozenset[int] = frozenset()
    companion: frozenset[str] = frozenset()

    def with_rows(self, rows: Iterable[Row]) -> "State":
        return replace(self, rows=self.rows | set(rows))

    def without(self, ids: Iterable[int]) -> "State":
        gone = set(ids)
        return replace(self, rows=frozenset(row for row in self.rows if row[0] not in gone))

    def with_names(self, ids: Iterable[int], name: str) -> "State":
        """The rows of these ids that are there, under another name."""
        changed = {row for row in self.rows if row[0] in set(ids)}
        return replace(self, rows=self.rows - changed | {(row[0], f"{name}{row[0]}") for row in changed})

    def with_column(self, name: str, type_: str) -> "State":
        return replace(self, columns=(*self.columns, (name, type_)))

    def with_extra(self, *instead: tuple[str, str]) -> "State | None":
        """Something else for the column `extra`, if it is there."""
        if ("extra", "int") not in self.columns:
            return None
        return replace(self, columns=(*self.columns[:2], *instead, *self.columns[3:]))


@dataclass(frozen=True, slots=True)
class Subject:
    """A table before anything happens at the same time: its snapshots' rows, oldest first, and DuckLake's numbers."""

    name: str
    shown: Mapping[int, Rows]
    versions: Mapping[int, int]

    @property
    def snapshots(self) -> list[int]:
        return list(self.shown)

    def state(self, format_version: int) -> State:
        return State(self.name, format_version, self.shown[self.snapshots[-1]], properties=OF_NEW_TABLES)


Effect = Callable[[State, State, Subject], State | None]
"""From (the state in which the operation is applied, the one in which it was begun, the table) to the next state."""


def seen_by_iceberg(services: Services, subject: Subject, names: Iterable[str]) -> State | None:
    """The state of the table under the one of the names that it has, as a server says that has just started.

    Every snapshot of before that is still listed shows what it showed.
    """
    for name in names:
        with suppress(NoSuchTableError):
            answer = Client(fresh(services)).load(name)
            metadata = answer["metadata"]
            _assert_history(metadata, subject)
            _assert_rows_of_pyiceberg(answer)
            companion = Client(services).metadata(COMPANION)["properties"].keys() & {subject.name}
            return replace(_state(metadata, subject, name), companion=frozenset(companion))
    return None


def _assert_rows_of_pyiceberg(answer: Json) -> None:
    """PyIceberg reads the rows that the small reader of tests reads."""
    table = StaticTable.from_metadata(answer["metadata-location"])
    head = answer["metadata"].get("refs", {}).get("main", {}).get("snapshot-id")
    found = rows_of(table) if head is not None else []
    assert found == sorted(_rows_at(answer["metadata"], head))


def _assert_history(metadata: Json, subject: Subject) -> None:
    for snapshot in metadata.get("snapshots", ()):
        at = snapshot["snapshot-id"]
        if at in subject.shown:
            assert _rows_at(metadata, at) == subject.shown[at], f"snapshot {at}"


def _state(metadata: Json, subject: Subject, name: str) -> State:
    schema = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    names = {each["id"]: each["name"] for each in schema["fields"]}
    spec = next(each for each in metadata["partition-specs"] if each["spec-id"] == metadata["default-spec-id"])
    order = next(each for each in metadata["sort-orders"] if each["order-id"] == metadata["default-sort-order-id"])
    refs = {ref: each["snapshot-id"] for ref, each in metadata.get("refs", {}).items()}
    listed = {each["snapshot-id"] for each in metadata.get("snapshots", ())}
    main = refs.pop("main", None)
    return State(
        name=name,
        format_version=metadata["format-version"],
        rows=_rows_at(metadata, main),
        columns=tuple((each["name"], each["type"]) for each in schema["fields"]),
        required=frozenset(each["name"] for each in schema["fields"] if each["required"]),
        partitioned_by=tuple(names[each["source-id"]] for each in spec["fields"]),
        sorted_by=tuple(names[each["source-id"]] for each in order["fields"]),
        properties={key: value for key, value in metadata["properties"].items() if key not in OURS},
        refs={ref: _rows_at(metadata, snapshot_id) for ref, snapshot_id in refs.items()},
        forgotten=frozenset(subject.shown) - listed,
    )


def _rows_at(metadata: Json, snapshot_id: int | None) -> Rows:
    if snapshot_id is None:
        return frozenset()
    (path,) = {each["manifest-list"] for each in metadata["snapshots"] if each["snapshot-id"] == snapshot_id}
    rows, files = _rows_of_list(path)
    assert all(local(file).is_file() for file in files), f"files of snapshot {snapshot_id} are gone"
    return rows


_rows_of_file = cache(read_rows)


@cache
def _files_of(manifest: str) -> tuple[DataFile, ...]:
    """The live files of a manifest, which never changes either."""
    entries = read_manifest(local(manifest).read_bytes()).entries
    return tuple(entry.data_file for entry in entries if entry.status is not EntryStatus.DELETED)


_DELETED: dict[tuple[str, int | None], frozenset[tuple[str, int]]] = {}


def _deleted_by(file: DataFile) -> frozenset[tuple[str, int]]:
    """(data file, position) of each row that the file deletes; snapshots share such files, which never change."""
    key = (file.file_path, file.content_offset)
    if key not in _DELETED:
        _DELETED[key] = frozenset((target, row) for target, positions in deleted_by(file) for row in positions)
    return _DELETED[key]


@cache
def _rows_of_list(path: str) -> tuple[Rows, tuple[str, ...]]:
    """The rows of a manifest list and its data files; neither ever changes."""
    lines = read_manifest_list(local(path).read_bytes())
    files = [file for line in lines for file in _files_of(line.manifest_path)]
    deleted = set().union(*(_deleted_by(file) for file in files if file.content is not FileContent.DATA))
    data = tuple(file.file_path for file in files if file.content is FileContent.DATA)
    rows = [row for file in data for n, row in enumerate(_rows_of_file(file)) if (file, n) not in deleted]
    assert len(rows) == len(set(rows)), "a row is there twice"
    return frozenset(rows), data


def assert_seen_by_duckdb(duck: duckdb.DuckDBPyConnection, state: State) -> None:
    """DuckDB sees the state's table, columns and rows, no row id twice."""
    columns = [name for name, _ in state.columns]
    found = duck.sql(f"SELECT rowid, * FROM lake.ns.{state.name}")
    assert found.columns[1:] == columns
    rows = found.fetchall()
    assert len({row[0] for row in rows}) == len(rows), "a row id is there twice"
    assert sorted(row[1:3] for row in rows) == sorted(state.rows)
    assert duck.sql(f"SELECT count(*) FROM lake.ns.{state.name}").fetchall() == [(len(state.rows),)]


def assert_versions(duck: duckdb.DuckDBPyConnection, versions: Mapping[int, State]) -> None:
    """DuckDB reads `AT` these DuckLake snapshots what the states say."""
    for version, state in versions.items():
        if state.name is not None:
            at = f"SELECT id, name FROM lake.ns.{state.name} AT (VERSION => {version}) ORDER BY ALL"
            assert duck.sql(at).fetchall() == sorted(state.rows), f"version {version}"


def assert_healthy(services: Services) -> None:
    """The catalog breaks none of DuckLake's rules (`ducklake-facts.md` §0)."""
    with services.database.reading() as cursor:
        for query, meaning in UNHEALTHY.items():
            assert cursor.execute(query).fetchall() == [], meaning  # type: ignore[call-overload]


UNHEALTHY: dict[str, str] = {
    """
    SELECT s.snapshot_id, c.snapshot_id FROM ducklake_snapshot s
    FULL JOIN ducklake_snapshot_changes c USING (snapshot_id) WHERE s IS NULL OR c IS NULL
    """: "a snapshot without a record of changes",
    """
    SELECT data_file_id FROM ducklake_delete_file WHERE end_snapshot IS NULL GROUP BY 1 HAVING count(*) > 1
    """: "two live delete files of one data file",
    """
    SELECT table_id FROM ducklake_table WHERE end_snapshot IS NULL GROUP BY 1 HAVING count(*) > 1
    """: "a table that is there twice",
    """
    SELECT schema_id, lower(table_name) FROM ducklake_table WHERE end_snapshot IS NULL GROUP BY 1, 2 HAVING count(*) > 1
    """: "two tables of one name",
    """
    SELECT table_id FROM ducklake_table t WHERE end_snapshot IS NULL AND NOT EXISTS (
        SELECT FROM ducklake_column c WHERE c.table_id = t.table_id AND c.end_snapshot IS NULL)
    """: "a table without columns",
    """
    SELECT table_id, column_id FROM ducklake_column WHERE end_snapshot IS NULL GROUP BY 1, 2 HAVING count(*) > 1
    """: "a column that is there twice",
    """
    SELECT table_id, path FROM ducklake_data_file WHERE end_snapshot IS NULL GROUP BY 1, 2 HAVING count(*) > 1
    """: "a data file that is there twice",
    """
    SELECT f.data_file_id FROM ducklake_data_file f WHERE f.end_snapshot IS NULL AND NOT EXISTS (
        SELECT FROM ducklake_table t WHERE t.table_id = f.table_id AND t.end_snapshot IS NULL)
    """: "a data file of a dropped table",
}


def newest(services: Services) -> int:
    with services.database.reading() as cursor:
        ((found,),) = cursor.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchall()
    return int(found)


def identifier(name: str) -> dict[str, Any]:
    return {"namespace": list(NS), "name": name}
