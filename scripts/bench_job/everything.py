"""Every benchmark of scripts/bench, one after the other, then one table of what all of them found.

They run alone, each with its own servers and its own reference from the same minutes. With --out, the table is also
written as Markdown. The exit code says whether every benchmark came to its end, not whether every target was reached.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from subprocess import DEVNULL

from scripts.bench_job.results import HEADS, Result, cells_of, read_results, show

SCRIPTS = Path(__file__).parents[1] / "bench"


def main() -> int:
    options = parse()
    names = options.only or scripts()
    found: list[Result] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="duckicelake-bench-") as folder:
        for name in names:
            file = Path(folder, f"{name}.json")
            print(f"== scripts/bench/{name}", flush=True)
            if not run(name, file, quick=options.quick):
                failed.append(name)
            found += read_results(file) if file.exists() else []
    title = f"duckicelake on {os.cpu_count()} cores, {datetime.now(UTC):%Y-%m-%d}{', a rough look' * options.quick}"
    show(title, found)
    if options.out:
        options.out.write_text(markdown(title, found))
    for name in failed:
        print(f"bench: {name} failed; what it said stands above")
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench/all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a rough look: less of everything")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table there, too, as Markdown")
    parser.add_argument("only", nargs="*", metavar="NAME", help=f"of {', '.join(scripts())}; all if none is named")
    options = parser.parse_args()
    for name in options.only:
        if name not in scripts():
            parser.error(f"there is no {name}: the benchmarks are {', '.join(scripts())}")
    return options


def scripts() -> list[str]:
    """What there is to run: the programs beside `all`, but for `against`, which needs another checkout."""
    found = {each.name for each in SCRIPTS.iterdir() if not each.suffix and each.is_file()}
    return sorted(found - {"all", "against"})


def run(name: str, file: Path, *, quick: bool) -> bool:
    command = [str(SCRIPTS / name), "--json", str(file), *(["--quick"] if quick else [])]
    return subprocess.run(command, stdin=DEVNULL, stdout=sys.stdout, check=False).returncode == 0


def markdown(title: str, results: Iterable[Result]) -> str:
    rows = [HEADS, ["---", *["---:"] * (len(HEADS) - 1)], *map(cells_of, results)]
    return f"{title}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
