"""Commands that open a lake, or go by REST where --uri or --profile is given: both ways do and print the same."""

import getpass
import json
import os
import socket
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import duckicelake
from duckicelake.cli.main import app
from tests.cli.test_help import commands
from tests.client.conftest import LiveLake, live, shared_lake

__all__ = ["live", "shared_lake"]
_numbers = count(1)
ON_THE_LAKE_ALONE = {
    *("serve", "init", "info", "config", "adopt", "migrate", "grants", "constraints"),
    *("rotate-secrets", "import-lake", "delta", "lineage", "publish", "unpublish", "work"),
}
"""What no route does, by its first word."""


class BothWays:
    """Runs commands by REST, and on the lake's folder."""

    def __init__(self, live: LiveLake) -> None:
        self.rest = ("--uri", live.served.uri)
        self.direct = ("--lake", str(live.folder))
        self.uri = live.served.uri

    def run(self, *arguments: str, code: int = 0, **environment: str) -> str:
        result = CliRunner().invoke(app, arguments, env=environment)
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.run(*arguments, "--json").splitlines()]


@pytest.fixture
def both(live: LiveLake) -> BothWays:
    return BothWays(live)


@pytest.fixture
def table(both: BothWays) -> str:
    name = f"both{next(_numbers)}.birds"
    with duckicelake.connect(both.uri) as lake:
        lake.create_namespace(name.split(".", maxsplit=1)[0])
        lake.create_table(name, "id long not null, name string")
    for number in (1, 2):
        CliRunner().invoke(app, ["ingest-rows", name, *both.rest], input=json.dumps({"id": number, "name": "n"}))
    return name


def test_each_command_on_a_lake_goes_by_rest_or_has_no_route() -> None:
    root: Any = typer.main.get_command(app)
    for words in commands(root):
        command: Any = root
        for word in words:
            command = command.get_command(None, word)
        options = {option for param in command.params for option in param.opts}
        if "--lake" in options:
            assert ("--uri" in options) == (words[0] not in ON_THE_LAKE_ALONE), words


def test_both_ways_print_the_same(both: BothWays, table: str) -> None:
    assert both.run("flush", table, *both.rest) == f"{table}: 2 rows, 1 file\n"
    for command in (
        ("history", table),
        ("explain", table, "--where", "id = 1"),
        ("dropped", table.split(".", maxsplit=1)[0]),
        ("restore", table, "--to", "main", "--dry-run"),
        ("expire", table, "--older-than", "30d", "--dry-run"),
    ):
        has_json = command[0] in {"history", "explain", "dropped"}
        for more in ((), ("--json",)) if has_json else ((),):
            found = [both.run(*command, *more, *way) for way in (both.direct, both.rest)]
            assert found[0] == found[1], command
            assert found[0] or command[0] == "dropped"


def test_changes_by_rest_are_the_callers_and_on_the_lake_the_operators(both: BothWays, table: str) -> None:
    space = table.split(".", maxsplit=1)[0]
    for way, name in ((both.rest, "first"), (both.direct, "second")):
        assert f"{space}.{name}: a clone of {table}" in both.run("clone", table, f"{space}.{name}", *way)
        both.run("drop", "table", f"{space}.{name}", *both.rest)
        assert any(item["name"] == f"{space}.{name}" for item in both.lines("dropped", space, *way))
        assert f"table {space}.{name} is back" in both.run("undrop", f"{space}.{name}", *way)
    trail = both.lines("audit", "--operation", "clone_table", "--resource", space, *both.direct)
    assert [(entry["principal"], entry["address"]) for entry in trail] == [
        ("anonymous", "127.0.0.1"),
        (f"cli:{getpass.getuser()}", socket.gethostname()),
    ]


def test_options_decide_before_variables_and_a_lake_before_a_uri(both: BothWays, table: str, tmp_path: Path) -> None:
    nowhere = {"DUCKICELAKE_CLIENT_URI": "http://127.0.0.1:1"}
    assert both.run("history", table, *both.direct, **nowhere)
    assert both.run("history", table, DUCKICELAKE_LAKE=both.direct[1], **nowhere)
    assert both.run("history", table, *both.rest, DUCKICELAKE_LAKE=str(tmp_path))
    assert both.run("history", table, DUCKICELAKE_CLIENT_URI=both.uri)
    assert "--uri and --lake both say where the lake is" in both.run("history", table, *both.rest, *both.direct, code=2)


def test_wrong_input_is_one_line(both: BothWays, table: str, subtests: pytest.Subtests) -> None:
    for arguments, code, message in [
        ("restore {t}x --to main", 2, "did you mean {t}?"),
        ("restore {t} --to nonsense", 2, "no branch or tag"),
        ("expire {t} --older-than soon", 2, "neither an age"),
        ("flush --older-than 3d", 2, "--older-than needs the lake itself"),
        ("flush nowhere.t", 2, "Table does not exist: nowhere.t"),
        ("history --prune-older-than 3d", 2, "needs the lake itself"),
        ("history {t}x", 2, "Table does not exist: {t}x"),
        ("history --source ftp", 2, "'ftp' is no source of changes"),
        ("undrop {t} --kind folder", 2, "expected table, view or namespace"),
        ("undrop {t}", 2, "{t}"),
        ("clone {t} {t}", 6, "exists"),
        ("explain {t} --where nonsense", 2, "nonsense"),
    ]:
        with subtests.test(arguments):
            error = both.run(*arguments.format(t=table).split(), *both.rest, code=code)
            assert error.count("\n") == 1
            assert message.format(t=table) in error


