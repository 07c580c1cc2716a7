"""Tables compared cell by cell, whichever reader's Arrow they come as."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

Row = tuple[str, ...]


def rows_of(table: pa.Table, names: Iterable[str]) -> Counter[Row]:
    """Rows without order, each cell as text that tells values apart: NaN and -0.0, NULL and empty, 1 and 1.0."""
    columns = [[_text(cell) for cell in table.column(name).to_pylist()] for name in names]
    return Counter(zip(*columns, strict=True))


def _text(cell: Any) -> str:
    if isinstance(cell, dict):
        return "{" + ", ".join(f"{name}: {_text(value)}" for name, value in cell.items()) + "}"
    if isinstance(cell, list):
        return "[" + ", ".join(map(_text, cell)) + "]"
    if isinstance(cell, tuple):
        return "(" + ", ".join(map(_text, cell)) + ")"
    return repr(cell) if getattr(cell, "tzinfo", None) is None else cell.isoformat()


def assert_same_cells(got: pa.Table, expected: pa.Table, reader: str) -> None:
    assert got.column_names == expected.column_names, f"{reader} has columns {got.column_names}"
    names = expected.column_names
    theirs, ours = rows_of(got, names), rows_of(expected, names)
    missing, extra = list((ours - theirs).elements()), list((theirs - ours).elements())
    assert theirs == ours, f"{reader} misses {len(missing)} rows {missing[:3]}, has {len(extra)} too many {extra[:3]}"
