"""PURE. Whether table-wide statistics still cover the files': DuckDB answers queries from them without reading.

A column without a row is fine, as nothing is answered from it; a row that says too little makes rows disappear.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from duckicelake.bridge.texts import from_text
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import ColumnStats

_AMBIGUOUS = {"binary", "fixed"}  # `ab` may be hex or the text itself


@dataclass(frozen=True, slots=True)
class FileRange:
    """What the live files say of one column: whether they hold nulls and NaN, and each bound that one of them has."""

    contains_null: bool | None
    contains_nan: bool | None
    lows: Sequence[str]
    highs: Sequence[str]


def gaps(row: ColumnStats, files: FileRange, type_: PrimitiveType, *, is_repeated: bool = False) -> Iterator[str]:
    """What the files hold and the table-wide row denies, or can't say.

    is_repeated: the column is in a list or map. Lakes that DuckLake 0.3 made have no contains_null for those, and need
    none: tried with DuckDB 1.5.5, IS NULL and count find the right rows, before and after inserts.
    """
    if files.contains_null and not row.contains_null and not (is_repeated and row.contains_null is None):
        yield f"contains_null is {_said(row.contains_null)}, but files hold nulls"
    if row.contains_null is None and not is_repeated and (files.lows or files.highs):
        yield "contains_null is NULL, which DuckDB takes for no"
    if files.contains_nan and row.contains_nan is False:
        yield "contains_nan is false, but files hold NaN"
    low, high = row.min_value, row.max_value
    if files.lows and low is None:
        yield "min_value is NULL, which DuckDB takes for the next file's"
    if files.highs and high is None:
        yield "max_value is NULL, which DuckDB takes for the next file's"
    if low is not None and any(_is_less(text, low, type_) for text in files.lows):
        yield f"min_value is {low}, but files hold less"
    if high is not None and any(_is_less(high, text, type_) for text in files.highs):
        yield f"max_value is {high}, but files hold more"


def _said(value: bool | None) -> str:
    return "NULL" if value is None else str(value).lower()


def _is_less(text: str, than: str, type_: PrimitiveType) -> bool:
    """Whether one text's value is less than another's, as DuckDB sorts them; no, where one can't be told."""
    if type_.name in _AMBIGUOUS:
        return False
    if type_.name == "string":
        return text.encode() < than.encode()
    value, other = from_text(type_, text), from_text(type_, than)
    return value is not None and other is not None and bool(value < other)