def test_garbage_is_listed_and_deleted_by_rest(both: BothWays, live: LiveLake, table: str) -> None:
    space = table.split(".", maxsplit=1)[0]
    both.run("flush", table, *both.rest)
    (needed,) = [file["path"] for file in both.lines("files", table, *both.rest)]
    folder = Path(needed.removeprefix("file://")).parent
    left = [folder / f"{space}-{number}.parquet" for number in range(3)]
    for file in (*left, Path(needed.removeprefix("file://"))):
        file.touch()
        os.utime(file, (1_600_000_000, 1_600_000_000))
    listed = [both.run("gc", "--older-than", "2h", *way) for way in (both.direct, both.rest)]
    assert listed[0] == listed[1]
    assert [line.split()[2] for line in listed[0].splitlines() if space in line] == [f"file://{file}" for file in left]
    os.utime(left[0])
    with duckicelake.connect(both.uri) as lake:
        hours_ago = datetime.now(UTC) - timedelta(hours=2)
        asked = [needed, "file:///etc/passwd", *(f"file://{file}" for file in left)]
        assert sorted(lake.delete_orphans(asked, hours_ago)) == [f"file://{file}" for file in left[1:]]
    assert [file.exists() for file in (*left, Path(needed.removeprefix("file://")))] == [True, False, False, True]
    entry = both.lines("audit", "--operation", "delete_orphans", "--limit", "1", *both.rest)[0]
    assert (entry["principal"], entry["detail"]) == ("anonymous", {"files": 2, "bytes": 0})
    assert "an hour at least" in both.run("gc", "--older-than", "5m", *both.rest, code=2)
    both.run("gc", "--older-than", "2h", "--delete", *both.rest)
    assert both.run("gc", "--older-than", "2h", *both.rest) == ""


@pytest.mark.commands
def test_server_is_administered_the_same_both_ways(both: BothWays, table: str, tmp_path: Path) -> None:
    file, secret = tmp_path / "governance.yaml", tmp_path / "secret"
    way, other = both.rest, both.direct
    both.run("principal", "create", "etl", "--description", "loads", *way)
    both.run("role", "create", "loaders", *way)
    both.run("role", "members", "add", "loaders", "etl", *way)
    both.run("principal", "secret", "create", "etl", "--secret-file", str(secret), *way)
    assert secret.read_text().strip()
    secret.unlink()
    both.run("issuer", "add", "corp", "https://id.example", "--audience", "lake", *way)
    assert "1 new" in both.run("grant", "loaders", "select", f"table:{table}", *way)
    both.run("warehouse", "options", "duckicelake", "max-tables=1000", *way)
    for command in (
        ("principal", "list"),
        ("principal", "show", "etl"),
        ("principal", "secret", "list", "etl"),
        ("role", "members", "list", "loaders"),
        ("issuer", "show", "corp"),
        ("issuer", "list"),
        ("storage-profile", "list"),
        ("warehouse", "list"),
        ("warehouse", "options", "duckicelake"),
        ("list-grants", "loaders"),
        ("list-grants", "--on", f"table:{table}"),
    ):
        found = [both.run(*command, "--json", *each) for each in (way, other)]
        assert found[0] == found[1], command
        assert found[0] or command[1:] == ("list",), command
    both.run("warehouse", "grants", "duckicelake", "on", *way)
    asked = ("why", "etl", "select", f"table:{table}")
    assert both.run(*asked, *way) == both.run(*asked, *other)
    assert "in loaders" in both.run(*asked, *other)
    both.run("warehouse", "grants", "duckicelake", "off", *way)
    file.write_text(both.run("export", *way))
    assert file.read_text() == both.run("export", *other)
    assert both.run("apply", str(file), *other) == ""
    file.write_text("principals: [{name: etl, is-disabled: true}]")
    assert "is-disabled False -> True" in both.run("apply", str(file), *way)
    both.run("warehouse", "options", "duckicelake", "max-tables=", *way)
    both.run("revoke", "loaders", "select", f"table:{table}", *way)
    both.run("issuer", "drop", "corp", *way)
    for name in ("etl", "loaders"):
        both.run("principal", "drop", name, *way)
    for words, message in (
        ("principal show etl", "No such principal"),
        (f"grant etl fly table:{table}", "fly"),
        ("grant etl select orders", "Invalid object 'orders': expected warehouse, namespace:NAME"),
        ("group members list admin", "admin is a role, no group"),
    ):
        assert message in both.run(*words.split(), *way, code=2)
    (entry,) = both.lines("audit", "--operation", "apply_governance", "--result", "ok", "--limit", "1", *both.rest)
    assert entry["principal"] == "anonymous"


def test_doctor_and_audit_print_the_same_both_ways(both: BothWays, table: str) -> None:
    findings = [
        [line.partition(":")[0] for line in both.run("doctor", *way).splitlines()] for way in (both.direct, both.rest)
    ]
    assert findings[0] == findings[1]
    assert {line.split()[0] for line in findings[0]} == {"ok"}
    for command in (("audit", "--resource", table), ("audit", "--limit", "3", "--json")):
        found = [both.run(*command, *way) for way in (both.direct, both.rest)]
        assert found[0] == found[1], command
        assert found[0]
    assert "is no namespace, table or view" in both.run("audit", "--resource", "no.such", *both.rest, code=2)
    for refused in (
        ("doctor", "--forget-left-out"),
        ("audit", "--prune-older-than", "3d"),
        ("gc", "--confirm-warehouse"),
    ):
        assert "needs the lake itself: give --lake" in both.run(*refused, *both.rest, code=2)
