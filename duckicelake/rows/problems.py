"""PURE. Describe what is wrong with rows, by the first few: no row of such a batch is stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from duckicelake.errors import InvalidRequestError

OnUnknown: TypeAlias = Literal["reject", "ignore"]
MISSING: Final = object()
"""Stands for a missing value."""
MAX_NAMED_ROWS: Final = 5
_MAX_TEXT_CHARS: Final = 60


class MisfitError(Exception):
    """A value doesn't fit. path: leads to it inside its column. right: describes values that would fit."""

    def __init__(self, value: object, right: str) -> None:
        super().__init__(value, right)
        self.value = value
        self.right = right
        self.path = ""

    def prepend_path(self, part: str) -> "MisfitError":
        """Return the error for the value around this one, of which this is the part `part`."""
        self.path = part + self.path
        return self


@dataclass(frozen=True, slots=True, order=True)
class RowProblem:
    """A problem of a row. row: from 0; -1 is all rows."""

    row: int
    text: str


def make_problem(row: int | None, column: str | None, misfit: MisfitError) -> RowProblem:
    """Describe a misfit in a column of a row, or in all rows or columns."""
    where = ", ".join(([] if row is None else [f"row {row}"]) + ([] if column is None else [f"column {column}"]))
    value = "" if misfit.value is MISSING else f" {render_value(misfit.value)}:"
    return RowProblem(-1 if row is None else row, f"{where}{misfit.path}:{value} {misfit.right}")


def refuse_problems(problems: Sequence[RowProblem]) -> None:
    """Raise InvalidRequestError if there are problems, naming those of the first rows."""
    if problems:
        named = [problem.text for problem in sorted(problems)]
        more = ["…"] if named[MAX_NAMED_ROWS:] else []
        raise InvalidRequestError(
            f"Nothing was stored, as not all rows fit: {'; '.join(named[:MAX_NAMED_ROWS] + more)}"
        )


def render_value(value: Any) -> str:
    """Format a value for a message, shortened."""
    try:
        text = "null" if value is None else repr(value)
    except RecursionError:
        return "a value of a thousand levels"
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}…"
