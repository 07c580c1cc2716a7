"""PURE. The versions of DuckLake's format that this server reads and writes, and what differs between them, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from duckicelake.errors import UnsupportedCatalogError

_OLD_SYSTEM_COLUMNS: Final = ("row_id", "begin_snapshot", "end_snapshot")
_NEW_SYSTEM_COLUMNS: Final = ("_ducklake_row_id", "_ducklake_begin_snapshot", "_ducklake_end_snapshot")
SYSTEM_COLUMN_SPELLINGS: Final = (_OLD_SYSTEM_COLUMNS, _NEW_SYSTEM_COLUMNS)
"""What the first three columns of tables of inlined rows are called: both spellings occur in one catalog."""
INLINED_ALIAS: Final = "AS i (_dl_row_id, _dl_begin, _dl_end)"
"""Follows a table of inlined rows in FROM: its first three columns have these names then, whatever they are called."""
OPTIONAL_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "ducklake_file_column_stats": ("min_is_exact", "max_is_exact"),
    "ducklake_table_column_stats": ("min_is_exact", "max_is_exact"),
    "ducklake_schema": ("parent_schema_id",),
}
"""Columns of 1.1 whose place and type are unknown until the released extension can be run: found by name, by table."""


@dataclass(frozen=True, slots=True)
class LakeFormat:
    """A version of DuckLake's format, with what it has that another hasn't.

    Attributes:
        version: the value of `version` in `ducklake_metadata`.
        system_columns: names of the first three columns of a new table of inlined rows: row id, begin, end; all bigint.
        reserved_names: names, in lower case, of columns with which DuckDB inlines no rows of a table.
        extra_columns: columns that 1.0 lacks, last in their tables, all bigint; by table.
        extra_tables: tables that 1.0 lacks, with the columns and types of each.
        has_epoch_keys: whether partition keys may be `epoch_year`, `epoch_month`, `epoch_day` and `epoch_hour`.
        has_nested_schemas: whether a schema may have a parent.

    """

    version: str
    system_columns: tuple[str, str, str] = _OLD_SYSTEM_COLUMNS
    reserved_names: frozenset[str] = frozenset(_OLD_SYSTEM_COLUMNS)
    extra_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    extra_tables: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    has_epoch_keys: bool = False
    has_nested_schemas: bool = False

    @property
    def own_columns(self) -> frozenset[tuple[str, str]]:
        """What 1.0 lacks, as (table, column): columns of its tables, and those of further tables."""
        added = {(table, column) for table, columns in self.extra_columns.items() for column in columns}
        return frozenset(added | {(table, name) for table, columns in self.extra_tables.items() for name, _ in columns})

    @property
    def has_view_column_tags(self) -> bool:
        """Whether columns of views have tags of their own."""
        return "ducklake_view_column_tag" in self.extra_tables


def _build_1_1(version: str, *, has_nested_schemas: bool) -> LakeFormat:
    return LakeFormat(
        version=version,
        system_columns=_NEW_SYSTEM_COLUMNS,
        reserved_names=frozenset({*_NEW_SYSTEM_COLUMNS, "_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"}),
        extra_columns={
            "ducklake_data_file": ("row_group_count",),
            "ducklake_delete_file": ("row_group_count",),
        },
        extra_tables={
            "ducklake_view_column_tag": (
                ("view_id", "bigint"),
                ("column_name", "varchar"),
                ("begin_snapshot", "bigint"),
                ("end_snapshot", "bigint"),
                ("key", "varchar"),
                ("value", "varchar"),
            )
        },
        has_epoch_keys=True,
        has_nested_schemas=has_nested_schemas,
    )


FORMAT_1_0: Final = LakeFormat("1.0")
FORMAT_1_1: Final = _build_1_1("1.1", has_nested_schemas=True)
_FORMAT_1_1_DEV1: Final = _build_1_1("1.1-dev1", has_nested_schemas=False)
"""What development builds of DuckDB 2.0 wrote."""
KNOWN_FORMATS: Final[Mapping[str, LakeFormat]] = {
    known.version: known for known in (FORMAT_1_0, FORMAT_1_1, _FORMAT_1_1_DEV1)
}
"""The formats that this server knows, by version, the oldest first."""
SERVED_FORMAT_VERSIONS: Final = tuple(KNOWN_FORMATS)
"""The formats that this server reads and writes."""
NEW_LAKE_FORMAT: Final = FORMAT_1_0
"""The format of lakes that this server makes: DuckDB 1.5 attaches no newer one."""


def has_system_columns(names: Sequence[str]) -> bool:
    """Return whether a table with these columns begins with DuckLake's three, each in either spelling."""
    return len(names) >= len(FORMAT_1_0.system_columns) and all(
        name in spellings for name, *spellings in zip(names, *SYSTEM_COLUMN_SPELLINGS, strict=False)
    )


def get_format(version: str) -> LakeFormat:
    """Return the format of a version. Raises UnsupportedCatalogError for one that this server does not know."""
    found = KNOWN_FORMATS.get(version)
    if found is None:
        raise UnsupportedCatalogError(
            f"the catalog has DuckLake format {version!r}, this server knows {', '.join(KNOWN_FORMATS)}: "
            "run a duckicelake that serves this format"
        )
    return found
