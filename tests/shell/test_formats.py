"""Formats: boxes fit the terminal, cells can't control it, and programs get what was there."""

import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from rich.cells import cell_len

from duckicelake.shell.formats import (
    TextTable,
    build_text_table,
    encode_rows,
    join_json,
    make_harmless,
    render_box,
    render_csv,
    render_markdown,
    render_records,
)

HOSTILE = ["\x1b[31mred\x1b[0m", "a\x07b", "line\nbreak", "tab\there", "\x9b31m", "right\u202eleft", "\r\x08"]
TABLE = TextTable(("id", "a name"), [("1", "penguin"), ("20", None), ("3", "ペンギン")], frozenset({0}))


def test_box() -> None:
    assert render_box(TABLE, None).splitlines() == [
        "┌────┬──────────┐",
        "│ id │ a name   │",
        "├────┼──────────┤",
        "│  1 │ penguin  │",
        "│ 20 │ NULL     │",
        "│  3 │ ペンギン │",
        "└────┴──────────┘",
        "(3 rows)",
    ]


@pytest.mark.parametrize("width", range(40, 130, 3))
def test_box_is_never_wider_than_the_terminal(width: int) -> None:
    """Long texts end with an ellipsis, the widest first; numbers and short texts stay whole."""
    row = ("123456789012", "short", "a long text " * 5, "ペンギン" * 9)
    lines = render_box(TextTable(("number", "b", "c", "d"), [row], frozenset({0})), width).splitlines()
    if lines[0].startswith("┌"):
        assert {cell_len(line) for line in lines[:-1]} <= set(range(width + 1))
        assert "123456789012" in lines[3]
        assert "short" in lines[3]
        assert "…" in lines[3] or width > 120
    else:
        assert width < 60
        assert row[2].strip() in "".join(lines)


def test_records_are_printed_where_no_row_fits() -> None:
    table = TextTable(("a", "b"), [("1" * 30, "2" * 30)], frozenset({0, 1}))
    assert render_box(table, 40) == render_records(table)
    assert render_records(table).splitlines()[1:3] == [f"a │ {'1' * 30}", f"b │ {'2' * 30}"]


@pytest.mark.parametrize("cell", HOSTILE)
def test_no_cell_controls_the_terminal(cell: str) -> None:
    table = TextTable((cell,), [(cell,)])
    rendered = [render_box(table, 80), render_box(table, None), render_records(table), render_markdown(table)]
    rendered.append(make_harmless(render_csv(table), "csv"))
    for text in rendered:
        assert all(line.isprintable() for line in text.split("\n")), text


@pytest.mark.parametrize("cell", HOSTILE)
def test_json_on_a_terminal_means_the_same(cell: str) -> None:
    table = pa.table({"a": [cell]})
    lines = encode_rows(table, "ndjson").decode()
    shown = make_harmless(lines, "ndjson")
    assert all(line.isprintable() for line in shown.split("\n"))
    assert [json.loads(line) for line in shown.splitlines()] == [{"a": cell}]
    assert json.loads(make_harmless(join_json(lines), "json")) == [{"a": cell}]


@pytest.mark.parametrize("cell", HOSTILE)
def test_csv_for_programs_has_what_was_there(cell: str) -> None:
    assert list(csv.reader(io.StringIO(render_csv(TextTable(("a",), [(cell,)])), newline="")))[1] == [cell]


def test_markdown_escapes_its_own_marks() -> None:
    assert render_markdown(TextTable(("a|b",), [("c\\|d",)])) == "| a\\|b |\n| --- |\n| c\\\\\\|d |\n"


def test_json_is_one_array() -> None:
    assert json.loads(join_json('{"a": 1}\n{"a": 2}\n')) == [{"a": 1}, {"a": 2}]
    assert json.loads(join_json("")) == []


def test_values_are_texts_as_people_write_them() -> None:
    table = pa.table(
        {
            "i": [1],
            "f": [0.5],
            "d": [Decimal("1.50")],
            "t": [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)],
            "s": [datetime(2026, 1, 2, 3, 4, 5, 120_000)],
            "day": [date(2026, 1, 2)],
            "far": pa.array([10**17], pa.timestamp("us")),
            "l": [[1, None]],
            "b": [b"\x00\xff"],
            "ok": [True],
            "n": pa.nulls(1),
        }
    )
    built = build_text_table(table)
    assert built.rows == [
        (
            "1", "0.5", "1.50", "2026-01-02 03:04:05Z", "2026-01-02 03:04:05.12", "2026-01-02",
            "5138-11-16 09:46:40", "[1, null]", "00ff", "true", None,
        )
    ]  # fmt: skip
    assert built.right == frozenset({0, 1, 2})
