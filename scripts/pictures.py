"""Write the pictures of terminals in docs/: sessions on a lake that is really served.

python -m scripts.pictures             after a change of what they print; tests/scripts/test_pictures.py compares
python -m scripts.pictures commands    one of them
"""

import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

import duckicelake
from duckicelake.client.writer import Writer
from duckicelake.rest.connection import Connection
from scripts.demo_job.server import own_environment, running_lake
from scripts.terminal import Terminal, start_program

DOCS: Final = Path(__file__).parents[1] / "docs"
COLUMNS: Final = 92
_ORDERS: Final = [("north", "30.50"), ("south", "12.00"), ("north", "7.25"), ("west", "99.90")]
_BASH: Final = ("bash", "--norc", "--noprofile", "-i")
_PROMPT: Final = "$"


@dataclass(frozen=True, slots=True)
class Session:
    """What is typed, and what must be on the screen after each line. lines: of the screen."""

    title: str
    command: Sequence[str]
    prompt: str
    lines: int
    typed: Sequence[tuple[str, str]]


SESSIONS: Final = {
    "shell": Session(
        "duckicelake shell",
        ("duckicelake", "shell", "lake"),
        ">",
        36,
        (
            ("\\dt+ shop", "customers"),
            ("\\d shop.orders", "Net, in euros."),
            ("SELECT region, count(*) AS orders, sum(amount) AS amount", ">"),
            ("FROM shop.orders GROUP BY ALL ORDER BY amount DESC;", "rows)"),
            ("\\snapshots shop.order", "did you mean"),
        ),
    ),
    "commands": Session(
        "duckicelake",
        _BASH,
        _PROMPT,
        28,
        (
            ("duckicelake ls shop --long", "customers"),
            ("duckicelake show shop.orders", "Net, in euros."),
            ("duckicelake refs create shop.orders audit", "created the branch"),
            ("duckicelake show shop.order", "did you mean"),
        ),
    ),
    "queries": Session(
        "queries over HTTP",
        _BASH,
        _PROMPT,
        31,
        (
            (
                "duckicelake sql 'SELECT region, sum(amount) AS s FROM shop.orders GROUP BY ALL ORDER BY 2'",
                "99.90",
            ),
            (
                "curl -s $LAKE/sql/v1/query -H 'Accept: text/csv' --json '{\"sql\": \"FROM shop.orders LIMIT 2\"}'",
                "12.00",
            ),
            ("duckicelake sql \"SELECT id FROM shop.orders WHERE region = 'west'\" --explain", "files"),
            ("duckicelake sql \"FROM 'orders.parquet'\"", "no file is read"),
        ),
    ),
    "client": Session(
        "python",
        (sys.executable, "-q", "-i", "-c", "import duckicelake"),
        ">>>",
        15,
        (
            ('lake = duckicelake.connect("lake")', ">>>"),
            ("[one.name for one in lake.list('shop')]", "shop.orders"),
            ("orders = lake.table('shop.orders')", ">>>"),
            ("orders.append([{'id': 4, 'region': 'east', 'amount': '5.00'}]).rows", "1"),
            ("lake.sql('SELECT region, sum(amount) AS s FROM shop.orders GROUP BY 1 ORDER BY 1').rows()", "east"),
            ("[(column.name, column.type) for column in orders.load().columns]", "decimal(9, 2)"),
        ),
    ),
    "mcp": Session(
        "an agent, by duckicelake mcp",
        _BASH,
        _PROMPT,
        25,
        (("python agent.py", "end of the session"),),
    ),
}
_AGENT: Final = """
import asyncio, json, os
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

CALLS = [
    ("search", {"text": "orders"}),
    ("describe", {"name": "shop.orders"}),
    ("run_query", {"sql": "SELECT region, sum(amount) AS amount FROM shop.orders GROUP BY ALL ORDER BY 2"}),
    ("run_query", {"sql": "DROP TABLE shop.orders"}),
]

async def main():
    server = StdioServerParameters(command="duckicelake", args=["mcp", "--profile", "lake"], env=dict(os.environ))
    with open(os.devnull, "w") as quiet:
        async with stdio_client(server, errlog=quiet) as streams, ClientSession(*streams) as session:
            await session.initialize()
            for name, arguments in CALLS:
                print("agent:", name, json.dumps(arguments))
                result = await session.call_tool(name, arguments)
                text = json.dumps(result.structuredContent)
                print("lake: ", text[:240] + "…" * (len(text) > 240) + "\\n")
    print("end of the session")

asyncio.run(main())
"""


