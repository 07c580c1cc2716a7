"""What commands print on a terminal: tables that fit, and a pager for what is longer."""

import re
import sys

import pexpect
import pytest

import duckicelake
from tests.cli.test_commands import environment
from tests.client.conftest import LiveLake, live, shared_lake

__all__ = ["live", "shared_lake"]
ROWS, COLUMNS = 8, 60


def show(live: LiveLake, *arguments: str, **variables: str) -> list[str]:
    """The lines that a command prints on a small terminal."""
    command = ["-m", "duckicelake.cli.main", *arguments, "--uri", live.served.uri]
    size = {"LINES": str(ROWS), "COLUMNS": str(COLUMNS)}
    given = environment(NO_COLOR="1", TERM="xterm", **size, **variables)
    child = pexpect.spawn(sys.executable, command, dimensions=(ROWS, COLUMNS), env=given, encoding="utf-8")
    child.expect(pexpect.EOF, timeout=120)
    child.close()
    assert child.exitstatus == 0, child.before
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(child.before))
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.fixture
def space(live: LiveLake) -> str:
    """A namespace with more tables than the terminal has lines, one of them of a long name."""
    with duckicelake.connect(live.served.uri) as lake:
        lake.create_namespace("paged")
        for number in range(ROWS):
            lake.create_table(f"paged.t{number}", "id long")
        table = lake.create_table("paged.long_names", "id long")
        table.update_properties({"comment": "word " * 40})
    return "paged"


def test_long_output_goes_through_the_pager_and_tables_fit(live: LiveLake, space: str) -> None:
    paged = show(live, "ls", space, PAGER="sed s/^/P:/")
    assert [line.split()[1] for line in paged[1:]] == [f"{space}.long_names", *(f"{space}.t{n}" for n in range(ROWS))]
    assert all(line.startswith("P:") for line in paged)
    assert show(live, "ls", f"{space}", PAGER="nonsense")[0].split() == ["kind", "name"]
    assert show(live, "refs", "list", f"{space}.t1", PAGER="sed s/^/P:/")[0].split()[0] == "name"
    shown = show(live, "show", f"{space}.long_names", PAGER="cat")
    assert max(map(len, shown)) <= COLUMNS
    assert next(line for line in shown if line.startswith("comment")).endswith("…")


def test_pager_is_left_out_where_asked(live: LiveLake) -> None:
    command = ["-m", "duckicelake.cli.main", "--no-pager", "whoami", "--json", "--uri", live.served.uri]
    child = pexpect.spawn(sys.executable, command, dimensions=(2, COLUMNS), env=environment(PAGER="false"))
    child.expect("anonymous", timeout=120)
    child.expect(pexpect.EOF, timeout=120)
