"""The documentation names every setting with its default and every command, and all that it names exists."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from duckicelake.cli.main import app
from duckicelake.settings.forms import PREFIX
from duckicelake.settings.model import Settings
from tests.support.documents import PAGES, README, ROOT, snippets

SETTINGS = dict(re.findall(rf"^\| `({PREFIX}\w+)` \| (.+?) \|", PAGES["docs/settings.md"], re.MULTILINE))
COMMANDS = typer.main.get_command(app).list_commands(None)
RUN_BY = {
    README: "tests/engines/test_snippets.py",
    "docs/clients.md": "tests/engines/test_snippets.py",
    "docs/client.md": "tests/client/test_lake.py",
    "docs/delta.md": "tests/delta/duckdb/test_read_delta.py",
    "docs/governance.md": "tests/cli/test_governance.py",
    **{page: "tests/examples/test_examples.py" for page in PAGES if page.startswith("examples/") and snippets(page)},
    **{page: "tests/scripts/test_guides.py" for page in PAGES if page.startswith(("docs/tutorials/", "docs/how-to/"))},
    "docs/security.md": "tests/scripts/test_guides.py",
    "docs/warehouses.md": "tests/scripts/test_guides.py",
    "docs/lineage.md": "tests/lineage/duckdb/test_snippet.py",
    "docs/scan-planning.md": "tests/engines/test_snippets.py",
    "docs/small-writes.md": "tests/engines/test_snippets.py",
}
"""Which test runs the snippets of a page."""

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]*)\)")

PACKAGE = ROOT / "duckicelake"
DEVELOPMENT = "docs/development.md"
STEP = re.compile(r"^\| \d+ \| `([\w/]+\.py)` \| `(\w+)` \|", re.MULTILINE)
EXAMPLE = re.compile(r"^As `([\w.-]+)`(.*?)(?=^#)", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?<![\w/.<*-])(?:[\w.-]+/)+[\w-]+\.(?:py|sql|md|json)(?!\w)")
DOTTED = re.compile(r"(?<![\w/.-])duckicelake(?:\.\w+)+")


def prose(page: str) -> str:
    return FENCED.sub("", PAGES[page])


def anchors(page: str) -> set[str]:
    """What GitHub makes of headings: lower case, no punctuation, hyphens for spaces, numbers behind repeated ones."""
    seen: Counter[str] = Counter()
    made = set()
    for heading in re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        made.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return made


def linked(page: str) -> set[tuple[str, str]]:
    """(Page, anchor or "") of each link that stays in the repository. A page that isn't there is as it was written."""
    found = set()
    for target in LINK.findall(prose(page)):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            name = (ROOT / page).parent.joinpath(path).resolve().relative_to(ROOT).as_posix() if path else page
            found.add((name, anchor))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_pages_and_headings(page: str) -> None:
    """Pages are compared by name, so that case counts on every machine."""
    for name, anchor in linked(page):
        assert name in PAGES or (name.endswith((".svg", ".png", ".webp", "LICENSE")) and (ROOT / name).is_file())
        assert not anchor or anchor in anchors(name), f"{name}#{anchor}"