def record(session: Session) -> Terminal:
    """Run a session; return the terminal with its last screen."""
    with tempfile.TemporaryDirectory(prefix="duckicelake-picture-") as name, _serve(Path(name)) as environment:
        place = Path.cwd()
        os.chdir(name)
        try:
            with start_program(
                session.command, environment=environment, width=COLUMNS, height=session.lines, prompt=session.prompt
            ) as terminal:
                for line, expected in session.typed:
                    terminal.run(line, expected)
                return terminal
        finally:
            os.chdir(place)


@contextmanager
def _serve(folder: Path) -> Iterator[dict[str, str]]:
    """Serve a lake with two tables; the environment has a profile for it, which is the default."""
    folder.chmod(0o755)
    (folder / "agent.py").write_text(_AGENT)
    profiles = folder / "profiles.toml"
    with running_lake(folder / "lake", folder / "log") as lake:
        _fill(lake.uri)
        profiles.write_text(f'default = "lake"\n[lake]\nuri = "{lake.uri}"\n')
        given = {
            "DUCKICELAKE_CLIENT_PROFILES": str(profiles),
            "LAKE": lake.uri,
            "LANG": "C.UTF-8",
            "PAGER": "cat",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PS1": "$ ",
            "XDG_STATE_HOME": str(folder),
        }
        yield {name: value for name, value in own_environment(given).items() if name != "NO_COLOR"}


def build_picture(session: Session, terminal: Terminal) -> str:
    """Build the SVG of a screen, without fonts from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for number in range(session.lines):
        line = Text()
        row = terminal.screen.buffer[number]
        for (color, is_bold), run in groupby(
            (row[at] for at in range(COLUMNS)), lambda letter: (letter.fg, letter.bold)
        ):
            name = f"#{color}" if re.fullmatch("[0-9a-f]{6}", color) else "default"
            line.append("".join(letter.data for letter in run), f"bold {name}" if is_bold else name)
        line.rstrip()
        console.print(line)
    drawn = console.export_svg(title=session.title, theme=DEFAULT_TERMINAL_THEME, unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


def mask(picture: str) -> str:
    """Replace what differs from one session to the next: times, sizes of files, ids, folders."""
    times = r"\d{4}-\d\d-\d\d(?:&#160;|[ T])[\d:.+]+|[\d.]+(?:&#160;| )(?:bytes|kB)|\d{15,}"
    return re.sub(rf"{times}|[0-9a-f-]{{36}}|file:[^<]*", "…", picture)


def _fill(uri: str) -> None:
    with duckicelake.connect(uri) as lake:
        lake.create_namespace("shop")
        columns = "id long not null, region string, amount decimal(9, 2) comment 'Net, in euros.'"
        lake.create_table("shop.orders", columns, partition_by="region")
        lake.create_table("shop.customers", "id long not null, name string")
    with Writer("shop.orders", Connection(uri)) as writer:
        for number, (region, amount) in enumerate(_ORDERS):
            writer.append({"id": number, "region": region, "amount": amount})


def main() -> None:
    """Write the pictures that are named, or all."""
    os.environ.pop("NO_COLOR", None)
    for name in sys.argv[1:] or SESSIONS:
        (DOCS / f"{name}.svg").write_text(build_picture(SESSIONS[name], record(SESSIONS[name])))


if __name__ == "__main__":
    main()
