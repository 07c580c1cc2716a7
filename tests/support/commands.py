"""Commands in the process of the test, for what they refuse before they start anything: 0.01 s, a process takes 2 s."""

import os
import subprocess

from typer.testing import CliRunner, Result

from duckicelake.cli.main import app


def invoke(*arguments: str, **settings: str) -> Result:
    """Run a command by what people type, with these settings and no others."""
    unset = dict.fromkeys(name for name in os.environ if name.startswith("DUCKICELAKE_"))
    return CliRunner().invoke(app, arguments, env={**unset, **settings})


def run_here(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the process of the test, and answer as `run` of its process does."""
    result = invoke(*arguments, **settings)
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)