def test_navigation_of_the_site_has_every_page() -> None:
    named = set(re.findall(r"[:-] ([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {page for page in PAGES if page.startswith("docs/")}
    assert {f"docs/{name}" for name in named if f"docs/{name}" in PAGES} == pages
    examples = {page.removesuffix("/README.md") for page in PAGES if page.startswith("examples/")}
    assert {"index.md", "missing.md", *(f"{page}{'/index' * (page == 'examples')}.md" for page in examples)} <= named


def test_every_page_begins_with_whom_it_is_for() -> None:
    for page, text in PAGES.items():
        if page.startswith("docs/"):
            assert re.match(r"# [^\n]+\n\nFor who", text), page


def test_every_folder_of_the_package_has_a_row() -> None:
    rows = re.findall(r"^\| (`\w+/`.*?) \|", PAGES["docs/development.md"], re.MULTILINE)
    named = re.findall(r"`(\w+)/`", " ".join(rows))
    assert sorted(named) == sorted(path.parent.name for path in (ROOT / "duckicelake").glob("*/__init__.py"))


def test_every_snippet_is_run_by_a_test() -> None:
    assert {page for page, text in PAGES.items() if "<!-- run" in text} == {page for page in RUN_BY if snippets(page)}
    for page, module in RUN_BY.items():
        assert len(snippets(page)) == PAGES[page].count("<!--")
        text = (ROOT / module).read_text()
        assert f'"{page}"' in text or (page.count("/") > 1 and f'"{page.rpartition("/")[0]}/"' in text)


def test_errors_of_the_page_of_errors_are_raised() -> None:
    texts = re.findall(r"^\| `(.*?)` \|", PAGES["docs/how-to/errors.md"], re.MULTILINE)
    sources = [path.read_text() for path in PACKAGE.rglob("*.py")]
    assert len(texts) > 15
    assert [text for text in texts if not any(text in source for source in sources)] == []


def test_every_setting_has_a_row_and_every_row_is_a_setting() -> None:
    assert set(SETTINGS) == {PREFIX + name.upper() for name in Settings.model_fields}


def test_numbers_in_rows_are_the_defaults() -> None:
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert SETTINGS[PREFIX + name.upper()] == f"`{field.default}`", name


def test_every_command_is_named() -> None:
    assert {name for name in COMMANDS if f"`duckicelake {name}`" not in PAGES["docs/commands.md"]} == set()


def functions_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_steps_of_walks_are_functions_of_their_modules() -> None:
    steps = STEP.findall(PAGES[DEVELOPMENT])
    assert steps
    assert [step for step in steps if step[1] not in functions_of(PACKAGE / step[0])] == []


def test_files_of_examples_have_the_words_of_examples() -> None:
    examples = EXAMPLE.findall(PAGES[DEVELOPMENT])
    assert len(examples) == PAGES[DEVELOPMENT].count("\n### A ") - len(("load", "commit"))
    for word, text in examples:
        spelled = re.compile(word.replace("-", "[-_]"))
        files = [name for name in FILE.findall(text) if "NNNN" not in name]
        assert files
        assert [name for name in files if not spelled.search((ROOT / name).read_text())] == [], word


def files_of_a_scalar_type() -> set[str]:
    texts = (text for word, text in EXAMPLE.findall(PAGES[DEVELOPMENT]) if word == "timestamp_ns")
    return set(FILE.findall(next(texts)))


def modules_with(word: str) -> set[str]:
    modules = (path for path in PACKAGE.rglob("*.py") if re.search(rf"\b{word}\b", path.read_text()))
    return {path.relative_to(ROOT).as_posix() for path in modules}


def test_a_scalar_type_is_in_four_files_and_the_page_names_them() -> None:
    assert len(files_of_a_scalar_type()) == 4
    assert modules_with("timestamp_ns") == files_of_a_scalar_type()


def test_no_other_file_knows_a_scalar_type() -> None:
    """Types whose names mean nothing else, so that a word that is found is the type."""
    for name in ("timestamptz_ns", "timestamp_us", "timetz", "int8", "int16", "uint8", "uint16", "uint32", "uint64"):
        assert modules_with(name) <= files_of_a_scalar_type(), name


def missing_names(text: str) -> Iterator[str]:
    """Files of the repository and modules of the package that a text names, and that do not exist."""
    for name in FILE.findall(text):
        first = name.split("/")[0]
        if first == "..":
            continue  # a link
        homes = [home for home in (ROOT, PACKAGE) if (home / first).is_dir()]
        if homes and not any((home / name).exists() for home in homes):
            yield name
    for name in DOTTED.findall(text):
        if is_part(name) and not is_in_package(name):
            yield name


def is_part(name: str) -> bool:
    """Whether a dotted name begins with a part of the package; settings, properties and logs have other names."""
    path = PACKAGE / name.split(".")[1]
    return path.is_dir() or path.with_suffix(".py").exists()


def is_in_package(name: str) -> bool:
    """Whether a dotted name is a folder, a module, or stands in a module of that name."""
    path, rest = ROOT, name.split(".")
    while rest and (path / rest[0]).is_dir():
        path, rest = path / rest[0], rest[1:]
    module = path / f"{rest[0]}.py" if rest else path
    if not module.exists():
        module, names = path / "__init__.py", rest
    else:
        names = rest[1:]
    return not names or (module.exists() and re.search(rf"\b{names[0]}\b", module.read_text()) is not None)


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_pages_name_exist(page: str) -> None:
    assert list(missing_names(PAGES[page])) == []


def test_modules_that_the_package_names_exist() -> None:
    """Docstrings and comments included."""
    found = {path.relative_to(ROOT).as_posix(): set(missing_names(path.read_text())) for path in PACKAGE.rglob("*.py")}
    assert {module: names for module, names in found.items() if names} == {}
