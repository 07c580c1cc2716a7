"""Pages with a server to try do what they say: each is run from its first block to its last, in an empty folder."""

import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from duckicelake.lake.ducklake.database import build_attach_source
from tests.support.documents import PAGES, snippets
from tests.support.guides import run_guide

FOLDERS = ("docs/tutorials/", "docs/how-to/")
GUIDES = [
    *sorted(page for page in PAGES if page.startswith(FOLDERS) and snippets(page)),
    "docs/security.md",
    "docs/warehouses.md",
]


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder with a short name: the sockets of Postgres lie in it."""
    with tempfile.TemporaryDirectory(prefix="guide-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.commands
@pytest.mark.parametrize("page", GUIDES)
def test_guide_does_what_it_says(page: str, folder: Path, empty_database_url: str) -> None:
    places = {
        "postgresql://localhost/mylake": shlex.quote(empty_database_url),
        "ducklake:postgres:dbname=mylake host=localhost": build_attach_source(empty_database_url),
    }
    run_guide(page, folder, Path(sys.executable).parent, places)
