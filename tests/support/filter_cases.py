"""Filters of every type of column, generated, and what Iceberg's expressions specification says of a row."""

import json
import math
import operator
import random
from collections.abc import Callable
from typing import Any

from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_json
from tests.support.equality_cases import TYPES

Json = Any
Row = dict[str, Any]


def lit(kind: str, column: str, value: Json) -> Json:
    """A comparison in its deprecated form."""
    return {"type": kind, "term": column, "value": value}


def no(child: Json) -> Json:
    return {"type": "not", "child": child}


COLUMNS = {f"c{number}": kind for number, kind in enumerate(TYPES)}
"""A column of each type by which rows can be deleted."""
COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "lt": operator.lt,
    "lt-eq": operator.le,
    "gt": operator.gt,
    "gt-eq": operator.ge,
    "starts-with": lambda value, start: value.startswith(start),
    "in": lambda value, among: value in among,
}


def as_json(name: str, value: Any) -> Json:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return to_json(PrimitiveType.parse(COLUMNS[name]), value)


def ordered(value: Any) -> Any:
    """A value as the spec orders it: texts and uuids by their bytes."""
    if isinstance(value, str):
        return value.encode()
    return value.bytes if type(value).__name__ == "UUID" else value


class Filters:
    """Random filters, and what the spec says of a row."""

    def __init__(self, seed: int, version: int) -> None:
        self.random, self.version = random.Random(seed), version
        self.columns = {name: kind for name, kind in COLUMNS.items() if version >= 3 or kind != "timestamp_ns"}

    def value(self, name: str) -> Any:
        return self.random.choice(TYPES[COLUMNS[name]][1])

    def predicate(self, depth: int = 0) -> Json:
        choice = self.random.random()
        if depth < 3 and choice < 0.4:
            kind = self.random.choice(["and", "or"])
            return {"type": kind, "left": self.predicate(depth + 1), "right": self.predicate(depth + 1)}
        if depth < 3 and choice < 0.5:
            return {"type": "not", "child": self.predicate(depth + 1)}
        return self.random.choice([True, False]) if choice > 0.98 else self.test()

    def test(self) -> Json:
        name = self.random.choice([*self.columns])
        kind = COLUMNS[name]
        floats, texts = kind in ("float", "double"), kind == "string"
        test = self.random.choice(
            ["eq", "not-eq", "lt", "lt-eq", "gt", "gt-eq", "in", "not-in", "is-null", "not-null"]
            + ["is-nan", "not-nan"] * floats
            + ["starts-with", "not-starts-with"] * texts
        )
        is_new = self.random.random() < 0.5
        column: Json = {"type": "reference", "name": name}
        if test.endswith(("null", "nan")):
            return {"type": test, "child": column} if is_new else {"type": test, "term": name}
        values = [self.constant(name) for _ in range(self.random.randrange(4) if test.endswith("in") else 1)]
        if test in ("in", "not-in"):
            return (
                {"type": test, "child": column, "values": values}
                if is_new
                else {"type": test, "term": name, "values": values}
            )
        (value,) = values
        return {"type": test, "left": column, "right": value} if is_new else lit(test, name, value)

    def constant(self, name: str) -> Json:
        value = self.value(name)
        while isinstance(value, float) and math.isnan(value):
            value = self.value(name)
        return as_json(name, value)


def holds(predicate: Json, row: Row) -> bool:
    """What the spec says."""
    if isinstance(predicate, bool):
        return predicate
    kind = predicate["type"]
    if kind == "and":
        return holds(predicate["left"], row) and holds(predicate["right"], row)
    if kind == "or":
        return holds(predicate["left"], row) or holds(predicate["right"], row)
    if kind == "not":
        return not holds(predicate["child"], row)
    reference = predicate.get("term", predicate.get("left", predicate.get("child")))
    name = reference if isinstance(reference, str) else reference["name"]
    if kind.startswith("not-"):
        opposite = {"not-null": "is-null", "not-nan": "is-nan"}.get(kind, kind.removeprefix("not-"))
        return not holds({**predicate, "type": opposite}, row)
    value = row[name]
    if kind == "is-null":
        return value is None
    if value is None or kind == "is-nan":
        return isinstance(value, float) and math.isnan(value)
    if isinstance(value, float) and math.isnan(value):
        return False
    constant = predicate.get("values", predicate.get("value", predicate.get("right")))
    read = {json.dumps(as_json(name, each)): each for each in TYPES[COLUMNS[name]][1]}
    if kind == "in":
        return any(ordered(value) == ordered(read[json.dumps(each)]) for each in constant)
    return bool(COMPARED[kind](ordered(value), ordered(read[json.dumps(constant)])))
