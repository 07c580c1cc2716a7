"""PURE. How a table's rows are laid out.

As people write it: "month(time), bucket(8, id)" for partitions, "time desc, id" and "zorder(x, y)" for orders.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.errors import BadInput
from duckicelake.rest.names import parse_name, quoted

_TRANSFORM: Final = re.compile(r"(\w+)\s*\((?:\s*(\d+)\s*,)?\s*(.+?)\s*\)$")
_TIMES: Final = {"year": "years", "month": "months", "day": "days", "hour": "hours"}
_SIZED: Final = frozenset({"bucket", "truncate"})
_ZORDER: Final = re.compile(r"z-?order\s*\((.*)\)", re.IGNORECASE)
_SORTED: Final = re.compile(r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Part:
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
        column = quoted(*self.column)
        if name == "identity":
            return column
        return f"{name}({size.rstrip(']')}, {column})" if size else f"{_TIMES[name]}({column})"


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column, through a transform, that rows are sorted by."""

    part: Part
    descending: bool = False
    nulls_first: bool = True

    def to_json(self) -> dict[str, str]:
        """As Iceberg has it, but for the column, which has its name here."""
        return {
            "column": self.part.name,
            "transform": self.part.transform,
            "direction": "desc" if self.descending else "asc",
            "null-order": "nulls-first" if self.nulls_first else "nulls-last",
        }


@dataclass(frozen=True, slots=True)
class Order:
    """How rows are to lie in files: sorted by keys, or along a z-order curve of their columns. Columns are plain."""

    keys: tuple[SortKey, ...]
    is_zorder: bool = False

    def __str__(self) -> str:
        if self.is_zorder:
            return f"zorder({', '.join(key.part.name for key in self.keys)})"
        return ", ".join(f"{key.part.name} DESC" if key.descending else key.part.name for key in self.keys)


def parse_partitions(text: str) -> tuple[Part, ...]:
    """The parts of a `--partition-by`; BadInput."""
    return tuple(map(_part, _split(text, "a partitioning")))


def parse_sort_keys(text: str) -> tuple[SortKey, ...]:
    """Columns to sort by. Without a word, nulls come first going up and last going down; BadInput."""
    return tuple(map(_sort_key, _split(text, "a sort order")))


def parse_order(text: str) -> Order:
    """The order that files are rewritten in, `day DESC, id` or `zorder(x, y)`; BadInput."""
    match = _ZORDER.fullmatch(text)
    keys = parse_sort_keys(match[1] if match else text)
    plain = [SortKey(Part(key.part.column)) for key in keys]
    if any(key.part != bare.part for key, bare in zip(keys, plain, strict=True)) or (match and list(keys) != plain):
        raise BadInput(f"{text!r} is no order: write columns as `day DESC, id`, or `zorder(x, y)`")
    return Order(keys, is_zorder=match is not None)


def partitions_of(metadata: Mapping[str, Any]) -> tuple[Part, ...]:
    """How a table is partitioned, from its metadata."""
    names = dict(_names((), metadata["schemas"], metadata["current-schema-id"]))
    specs = {spec["spec-id"]: spec["fields"] for spec in metadata["partition-specs"]}
    fields = [each for each in specs[metadata["default-spec-id"]] if each["transform"] != "void"]
    return tuple(Part(names[each["source-id"]], each["transform"]) for each in fields)


def sort_keys_of(metadata: Mapping[str, Any]) -> tuple[SortKey, ...]:
    """How a table wants its rows sorted, from its metadata."""
    names = dict(_names((), metadata["schemas"], metadata["current-schema-id"]))
    orders = {order["order-id"]: order["fields"] for order in metadata["sort-orders"]}
    return tuple(
        SortKey(
            Part(names[each["source-id"]], each["transform"]),
            each["direction"] == "desc",
            each["null-order"] == "nulls-first",
        )
        for each in orders[metadata["default-sort-order-id"]]
    )


def _names(path: tuple[str, ...], schemas: Sequence[Mapping[str, Any]], current: int) -> Iterator[tuple[int, Any]]:
    (schema,) = (each for each in schemas if each["schema-id"] == current)
    yield from _fields(path, schema)


def _fields(path: tuple[str, ...], struct: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    for each in struct["fields"]:
        yield each["id"], (*path, each["name"])
        if isinstance(each["type"], dict) and each["type"]["type"] == "struct":
            yield from _fields((*path, each["name"]), each["type"])


def _part(text: str) -> Part:
    match = _TRANSFORM.match(text)
    if match is None:
        if " " in text and "`" not in text:
            raise BadInput(f"{text!r} is no column: names with blanks stand in backticks")
        return Part(parse_name(text))
    name = match[1].lower()
    name = next((singular for singular, plural in _TIMES.items() if name == plural), name)
    if (name in _SIZED) != (match[2] is not None) or name not in _SIZED | set(_TIMES):
        known = "year, month, day, hour (column), bucket, truncate (size, column)"
        raise BadInput(f"{text!r} is no transform of a column: there are {known}")
    return Part(parse_name(match[3]), f"{name}[{match[2]}]" if match[2] else name)


def _sort_key(text: str) -> SortKey:
    match = _SORTED.match(text)
    assert match is not None
    descending = (match[2] or "").lower() == "desc"
    nulls = (match[3] or "").lower()
    return SortKey(_part(match[1].strip()), descending, nulls == "first" if nulls else not descending)


def _split(text: str, what: str) -> list[str]:
    """At commas outside of parentheses."""
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text)]
    if not all(parts):
        raise BadInput(f"{text!r} is {what} with an empty part")
    return parts
