"""docs/engines.md says what results.json says; its snippets are in the programs."""

import re

import pytest

from tests.engines.compatibility.abilities import ABILITIES, GROUPS, PROVEN
from tests.engines.compatibility.drivers import ENGINES
from tests.engines.compatibility.results import BEGIN, END, read_cells, read_results, render_tables
from tests.support.documents import PAGES, ROOT, snippets

PROGRAMS = {"go": "scripts/engines_job/go/main.go", "rust": "scripts/engines_job/rust/src/main.rs"}


def test_the_page_has_the_tables_of_the_results() -> None:
    assert f"{BEGIN}{render_tables()}{END}" in PAGES["docs/engines.md"], "python -m tests.engines.compatibility"


def test_every_cell_was_run_with_the_version_that_is_pinned() -> None:
    assert {engine.name: engine.version for engine in ENGINES} == {
        name: found["version"] for name, found in read_results().items()
    }
    missing = [
        f"{engine.name}: {name}" for engine in ENGINES for name in ABILITIES if name not in read_cells(engine.name)
    ]
    assert missing == []


def test_every_ability_is_in_a_table_once() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted([*ABILITIES, *PROVEN])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_snippet_is_a_part_of_its_program(name: str) -> None:
    [snippet] = [each for each in snippets("docs/clients.md") if each.name == name]
    assert strip(snippet.code) in strip((ROOT / PROGRAMS[name]).read_text())


def strip(code: str) -> str:
    return re.sub(r"\s+", "", code)
