"""Print the size, names and cycles of a package's modules, beside those of packages that are known to read well.

scripts/house                          duckicelake beside starlette, httpx and pyiceberg, as far as installed
scripts/house ../before/duckicelake    another checkout, beside this one
"""

import argparse
import ast
import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OWN: Final = Path(__file__).parents[2] / "duckicelake"
ANCHORS: Final = ("starlette", "httpx", "pyiceberg")
DIALECT: Final = re.compile(r"\b(told|nobody|somebody)\b")
PARTICIPLE: Final = re.compile(r"[a-z]+(ed|en|old|ound|ade|aid|iven|nown|ent)")
NOT_GERUNDS: Final = frozenset({"string", "settings", "ping", "name_mapping"})
SHORT_LINES: Final = 60
MIN_BYTES: Final = 200
"""An `__init__.py` below this size only names a folder."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A package in figures; shares are of 1. `single_importers`: modules whose only importer lies in their folder."""

    package: str
    modules: int
    lines: int
    median_lines: int
    longest: int
    short_modules: float
    functions: int
    participles: float
    gerund_modules: int
    repeated_classes: int
    each_variables: int
    dialect_words: int
    folder_cycles: int
    single_importers: float


@dataclass(frozen=True, slots=True)
class Module:
    """A file of a package: its dotted name, text, syntax tree and the modules that it imports."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    imports: frozenset[str]

    @property
    def folder(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    @property
    def is_room(self) -> bool:
        """Whether it is more than the name of a folder."""
        return self.path.name != "__init__.py" or len(self.text) > MIN_BYTES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="*", type=Path, help="folders of packages to measure beside this one's")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    found = [measure(path) for path in (OWN, *(options.packages or _anchors()))]
    if options.json:
        print(json.dumps([asdict(figures) for figures in found], indent=2))
    else:
        _print(found)


def measure(package: Path) -> Figures:
    """Measure a package by its folder."""
    modules = list(read_modules(package))
    rooms = [module for module in modules if module.is_room]
    lines = sorted(len(module.text.splitlines()) for module in rooms)
    functions = [name for module in modules for name in _function_names(module.tree)]
    classes = Counter(
        node.name for module in modules for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)
    )
    return Figures(
        package=package.name,
        modules=len(rooms),
        lines=sum(lines),
        median_lines=round(statistics.median(lines)),
        longest=lines[-1],
        short_modules=sum(count <= SHORT_LINES for count in lines) / len(lines),
        functions=len(functions),
        participles=sum(bool(PARTICIPLE.fullmatch(name)) for name in functions) / max(1, len(functions)),
        gerund_modules=sum(m.path.stem.endswith("ing") and m.path.stem not in NOT_GERUNDS for m in modules),
        repeated_classes=sum(count > 1 for count in classes.values()),
        each_variables=sum(_each_count(module.tree) for module in modules),
        dialect_words=sum(len(DIALECT.findall(module.text)) for module in modules),
        folder_cycles=len(find_cycles(_folder_arrows([one for one in modules if one.name != package.name]))),
        single_importers=_single_importers(rooms),
    )


def read_modules(package: Path) -> Iterator[Module]:
    """Parse all modules of a package; names begin with the name of its folder."""
    files = {_dotted(package, path): path for path in sorted(package.rglob("*.py"))}
    for name, path in files.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        yield Module(name, path, text, tree, frozenset(_imports(tree, name, path, files)))


def find_cycles(arrows: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Find the groups of folders that reach one another by their imports, each sorted."""
    reached = {start: _reachable(arrows, start) for start in arrows}
    groups = {
        tuple(sorted({start, *(end for end in ends if start in reached.get(end, ()))}))
        for start, ends in reached.items()
        if start in ends
    }
    return [list(group) for group in sorted(groups) if len(group) > 1]


def _reachable(arrows: Mapping[str, frozenset[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = list(arrows.get(start, ()))
    while waiting:
        folder = waiting.pop()
        if folder not in found:
            found.add(folder)
            waiting.extend(arrows.get(folder, ()))
    return found


def _dotted(package: Path, path: Path) -> str:
    parts = (package.name, *path.relative_to(package).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(tree: ast.Module, name: str, path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    """The package's own modules that a module imports anywhere in it."""
    parents = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, (base, node.module)))
            for alias in node.names:
                target = f"{origin}.{alias.name}"
                if target in files or origin in files:
                    yield target if target in files else origin


def _folder_arrows(modules: Sequence[Module]) -> dict[str, frozenset[str]]:
    folders = {module.name: module.folder for module in modules}
    arrows: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules:
        arrows[module.folder] |= {folders[name] for name in module.imports if name in folders} - {module.folder}
    return {folder: frozenset(ends) for folder, ends in arrows.items()}


def _single_importers(rooms: Sequence[Module]) -> float:
    importers: defaultdict[str, list[str]] = defaultdict(list)
    for module in rooms:
        for name in module.imports - {module.name}:
            importers[name].append(module.folder)
    return sum(importers[module.name] == [module.folder] for module in rooms) / len(rooms)


def _function_names(tree: ast.Module) -> Iterator[str]:
    """Names without leading underscores of all functions but properties."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            decorators = {decorator.id for decorator in node.decorator_list if isinstance(decorator, ast.Name)}
            if not decorators & {"property", "cached_property"}:
                yield node.name.lstrip("_")


def _each_count(tree: ast.Module) -> int:
    return sum(isinstance(n, ast.Name) and n.id == "each" and isinstance(n.ctx, ast.Store) for n in ast.walk(tree))


def _anchors() -> list[Path]:
    specs = [find_spec(name) for name in ANCHORS]
    return [Path(spec.origin).parent for spec in specs if spec is not None and spec.origin is not None]


def _print(found: Sequence[Figures]) -> None:
    rows = [(name.replace("_", " "), [getattr(figures, name) for figures in found]) for name in Figures.__slots__]
    for name, values in rows:
        cells = [
            f"{value:.1%}" if isinstance(value, float) else f"{value:,}" if name != "package" else value
            for value in values
        ]
        print(f"{name:18}", *(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()
