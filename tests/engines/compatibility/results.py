"""What the tests found, in results.json, and the tables of docs/engines.md that are written from it.

A run of the tests leaves what it found in build/engines. `python -m tests.engines.compatibility` takes that over into
results.json and into the page.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.engines.compatibility.abilities import ABILITIES, GROUPS, PROVEN
from tests.engines.compatibility.drivers import ENGINES, Engine

ROOT: Final = Path(__file__).parents[3]
RESULTS: Final = Path(__file__).with_name("results.json")
FOUND: Final = ROOT / "build" / "engines"
PAGE: Final = ROOT / "docs" / "engines.md"
BEGIN, END = "<!-- tables: engines -->\n", "<!-- end of tables -->\n"
SHOWN: Final = {"works": "yes", "cannot": "-", "fails": "no", "refused": "refused"}


@dataclass(frozen=True, slots=True)
class Cell:
    """How it went. outcome: one of SHOWN. why: a phrase where it didn't work."""

    outcome: str
    why: str = ""


def keep_cell(engine: Engine, ability: str, cell: Cell) -> None:
    """Leave what a test found in a file of its own."""
    FOUND.mkdir(parents=True, exist_ok=True)
    path = FOUND / f"{engine.name}.{ability}.json".replace(" ", "-").replace("`", "")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    found = {"engine": engine.name, "version": engine.version, "run": today, "ability": ability, **asdict(cell)}
    path.write_text(json.dumps(found))


def read_cells(engine: str) -> dict[str, Cell]:
    """Return the cells of an engine that results.json has."""
    cells = read_results().get(engine, {}).get("cells", {})
    return {name: Cell(**cell) for name, cell in cells.items()}


@cache
def read_results() -> Mapping[str, Any]:
    results: Mapping[str, Any] = json.loads(RESULTS.read_text())
    return results


def take_over() -> None:
    """Take over into results.json what runs have left; engines that weren't run keep what they have."""
    results = dict(read_results()) if RESULTS.exists() else {}
    for path in sorted(FOUND.glob("*.json")):
        found = json.loads(path.read_text())
        kept = results.setdefault(found["engine"], {"cells": {}})
        kept |= {"version": found["version"], "run": found["run"]}
        cells = kept["cells"] | {found["ability"]: {key: found[key] for key in ("outcome", "why")}}
        kept["cells"] = {name: cells[name] for name in ABILITIES if name in cells}
    ordered = {engine.name: results[engine.name] for engine in ENGINES if engine.name in results}
    RESULTS.write_text(f"{json.dumps(ordered, indent=1)}\n")
    read_results.cache_clear()


def write_page() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{render_tables()}{END}{after}")


def render_tables() -> str:
    """Return the tables: one of each group of abilities, the versions, and why what doesn't work doesn't."""
    engines = read_results()
    parts = []
    for title, names in GROUPS.items():
        header = f"| {title} | {' | '.join(map(_title, names))} |\n|{'---|' * (len(names) + 1)}\n"
        rows = (
            f"| {engine} | {' | '.join(_show(found['cells'], name) for name in names)} |\n"
            for engine, found in engines.items()
        )
        parts.append(header + "".join(rows))
    versions = (f"| {engine} | {found['version']} | {found['run']} |\n" for engine, found in engines.items())
    parts.append("| Engine | version | last run |\n|---|---|---|\n" + "".join(versions))
    return "\n" + "\n".join(parts) + "\n" + _render_reasons(engines) + "\n"


def _title(name: str) -> str:
    return PROVEN[name][0] if name in PROVEN else ABILITIES[name].title


def _show(cells: Mapping[str, Any], name: str) -> str:
    proofs = [cells[proof] for proof in (PROVEN[name][1] if name in PROVEN else (name,)) if proof in cells]
    best = next((cell for cell in proofs if cell["outcome"] == "works"), proofs[0] if proofs else None)
    return SHOWN[best["outcome"]] if best else "not run"


def _render_reasons(engines: Mapping[str, Any]) -> str:
    lines = []
    for engine, found in engines.items():
        by_reason: dict[str, list[str]] = {}
        for name, cell in found["cells"].items():
            if cell["why"]:
                by_reason.setdefault(cell["why"], []).append(_title(name))
        lines += [f"| {engine} | {', '.join(names)} | {why} |\n" for why, names in by_reason.items()]
    return "| Engine | what | why not |\n|---|---|---|\n" + "".join(lines)
