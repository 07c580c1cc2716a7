"""Format rows: as a box, in Markdown, as records one below the other, as CSV, JSON lines, JSON or Arrow."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from rich.cells import cell_len, set_cell_size

from duckicelake.cli.console.terminal import replace_controls
from duckicelake.errors import BadInputError, format_count
from duckicelake.extras import import_extra

FormatName = Literal["box", "markdown", "csv", "json", "ndjson", "arrow"]
FORMAT_NAMES: Final[tuple[FormatName, ...]] = get_args(FormatName)
_LEAST_COLUMNS: Final = 12
"""A text column is cut down to so many columns of the terminal; where that isn't enough, records are printed."""
_MAX_RECORD_RULE: Final = 60
_ELLIPSIS: Final = "…"
_NULL: Final = "NULL"


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows as texts; None is NULL. right: numbers of the columns that are aligned to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    right: frozenset[int] = frozenset()


def parse_format(text: str) -> FormatName:
    """Parse the name of a format. Raises BadInputError."""
    if text not in FORMAT_NAMES:
        raise BadInputError(f"Invalid format {text!r}: expected {', '.join(FORMAT_NAMES[:-1])} or {FORMAT_NAMES[-1]}")
    return text


def build_text_table(table: Any) -> TextTable:
    """Build a table of texts from a `pyarrow.Table`."""
    pa = import_extra("pyarrow")

    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    right = frozenset(number for number, field in enumerate(table.schema) if any(check(field.type) for check in checks))
    columns = [_format_column(column) for column in table.columns]
    return TextTable(table.column_names, list(zip(*columns, strict=True)), right)


def _format_column(column: Any) -> Sequence[str | None]:
    """Format values: times by Arrow, which has more of them than Python; nested values as JSON."""
    pa = import_extra("pyarrow")

    if pa.types.is_temporal(column.type) and not pa.types.is_interval(column.type):
        texts: list[str | None] = column.cast(pa.string()).to_pylist()
        return [text if text is None or "." not in text else _trim_fraction(text) for text in texts]
    try:
        values = column.to_pylist()
    except (ValueError, OverflowError):  # a time in a nested value that Python has not
        return [str(value) for value in column]
    return [None if value is None else _format_value(value) for value in values]


def _format_value(value: Any) -> str:
    from duckicelake.query.result_formats import dump

    return dump(value) if isinstance(value, dict | list | tuple | bytes | bool | str) else str(value)


def _trim_fraction(text: str) -> str:
    whole, _, rest = text.partition(".")
    digits = rest.rstrip("Z")
    kept = digits.rstrip("0")
    return whole + (f".{kept}" if kept else "") + rest[len(digits) :]


def render_box(table: TextTable, width: int | None, *, has_count: bool = True) -> str:
    """Render a table with lines. Cells that are too wide end with `…`.

    Where a row doesn't fit into the width at all, rows are rendered as records. width: None is any.
    """
    headings, rows = _clean(table)
    widths = [
        max([cell_len(heading), *(cell_len(row[number]) for row in rows)]) for number, heading in enumerate(headings)
    ]
    if width is not None and not _shrink(widths, table.right, width):
        return render_records(table)
    edges = [_build_rule(widths, *ends) for ends in (("┌", "┬", "┐"), ("├", "┼", "┤"), ("└", "┴", "┘"))]
    lines = [edges[0], _build_line(headings, widths, frozenset()), edges[1]]
    lines += [_build_line(row, widths, table.right) for row in rows]
    lines.append(edges[2])
    return "\n".join([*lines, f"({format_count(len(rows), 'row')})"] if has_count else lines) + "\n"


