"""What says which commands there are imports none of what does their work (pydantic comes with Typer)."""

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest
import typer

from duckicelake.cli.commands.ingest_rows import ingest_rows
from duckicelake.cli.console.command import done_by
from duckicelake.cli.main import app
from duckicelake.client.batch import Batching
from tests.cli.test_help import commands

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "duckicelake"
HEAVY = {
    *("argon2", "boto3", "botocore", "duckdb", "fastapi", "fastavro", "numpy", "openlineage", "psycopg", "pyarrow"),
    *("pyiceberg", "pyspark", "requests", "sqlglot", "starlette", "structlog", "uvicorn"),
}
ALL = list(commands(typer.main.get_command(app)))


def imported(*arguments: str) -> tuple[int, set[str]]:
    """(What the command exits with, the libraries that it has imported.)"""
    script = (
        "import json, sys\n"
        "from duckicelake.cli.main import app\n"
        "try: app()\n"
        "except SystemExit as left: code = left.code or 0\n"
        "sys.stderr.write(json.dumps([code, [name.partition('.')[0] for name in sys.modules]]))"
    )
    command = [sys.executable, "-c", script, *arguments]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, input="", check=True)
    code, names = json.loads(ran.stderr.splitlines()[-1])
    return code, set(names)


@pytest.mark.parametrize("group", ["", "lineage", "delta", "pipeline"])
def test_help_of_a_group_imports_nothing_that_works(group: str) -> None:
    code, libraries = imported(*group.split(), "--help")
    assert (code, libraries & HEAVY) == (0, set())


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_argument_error_of_a_command_imports_nothing_that_works(words: tuple[str, ...]) -> None:
    code, libraries = imported(*words, "--no-such-option")
    assert (code, libraries & HEAVY) == (2, set())


def test_version_imports_nothing_that_works() -> None:
    code, libraries = imported("version")
    assert (code, libraries & HEAVY) == (0, set())


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("info", {"psycopg"}),
        ("audit", {"psycopg"}),
        ("grants --server me", {"psycopg"}),
        ("hash-secret", {"argon2"}),
        ("history", {"psycopg", "boto3", "botocore", "fastavro"}),
        ("lineage show a.b", {"psycopg", "boto3", "botocore", "fastavro"}),
    ],
)
def test_command_imports_only_what_it_works_with(words: str, needed: set[str], tmp_path: Path) -> None:
    lake = [] if words == "hash-secret" else ["--lake", str(tmp_path / "none")]
    _, libraries = imported(*words.split(), *lake)
    assert libraries & HEAVY <= needed


def test_server_has_imported_what_it_works_with_before_it_listens() -> None:
    script = "import sys, duckicelake.cli.serve.banner, duckicelake.cli.serve.workers; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"boto3", "duckdb", "fastapi", "psycopg", "pyarrow", "sqlglot", "uvicorn"} <= set(ran.stdout.split())


def declared() -> Iterator[tuple[Path, ast.FunctionDef, str]]:
    """Commands without a body of their own, and where that is."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for call in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == done_by.__name__:
                    yield path, node, ast.literal_eval(call.args[0])


DECLARED = list(declared())


@pytest.mark.parametrize(("path", "node", "place"), DECLARED, ids=[place for _, _, place in DECLARED])
def test_body_takes_what_its_command_does(path: Path, node: ast.FunctionDef, place: str) -> None:
    module, _, name = place.rpartition(".")
    home = import_module(path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."))
    body = getattr(import_module(module), name)
    taken = inspect.signature(body).parameters
    assert set(taken) == {each.arg for each in node.args.args}
    assert [each for each in taken.values() if each.default is not each.empty] == []
    told, hints = get_type_hints(inspect.unwrap(getattr(home, node.name))), get_type_hints(body)
    assert {name: hints[name] for name in taken if name != "run"} == {
        name: told[name] for name in taken if name != "run"
    }
    assert len(node.body) == 1


def test_rows_are_ingested_in_batches_as_a_writer_makes_them() -> None:
    parameters = inspect.signature(ingest_rows).parameters
    assert (parameters["max_rows"].default, parameters["max_age"].default) == (Batching().max_rows, Batching().max_age)
