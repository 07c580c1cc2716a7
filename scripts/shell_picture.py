"""Write docs/shell.svg: a session of `duckicelake shell` on a lake that is really served.

python -m scripts.shell_picture     after a change of what the shell prints; tests/shell/test_picture.py compares
"""

import io
import os
import re
import tempfile
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

import duckicelake
from duckicelake.client.writer import Writer
from duckicelake.rest.connection import Connection
from scripts.demo_job.server import own_environment, running_lake
from scripts.terminal import Terminal, start_shell

PICTURE = Path(__file__).parents[1] / "docs" / "shell.svg"
COLUMNS, LINES = 92, 36
_TYPED = (
    ("\\dt+ shop", "customers"),
    ("\\d shop.orders", "Net, in euros."),
    ("SELECT region, count(*) AS orders, sum(amount) AS amount", ">"),
    ("FROM shop.orders GROUP BY ALL ORDER BY amount DESC;", "rows)"),
    ("\\snapshots shop.order", "did you mean"),
)
_ORDERS = [("north", "30.50"), ("south", "12.00"), ("north", "7.25"), ("west", "99.90")]


def record() -> Terminal:
    """Run the session; return the terminal with its last screen."""
    with tempfile.TemporaryDirectory(prefix="duckicelake-picture-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        profiles = folder / "profiles.toml"
        with running_lake(folder / "lake", folder / "log") as lake:
            _fill(lake.uri)
            profiles.write_text(f'[lake]\nuri = "{lake.uri}"\n')
            files = {"DUCKICELAKE_CLIENT_PROFILES": str(profiles), "XDG_STATE_HOME": name}
            environment = {name: value for name, value in own_environment(files).items() if name != "NO_COLOR"}
            with start_shell("lake", environment=environment, width=COLUMNS, height=LINES) as terminal:
                for line, expected in _TYPED:
                    terminal.run(line, expected)
                return terminal


def build_picture(terminal: Terminal) -> str:
    """Build the SVG of a screen, without fonts from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for number in range(LINES):
        line = Text()
        row = terminal.screen.buffer[number]
        for (color, is_bold), run in groupby(
            (row[at] for at in range(COLUMNS)), lambda letter: (letter.fg, letter.bold)
        ):
            name = f"#{color}" if re.fullmatch("[0-9a-f]{6}", color) else "default"
            line.append("".join(letter.data for letter in run), f"bold {name}" if is_bold else name)
        line.rstrip()
        console.print(line)
    drawn = console.export_svg(title="duckicelake shell", theme=DEFAULT_TERMINAL_THEME, unique_id="shell")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


def mask(picture: str) -> str:
    """Replace what differs from one session to the next: times, and sizes of files."""
    return re.sub(r"\d{4}-\d\d-\d\d(?:&#160;| )[\d:]+|[\d.]+(?:&#160;| )(?:bytes|kB)", "…", picture)


def _fill(uri: str) -> None:
    with duckicelake.connect(uri) as lake:
        lake.create_namespace("shop")
        columns = "id long not null, region string, amount decimal(9, 2) comment 'Net, in euros.'"
        lake.create_table("shop.orders", columns, partition_by="region")
        lake.create_table("shop.customers", "id long not null, name string")
    with Writer("shop.orders", Connection(uri)) as writer:
        for number, (region, amount) in enumerate(_ORDERS):
            writer.append({"id": number, "region": region, "amount": amount})


if __name__ == "__main__":
    os.environ.pop("NO_COLOR", None)
    PICTURE.write_text(build_picture(record()))
