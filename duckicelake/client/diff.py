"""What changed in a table between two snapshots, as clients read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from duckicelake.client.models import ColumnInfo, Json, format_order, format_spec, parse_column


@dataclass(frozen=True, slots=True)
class DiffSide:
    """One side of a comparison. snapshot_id: None before the first snapshot."""

    snapshot_id: int | None
    timestamp: datetime | None


@dataclass(frozen=True, slots=True)
class FileDiff:
    """A data file that one side alone has, or of which other rows are deleted."""

    change: Literal["added", "removed", "rows-changed"]
    path: str
    bytes: int
    rows_added: int
    rows_removed: int


@dataclass(frozen=True, slots=True)
class ColumnDiff:
    """A column, or a field in one, before and after; one of them None if it came or went. name: its full name."""

    name: str
    before: ColumnInfo | None
    after: ColumnInfo | None


@dataclass(frozen=True, slots=True)
class TableDiff:
    """What changed in a table from one snapshot to another.

    Attributes:
        partition_fields, sort_fields: (before, after), as those of `TableInfo`; None where they are alike.
        files: data files that differ, as many as were wanted. unlisted_files: how many more there are.

    """

    table: str
    from_: DiffSide
    to: DiffSide
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    bytes_added: int
    bytes_removed: int
    columns: tuple[ColumnDiff, ...]
    partition_fields: tuple[tuple[str, ...], tuple[str, ...]] | None
    sort_fields: tuple[tuple[str, ...], tuple[str, ...]] | None
    files: tuple[FileDiff, ...]
    unlisted_files: int

    @property
    def is_empty(self) -> bool:
        return not (self.files or self.unlisted_files or self.columns or self.partition_fields or self.sort_fields)


def parse_diff(answer: Json, names: Mapping[int, str]) -> TableDiff:
    """Parse the answer of the route `…/diff`. names: of columns, by field id."""
    spec, order = answer.get("partition-spec"), answer.get("sort-order")
    return TableDiff(
        answer["table"],
        _parse_side(answer["from"]),
        _parse_side(answer["to"]),
        answer["rows-added"],
        answer["rows-removed"],
        answer["files-added"],
        answer["files-removed"],
        answer["bytes-added"],
        answer["bytes-removed"],
        columns=tuple(
            ColumnDiff(one["name"], _parse_column(one.get("before")), _parse_column(one.get("after")))
            for one in answer["columns"]
        ),
        partition_fields=None if spec is None else (format_spec(spec[0], names), format_spec(spec[1], names)),
        sort_fields=None if order is None else (format_order(order[0], names), format_order(order[1], names)),
        files=tuple(
            FileDiff(file["change"], file["path"], file["bytes"], file["rows-added"], file["rows-removed"])
            for file in answer["files"]
        ),
        unlisted_files=answer["unlisted-files"],
    )


def _parse_side(side: Json) -> DiffSide:
    timestamp = side.get("timestamp")
    return DiffSide(side.get("snapshot-id"), None if timestamp is None else datetime.fromisoformat(timestamp))


def _parse_column(field: Json | None) -> ColumnInfo | None:
    return None if field is None else parse_column(field)
