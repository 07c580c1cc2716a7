"""PURE. CHECK constraints in table properties `constraint.<name>`: each a condition that rows must make TRUE."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache

from duckicelake.constraints.condition import Condition, ConstraintColumn, collect_columns
from duckicelake.constraints.parser import parse_condition
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.schema import Schema
from duckicelake.properties import CONSTRAINT_PREFIX, UNVERIFIED_KEY, read_constraint_texts
from duckicelake.sql_dialects.dialects import NotTranslatableError


@dataclass(frozen=True, slots=True)
class Constraint:
    """A constraint that can be checked."""

    name: str
    text: str
    condition: Condition
    columns: tuple[ConstraintColumn, ...]

    def __str__(self) -> str:
        """Name it with what it demands."""
        return f"constraint {self.name} ({self.text})"


def parse_constraint(name: str, text: str, schema: Schema) -> Constraint:
    """Return the constraint over a table's columns.

    Raises InvalidRequestError naming what is wrong, or isn't known to all engines.
    """
    if not name or "," in name:
        raise InvalidRequestError(f"{CONSTRAINT_PREFIX}{name} names no constraint: a name has letters, and no comma")
    try:
        condition = parse_condition(text, schema)
    except NotTranslatableError as error:
        raise InvalidRequestError(
            f"The constraint {name} ({text[:200]}) can't be checked: it has {error}. "
            f"Remove the table property {CONSTRAINT_PREFIX}{name}, or write another"
        ) from error
    columns = tuple(collect_columns(condition).values())
    if not columns:
        raise InvalidRequestError(f"The constraint {name} ({text[:200]}) names no column")
    return Constraint(name, text, condition, columns)


def read_constraints(properties: Mapping[str, str], schema: Schema) -> tuple[Constraint, ...]:
    """Return a table's constraints.

    Raises InvalidRequestError if one can't be checked, as where DuckDB has dropped its column.
    """
    found = read_constraint_texts(properties)
    return _parse_all(tuple(found.items()), _ById(schema)) if found else ()


def split_checkable(properties: Mapping[str, str], schema: Schema) -> tuple[list[Constraint], dict[str, str]]:
    """Return a table's constraints, and by name why the others can't be checked."""
    found, broken = [], {}
    for name, text in read_constraint_texts(properties).items():
        try:
            found.append(parse_constraint(name, text, schema))
        except InvalidRequestError as error:
            broken[name] = str(error)
    return found, broken


def find_unverified(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the snapshots since which constraints are unverified, by name.

    Those of constraints that are gone don't count.
    """
    names = read_constraint_texts(properties)
    marks = {
        key.removeprefix(UNVERIFIED_KEY): since for key, since in properties.items() if key.startswith(UNVERIFIED_KEY)
    }
    return {name: since for name, since in marks.items() if name in names}


def copy_marks(properties: Mapping[str, str], names: Container[str]) -> dict[str, str]:
    """Return the properties without what says of other constraints that they are unverified."""
    return {
        key: value
        for key, value in properties.items()
        if not key.startswith(UNVERIFIED_KEY) or key.removeprefix(UNVERIFIED_KEY) in names
    }


class _ById:
    """A schema as a key by which object it is: to compare two costs more than to parse."""

    __slots__ = ("schema",)

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.schema is other.schema

    def __hash__(self) -> int:
        return id(self.schema)


@lru_cache(maxsize=256)
def _parse_all(texts: tuple[tuple[str, str], ...], schema: _ById) -> tuple[Constraint, ...]:
    return tuple(parse_constraint(name, text, schema.schema) for name, text in texts)
