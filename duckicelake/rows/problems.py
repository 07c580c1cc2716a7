"""PURE. What is wrong with rows, told by the first few that are: no row of such a batch is stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from duckicelake.errors import InvalidRequest

OnUnknown: TypeAlias = Literal["reject", "ignore"]
MISSING: Final = object()
"""In place of a value that isn't there."""
MOST_NAMED: Final = 5
_LONGEST: Final = 60


class MisfitError(Exception):
    """A value doesn't fit: `path` leads to it inside its column, `right` says what would."""

    def __init__(self, value: object, right: str) -> None:
        super().__init__(value, right)
        self.value = value
        self.right = right
        self.path = ""

    def within(self, part: str) -> "MisfitError":
        """The same as seen from outside: the value is in this part."""
        self.path = part + self.path
        return self


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """`row` counts from 0; -1 where it is all of them."""

    row: int
    text: str


def problem(row: int | None, column: str | None, misfit: MisfitError) -> Problem:
    """What to say of a misfit in a column of a row, or in the whole of either."""
    where = ", ".join(([] if row is None else [f"row {row}"]) + ([] if column is None else [f"column {column}"]))
    value = "" if misfit.value is MISSING else f" {shown(misfit.value)}:"
    return Problem(-1 if row is None else row, f"{where}{misfit.path}:{value} {misfit.right}")


def refuse(problems: Sequence[Problem]) -> None:
    """InvalidRequest if there are problems, naming those of the first rows."""
    if problems:
        named = [each.text for each in sorted(problems)]
        more = ["…"] if named[MOST_NAMED:] else []
        raise InvalidRequest(f"Nothing was stored, as not all rows fit: {'; '.join(named[:MOST_NAMED] + more)}")


def shown(value: Any) -> str:
    """A value as it may stand in a message."""
    try:
        text = "null" if value is None else repr(value)
    except RecursionError:
        return "a value of a thousand levels"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
