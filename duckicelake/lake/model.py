"""PURE. DuckLake's rows as values, named as DuckLake names them, and the check of column trees."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_PLACEHOLDER_PATTERN = re.compile(
    r"""(?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")|\{DUCKLAKE_CATALOG\}\.(?=(?:"(?:[^"]|"")*"|\w+)(?P<more>\s*\.)?)"""
)
_CHILD_COUNTS = {"list": 1, "map": 2}
MAX_INLINED_COLUMNS = 1_597
"""Columns that a table of inlined rows can have in Postgres, beside DuckLake's three."""
ADDITION_KINDS = frozenset({"inserted_into_table", "inlined_insert"})
"""Kinds of changes that bring rows."""
REMOVAL_KINDS = frozenset({"deleted_from_table", "inlined_delete"})
"""Kinds of changes that remove rows."""
LOCAL_ROW_ID = 10**18
"""From here on, several rows of a table may have one row id.

DuckDB 1.5.5 keeps the row ids that rows have within a transaction, if that inserts them and then updates them.
"""
_RANGE_BITS = 32
MOVE_KINDS = frozenset({"inline_flush", "flushed_inlined", "merge_adjacent", "rewrite_delete", "compacted_table"})
"""Kinds of changes by which rows get into other files, and stay what they are."""


@dataclass(frozen=True, slots=True)
class Column:
    """A `ducklake_column` row with its comment; nested columns name their parent."""

    column_id: int
    parent_column: int | None
    column_name: str
    column_type: str
    nulls_allowed: bool
    initial_default: str | None = None
    default_value: str | None = None
    default_value_type: str = "literal"
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A `ducklake_partition_column` row: `transform` is DuckLake's text, such as `bucket(8)`."""

    column_id: int
    transform: str


@dataclass(frozen=True, slots=True)
class SortKey:
    """A `ducklake_sort_expression` row."""

    expression: str
    direction: str
    null_order: str


class ObjectTag(NamedTuple):
    """A `ducklake_tag` or `ducklake_column_tag` row that is no comment.

    column_id: None for the tag of a table or view itself.
    """

    column_id: int | None
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What a DuckLake table is at one snapshot, without its rows."""

    table_id: int
    table_uuid: str
    schema_name: str
    table_name: str
    columns: tuple[Column, ...]
    partition_id: int | None
    partition_keys: tuple[PartitionKey, ...]
    sort_keys: tuple[SortKey, ...]
    comment: str | None


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """What DuckDB reads of a view; `column_aliases` are names in double quotes, joined by commas.

    column_comments: (name, comment) by name, which is the one that the query gives the column. None of a 1.0 lake.
    """

    dialect: str
    sql: str
    column_aliases: str
    comment: str | None
    column_comments: tuple[tuple[str, str], ...] = ()

    @property
    def query(self) -> str:
        """The SQL without DuckLake's placeholder for what a client calls the lake: `{DUCKLAKE_CATALOG}.s.t` is `s.t`.

        A table without a schema is in `main`.
        """
        return _PLACEHOLDER_PATTERN.sub(lambda found: found["text"] or ("" if found["more"] else "main."), self.sql)


@dataclass(frozen=True, slots=True)
class LakeView:
    """A live `ducklake_view` row with its comment and tags.

    `timestamp_ms` is when it got its definition or name.
    """

    view_id: int
    view_uuid: str
    schema_name: str
    view_name: str
    timestamp_ms: int
    definition: ViewDefinition
    tags: tuple[ObjectTag, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewColumns:
    """The columns that DuckDB gives a view, with types that Iceberg has; None where they can't be found.

    `outputs` are the names that the view's query gives them, before its aliases. `unlike` are names, in lower case, of
    those columns of the tables that it reads whose types are DuckDB's alone.
    """

    columns: tuple[Column, ...] | None
    unlike: set[str] = field(default_factory=set)
    outputs: tuple[str, ...] = ()


class ColumnStats(NamedTuple):
    """A `ducklake_file_column_stats` or `ducklake_table_column_stats` row; None means not known.

    A tuple, as a table has a million of them.
    """

    column_id: int
    contains_null: bool | None = None
    contains_nan: bool | None = None
    min_value: str | None = None
    max_value: str | None = None
    column_size_bytes: int | None = None
    value_count: int | None = None
    null_count: int | None = None


class KnownColumns(NamedTuple):
    """What DuckLake knows of a data file's columns: which hold no NaN, and whether they go by their names."""

    is_mapped_by_name: bool
    columns_without_nan: frozenset[int]


class Extent(NamedTuple):
    """What values in memory of a leaf column span, exactly. present: how many there are, of which so many are NaN.

    least and most: of those that aren't NaN, None where there are none.
    """

    column_id: int
    present: int
    nulls: int
    nans: int
    least: Any
    most: Any


class LakeFile(NamedTuple):
    """A `ducklake_data_file` or `ducklake_delete_file` row, its path as DuckDB spells it.

    `file_id` is the data_file_id or delete_file_id; `target_id` names the data file of a delete file and is None for
    data files. `record_count` counts rows, or deleted positions.
    """

    file_id: int
    target_id: int | None
    begin_snapshot: int
    end_snapshot: int | None
    path: str
    file_format: str
    record_count: int
    file_size_bytes: int
    row_id_start: int | None = None
    partition_id: int | None = None
    partial_max: int | None = None
    mapping_id: int | None = None
    footer_size: int | None = None

    @property
    def first_row_id(self) -> int:
        """The row id of its first row, if that has none in the file."""
        return find_first_row_id(self.file_id, self.row_id_start)

    def visible(self, snapshot_id: int) -> bool:
        """Return whether DuckLake's visibility rule shows this row at the snapshot."""
        return self.begin_snapshot <= snapshot_id and (self.end_snapshot is None or snapshot_id < self.end_snapshot)

    def is_exact(self, snapshot_id: int) -> bool:
        """Return whether the whole file belongs to the snapshot, with no row of a later one."""
        return self.partial_max is None or self.partial_max <= snapshot_id


def find_first_row_id(data_file_id: int, row_id_start: int | None) -> int:
    """Find the row id of a file's first row, if that has none in the file.

    DuckLake gives no row ids to what `ducklake_rewrite_data_files` writes: the number is one of no other file then.
    """
    return LOCAL_ROW_ID + (data_file_id << _RANGE_BITS) if row_id_start is None else row_id_start


class InlinedKey(NamedTuple):
    """Names one version of one inlined row: updates keep the row id, so it alone is no key."""

    inlined_table: str
    begin_snapshot: int
    row_id: int


class InlinedRow(NamedTuple):
    """A row of a `ducklake_inlined_data_*` table without its values."""

    key: InlinedKey
    end_snapshot: int | None

    def visible(self, snapshot_id: int) -> bool:
        """Return whether DuckLake's visibility rule shows this row at the snapshot."""
        begin, end = self.key.begin_snapshot, self.end_snapshot
        return begin <= snapshot_id and (end is None or snapshot_id < end)


@dataclass(frozen=True, slots=True)
class InlinedDelete:
    """A row of `ducklake_inlined_delete_*`: a position in a data file that is gone since `begin_snapshot`."""

    data_file_id: int
    position: int
    begin_snapshot: int


@dataclass(frozen=True, slots=True)
class LakeChange:
    """One DuckLake snapshot with what it did to one table, in `changes_made`'s own words (`complete_kinds`)."""

    snapshot_id: int
    timestamp_ms: int
    kinds: frozenset[str]

    @property
    def only_adds(self) -> bool:
        """Whether all rows of before stay, and so do all that it brings."""
        return self.kinds <= ADDITION_KINDS

    @property
    def only_moves(self) -> bool:
        """Whether it leaves all rows as they are."""
        return self.kinds <= MOVE_KINDS


def complete_kinds(kinds: AbstractSet[str], *, has_delete_file: bool) -> frozenset[str]:
    """Complete what `changes_made` says that a snapshot did to a table.

    DuckDB 1.5.5 records insertions alone of a transaction that writes rows into a file, and then deletes or updates
    some of them. has_delete_file: whether a delete file of the table begins with the snapshot.
    """
    is_silent = has_delete_file and "inserted_into_table" in kinds and not kinds & REMOVAL_KINDS
    return frozenset(kinds | {"deleted_from_table"} if is_silent else kinds)


def parse_changes(changes_made: str | None) -> list[tuple[str, str]]:
    """Split `changes_made` into (kind, value); values keep their quotes (`"main"."t"`)."""
    tokens = [] if not changes_made else _split_outside_quotes(changes_made)
    return [(kind, value) for kind, _, value in (token.partition(":") for token in tokens)]


def _split_outside_quotes(text: str) -> list[str]:
    parts, start, quoted = [], 0, False
    for index, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def fold_case(name: str) -> str:
    """Return a name as DuckDB and Postgres compare names: only the 26 letters have an upper and a lower case."""
    return name.encode().lower().decode()


def find_children(columns: Sequence[Column], parent: int | None) -> list[Column]:
    """Return the direct children of a column (None: the top level), in DuckLake's order."""
    return [column for column in columns if column.parent_column == parent]


@dataclass(frozen=True, slots=True)
class MappedName:
    """A `ducklake_name_mapping` row: a file's name for a field, in the field at `parent`; or for one in its folders."""

    source_name: str
    field_id: int
    parent: int | None = None
    is_partition: bool = False


@dataclass(frozen=True, slots=True)
class NameMap:
    """A `ducklake_column_mapping`: what files without field ids call the columns."""

    names: tuple[MappedName, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash(self.names))

    def __hash__(self) -> int:
        """Return a hash that is computed once: many files have the same map."""
        return self._hash


def find_flaw(columns: Sequence[Column]) -> str | None:
    """Return what keeps the columns from being a table's tree of named and typed ones; None if nothing does."""
    return next(_find_flaws(columns), None)


def _find_flaws(columns: Sequence[Column]) -> Iterator[str]:
    if not columns:
        yield "it has no columns"
    for column_id, count in Counter(column.column_id for column in columns).items():
        if count > 1:
            yield f"it has column {column_id} {count} times"
    children: defaultdict[int | None, list[Column]] = defaultdict(list)
    for column in columns:
        children[column.parent_column].append(column)
    waiting: list[Column | None] = [None]
    while waiting:
        parent = waiting.pop()
        inside = children.pop(None if parent is None else parent.column_id, [])
        yield from _find_child_flaws(parent, inside)
        waiting += inside
    if children:
        yield f"its columns {sorted(c.column_id for group in children.values() for c in group)} are in none that it has"


def _find_child_flaws(parent: Column | None, inside: Sequence[Column]) -> Iterator[str]:
    if (
        parent is not None
        and parent.column_type != "struct"
        and len(inside) != _CHILD_COUNTS.get(parent.column_type, 0)
    ):
        yield f"its column {parent.column_name}, a {parent.column_type}, has {len(inside)} fields in it"
    for column in inside:
        if not column.column_name or not column.column_type:
            yield f"its column {column.column_id} has no name or no type"
    for name, count in Counter(fold_case(column.column_name) for column in inside).items():
        if count > 1:
            yield f"{count} of its columns are named {name!r}: DuckDB makes no difference between upper and lower case"
