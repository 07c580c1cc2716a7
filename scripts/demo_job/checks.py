"""Named assertions: each is printed as it happens, and all of them again in a closing table."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

import duckdb
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDTH = 46


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    expected: object
    got: object

    @property
    def passed(self) -> bool:
        return self.expected == self.got


@dataclass(slots=True)
class Checks:
    """What was asserted so far, in order."""

    console: Console
    done: list[Check] = field(default_factory=list)

    def equal(self, name: str, expected: object, got: object) -> None:
        check = Check(name, expected, got)
        self.done.append(check)
        mark = "[green]ok[/]  " if check.passed else "[red]FAIL[/]"
        self.console.print(f"  {mark} {escape(name)}", highlight=False)
        if not check.passed:
            self.console.print(f"       expected {expected!r}\n       got      {got!r}", markup=False, highlight=False)

    def same_rows(self, name: str, expected: pa.Table, got: pa.Table) -> None:
        """Both tables hold the same rows, duplicates counted, in whatever order."""
        self.equal(name, describe(expected, expected), describe(expected, got))

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        self.console.print(f"\n[bold]{escape(title)}[/]")
        started = monotonic()
        yield
        self.console.print(f"  [dim]{monotonic() - started:.1f} s[/]", highlight=False)

    def report(self) -> bool:
        """Print the closing table and the last line; true when everything passed."""
        table = Table("#", "assertion", "expected", "got", "", title="What was checked")
        for number, check in enumerate(self.done, 1):
            mark = "[green]ok[/]" if check.passed else "[red]FAIL[/]"
            table.add_row(str(number), escape(check.name), short(check.expected), short(check.got), mark)
        failed = sum(not check.passed for check in self.done)
        self.console.print(table)
        self.console.print(f"passed={len(self.done) - failed} failed={failed}", highlight=False)
        return bool(self.done) and failed == 0


def describe(expected: pa.Table, got: pa.Table) -> str:
    """A table's size and its distance from what was expected: equal texts mean equal rows."""
    if set(got.column_names) != set(expected.column_names):
        return f"{got.num_rows:,} rows of {', '.join(got.column_names)}"
    return f"{got.num_rows:,} rows x {got.num_columns} columns, {differing_rows(expected, got)} differ"


def differing_rows(left: pa.Table, right: pa.Table) -> int:
    """How many rows only one side holds; columns are matched by name and compared by value."""
    columns = ", ".join(f'"{name}"' for name in left.column_names)
    with duckdb.connect() as connection:
        connection.register("l", left)
        connection.register("r", right)
        both = f"SELECT {columns}, 1 AS side FROM l UNION ALL SELECT {columns}, -1 FROM r"
        surplus = f"SELECT abs(sum(side)) AS rows FROM ({both}) GROUP BY {columns}"
        ((count,),) = connection.sql(f"SELECT coalesce(sum(rows), 0) FROM ({surplus})").fetchall()
    return int(count)


def short(value: object) -> str:
    """One table cell: of a long list, its length and first element."""
    if isinstance(value, list) and len(value) > 2:
        value = f"{len(value)}: {value[0]!r} …"
    text = str(value)
    return escape(text if len(text) <= WIDTH else text[: WIDTH - 1] + "…")
