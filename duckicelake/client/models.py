"""What a lake has, as clients read it: columns, snapshots, refs, files, partitions, rows of queries."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

from duckicelake.rest.names import Namespace, format_name

Json = Any
ObjectKind = Literal["namespace", "table", "view"]
MAIN_BRANCH: Final = "main"
_AMBIGUOUS_PERCENT: Final = re.compile(r"%(?=25|2E)")
"""DuckLake's schema has `%2E` for the dots of a level."""


@dataclass(frozen=True, slots=True)
class CatalogObject:
    """A namespace, table or view of a list. name: its full name, as commands and methods take it."""

    kind: ObjectKind
    name: str


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """A column. type: Iceberg's, as `struct<a: int>`."""

    field_id: int
    name: str
    type: str
    is_required: bool
    comment: str | None = None
    default: Json = None


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A snapshot. refs: the branches and tags that point to it."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    timestamp: datetime
    operation: str
    refs: tuple[str, ...]
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RefInfo:
    """A branch or tag."""

    name: str
    kind: Literal["branch", "tag"]
    snapshot_id: int
    timestamp: datetime | None


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A data file of a snapshot. partition: values by the names of the partition fields."""

    path: str
    format: str
    rows: int
    bytes: int
    partition: Mapping[str, Json]
    delete_files: int


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The files of one partition. rows: before deletes."""

    partition: Mapping[str, Json]
    files: int
    rows: int
    bytes: int
    delete_files: int


@dataclass(frozen=True, slots=True)
class ColumnMetrics:
    """What the catalog says of a column in one data file, without reading it; None where it says nothing.

    Attributes:
        rows: of the file, deleted ones included.
        stored_bytes: of the column in the file.
        lower, upper: Iceberg's single-value bytes.
        delete_files: how many delete rows of the file.

    """

    rows: int
    stored_bytes: int | None
    nulls: int | None
    nans: int | None
    lower: bytes | None
    upper: bytes | None
    delete_files: int


@dataclass(frozen=True, slots=True)
class TableSize:
    """How large a table is. rows: without deleted ones, with those in Postgres, inlined_rows. changed: main, lately."""

    name: str
    rows: int
    files: int
    bytes: int
    changed: datetime | None
    inlined_rows: int = 0


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table, as its metadata describes it.

    Attributes:
        metadata: Iceberg's, as the catalog sends it.

    """

    name: str
    metadata: Mapping[str, Json]

    @property
    def comment(self) -> str | None:
        return self.properties.get("comment")

    @property
    def properties(self) -> Mapping[str, str]:
        properties: Mapping[str, str] = self.metadata.get("properties", {})
        return properties

    @property
    def columns(self) -> tuple[ColumnInfo, ...]:
        return tuple(map(parse_column, self._current("schemas", "schema-id", "current-schema-id")["fields"]))

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """The fields of the partition spec, as `day(time)`."""
        spec = self._current("partition-specs", "spec-id", "default-spec-id")
        return format_spec(spec, self.column_names)

    @property
    def sort_fields(self) -> tuple[str, ...]:
        """The fields of the sort order, as `id desc nulls last`."""
        order = self._current("sort-orders", "order-id", "default-sort-order-id")
        return format_order(order, self.column_names)

    @property
    def snapshot_id(self) -> int | None:
        """The current snapshot of `main`; None of a table without rows that never had any."""
        found = self.metadata.get("current-snapshot-id")
        return None if found in {None, -1} else found

    @property
    def snapshot(self) -> SnapshotInfo | None:
        return next((one for one in self.snapshots if one.snapshot_id == self.snapshot_id), None)

    @property
    def snapshots(self) -> tuple[SnapshotInfo, ...]:
        """All listed snapshots, the oldest first."""
        refs: dict[int, list[str]] = {}
        for ref in self.refs:
            refs.setdefault(ref.snapshot_id, []).append(ref.name)
        found = (
            parse_snapshot(one, tuple(refs.get(one["snapshot-id"], ()))) for one in self.metadata.get("snapshots") or ()
        )
        return tuple(sorted(found, key=lambda one: (one.sequence_number, one.timestamp)))

    @property
    def refs(self) -> tuple[RefInfo, ...]:
        """Branches and tags by name, `main` first."""
        times = {one["snapshot-id"]: _parse_time(one["timestamp-ms"]) for one in self.metadata.get("snapshots") or ()}
        found = (
            RefInfo(name, ref["type"], ref["snapshot-id"], times.get(ref["snapshot-id"]))
            for name, ref in (self.metadata.get("refs") or {}).items()
        )
        return tuple(sorted(found, key=lambda ref: (ref.name != MAIN_BRANCH, ref.kind, ref.name)))

    @property
    def column_names(self) -> Mapping[int, str]:
        """Full names of all columns that the table has or had, by field id."""
        return {
            column_id: name
            for schema in self.metadata["schemas"]
            for column_id, name in _name_columns(schema["fields"], ())
        }

    def partition_names(self, spec_id: int) -> tuple[str, ...]:
        """Return the names of a partition spec's fields."""
        fields = next((spec["fields"] for spec in self.metadata["partition-specs"] if spec["spec-id"] == spec_id), ())
        return tuple(field["name"] for field in fields)

    def _current(self, kinds: str, key: str, current: str) -> Mapping[str, Json]:
        return next(one for one in self.metadata[kinds] if one[key] == self.metadata[current])


