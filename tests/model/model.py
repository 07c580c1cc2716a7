"""The lake as it must be: tables with columns, rows and refs, and what every snapshot and version must show."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Row = dict[int, Any]
"""Values by the key of their column; a struct's value is a Row of its fields, or None."""
Rows = Mapping[int, Row]
"""Rows by their value of the column `id`, which no two rows ever share and which stays as it is."""
ID = 0


@dataclass(frozen=True, slots=True)
class Column:
    """A column or a struct's field. The key is the model's and never used again; `type` is Iceberg's name of it."""

    key: int
    name: str
    type: str
    children: tuple["Column", ...] = ()
    default: Any = None


@dataclass(frozen=True, slots=True)
class Version:
    """What a table is at one time."""

    columns: tuple[Column, ...]
    rows: Rows

    def column(self, key: int) -> Column:
        return next(each for each in self.columns if each.key == key)

    def having(self, *rows: Row) -> "Version":
        """With these rows, in place of those with the same ids."""
        return replace(self, rows={**self.rows, **{row[ID]: row for row in rows}})

    def lacking(self, ids: Iterable[int]) -> "Version":
        gone = set(ids)
        return replace(self, rows={id_: row for id_, row in self.rows.items() if id_ not in gone})

    def shaped(self, columns: tuple[Column, ...]) -> "Version":
        """The same rows under other columns: what a row of before lacks is the column's default."""
        return Version(columns, {id_: shaped(columns, row) for id_, row in self.rows.items()})

    def shown(self) -> "Shown":
        """What any reader shows of it, in whatever order its columns are."""
        ordered = by_name(self.columns)
        rows = [tuple(visible(column, row[column.key]) for column in ordered) for row in self.rows.values()]
        return Shown(tuple(column.name for column in ordered), tuple(sorted(rows, key=repr)))


@dataclass(frozen=True, slots=True)
class Shown:
    """Rows as a reader shows them: columns and fields in the order of their names, rows in the order of their text."""

    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def difference(self, found: "Shown") -> str:
        if self.names != found.names:
            return f"columns {found.names}, expected {self.names}"
        missing = [row for row in self.rows if row not in found.rows]
        extra = [row for row in found.rows if row not in self.rows]
        return f"{len(found.rows)} rows, expected {len(self.rows)}; misses {missing[:5]}, has {extra[:5]} too many"


@dataclass(slots=True, eq=False)
class Table:
    """A table that both sides know; what is here is what they must show.

    `ids` are the field ids that columns had when they were first seen, by the columns' keys. `snapshots` are Iceberg
    snapshots to which refs may be set, `shown` what any snapshot showed first; `versions` are the table's name and rows
    at DuckLake snapshots; `staged` are the rows of snapshots that wait to be picked. `row_ids` are DuckDB's of its
    rows, since these last changed, an Iceberg client wrote them again or DuckDB merged their files.

    DuckDB's files of tables that are `renamed_by_registration` may lie in the folder of the old name, where the server
    reads none, so it refuses equality deletes (MISSING.md).

    `rewritten` tables have statistics that DuckDB 1.5 itself gets wrong: rewriting counts the live rows only, a later
    flush widens by dead ones too, and then `min` is a dead row's.
    """

    namespace: str
    name: str
    main: Version
    format_version: int = 2
    branches: dict[str, Version] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)
    required: frozenset[int] = frozenset()
    comments: dict[int | None, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    partitioned: tuple[tuple[int, str], ...] = ()
    ever_partitioned: frozenset[int] = frozenset()
    ever_bucketed: frozenset[int] = frozenset()
    begins_unpartitioned: bool = True
    rewritten: bool = False
    files_without_ids: bool = False
    renamed_by_registration: bool = False
    lacks_names: bool = False
    names_mean_one: bool = True
    names: dict[tuple[int | None, str], int] = field(default_factory=dict)
    snapshots: dict[int, Version] = field(default_factory=dict)
    staged: dict[int, tuple[Row, ...]] = field(default_factory=dict)
    row_ids: dict[int, int] = field(default_factory=dict)
    shown: dict[int, Shown] = field(default_factory=dict)
    versions: dict[int, tuple[str, Shown]] = field(default_factory=dict)

    @property
    def identifier(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def in_duckdb(self) -> str:
        return f"lake.{self.identifier}"

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.main.columns

    @property
    def rows(self) -> Rows:
        return self.main.rows

    def reshape(self, columns: tuple[Column, ...]) -> None:
        """Give the table other columns; its branches have them too, as all rows are read under the table's schema."""
        self.main = self.main.shaped(columns)
        self.branches = {name: version.shaped(columns) for name, version in self.branches.items()}
        self.note_names()

    def change(self, column: Column) -> None:
        """Give a column another name, type or other fields."""
        self.reshape(tuple(column if each.key == column.key else each for each in self.columns))

    def forget(self, column: Column) -> None:
        """Drop a column."""
        self.reshape(tuple(each for each in self.columns if each.key != column.key))
        self.required -= {column.key}
        self.comments.pop(column.key, None)

    def partition_by(self, keys: tuple[tuple[int, str], ...]) -> None:
        self.partitioned = keys
        self.ever_partitioned |= {key for key, _ in keys}
        self.ever_bucketed |= {key for key, transform in keys if transform.startswith("bucket")}

    @property
    def is_partitioned_by_text(self) -> bool:
        """DuckDB 1.5's flush brings rows back in partitions whose value has a quote or letters outside of ASCII."""
        texts = {column.key for _, column in self.all_columns() if column.type == "string"}
        return any(key in texts for key, _ in self.partitioned)

    def note_names(self) -> None:
        """Remember which column a name meant, and whether that was always the same."""
        for parent, column in self.all_columns():
            self.names_mean_one &= self.names.setdefault((parent, column.name), column.key) == column.key

    def all_columns(self) -> Iterator[tuple[int | None, Column]]:
        """Every column and struct field with the key of its parent."""
        for column in self.columns:
            yield None, column
            for child in column.children:
                yield column.key, child


def by_name(columns: Iterable[Column]) -> list[Column]:
    return sorted(columns, key=lambda column: column.name)


def shaped(columns: Iterable[Column], row: Row) -> Row:
    made = {}
    for column in columns:
        value = row.get(column.key, column.default)
        made[column.key] = shaped(column.children, value) if column.children and value is not None else value
    return made


def visible(column: Column, value: Any) -> Any:
    if column.children and value is not None:
        return tuple(visible(child, value[child.key]) for child in by_name(column.children))
    return value
