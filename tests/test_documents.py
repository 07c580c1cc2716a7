"""The documentation names every setting with its default and every command, and its links lead somewhere."""

import re
from collections import Counter

import pytest
import typer

from duckicelake.cli.main import app
from duckicelake.settings.model import PREFIX, Settings
from tests.support.documents import PAGES, README, ROOT, snippets

SETTINGS = dict(re.findall(rf"^\| `({PREFIX}\w+)` \| (.+?) \|", PAGES["docs/settings.md"], re.MULTILINE))
COMMANDS = typer.main.get_command(app).list_commands(None)
RUN_BY = {
    README: "tests/engines/test_snippets.py",
    "docs/clients.md": "tests/engines/test_snippets.py",
    "docs/delta.md": "tests/delta/duckdb/test_read_delta.py",
    "docs/lineage.md": "tests/lineage/duckdb/test_snippet.py",
    "docs/small-writes.md": "tests/engines/test_snippets.py",
}
"""Which test runs the snippets of a page."""

FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]*)\)")


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
        assert name in PAGES
        assert not anchor or anchor in anchors(name), f"{name}#{anchor}"


def test_readme_links_to_every_page() -> None:
    assert {name for name, _ in linked(README)} >= set(PAGES) - {README}


def test_every_page_begins_with_whom_it_is_for() -> None:
    for page, text in PAGES.items():
        if page.startswith("docs/"):
            assert re.match(r"# [^\n]+\n\nFor who", text), page


def test_every_folder_of_the_package_has_a_row() -> None:
    rows = re.findall(r"^\| (`\w+/`.*?) \|", PAGES["docs/development.md"], re.MULTILINE)
    named = re.findall(r"`(\w+)/`", " ".join(rows))
    assert sorted(named) == sorted(path.parent.name for path in (ROOT / "duckicelake").glob("*/__init__.py"))


def test_every_snippet_is_run_by_a_test() -> None:
    assert {page for page, text in PAGES.items() if "<!-- run" in text} == set(RUN_BY)
    for page, module in RUN_BY.items():
        assert len(snippets(page)) == PAGES[page].count("<!--")
        assert f'snippets("{page}")' in (ROOT / module).read_text()


def test_every_setting_has_a_row_and_every_row_is_a_setting() -> None:
    assert set(SETTINGS) == {PREFIX + name.upper() for name in Settings.model_fields}


def test_numbers_in_rows_are_the_defaults() -> None:
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert SETTINGS[PREFIX + name.upper()] == f"`{field.default}`", name


def test_every_command_is_named() -> None:
    assert {name for name in COMMANDS if f"`duckicelake {name}`" not in PAGES[README]} == set()
