"""The demo's assertions really compare: a wrong value, row or column fails, and the last line says so."""

import io

import pyarrow as pa
import pytest
from rich.console import Console

from scripts.demo_job.checks import Checks, differing_rows

BIRDS = pa.table({"name": ["duck", "owl", "owl"], "legs": [2, 2, 2]})
SAME = pa.table({"legs": [2, 2, 2], "name": ["owl", "duck", "owl"]})
DIFFERENT = {
    "a changed value": pa.table({"name": ["duck", "owl", "owl"], "legs": [2, 2, 3]}),
    "a missing duplicate": pa.table({"name": ["duck", "owl"], "legs": [2, 2]}),
    "another duplicate": pa.table({"name": ["duck", "duck", "owl"], "legs": [2, 2, 2]}),
    "a NULL": pa.table({"name": ["duck", "owl", None], "legs": [2, 2, 2]}),
    "a renamed column": pa.table({"name": ["duck", "owl", "owl"], "feet": [2, 2, 2]}),
    "an extra column": BIRDS.append_column("eggs", pa.array([0, 0, 0])),
    "no rows": BIRDS.slice(0, 0),
}


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def checks(output: io.StringIO) -> Checks:
    return Checks(Console(file=output, width=160))


def last_line(output: io.StringIO) -> str:
    return output.getvalue().splitlines()[-1]


def test_same_rows_in_another_order_pass(checks: Checks, output: io.StringIO) -> None:
    checks.same_rows("birds", BIRDS, SAME)
    assert checks.report()
    assert last_line(output) == "passed=1 failed=0"


@pytest.mark.parametrize("got", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_any_other_rows_fail(checks: Checks, output: io.StringIO, got: pa.Table) -> None:
    checks.same_rows("birds", BIRDS, got)
    checks.equal("two", 2, 2)
    assert not checks.report()
    assert last_line(output) == "passed=1 failed=1"


def test_report_without_any_assertion_fails(checks: Checks) -> None:
    assert not checks.report()


def test_failure_shows_both_values_as_it_happens(checks: Checks, output: io.StringIO) -> None:
    checks.equal("legs", [("duck", 2)], [("duck", 3)])
    assert "expected [('duck', 2)]" in output.getvalue()
    assert "got      [('duck', 3)]" in output.getvalue()


def test_differing_rows_counts_both_sides() -> None:
    assert differing_rows(BIRDS, DIFFERENT["another duplicate"]) == 2
