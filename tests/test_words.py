"""Words of the package (docs/glossary.md): old ones are gone, functions are verbs, modules and classes are nouns.

`known_words.txt` lists what is still to be renamed, exactly. The list only shrinks:

    python -m tests.test_words     writes what is left; it refuses to write a longer list
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "duckicelake"
KNOWN = Path(__file__).with_name("known_words.txt")

BANNED = frozenset(
    {
        *(
            "told",
            "tell",
            "tells",
            "telling",
            "nobody",
            "somebody",
            "courtesy",
            "mentioning",
            "uncollected",
            "chronicle",
        ),
        *("patience", "patient", "patiently", "impatience", "overtaken", "foreseen", "foresee", "succession"),
        *("realise", "realised", "realisation"),
    }
)
"""Words of a private dialect, in names and in docstrings."""

PARTICIPLE = re.compile(
    r"_*([a-z]+ed|known|given|found|made|said|seen|shown|written|taken|drawn|chosen|held|kept|sent)"
)
NOT_PARTICIPLES = frozenset({"embed", "feed", "need", "seed", "exceed", "proceed", "succeed", "shed", "speed"})
NOT_GERUNDS = frozenset({"string", "settings", "ping", "name_mapping"})
"""Nouns; a name mapping is Iceberg's own word."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def trees() -> Mapping[str, ast.Module]:
    """Syntax trees of the package's modules by their paths."""
    return {path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


def names_in(tree: ast.Module) -> Iterator[str]:
    """Names that a module gives: of functions, classes, parameters, variables, attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case _:
                pass


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def find_old_names() -> Iterator[str]:
    for module, tree in trees().items():
        stem = module.removesuffix(".py").replace("/", "_")
        for name in sorted({*names_in(tree), stem}):
            if words_of(name) & BANNED:
                yield f"{module} {name}"


def find_old_docstrings() -> Iterator[str]:
    """Modules by how many old words their docstrings hold."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for module, tree in trees().items():
        texts = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
        words = [word for text in texts for word in re.findall(r"\w+", text.lower()) if word in BANNED]
        if words:
            yield f"{module} {len(words)}"


def find_participles() -> Iterator[str]:
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, Function) and not is_property(node) and is_participle(node.name):
                yield f"{module} {node.name}"


def is_property(node: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def is_participle(name: str) -> bool:
    return PARTICIPLE.fullmatch(name) is not None and name.lstrip("_") not in NOT_PARTICIPLES


def find_gerunds() -> Iterator[str]:
    for module in trees():
        stem = Path(module).stem
        if stem.endswith("ing") and stem not in NOT_GERUNDS:
            yield module


def find_repeated_classes() -> Iterator[str]:
    classes = Counter(
        node.name for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    yield from (name for name, count in sorted(classes.items()) if count > 1)


RULES = {
    "old name": find_old_names,
    "old words in docstrings": find_old_docstrings,
    "participle": find_participles,
    "gerund": find_gerunds,
    "repeated class": find_repeated_classes,
}


def find_all() -> Counter[str]:
    return Counter(f"{rule}: {place}" for rule, find in RULES.items() for place in find())


def read_known() -> Counter[str]:
    return Counter(KNOWN.read_text().splitlines())


def test_known_words_are_exactly_those_that_are_left() -> None:
    """A new one is to be renamed; for one that is gone run `python -m tests.test_words`."""
    found, known = find_all(), read_known()
    assert sorted((found - known).elements()) == [], "new"
    assert sorted((known - found).elements()) == [], "gone: run python -m tests.test_words"


def test_no_module_is_named_by_a_gerund() -> None:
    assert list(find_gerunds()) == []


def test_names_are_divided_into_words() -> None:
    assert words_of("_keep_told") == {"keep", "told"}
    assert words_of("OvertakenError") == {"overtaken", "error"}
    assert is_participle("_encoded")
    assert not is_participle("feed")


def main() -> None:
    found = find_all()
    if KNOWN.exists() and sum(found.values()) > read_known().total():
        sys.exit("more than before: rename the new ones")
    KNOWN.write_text("".join(f"{line}\n" for line in sorted(found.elements())))


if __name__ == "__main__":
    main()