def _shrink(widths: list[int], right: frozenset[int], width: int) -> bool:
    """Shrink text columns, the widest first, until a row fits; return whether it does. Numbers aren't cut."""
    while sum(widths) + 3 * len(widths) + 1 > width:
        texts = [number for number in range(len(widths)) if number not in right and widths[number] > _LEAST_COLUMNS]
        if not texts:
            return False
        widest = max(texts, key=lambda number: widths[number])
        excess = sum(widths) + 3 * len(widths) + 1 - width
        others = [widths[number] for number in texts if number != widest]
        floor = max([_LEAST_COLUMNS, *(other for other in others if other < widths[widest])])
        widths[widest] = (
            max(floor, widths[widest] - excess, widths[widest] // 2)
            if others
            else max(_LEAST_COLUMNS, widths[widest] - excess)
        )
    return True


def _build_rule(widths: Sequence[int], left: str, middle: str, right: str) -> str:
    return left + middle.join("─" * (width + 2) for width in widths) + right


def _build_line(cells: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> str:
    padded = (
        _pad(cell, width, is_right=number in right)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"│ {' │ '.join(padded)} │"


def _pad(cell: str, width: int, *, is_right: bool) -> str:
    if cell_len(cell) > width:
        return set_cell_size(cell, width - 1) + _ELLIPSIS
    space = " " * (width - cell_len(cell))
    return space + cell if is_right else cell + space


def render_records(table: TextTable) -> str:
    """Render each row as a record, one column per line."""
    headings, rows = _clean(table)
    width = max(map(cell_len, headings), default=0)
    lines = []
    for number, row in enumerate(rows, 1):
        title = f"─ row {number} "
        lines.append(title + "─" * max(0, min(width + 20, _MAX_RECORD_RULE) - len(title)))
        lines += [
            f"{_pad(heading, width, is_right=False)} │ {cell}" for heading, cell in zip(headings, row, strict=True)
        ]
    return "\n".join([*lines, f"({format_count(len(rows), 'row')})"]) + "\n"


def render_markdown(table: TextTable) -> str:
    """Render a table in Markdown."""
    headings, rows = ([*map(_escape_markdown, cells)] for cells in _clean(table)[0:1]), _clean(table)[1]
    (heading,) = headings
    marks = ["---:" if number in table.right else "---" for number in range(len(heading))]
    lines = [heading, marks, *([*map(_escape_markdown, row)] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _escape_markdown(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("|", "\\|")


def render_csv(table: TextTable) -> str:
    """Render texts as CSV; NULL is an empty field."""
    sink = io.StringIO()
    rows = [table.headings, *table.rows]
    has_return = any("\r" in (cell or "") for row in rows for cell in row)  # which csv alone wouldn't quote
    csv.writer(sink, lineterminator="\n", quoting=csv.QUOTE_ALL if has_return else csv.QUOTE_MINIMAL).writerows(rows)
    return sink.getvalue()


def join_json(lines: str) -> str:
    """Join JSON lines to one array."""
    return "[" + ",\n".join(lines.splitlines()) + "]\n"


def encode_rows(table: Any, name: Literal["csv", "ndjson", "arrow"]) -> bytes:
    """Encode a `pyarrow.Table` as the server's query route does."""
    from duckicelake.query.result_formats import FORMATS

    writer = FORMATS["json" if name == "ndjson" else name](table.schema)
    return b"".join([*(writer.write(batch) for batch in table.to_batches()), writer.end()])


def make_harmless(text: str, name: FormatName) -> str:
    """Replace control characters in a formatted text for a terminal; in JSON they are escaped, which means the same."""
    if name in {"json", "ndjson"}:
        return "\n".join("".join(map(_escape_json, line)) for line in text.split("\n"))
    return "\n".join(map(replace_controls, text.split("\n")))


def _escape_json(letter: str) -> str:
    return letter if letter.isprintable() else json.dumps(letter)[1:-1]


RENDERERS: Final[Mapping[FormatName, Callable[[TextTable], str]]] = {"markdown": render_markdown, "csv": render_csv}
"""Formats of texts that don't depend on the terminal's width."""


def _clean(table: TextTable) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return headings and rows as one line each, without control characters."""
    return [*map(_clean_cell, table.headings)], [[*map(_clean_cell, row)] for row in table.rows]


def _clean_cell(cell: str | None) -> str:
    return _NULL if cell is None else replace_controls(cell.replace("\r\n", "\n").replace("\n", "↵").replace("\t", " "))
