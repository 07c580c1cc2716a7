"""Modules of commands import nothing that works until the command runs (pydantic comes with Typer)."""

import inspect
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from duckicelake.cli.main import app
from duckicelake.cli.rows.command import ingest_rows
from duckicelake.client.batch import Batching
from tests.cli.test_help import commands

ROOT = Path(__file__).parents[2]
HEAVY = {
    *("argon2", "boto3", "botocore", "duckdb", "fastapi", "fastavro", "numpy", "openlineage", "psycopg", "pyarrow"),
    *("pyiceberg", "pyspark", "requests", "sqlglot", "starlette", "structlog", "uvicorn"),
}
ALL = list(commands(typer.main.get_command(app)))


def imported(*commands: Sequence[str]) -> list[tuple[int, set[str]]]:
    """(What a command exits with, the libraries that are imported then), of commands run in turn in one process."""
    script = (
        "import json, sys\n"
        "from duckicelake.cli.main import app\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    try: app(arguments, prog_name='duckicelake')\n"
        "    except SystemExit as left: code = left.code or 0\n"
        "    names = {name.partition('.')[0] for name in sys.modules}\n"
        "    sys.stderr.write('\\n' + json.dumps([code, sorted(names)]) + '\\n')"
    )
    command = [sys.executable, "-c", script, json.dumps(commands)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, input="", check=True)
    answers = [json.loads(line) for line in ran.stderr.splitlines() if line.startswith("[")]
    assert len(answers) == len(commands)
    return [(code, set(names)) for code, names in answers]


def test_help_of_a_group_imports_nothing_that_works() -> None:
    groups = ([], ["lineage"], ["delta"], ["pipeline"])
    for group, (code, libraries) in zip(groups, imported(*([*group, "--help"] for group in groups)), strict=True):
        assert (code, libraries & HEAVY) == (0, set()), group


def test_argument_error_of_a_command_imports_nothing_that_works() -> None:
    for words, (code, libraries) in zip(ALL, imported(*([*words, "--no-such-option"] for words in ALL)), strict=True):
        assert (code, libraries & HEAVY) == (2, set()), words


def test_version_imports_nothing_that_works() -> None:
    ((code, libraries),) = imported(["version"])
    assert (code, libraries & HEAVY) == (0, set())


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("info", {"psycopg"}),
        ("audit", {"psycopg"}),
        ("grants --server me", {"psycopg"}),
        ("hash-secret", {"argon2"}),
        ("history", {"psycopg", "boto3", "botocore"}),
        ("lineage show a.b", {"psycopg", "boto3", "botocore"}),
    ],
)
def test_command_imports_only_what_it_works_with(words: str, needed: set[str], tmp_path: Path) -> None:
    lake = [] if words == "hash-secret" else ["--lake", str(tmp_path / "none")]
    ((_, libraries),) = imported([*words.split(), *lake])
    assert libraries & HEAVY <= needed


def test_server_has_imported_what_it_works_with_before_it_listens() -> None:
    script = (
        "import sys, duckicelake.cli.serve.server\nduckicelake.cli.serve.server.import_installed()\nprint(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"duckdb", "fastapi", "numpy", "psycopg", "pyarrow", "sqlglot", "uvicorn"} <= set(ran.stdout.split())


def test_rows_are_ingested_in_batches_as_a_writer_makes_them() -> None:
    parameters = inspect.signature(ingest_rows).parameters
    assert (parameters["max_rows"].default, parameters["max_age"].default) == (Batching().max_rows, Batching().max_age)
