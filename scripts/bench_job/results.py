"""What benchmarks find: figures, the targets they are held against, and tables of them."""

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Target:
    """What a result must be. of: the measured value, or its ratio to the reference."""

    sense: Literal["≥", "≤"]
    value: float
    of: Literal["measured", "ratio"] = "measured"

    def __str__(self) -> str:
        return f"{self.sense} {number(self.value)}{'x' if self.of == 'ratio' else ''}"


@dataclass(frozen=True, slots=True)
class Result:
    """One line of a benchmark's table. p50 and p99 are milliseconds of single operations."""

    name: str
    measured: float
    unit: str
    target: Target | None = None
    reference: float | None = None
    reference_name: str = ""
    p50: float | None = None
    p99: float | None = None

    @property
    def ratio(self) -> float | None:
        """Measured to reference."""
        return self.measured / self.reference if self.reference else None

    @property
    def is_reached(self) -> bool | None:
        """Whether the target is; None if there is none."""
        if self.target is None:
            return None
        found = self.ratio if self.target.of == "ratio" else self.measured
        if found is None or math.isnan(found):
            return False
        return found >= self.target.value if self.target.sense == "≥" else found <= self.target.value


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least so many percent of all don't exceed; NaN of none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def p50(values: Sequence[float]) -> float:
    return percentile(values, 50)


def p99(values: Sequence[float]) -> float:
    return percentile(values, 99)


def number(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


HEADS = ("benchmark", "target", "measured", "reference", "ratio", "p50 ms", "p99 ms")
_MARKS = {None: ("", ""), True: ("ok ", "green"), False: ("MISS ", "red")}


def cells_of(result: Result) -> list[str]:
    """A line of the table, in the order of the heads."""
    return [
        result.name,
        _MARKS[result.is_reached][0] + str(result.target) if result.target else "",
        f"{number(result.measured)} {result.unit}",
        "" if result.reference is None else f"{number(result.reference)} {result.reference_name}".strip(),
        "" if result.ratio is None else f"{result.ratio:.2f}x",
        "" if result.p50 is None else number(result.p50),
        "" if result.p99 is None else number(result.p99),
    ]


def table_of(results: Iterable[Result], title: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for heading in HEADS:
        table.add_column(heading, justify="left" if heading == HEADS[0] else "right", overflow="fold")
    for result in results:
        table.add_row(*cells_of(result), style=_MARKS[result.is_reached][1])
    return table


def options_of(description: str | None, **extra: tuple[int, str]) -> argparse.Namespace:
    return parser_of(description, **extra).parse_args()


def parser_of(description: str | None, **extra: tuple[int, str]) -> argparse.ArgumentParser:
    """--quick and --json, and integers of a script's own by name: (default, help)."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a rough look: less of everything")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too, one per line")
    for name, (default, help_) in extra.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int, default=default, metavar="N", help=f"{help_} ({default})"
        )
    return parser


def report(title: str, results: Sequence[Result], options: argparse.Namespace) -> None:
    """Print the table and, where asked to, write the results down for `scripts/bench/all`."""
    show(title, results)
    if options.json:
        options.json.write_text("".join(json.dumps(asdict(result)) + "\n" for result in results))


def show(title: str, results: Iterable[Result]) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=180)
    console.print(table_of(results, title))


def read_results(path: Path) -> list[Result]:
    return [_result(**json.loads(line)) for line in path.read_text().splitlines()]


def _result(*, target: dict[str, object] | None, **rest: object) -> Result:
    return Result(target=Target(**target) if target else None, **rest)  # type: ignore[arg-type]
