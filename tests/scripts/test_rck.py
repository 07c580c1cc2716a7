"""The kit's verdict is compared with what is expected: every difference is a failure, and a missing kit is said so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.rck_job.expectation import (
    FAILURES,
    SKIPPED,
    TESTS,
    Mode,
    Planning,
    Results,
    Status,
    list_failures,
    parse_results,
    surprises,
)
from scripts.rck_job.kit import NAMESPACES, alone

pytestmark = pytest.mark.commands

ROOT = Path(__file__).parents[2]


def expected(mode: Mode, planning: Planning = "client") -> dict[str, Status]:
    failures = list_failures(mode, planning)
    statuses = {f"Tests#passes{number}()": Status.PASS for number in range(TESTS - SKIPPED - len(failures))}
    skipped = {f"Tests#skipped{number}()": Status.SKIP for number in range(SKIPPED)}
    return statuses | skipped | dict.fromkeys(failures, Status.FAIL)


@pytest.mark.parametrize("planning", ["client", "server"])
@pytest.mark.parametrize("mode", FAILURES)
def test_expected_results_are_no_surprise(mode: Mode, planning: Planning) -> None:
    assert surprises(Results(expected(mode, planning)), list_failures(mode, planning)) == []


def test_numbers_in_mode_client_are_those_of_the_issue() -> None:
    assert (TESTS - SKIPPED - len(FAILURES["client"]), len(FAILURES["client"]), SKIPPED) == (144, 1, 12)
    assert len(FAILURES["ducklake"]) == 3
    assert len(list_failures("client", "server")) == 2


@pytest.mark.parametrize(
    ("test", "status", "surprise"),
    [
        ("Tests#passes0()", Status.FAIL, "passes0() fails"),
        ("Tests#passes0()", Status.SKIP, "13 tests were skipped"),
        ("Tests#skipped0()", Status.PASS, "11 tests were skipped"),
        (next(iter(FAILURES["client"])), Status.PASS, "does not fail any more"),
        ("Tests#new()", Status.PASS, "158 tests were there"),
    ],
)
def test_every_difference_is_a_surprise(test: str, status: Status, surprise: str) -> None:
    (found,) = surprises(Results(expected("client") | {test: status}), FAILURES["client"])
    assert surprise in found


def test_test_that_is_gone_is_a_surprise() -> None:
    statuses = expected("client")
    del statuses["Tests#passes0()"]
    assert surprises(Results(statuses), FAILURES["client"]) == ["156 tests were there, expected 157"]


def test_results_are_read_as_the_kit_writes_them() -> None:
    results = parse_results("A#a()\tPASS\t0.1\nA#b(int)[1]\tFAIL\t0\nB#a()\tSKIP\t0.018\n")
    assert results.statuses == {"A#a()": "PASS", "A#b(int)[1]": "FAIL", "B#a()": "SKIP"}
    with pytest.raises(ValueError, match="CRASH"):
        parse_results("A#a()\tCRASH\t0.1\n")


def test_run_leaves_no_folder_that_was_not_there(tmp_path: Path) -> None:
    (tmp_path / "ns").mkdir()
    with alone(tmp_path):
        for name in NAMESPACES:
            (tmp_path / name / "table").mkdir(parents=True)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"ns"}


def run(kit: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "scripts.rck_job", "--reports", str(kit / "reports"), *options]
    environment = {**os.environ, "RCK_KIT": str(kit)}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


def test_missing_kit_is_a_failure_unless_that_is_allowed(tmp_path: Path) -> None:
    assert run(tmp_path)[0] == 1
    status, said = run(tmp_path, "--if-there")
    assert status == 0
    assert "nothing was tested" in said
    assert str(tmp_path) in said


@pytest.mark.parametrize(
    ("changed", "status", "said"), [({}, 0, "rck: as expected"), ({"Tests#passes0()": "FAIL"}, 1, "passes0() fails")]
)
def test_kit_runs_on_a_live_server_and_is_judged(
    tmp_path: Path, changed: dict[str, str], status: int, said: str
) -> None:
    statuses = {**expected("client"), **changed}
    (tmp_path / "results").write_text("".join(f"{test}\t{found}\t0\n" for test, found in statuses.items()))
    program = tmp_path / "run-rck.sh"
    program.write_text(
        "#!/usr/bin/env bash\nset -e\n"
        'curl --fail --silent "${RCK_URI}v1/config?warehouse=$RCK_WAREHOUSE" >/dev/null\n'
        f'mkdir -p "$RCK_OUT"\ncp {tmp_path}/results "$RCK_OUT/results.tsv"\necho "passed=1 failed=0 skipped=0"\n'
    )
    program.chmod(0o755)
    found, printed = run(tmp_path)
    assert (found, said in printed) == (status, True), printed


def test_kit_that_did_not_run_is_a_failure(tmp_path: Path) -> None:
    program = tmp_path / "run-rck.sh"
    program.write_text('#!/usr/bin/env bash\necho "the kit did not run"\nexit 2\n')
    program.chmod(0o755)
    status, said = run(tmp_path)
    assert status == 1
    assert "the kit did not run" in said
