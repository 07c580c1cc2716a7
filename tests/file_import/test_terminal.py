"""`duckicelake load` in a pseudo-terminal: the columns are shown and asked for, a bar says how far it is."""

import sys
import tempfile

import pexpect
import pytest

from tests.cli.test_commands import environment
from tests.file_import.conftest import Loads

pytestmark = pytest.mark.commands


def start(loads: Loads, *arguments: str) -> "pexpect.spawn[str]":
    command = ["-m", "duckicelake.cli.main", "load", *arguments, "--uri", loads.lake.uri]
    given = environment(NO_COLOR="1", TERM="xterm", TMPDIR=tempfile.gettempdir())
    return pexpect.spawn(sys.executable, command, encoding="utf-8", timeout=120, env=given, dimensions=(40, 120))


def test_columns_are_shown_and_asked_for(loads: Loads, table: str) -> None:
    file = loads.file("a.csv", "id,day,name\n1,2026-01-01,a\n2,2026-01-02,b\n")
    typed = start(loads, file, "--table", table)
    typed.expect("id +│? *long")
    typed.expect("day +│? *date")
    typed.expect("would be created")
    typed.expect("Load into .*y/N")
    typed.sendline("n")
    typed.expect(pexpect.EOF)
    typed.close()
    assert typed.exitstatus == 1
    assert not loads.has(table)
    typed = start(loads, file, "--table", table)
    typed.expect("Load into .*y/N")
    typed.sendline("y")
    typed.expect("loaded into .* 2 rows of 1 file")
    typed.expect(pexpect.EOF)
    typed.close()
    assert typed.exitstatus == 0
    assert loads.rows(f"SELECT count(*) FROM lake.{table}") == [(2,)]


def test_a_bar_says_how_far_it_is(loads: Loads, table: str) -> None:
    rows = "".join(f"{n},{n / 7},text {n}\n" for n in range(600_000))
    typed = start(loads, loads.file("a.csv", "id,x,t\n" + rows), "--table", table, "--yes")
    typed.expect(r"checking rows.*[0-9.]+ of [0-9.]+ MB")
    typed.expect(r"writing rows.*[0-9,]+ of 600,000 rows, [0-9.]+ of [0-9.]+ MB")
    typed.expect("loaded into .* 600,000 rows of 1 file")
    typed.expect(pexpect.EOF)
    typed.close()
    assert typed.exitstatus == 0


def test_ctrl_c_at_the_prompt_makes_no_table(loads: Loads, table: str) -> None:
    typed = start(loads, loads.file("a.csv", "id\n1\n"), "--table", table)
    typed.expect("Load into .*y/N")
    typed.sendintr()
    typed.expect(pexpect.EOF)
    typed.close()
    assert "Traceback" not in typed.before
    assert typed.exitstatus in {1, 130}
    assert not loads.has(table)


@pytest.mark.parametrize("step", ["finding columns", "checking rows", "writing rows"])
def test_ctrl_c_in_a_load_says_how_to_go_on(loads: Loads, table: str, step: str) -> None:
    rows = "".join(f"{n},{n / 7},text {n}\n" for n in range(2_400_000))
    file = loads.file("a.csv", "id,x,t\n" + rows)
    typed = start(loads, file, "--table", table, "--yes", "--threads", "1")
    typed.expect(f"{step}.*[0-9.]+ of [0-9.]+ MB")
    typed.sendintr()
    typed.expect("interrupted: with --run-id ([0-9a-f-]+)")
    run_id = str(typed.match and typed.match[1])
    typed.expect(pexpect.EOF)
    typed.close()
    assert "Traceback" not in typed.before
    assert typed.exitstatus == 130
    assert not loads.has(table)
    loads.run(file, "--table", table, "--yes", "--run-id", run_id)
    assert loads.rows(f"SELECT count(*), count(DISTINCT id) FROM lake.{table}") == [(2_400_000, 2_400_000)]
