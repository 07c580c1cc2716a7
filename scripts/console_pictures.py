"""Write pictures of every page of the console, to look at them: python -m scripts.console_pictures FOLDER.

Each page in four screens, and the dialogs of acts. --lake empty: a new lake. --lake long: long and hostile names.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import httpx
from playwright.sync_api import Browser, Page
from playwright.sync_api import TimeoutError as BrowserTimeout

from scripts.console_film import fill, open_browser
from scripts.demo_job.server import running_lake
from tests.console.dialogs import DIALOGS
from tests.console.pages import PAGES

_SETTLED_MS: Final = 400
_ACT_MS: Final = 10_000
_HOSTILE: Final = '<img src=x onerror="alert(1)">'
_WORD: Final = "extraordinarily_long_name_of_what_a_department_once_called_its_orders"
_LONG: Final = f"{_WORD}_{_WORD}"[:120]
_SHOWN: Final = {"name": "shown", "query": "SELECT region, count(*) AS n FROM orders GROUP BY region"}
_RIGHT_TO_LEFT: Final = "مبيعات\u202e.txt"


@dataclass(frozen=True, slots=True)
class Screen:
    """A size of a window, and the colours of its system."""

    name: str
    width: int
    height: int
    colours: Literal["light", "dark"]


SCREENS: Final = (
    Screen("1440", 1440, 900, "light"),
    Screen("1440-dark", 1440, 900, "dark"),
    Screen("1280", 1280, 800, "light"),
    Screen("360", 360, 740, "light"),
    Screen("360-dark", 360, 740, "dark"),
)


def fill_long(uri: str) -> None:
    """Fill a lake with names that are long, look like markup, or turn the direction of text."""
    with httpx.Client(base_url=uri, timeout=60) as http:

        def ask(path: str, body: object) -> None:
            http.post(path, json=body).raise_for_status()

        names = (_HOSTILE, _LONG, _RIGHT_TO_LEFT, "a.b/c~d")
        fields = [
            {"id": number, "name": name, "type": "string", "required": False, "doc": f"{name} {_LONG}"}
            for number, name in enumerate(names, 1)
        ]
        for levels in (["sales"], ["sales", _LONG], [_HOSTILE]):
            ask("/v1/namespaces", {"namespace": levels, "properties": {"comment": f"{_HOSTILE} {_LONG}"}})
        for name in ("orders", *names):
            schema = {"type": "struct", "schema-id": 0, "fields": fields}
            properties = {"comment": f"{_LONG} {_HOSTILE}", f"{_WORD}.{_WORD}": _LONG}
            ask("/v1/namespaces/sales/tables", {"name": name, "schema": schema, "properties": properties})
        ask("/v1/namespaces/sales/tables/orders/rows", [dict.fromkeys(names, _LONG) for _ in range(20)])
        ask("/v1/namespaces/sales/tables/orders/rows/flush", None)
        for name in ("ann", _WORD):
            principal = {"name": name, "kind": "service", "description": f"{_HOSTILE} {_LONG}"}
            ask("/management/v1/principals", principal)


@contextmanager
def served_lake(kind: str) -> Iterator[str]:
    """Serve a lake with the contents of its kind, until it is left."""
    with (
        tempfile.TemporaryDirectory(prefix="duckicelake-pictures-") as name,
        running_lake(Path(name) / "lake", Path(name) / "log") as lake,
    ):
        if kind != "empty":
            (fill_long if kind == "long" else fill)(lake.uri)
        if kind == "filled":
            views = f"{lake.uri}/v1/namespaces/sales/materialized-views"
            httpx.post(views, json=_SHOWN, timeout=60).raise_for_status()
        yield lake.uri


def write_pictures(browser: Browser, uri: str, folder: Path, screen: Screen, wanted: str) -> None:
    """Write a picture of each page and dialog in a screen, and print what pages complain of and what is too wide."""
    size = {"width": screen.width, "height": screen.height}
    context = browser.new_context(viewport={**size}, color_scheme=screen.colours, reduced_motion="reduce")
    context.set_default_timeout(_ACT_MS)
    page = context.new_page()
    page.on("console", lambda message: print("complaint:", message.text) if message.type == "error" else None)
    shown = {name: (path, None) for name, path in PAGES.items()} | DIALOGS
    for name, (path, act) in shown.items():
        if wanted not in name:
            continue
        page.goto(f"{uri}/ui/{path}")
        _settle(page)
        try:
            if act is not None:
                act(page)
                _settle(page)
        except BrowserTimeout as error:
            print(f"{name}, {screen.name}: {str(error).splitlines()[0]}")
        over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if over > 0:
            print(f"{name}, {screen.name}: {over} pixels too wide")
        page.screenshot(path=folder / f"{name.replace(' ', '-')}-{screen.name}.png")
    context.close()


def _settle(page: Page) -> None:
    """Wait until a page asks for nothing, or a while: one that follows changes may always ask."""
    with suppress(BrowserTimeout):
        page.wait_for_load_state("networkidle")
    page.wait_for_timeout(_SETTLED_MS)


def main() -> None:
    """Serve a lake of the kind that is asked for, and write its pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lake", choices=("filled", "empty", "long"), default="filled")
    parser.add_argument("--only", default="", help="a part of the names of pages")
    parser.add_argument("--screen", default="", help="a part of the names of screens")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    with open_browser() as browser, served_lake(asked.lake) as uri:
        for screen in SCREENS:
            if asked.screen in screen.name:
                write_pictures(browser, uri, asked.folder, screen, asked.only)


if __name__ == "__main__":
    main()
