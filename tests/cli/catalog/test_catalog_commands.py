"""Commands over REST as people run them, against a served lake: lists, descriptions, changes, wrong input."""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duckicelake import __version__
from duckicelake.cli.catalog import session
from duckicelake.cli.catalog.session import compare_versions
from duckicelake.cli.main import app
from tests.client.conftest import LiveLake, live, shared_lake

__all__ = ["live", "shared_lake"]
_numbers = count(1)


class Shell:
    """Runs commands; `space` is a namespace of the test's own."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.space = f"shell{next(_numbers)}"
        self.run("create", "namespace", self.space)

    def run(self, *arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*arguments, "--uri", self.uri])
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    def json(self, *arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(*arguments, "--json").splitlines()]


@pytest.fixture
def shell(live: LiveLake) -> Shell:
    return Shell(live.served.uri)


@pytest.fixture
def table(live: LiveLake, shell: Shell) -> str:
    name = f"{shell.space}.birds"
    shell.run("create", "table", name, "id long not null, name string", "--partition-by", "id", "--prop", "owner=ann")
    for number in (1, 2):
        row = json.dumps({"id": number, "name": f"n{number}"})
        CliRunner().invoke(app, ["ingest-rows", name, "--uri", live.served.uri], input=row)
    return name


def test_lists_the_lake(shell: Shell, table: str) -> None:
    assert {"kind": "namespace", "name": shell.space} in shell.json("ls")
    assert shell.json("ls", shell.space) == [{"kind": "table", "name": table}]
    assert {"kind": "table", "name": table} in shell.json("ls", "--recursive")
    (size,) = shell.json("ls", shell.space, "--long")
    assert (size["rows"], size["kind"]) == (2, "table")
    assert re.search(rf"table +{table} +2 ", shell.run("ls", shell.space, "-l"))


def test_dropped_things_are_listed(shell: Shell) -> None:
    table = f"{shell.space}.gone"
    shell.run("create", "table", table, "id long")
    assert shell.json("ls", shell.space, "--dropped") == []
    shell.run("drop", "table", table)
    (found,) = shell.json("ls", shell.space, "--dropped")
    assert (found["kind"], found["name"], found["purge-requested"]) == ("table", table, False)
    assert found["kept-until"] > found["dropped-at"]
    assert table in shell.run("ls", shell.space, "--dropped")
    assert found in shell.json("ls", "--dropped")


def test_shows_a_table(shell: Shell, table: str) -> None:
    shown = shell.run("show", table)
    for line in (rf"name +{table}", r"partitioned by +id", r"id +long +no", r"owner +ann", r"rows +2"):
        assert re.search(line, shown), (line, shown)
    (found,) = shell.json("show", table)
    assert (found["name"], found["kind"], found["format-version"]) == (table, "table", 2)


def test_lists_snapshots_files_and_partitions(shell: Shell, table: str) -> None:
    snapshots = shell.json("snapshots", table)
    assert snapshots[-1]["refs"] == ["main"]
    assert [sum(file["rows"] for file in shell.json("files", table))] == [2]
    assert sum(one["rows"] for one in shell.json("partitions", table)) == 2
    assert str(snapshots[-1]["snapshot-id"]) in shell.run("snapshots", table)
    assert ".parquet" in shell.run("files", table)
    assert "files" in shell.run("partitions", table)


def test_prints_what_changed(shell: Shell, table: str) -> None:
    shown = shell.run("diff", table, "--files")
    assert f"{table}: from before the first snapshot to " in shown
    assert re.search(r"rows +2 +0\n", shown)
    assert re.search(r"\.parquet +added +\d +0 ", shown)
    (found,) = shell.json("diff", table)
    assert (found["from"]["snapshot-id"], found["rows-added"], found["files"]) == (None, 2, [])
    assert "nothing has changed" in shell.run("diff", table, "--from", "main", "--to", "main")
    shell.run("props", "set", table, "a_b=1", "is_x=2")
    assert {"a_b", "is_x"} <= shell.json("props", "get", table)[0].keys(), "as users named them"


def test_server_and_caller_are_described(shell: Shell) -> None:
    (found,) = shell.json("status")
    assert (found["readiness"], found["login"], found["uri"]) == ("ready", "not required", shell.uri)
    assert 0 < found["latency-ms"] < 1000
    assert found["server-version"] == found["client-version"] == __version__
    assert found["versions-fit"] is True
    shown = shell.run("status")
    assert "login      not required" in shown
    assert f"versions   server {__version__}, client {__version__}\n" in shown
    (caller,) = shell.json("whoami")
    assert (caller["principal"], caller["authenticated"], caller["scopes"]) == ("anonymous", False, ["*"])
    assert "select" in caller["actions"]
    assert shell.run("open", code=0) in {"", f"{shell.uri}/\n"}


@pytest.mark.parametrize(
    ("server", "client", "fit"),
    [
        ("0.1.0", "0.1.7", True),
        ("0.1.0", "0.2.0", False),
        ("0.1.0", "0.11.0", False),
        ("1.2", "1.2.0rc1", True),
        (None, "0.1.0", None),
        ("0.1.0", "unknown", None),
    ],
)
def test_versions_fit_by_their_first_two_numbers(server: str | None, client: str, fit: bool | None) -> None:
    assert compare_versions(server, client) is fit


def test_versions_that_do_not_fit_are_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "__version__", "0.0.1")
    (found,) = shell.json("status")
    assert (found["client-version"], found["versions-fit"]) == ("0.0.1", False)
    hint = CliRunner().invoke(app, ["status", "--uri", shell.uri]).stderr
    assert f"pip install 'duckicelake=={__version__}' here" in hint


@pytest.mark.parametrize("prefix", ["CLIENT", "PIPELINE"])
def test_rows_go_to_the_catalog_of_the_variables(shell: Shell, table: str, prefix: str) -> None:
    variables = {f"DUCKICELAKE_{prefix}_URI": shell.uri}
    result = CliRunner().invoke(app, ["ingest-rows", table], input='{"id": 3, "name": "n3"}', env=variables)
    assert result.exit_code == 0, result.output
    assert {"id": 3, "name": "n3"} in shell.json("head", table)


def test_constraints_are_added_and_dropped(shell: Shell, table: str) -> None:
    shell.run("constraint", "add", table, "positive", "id > 0")
    assert shell.json("props", "get", table)[0]["constraint.positive"] == "id > 0"
    assert "which the table doesn't have" in shell.run("constraint", "add", table, "wrong", "ids > 0", code=2)
    assert "it has positive" in shell.run("constraint", "drop", table, "negative", code=2)
    shell.run("constraint", "drop", table, "positive")
    assert "constraint.positive" not in shell.json("props", "get", table)[0]


def test_config_names_where_each_setting_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("duckicelake.toml").write_text('port = 8282\noauth_keys = "k:0123456789abcdef0123456789abcdef"\n')
    monkeypatch.setenv("DUCKICELAKE_DATABASE_URL", "postgresql://me:hidden@db/lake")
    monkeypatch.setenv("DUCKICELAKE_WAREHOUSE", "file:///data")
    shown = CliRunner().invoke(app, ["config", "--json", "--lake", "elsewhere"])
    found = {one["name"]: one for one in map(json.loads, shown.stdout.splitlines())}
    assert (found["port"]["value"], found["port"]["source"]) == (8282, f"port in {tmp_path}/duckicelake.toml")
    assert (found["lake"]["value"], found["lake"]["source"]) == ("elsewhere", "--lake")
    assert found["warehouse"]["source"] == "DUCKICELAKE_WAREHOUSE"
    assert (found["host"]["source"], found["oauth_keys"]["value"]) == ("default", "set")
    assert not {"hidden", "0123456789"} & set(re.findall(r"hidden|0123456789", shown.stdout))
    table = CliRunner().invoke(app, ["config", "--changed"]).stdout
    assert re.search(r"port +8282 +port in ", table)
    assert "host" not in table.split()


def test_changes_refs_properties_and_comments(shell: Shell, table: str) -> None:
    shell.run("refs", "create", table, "audit")
    shell.run("refs", "create", table, "v1", "--tag", "--at", "audit")
    assert [(ref["name"], ref["kind"]) for ref in shell.json("refs", "list", table)] == [
        ("main", "branch"),
        ("audit", "branch"),
        ("v1", "tag"),
    ]
    shell.run("refs", "fast-forward", table, "main", "audit")
    shell.run("refs", "drop", table, "audit")
    shell.run("props", "set", table, "a=1=2", "b=3")
    shell.run("props", "unset", table, "b")
    assert shell.run("props", "get", table, "a") == "1=2\n"
    shell.run("comment", table, "Birds.")
    shell.run("comment", table, "Whose.", "--column", "name")
    shell.run("comment", shell.space, "All.")
    (properties,) = shell.json("props", "get", table)
    assert (properties["comment"], "b" in properties) == ("Birds.", False)
    assert re.search(r"name +string +yes +Whose\.", shell.run("show", table))
    assert shell.json("props", "get", shell.space)[0]["comment"] == "All."
    shell.run("comment", table, "")
    assert "comment" not in shell.json("props", "get", table)[0]


def test_renames_and_drops(shell: Shell, table: str) -> None:
    shell.run("rename", "table", table, f"{shell.space}.ducks")
    moved = f"{shell.space}_moved.below"
    assert "renamed the namespace" in shell.run("rename", "namespace", shell.space, moved)
    assert shell.json("ls", moved)[0]["name"] == f"{moved}.ducks"
    shell.run("rename", "namespace", moved, shell.space)
    shell.run("drop", "table", f"{shell.space}.ducks", "--purge")
    shell.run("drop", "namespace", shell.space)
    assert "Namespace does not exist" in shell.run("ls", shell.space, code=2)


def test_wrong_input_is_one_line(shell: Shell, table: str, subtests: pytest.Subtests) -> None:
    for arguments, code, message in [
        ("show {s}.bird", 2, "Table does not exist: {s}.bird; did you mean {s}.birds?"),
        ("files {s}.bird", 2, "did you mean {s}.birds?"),
        ("snapshots {s}.bird", 2, "did you mean {s}.birds?"),
        ("drop table {s}.bird", 2, "did you mean {s}.birds?"),
        ("comment {s}.bird x", 2, "did you mean {s}.birds?"),
        ("show birds", 2, "Invalid table name 'birds': it has no namespace; expected ns.table"),
        ("show {s}x.birds", 2, "did you mean the namespace"),
        ("ls {s}x", 2, "Namespace does not exist: {s}x"),
        ("drop namespace {s}", 6, "is not empty. It holds table birds"),
        ("drop view {s}.birds", 2, "View does not exist: {s}.birds"),
        ("drop namespace {s} --purge", 2, "--purge is for tables"),
        ("drop row {s}", 2, "'row' is not one of"),
        ("create table {s}.birds id#long", 2, "Invalid columns at '#long': expected a type"),
        ("create table {s}.t id:lng", 2, "lng"),
        ("create table {s}.t id:long --prop x", 2, "Invalid property 'x': expected <key>=<value>"),
        ("create table {s}.birds id:long", 6, "Table already exists: {s}.birds"),
        ("create namespace {s}", 6, "Namespace already exists: {s}"),
        ("rename table {s}.birds no.such", 2, "Namespace does not exist: no"),
        ("rename namespace {s}x y", 2, "Namespace does not exist: {s}x"),
        ("rename namespace {s} {s}.x", 2, "can't move into itself"),
        ("rename namespace {s} main", 6, "Namespace already exists: main"),
        ("refs create {s}.birds x --at nope", 2, "lists no snapshot, branch or tag 'nope'"),
        ("refs drop {s}.birds nope", 2, "has no branch or tag 'nope'; it has main"),
        ("refs drop {s}.birds main", 2, "main can't be dropped"),
        ("files {s}.birds --at 999999", 2, "lists no snapshot, branch or tag '999999'"),
        ("props get {s}.birds nope", 2, "has no property 'nope'; it has"),
        ("props set {s}.birds nope", 2, "Invalid property 'nope'"),
        ("comment {s}.birds x --column nope", 2, "has no column 'nope'"),
        ("register {s}.r /nowhere/x.metadata.json", 2, "/nowhere/x.metadata.json"),
        ("ls --profile nope", 2, "No profile 'nope'"),
        ("ls --profile localhost:8181", 2, "; a URI starts with http:// or https://"),
        ("sql DROP", 2, "syntax error"),
        ("sql FROM#x", 2, "syntax error"),
        ("search  ", 2, "Missing argument"),
        ("restore {s}.birds --to nope", 2, "'nope' is no branch or tag of the table"),
        ("clone {s}.birds {s}.birds", 6, "Table already exists: {s}.birds"),
        ("diff {s}.birds --from nope", 2, "'nope' is no branch or tag of the table"),
        ("diff {s}.birds --from main --to 2020-01-01", 2, "as far as is known: its history begins at"),
        ("grant ann selec {s}.birds", 2, "expected warehouse, namespace:NAME, table:NAMESPACE.NAME"),
        ("principal show nope", 2, "No such principal: nope"),
        ("token list", 2, "This server has no logins"),
        ("expire {s}.birds --older-than x", 2, "'x' is neither an age, as 2h or 90d, nor a time"),
        ("undrop {s}.nope", 2, "`duckicelake dropped` lists what there is"),
        ("ingest-rows {s}.birds /nope.json", 2, "/nope.json can't be read: No such file or directory"),
        ("show a..b", 2, "Invalid name 'a..b'"),
    ]:
        with subtests.test(arguments):
            assert table == f"{shell.space}.birds"
            said = shell.run(*arguments.format(s=shell.space).split(), code=code)
            is_usage = said.startswith("Usage")  # of Typer, in a box
            assert message.format(s=shell.space) in said
            assert (
                not said.endswith(f"; did you mean {table}?\n") or table not in arguments.format(s=shell.space).split()
            )
            assert is_usage or (said.startswith("duckicelake: ") and said.count("\n") == 1), said


def test_server_that_is_not_there_is_one_line() -> None:
    result = CliRunner().invoke(app, ["ls", "--uri", "http://127.0.0.1:1"])
    assert (result.exit_code, result.stderr.count("\n")) == (4, 1)
    assert "check --uri, and that it runs" in result.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("show", "{s}."), ["{s}.birds"]),
        (("files", "{s}.bi"), ["{s}.birds"]),
        (("props", "get", "{s}"), ["{s}"]),
        (("show", "{s}.x"), []),
        (("snapsh",), ["snapshots"]),
    ],
)
def test_shell_completes_names(
    shell: Shell, table: str, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], offered: list[str]
) -> None:
    assert table == f"{shell.space}.birds"
    monkeypatch.setenv("DUCKICELAKE_CLIENT_URI", shell.uri)
    found = complete(*(word.format(s=shell.space) for word in words))
    assert found == [name.format(s=shell.space) for name in offered]


def test_shell_completes_nothing_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKICELAKE_CLIENT_URI", "http://127.0.0.1:1")
    assert complete("show", "a") == []


def complete(*words: str) -> list[str]:
    """What bash offers behind these words."""
    line = {"COMP_WORDS": " ".join(("duckicelake", *words)), "COMP_CWORD": str(len(words))}
    environment = line | {"_DUCKICELAKE_COMPLETE": "complete_bash"}
    result = CliRunner().invoke(app, [], env=environment, prog_name="duckicelake")
    return result.stdout.split()


def test_short_help_and_version() -> None:
    assert "Usage: duckicelake ls" in CliRunner().invoke(app, ["ls", "-h"], prog_name="duckicelake").stdout
    version = CliRunner().invoke(app, ["--version"])
    assert (version.exit_code, version.stdout) == (0, CliRunner().invoke(app, ["version"]).stdout)
