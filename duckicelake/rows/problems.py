"""PURE. Describe what is wrong with rows, by the first few: no row of such a batch is stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from duckicelake.errors import InvalidRequestError

OnUnknown: TypeAlias = Literal["reject", "ignore"]
MISSING: Final = object()
"""In place of a value that isn't there."""
MAX_NAMED_ROWS: Final = 5
_MAX_TEXT_CHARS: Final = 60


class MisfitError(Exception):
    """A value doesn't fit: `path` leads to it inside its column, `right` says what would."""

    def __init__(self, value: object, right: str) -> None:
        super().__init__(value, right)
        self.value = value
        self.right = right
        self.path = ""

    def prepend_path(self, part: str) -> "MisfitError":
        """Return the same as seen from outside: the value is in this part."""
        self.path = part + self.path
        return self


@dataclass(frozen=True, slots=True, order=True)
class RowProblem:
    """`row` counts from 0; -1 where it is all of them."""

    row: int
    text: str


def make_problem(row: int | None, column: str | None, misfit: MisfitError) -> RowProblem:
    """Return what to say of a misfit in a column of a row, or in the whole of either."""
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
    """Return a value as it may stand in a message."""
    try:
        text = "null" if value is None else repr(value)
    except RecursionError:
        return "a value of a thousand levels"
    return text if len(text) <= _MAX_TEXT_CHARS else f"{text[:_MAX_TEXT_CHARS]}…"
