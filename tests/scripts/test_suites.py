"""`scripts/test` names its suites, and the page for developers says what each holds."""

import re
import subprocess

from tests.support.documents import PAGES, ROOT


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / "test", *arguments], capture_output=True, text=True, check=False)


def suites() -> list[str]:
    """The suites that `--help` lists."""
    shown = run("--help")
    assert shown.returncode == 0
    return re.findall(r"^  (\w+)  ", shown.stdout, re.MULTILINE)


def test_help_lists_each_suite_with_its_last_run() -> None:
    shown = run("--help").stdout
    for suite in ("default", *suites()):
        assert re.search(rf"^last run: {suite}: ", shown, re.MULTILINE)


def test_unknown_suite_is_refused_with_the_names_of_all() -> None:
    refused = run("engine")
    assert refused.returncode == 2
    assert refused.stderr == f"test: no suite 'engine': scripts/test [{'|'.join(suites())}]\n"


def test_documents_say_what_each_suite_holds() -> None:
    assert re.findall(r"^\| `scripts/test (\w+)` \|", PAGES["docs/development.md"], re.MULTILINE) == suites()
