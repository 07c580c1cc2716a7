"""Pages of the site that aren't in docs/: the README as its first page, MISSING.md, examples, and where links lead."""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[2]
MERMAID: Final = ROOT / "build/site-venv/package/dist/mermaid.min.js"
ROUTES: Final = "reference/routes.json"
OUTSIDE: Final = {"README.md": "index.md", "MISSING.md": "missing.md", "CHANGELOG.md": "changelog.md"} | {
    path.relative_to(ROOT).as_posix(): f"examples/{'index' if path.parent.name == 'examples' else path.parent.name}.md"
    for path in (ROOT / "examples").rglob("README.md")
}
"""Pages at the repository's top and of the examples, and what they are called in the site."""
_LINK: Final = re.compile(r"(!?\[[^\]]*\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what lies outside docs/: pages, the description of the routes, the script that draws pictures."""
    files.append(File.generated(config, "mermaid.js", content=MERMAID.read_text()))
    files.append(File.generated(config, ROUTES, content=(ROOT / "openapi/duckicelake.json").read_text()))
    for source, name in OUTSIDE.items():
        if (ROOT / source).is_file():
            files.append(File.generated(config, name, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Lead links of the repository to the site's pages."""
    name = page.file.src_uri
    written = next((source for source, made in OUTSIDE.items() if made == name), f"docs/{name}")

    def lead(found: re.Match[str]) -> str:
        target = normpath(PurePosixPath(written).parent.joinpath(found[2]).as_posix())
        made = OUTSIDE.get(target, target.removeprefix("docs/"))
        return f"{found[1]}{relpath(made, PurePosixPath(name).parent.as_posix() or '.')}{found[3]}"

    return _LINK.sub(lead, markdown).replace("<!-- routes -->", f'<swagger-ui src="{ROUTES.rpartition("/")[2]}"/>')