@dataclass(frozen=True, slots=True)
class ViewInfo:
    """A view, as its metadata describes it."""

    name: str
    metadata: Mapping[str, Json]

    @property
    def properties(self) -> Mapping[str, str]:
        properties: Mapping[str, str] = self.metadata.get("properties", {})
        return properties

    @property
    def comment(self) -> str | None:
        return self.properties.get("comment")

    @property
    def columns(self) -> tuple[ColumnInfo, ...]:
        schemas = {schema["schema-id"]: schema for schema in self.metadata["schemas"]}
        return tuple(map(parse_column, schemas[self._version["schema-id"]]["fields"]))

    @property
    def sql(self) -> Mapping[str, str]:
        """The view's text by dialect."""
        return {one["dialect"]: one["sql"] for one in self._version["representations"] if one["type"] == "sql"}

    @property
    def _version(self) -> Mapping[str, Json]:
        versions = {version["version-id"]: version for version in self.metadata["versions"]}
        current: Mapping[str, Json] = versions[self.metadata["current-version-id"]]
        return current


class TableReader(Protocol):
    """A table that can be described."""

    def load(self) -> TableInfo:
        """Load the table. Raises MissingTableError."""
        ...

    def files(self, at: int | str | None = None) -> Iterator[FileInfo]:
        """Yield the data files of the current snapshot, or of another one."""
        ...

    def partitions(self, at: int | str | None = None) -> tuple[PartitionInfo, ...]:
        """Return what each partition of a snapshot has."""
        ...


class LakeReader(Protocol):
    """What describing a lake takes of it, whether it is behind a catalog's REST API or attached."""

    def list(self, namespace: str = "", *, is_recursive: bool = False) -> Iterator[CatalogObject]:
        """Yield what is in a namespace, or at the top level."""
        ...

    def sizes(self, namespace: str = "") -> Iterator[TableSize]:
        """Yield how large the tables below a namespace are; nothing where that isn't known."""
        ...

    def table(self, name: str) -> TableReader:
        """Return a table."""
        ...

    def find(self, name: str) -> TableInfo | ViewInfo:
        """Load the table or view of a name. Raises MissingTableError."""
        ...

    def suggest(self, name: str) -> str:
        """Return "; did you mean …?" with names like this one; empty if there are none."""
        ...


@dataclass(frozen=True, slots=True)
class FoundName:
    """A namespace, table or view that holds a text.

    Attributes:
        matched: what holds it: name, comment, column, column-comment.
        columns: those whose name or comment does.

    """

    kind: ObjectKind
    name: str
    comment: str | None
    matched: tuple[str, ...]
    columns: tuple[str, ...]


def parse_found(found: Json) -> FoundName:
    """Parse an object of the route `/v1/search`."""
    name = build_name(tuple(found["namespace"]), *filter(None, [found.get("name")]))
    return FoundName(found["kind"], name, found.get("comment"), tuple(found["matched"]), tuple(found["columns"]))


