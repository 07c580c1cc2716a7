"""Words of the package (docs/glossary.md): functions are verbs, modules and classes nouns, exceptions end in Error.

`known_docstrings.txt` may list functions whose docstring begins with no verb. It only shrinks, and is empty:

    python -m tests.test_words     writes what is left; it refuses to write a longer list
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "duckicelake"
KNOWN = Path(__file__).with_name("known_docstrings.txt")

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
COUNTED = re.compile(
    r" (?:bad |more )?(rows|files|tables|views|jobs|tasks|changes|columns|entries|snapshots|retries|bytes)\b"
    r"(?!/| of a partition)"
)
"""What follows a number in what commands print."""
NOT_PARTICIPLES = frozenset({"embed", "feed", "need", "seed", "exceed", "proceed", "succeed", "shed", "speed"})
NOT_GERUNDS = frozenset({"string", "settings", "ping", "name_mapping"})
"""Nouns; a name mapping is Iceberg's own word."""

VERBS = frozenset(
    """
    abort act add adopt advance advise allocate allow answer append apply ask assign attach be become begin bind bring
    build call cancel cast catch change check choose claim clamp classify clear clone close collect comment commit
    compact compare compile complete compress compute concatenate configure connect convert copy count cover create
    cut decide declare decode define delay delete deliver describe detect digest disable discard divide do drop edit
    encode end escape estimate evaluate examine exchange exclude exit expand expire explain export extend fail fetch
    fill filter find finish flush fold follow forget format get give go group guess hand handle hash have highlight
    hold ignore import infer ingest insert interrupt issue iterate join judge keep learn leave let lift limit list
    listen load locate lock log look lower make map mark mask match materialize measure merge migrate move name narrow
    negate note number observe open pack pair parse pause pin place plan post predict prepare print probe prune
    publish put queue quote raise reach read rebuild receive record redirect refuse register release remember remove
    rename render renew repeat replace replay report reset resolve restore return revoke rewrite roll round run save
    say scale select send serve set settle shorten show shrink sign signal skip sort spell split start stop store
    strip sum summarize sync take test transform translate trim truncate trust try turn undo unpack use wait wake walk
    watch wrap write yield
    """.split()  # noqa: SIM905 - a list would take a line for each
)
"""Verbs that docstrings begin with; add one that is missing."""
NO_ERRORS = ("Error", "Exception")

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


def find_old_test_names() -> Iterator[str]:
    """Tests by their files; `tests/` is read as text, which is faster than as trees."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE):
            if words_of(name) & BANNED:
                yield f"{path.relative_to(TESTS)} {name}"


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


def find_misnamed_errors() -> Iterator[str]:
    """Exceptions by their bases, also those that are classes of the package."""
    classes = {
        node.name: (module, [ast.unparse(base).rpartition(".")[2] for base in node.bases])
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }

    def is_error(name: str) -> bool:
        return name.endswith(NO_ERRORS) or (name in classes and any(map(is_error, classes[name][1])))

    yield from (
        f"{module} {name}" for name, (module, _) in classes.items() if is_error(name) and not name.endswith("Error")
    )


def find_each() -> Iterator[str]:
    """Variables called `each` instead of by the element's noun."""
    yield from (f"{module} each" for module, tree in trees().items() for name in names_in(tree) if name == "each")


def find_docstrings_without_verb() -> Iterator[str]:
    """Functions whose docstring begins with no verb; a patch's docstring says what PyIceberg lacks."""
    for module, tree in trees().items():
        for node in ast.walk(tree) if not module.startswith("pyiceberg_v3/") else ():
            if isinstance(node, Function) and not node.name.startswith("__") and not is_property(node):
                docstring = ast.get_docstring(node) or ""
                if docstring and re.split(r"\W", docstring, maxsplit=1)[0].lower() not in VERBS:
                    yield f"{module} {node.name}"


def find_counts_without_singular() -> Iterator[str]:
    """Counts that commands or errors print as plurals, whatever the number: `format_count` says 1 row."""
    for module, tree in trees().items():
        is_command = module.startswith("cli/") or module.endswith("/commands.py")
        raised = {id(node) for one in ast.walk(tree) if isinstance(one, ast.Raise) for node in ast.walk(one)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                is_any = is_command and id(node) not in raised
                nouns = [noun for noun in counted_nouns(node) if is_any or noun in LAKE_NOUNS]
                yield from (f"{module}:{node.lineno} {noun}" for noun in nouns)


LAKE_NOUNS = frozenset({"rows", "tables", "views", "namespaces", "snapshots"})
"""What is counted in messages of every module."""


def counted_nouns(text: ast.JoinedStr) -> Iterator[str]:
    for value, following in pairwise(text.values):
        if isinstance(value, ast.FormattedValue) and isinstance(following, ast.Constant):
            found = COUNTED.match(str(following.value))
            is_limit = isinstance(value.value, ast.Name) and value.value.id.isupper()
            if found is not None and not is_limit:
                yield found[1]


RULES = {
    "count without a singular": find_counts_without_singular,
    "old name": find_old_names,
    "old name of a test": find_old_test_names,
    "old words in docstrings": find_old_docstrings,
    "participle": find_participles,
    "gerund": find_gerunds,
    "repeated class": find_repeated_classes,
    "exception without Error": find_misnamed_errors,
    "each": find_each,
}


@pytest.mark.parametrize("rule", RULES)
def test_names_and_docstrings_keep_the_rules(rule: str) -> None:
    assert list(RULES[rule]()) == []


def test_known_docstrings_are_exactly_those_that_begin_with_no_verb() -> None:
    """Begin a new one with a verb; for one that is gone run `python -m tests.test_words`."""
    found, known = Counter(find_docstrings_without_verb()), read_known()
    assert sorted((found - known).elements()) == [], "new"
    assert sorted((known - found).elements()) == [], "gone: run python -m tests.test_words"


def read_known() -> Counter[str]:
    return Counter(KNOWN.read_text().splitlines())


def test_names_are_divided_into_words() -> None:
    assert words_of("_keep_told") == {"keep", "told"}
    assert words_of("OvertakenError") == {"overtaken", "error"}
    assert is_participle("_encoded")
    assert not is_participle("feed")


def main() -> None:
    found = Counter(find_docstrings_without_verb())
    if KNOWN.exists() and found.total() > read_known().total():
        sys.exit("more than before: begin the new ones with a verb")
    KNOWN.write_text("".join(f"{line}\n" for line in sorted(found.elements())))


if __name__ == "__main__":
    main()
