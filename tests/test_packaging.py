"""The package says one version, its licence and its Pythons everywhere, and the policies name the same."""

import json
import re
import tomllib
from importlib.metadata import metadata

import pytest
from typer.testing import CliRunner

from duckicelake import __version__
from duckicelake.cli.main import app
from tests.support.documents import PAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CHANGELOG = PAGES["CHANGELOG.md"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def test_every_place_says_the_version_of_the_package() -> None:
    assert CliRunner().invoke(app, ["--version"]).output.startswith(f"duckicelake {__version__} (")
    assert json.loads((ROOT / "openapi" / "duckicelake.json").read_text())["info"]["version"] == __version__
    assert re.search(
        rf"^## \[{re.escape(__version__)}\]|first release will be {re.escape(__version__)}\.", CHANGELOG, re.MULTILINE
    )


def test_installation_is_of_this_version() -> None:
    """An older one is of before the version changed: `scripts/setup` installs this one."""
    assert metadata("duckicelake")["Version"] == __version__
    assert "version" not in PROJECT


def test_classifiers_and_policy_name_the_same_pythons() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert named == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert f"| Python | {', '.join(PYTHONS)};" in PAGES["CONTRIBUTING.md"]


def test_licence_is_the_whole_text_of_the_one_that_the_metadata_name() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["license"] == "Apache-2.0"
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("section", ["Unreleased", "Added"])
def test_changelog_has_the_sections_of_keep_a_changelog(section: str) -> None:
    assert re.search(rf"^##+ \[?{section}\]?$", CHANGELOG, re.MULTILINE)
    kinds = set(re.findall(r"^### (\w+)", CHANGELOG, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