def quote_sql_name(namespace: Namespace, name: str) -> str:
    """Quote the name of a table or view for DuckDB's SQL, in which a nested namespace is one name."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in (format_schema(namespace), name))


def format_schema(namespace: Namespace) -> str:
    """Format the levels of a namespace as the name of DuckLake's schema, as `sales.eu`."""
    return ".".join(_AMBIGUOUS_PERCENT.sub("%25", level).replace(".", "%2E") for level in namespace)


def build_name(namespace: Namespace, *name: str) -> str:
    """Build the full name of an object, with backticks where a level needs them."""
    *levels, last = *namespace, *name
    return format_name(tuple(levels), last)


def format_type(type_: Json) -> str:
    """Format an Iceberg type, as `list<struct<a: int>>`."""
    if isinstance(type_, str):
        return type_
    match type_["type"]:
        case "struct":
            fields = (f"{field['name']}: {format_type(field['type'])}" for field in type_["fields"])
            return f"struct<{', '.join(fields)}>"
        case "list":
            return f"list<{format_type(type_['element'])}>"
        case _:
            return f"map<{format_type(type_['key'])}, {format_type(type_['value'])}>"


def parse_column(field: Json) -> ColumnInfo:
    """Parse a field of Iceberg's schema."""
    default = field.get("write-default", field.get("initial-default"))
    return ColumnInfo(
        field["id"], field["name"], format_type(field["type"]), field["required"], field.get("doc"), default
    )


def parse_snapshot(snapshot: Json, refs: tuple[str, ...]) -> SnapshotInfo:
    """Parse a snapshot of Iceberg's metadata."""
    summary = snapshot.get("summary") or {}
    return SnapshotInfo(
        snapshot["snapshot-id"],
        snapshot.get("parent-snapshot-id"),
        snapshot.get("sequence-number", 0),
        _parse_time(snapshot["timestamp-ms"]),
        summary.get("operation", ""),
        refs,
        {name: value for name, value in summary.items() if name != "operation"},
    )


def sum_partitions(files: Iterable[FileInfo]) -> tuple[PartitionInfo, ...]:
    """Sum the files of each partition, the partitions in the order of their values."""
    groups: dict[tuple[tuple[str, str], ...], list[FileInfo]] = {}
    for file in files:
        groups.setdefault(tuple((name, repr(value)) for name, value in file.partition.items()), []).append(file)
    return tuple(
        PartitionInfo(
            group[0].partition,
            len(group),
            sum(file.rows for file in group),
            sum(file.bytes for file in group),
            sum(file.delete_files for file in group),
        )
        for _, group in sorted(groups.items())
    )


def _parse_time(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)


def _name_columns(fields: Json, above: tuple[str, ...]) -> list[tuple[int, str]]:
    """List columns and nested ones by their field ids, as (id, dotted name)."""
    named: list[tuple[int, str]] = []
    for column in fields:
        path = (*above, column["name"])
        named.append((column["id"], ".".join(path)))
        if isinstance(column["type"], dict) and column["type"]["type"] == "struct":
            named += _name_columns(column["type"]["fields"], path)
    return named


def format_spec(spec: Json, names: Mapping[int, str]) -> tuple[str, ...]:
    """Format the fields of a partition spec, as `day(time)`. names: of columns, by field id."""
    return tuple(_format_transform(field, names) for field in spec["fields"])


def format_order(order: Json, names: Mapping[int, str]) -> tuple[str, ...]:
    """Format the fields of a sort order, as `id desc nulls last`."""
    return tuple(
        f"{_format_transform(field, names)} {field['direction']} {field['null-order'].replace('-', ' ')}"
        for field in order["fields"]
    )


def _format_transform(field: Json, names: Mapping[int, str]) -> str:
    column = names.get(field["source-id"], f"#{field['source-id']}")
    name, bracket, width = str(field["transform"]).partition("[")
    if name == "identity":
        return column
    return f"{name}({width.rstrip(']')}, {column})" if bracket else f"{name}({column})"
