"""PURE. Parse and format partitions and orders, such as `month(time), bucket(8, id)`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.errors import BadInputError
from duckicelake.rest.names import parse_name, quote_name

_TRANSFORM_PATTERN: Final = re.compile(r"(\w+)\s*\((?:\s*(\d+)\s*,)?\s*(.+?)\s*\)$")
_TIME_TRANSFORMS: Final = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
_SIZED_TRANSFORMS: Final = frozenset({"bucket", "truncate"})
_ZORDER_PATTERN: Final = re.compile(r"z-?order\s*\((.*)\)", re.IGNORECASE)
_SORT_KEY_PATTERN: Final = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TransformedColumn:
    """A column through a transform, named as Iceberg's metadata names it: identity, month, bucket[16]."""

    column: tuple[str, ...]
    transform: str = "identity"

    @property
    def name(self) -> str:
        """The column as Iceberg names it."""
        return ".".join(self.column)

    @property
    def sql(self) -> str:
        """As Spark's `PARTITIONED BY` wants it."""
        name, _, size = self.transform.partition("[")
        column = quote_name(*self.column)
        if name == "identity":
            return column
        return f"{name}({size.rstrip(']')}, {column})" if size else f"{_TIME_TRANSFORMS[name]}({column})"


@dataclass(frozen=True, slots=True)
class RowSortKey:
    """A column, through a transform, that rows are sorted by."""

    part: TransformedColumn
    descending: bool = False
    nulls_first: bool = True

    def __str__(self) -> str:
        direction = " DESC" if self.descending else ""
        nulls = f" NULLS {'FIRST' if self.nulls_first else 'LAST'}" if self.nulls_first == self.descending else ""
        return f"{self.part.name}{direction}{nulls}"

    def to_json(self) -> dict[str, str]:
        """Return Iceberg's JSON, but with the column's name."""
        return {
            "column": self.part.name,
            "transform": self.part.transform,
            "direction": "desc" if self.descending else "asc",
            "null-order": "nulls-first" if self.nulls_first else "nulls-last",
        }


@dataclass(frozen=True, slots=True)
class RowOrder:
    """How rows are to lie in files: sorted by keys, or along a z-order curve of their columns. Columns are plain."""

    keys: tuple[RowSortKey, ...]
    is_zorder: bool = False

    def __str__(self) -> str:
        if self.is_zorder:
            return f"zorder({', '.join(key.part.name for key in self.keys)})"
        return ", ".join(map(str, self.keys))


def parse_partitions(text: str) -> tuple[TransformedColumn, ...]:
    """Return the parts of a `--partition-by`; BadInputError."""
    return tuple(map(_parse_part, _split_at_commas(text, "a partitioning")))


def parse_sort_keys(text: str) -> tuple[RowSortKey, ...]:
    """Return columns to sort by. Without a word, nulls come first going up and last going down; BadInputError."""
    return tuple(map(_parse_sort_key, _split_at_commas(text, "a sort order")))


def parse_order(text: str) -> RowOrder:
    """Return the order that files are rewritten in, `day DESC, id` or `zorder(x, y)`; BadInputError."""
    match = _ZORDER_PATTERN.fullmatch(text)
    keys = parse_sort_keys(match[1] if match else text)
    plain = [RowSortKey(TransformedColumn(key.part.column)) for key in keys]
    if any(key.part != bare.part for key, bare in zip(keys, plain, strict=True)) or (match and list(keys) != plain):
        raise BadInputError(f"{text!r} is no order: write columns as `day DESC, id`, or `zorder(x, y)`")
    return RowOrder(keys, is_zorder=match is not None)


def read_partitions(metadata: Mapping[str, Any]) -> tuple[TransformedColumn, ...]:
    """Return how a table is partitioned, from its metadata."""
    names = dict(_list_field_names((), metadata["schemas"], metadata["current-schema-id"]))
    specs = {spec["spec-id"]: spec["fields"] for spec in metadata["partition-specs"]}
    fields = [field for field in specs[metadata["default-spec-id"]] if field["transform"] != "void"]
    return tuple(TransformedColumn(names[field["source-id"]], field["transform"]) for field in fields)


def read_sort_keys(metadata: Mapping[str, Any]) -> tuple[RowSortKey, ...]:
    """Return how a table wants its rows sorted, from its metadata."""
    names = dict(_list_field_names((), metadata["schemas"], metadata["current-schema-id"]))
    orders = {order["order-id"]: order["fields"] for order in metadata["sort-orders"]}
    return tuple(
        RowSortKey(
            TransformedColumn(names[field["source-id"]], field["transform"]),
            field["direction"] == "desc",
            field["null-order"] == "nulls-first",
        )
        for field in orders[metadata["default-sort-order-id"]]
    )


def _list_field_names(
    path: tuple[str, ...], schemas: Sequence[Mapping[str, Any]], current: int
) -> Iterator[tuple[int, Any]]:
    (schema,) = (field for field in schemas if field["schema-id"] == current)
    yield from _list_fields(path, schema)


def _list_fields(path: tuple[str, ...], struct: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    for field in struct["fields"]:
        yield field["id"], (*path, field["name"])
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _list_fields((*path, field["name"]), field["type"])


def _parse_part(text: str) -> TransformedColumn:
    match = _TRANSFORM_PATTERN.match(text)
    if match is None:
        if " " in text and "`" not in text:
            raise BadInputError(f"{text!r} is no column: names with blanks stand in backticks")
        return TransformedColumn(parse_name(text))
    name = match[1].lower()
    name = next((singular for singular, plural in _TIME_TRANSFORMS.items() if name == plural), name)
    if (name in _SIZED_TRANSFORMS) != (match[2] is not None) or name not in _SIZED_TRANSFORMS | set(_TIME_TRANSFORMS):
        known = "year, month, day, hour (column), bucket, truncate (size, column)"
        raise BadInputError(f"{text!r} is no transform of a column: there are {known}")
    return TransformedColumn(parse_name(match[3]), f"{name}[{match[2]}]" if match[2] else name)


def _parse_sort_key(text: str) -> RowSortKey:
    match = _SORT_KEY_PATTERN.match(text)
    assert match is not None
    descending = (match[2] or "").lower() == "desc"
    nulls = (match[3] or "").lower()
    return RowSortKey(_parse_part(match[1].strip()), descending, nulls == "first" if nulls else not descending)


def _split_at_commas(text: str, what: str) -> list[str]:
    """Split a text at commas outside of parentheses."""
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text)]
    if not all(parts):
        raise BadInputError(f"{text!r} is {what} with an empty part")
    return parts
