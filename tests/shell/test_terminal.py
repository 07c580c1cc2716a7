"""The shell as a person sees it: a real process in a pseudo-terminal, its screen read by a terminal emulator."""

import re
import stat
from pathlib import Path

import pytest

import duckicelake
from duckicelake.shell.prompt import COLORS
from tests.client.conftest import LiveLake, live, shared_lake
from tests.shell.conftest import open_terminal

__all__ = ["live", "shared_lake"]
ESCAPE = "\x1b]0;owned\x07\x1b[2J"


@pytest.fixture
def uri(live: LiveLake) -> str:
    with duckicelake.connect(live.served.uri) as lake:
        if "zoo" not in set(lake.namespaces()):
            lake.create_namespace("zoo")
            lake.create_table("zoo.birds", "id long, a_long_name string")
    return live.served.uri


def test_a_session(uri: str, home: dict[str, str]) -> None:
    """Lines until the semicolon, completion, an error, Ctrl-C on the prompt, history, Ctrl-D."""
    with open_terminal(uri, settings=home) as terminal:
        terminal.run("SELECT 6 * 7", "SELECT 6 * 7\n")
        assert "│     42 │" in terminal.run("  AS answer;", "(1 row)")
        terminal.type("FROM zoo.b\t")
        terminal.wait("FROM zoo.birds")
        terminal.type(" SELECT a_l\t")
        terminal.wait("SELECT a_long_name")
        terminal.type(";\r")
        terminal.wait("(0 rows)")
        terminal.run("SELEC 1;", "duckicelake: ")
        terminal.type("not wanted\x03")
        terminal.run("SELECT 8 AS n;", "│ 8 │")
        assert terminal.leave() == 0
    history = Path(home["XDG_STATE_HOME"], "duckicelake", "history")
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "+SELECT 8 AS n;" in history.read_text()
    with open_terminal(uri, settings=home) as terminal:
        terminal.wait("Ctrl-D leaves.")
        terminal.run("\x1b[A", "│ 8 │")
        terminal.type("\\q\r")
        assert terminal.wait_for_end() == 0


@pytest.mark.commands
@pytest.mark.parametrize("is_local", [False, True], ids=["server", "duckdb"])
def test_ctrl_c_cancels_the_query_alone(uri: str, home: dict[str, str], tmp_path: Path, is_local: bool) -> None:
    with open_terminal(f"ducklake:{tmp_path / 'm.ducklake'}" if is_local else uri, settings=home) as terminal:
        terminal.wait("Ctrl-D leaves.")
        terminal.type("SELECT count(*) FROM range(100000000) a, range(100000) b;\r")
        terminal.pause(3)
        terminal.type("\x03")
        terminal.wait("interrupted")
        terminal.run("SELECT 5 AS n;", "│ 5 │")
        assert terminal.leave() == 0


@pytest.mark.commands
def test_nothing_of_the_lake_controls_the_terminal(uri: str, home: dict[str, str], tmp_path: Path) -> None:
    """Cells, headings and names with escape sequences, in each format."""
    query = f"SELECT chr(27) || ']0;owned' || chr(7) || chr(27) || '[2J' AS \"{ESCAPE}\", chr(155) || '31m' AS c1;"
    names = ("box", "markdown", "csv", "json", "ndjson")
    file = tmp_path / "q.sql"
    file.write_text(
        "".join(f"\\format {name}\n{query}\n" for name in names) + f"\\x\n{query}\nSELECT '{ESCAPE}' + 1;\n"
    )
    with open_terminal(uri, height=60, settings=home) as terminal:
        terminal.wait("Ctrl-D leaves.")
        terminal.run(f"\\i {file}", "expanded display is on")
        terminal.run("SELECT 'all' || ' done' AS s;", "all done")
        assert terminal.leave() == 0
    assert terminal.raw.count(b"owned") >= 2 * len(names)
    assert b"\x1b]0;owned" not in terminal.raw
    assert b"\x07" not in terminal.raw
    assert "\x9b31m".encode() not in terminal.raw


@pytest.mark.commands
def test_long_rows_are_cut_and_long_results_are_paged(uri: str, home: dict[str, str]) -> None:
    with open_terminal(uri, width=70, height=20, settings=home | {"PAGER": "head -n 3"}) as terminal:
        shown = terminal.run("SELECT 1 AS id, repeat('words and ', 20) AS text;", "(1 row)")
        assert "…" in shown
        terminal.run("SELECT range AS paged FROM range(100);", "│ paged │")
        assert "99 │" not in terminal.run("SELECT 'next' AS s;", "│ next │")


@pytest.mark.commands
@pytest.mark.parametrize(("settings", "is_colored"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_no_color(uri: str, home: dict[str, str], settings: dict[str, str], is_colored: bool) -> None:
    with open_terminal(uri, settings=home | settings) as terminal:
        terminal.run("SELECT 'text' AS s;", "(1 row)")
        assert terminal.leave() == 0
    assert bool(re.search(rb"\x1b\[[\d;]*(?:3[0-8]|4[0-8]|9[0-7])[\d;]*m", terminal.raw)) is is_colored


@pytest.mark.parametrize("color", COLORS.values())
def test_colors_can_be_read_on_white_and_on_black(color: str) -> None:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    assert 1.05 / (luminance + 0.05) >= 4.5
    assert (luminance + 0.05) / 0.05 >= 4.5
