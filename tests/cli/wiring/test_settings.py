"""Settings that only their use can tell to be wrong are told before the server listens."""

from pathlib import Path

import pytest

from tests.cli.test_commands import lake
from tests.support.commands import invoke

__all__ = ["lake"]


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("maintenance.flush.min-row=10", "did you mean maintenance.flush.min-rows?"),
        ("maintenance.flush.min-rows=x", "it should be a number from 1 on"),
    ],
)
def test_policy_that_no_job_could_follow_is_reported_at_the_start(lake: Path, policy: str, says: str) -> None:
    ended = invoke("serve", "--lake", str(lake), "--port", "0", DUCKICELAKE_MAINTENANCE=policy)
    assert ended.exit_code == 2
    assert says in ended.stderr
    assert ended.stderr.count("\n") == 1
