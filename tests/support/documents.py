"""The pages at the top, in docs/ and in examples/, as tests read them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = "README.md"
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for folder, pattern in (("", "*.md"), ("docs", "**/*.md"), ("examples", "**/*.md"))
    for path in sorted((ROOT / folder).glob(pattern))
}
"""Texts by their paths in the repository."""

_SNIPPET = re.compile(r"^<!-- (?:run|file): ([\w.]+) -->\n```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A block of code below `<!-- run: name -->`: a test runs it as it stands there, but for addresses.

    Below `<!-- file: name -->` it is a file that a later block runs.
    """

    page: str
    name: str
    language: str
    code: str

    @property
    def promised(self) -> list[str]:
        """What it prints, as its comments (`# -> …`) say."""
        return re.findall(r"# -> (.*)", self.code)

    def run_python(self, places: dict[str, str]) -> None:
        """places: what the code names, and what a test has in its place."""
        exec(compile(self.placed(places), f"{self.page}: {self.name}", "exec"), {})

    def placed(self, places: dict[str, str]) -> str:
        code = self.code
        for written, meant in places.items():
            code = code.replace(written, meant)
        return code


def snippets(page: str) -> list[Snippet]:
    return [Snippet(page, *found) for found in _SNIPPET.findall(PAGES[page])]
