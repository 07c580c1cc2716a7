"""Commands of principals, groups, roles, secrets and issuers on a lake."""

import json
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from duckicelake.catalog.authz.directory import PrincipalDirectory
from duckicelake.catalog.context.services import Services
from duckicelake.cli.main import app

Environment = dict[str, str]


@pytest.fixture
def environment(services: Services) -> Environment:
    return {"DUCKICELAKE_DATABASE_URL": services.database.url, "DUCKICELAKE_WAREHOUSE": services.policy.warehouse}


def run(environment: Environment, line: str, status: int = 0) -> str:
    report = CliRunner().invoke(app, shlex.split(line), env=environment)
    assert report.exit_code == status, report.output
    return report.output


def load(environment: Environment, line: str) -> list[Any]:
    return [json.loads(printed) for printed in run(environment, f"{line} --json").splitlines()]


def test_principal_is_created_listed_disabled_and_dropped(environment: Environment) -> None:
    run(environment, "principal create etl --description 'loads sales'")
    run(environment, "principal create ann --kind user --issuer https://id.example --subject 00u1 --scope ns:a:r")
    assert [row["name"] for row in load(environment, "principal list")] == ["admin", "ann", "etl", "trusted-engine"]
    (ann,) = load(environment, "principal list --kind user")
    assert (ann["issuer"], ann["subject"], ann["scopes"]) == ("https://id.example", "00u1", ["ns:a:r"])
    assert load(environment, "principal show etl")[0]["scopes"] == ["grants"]
    run(environment, "principal disable etl")
    assert load(environment, "principal show etl")[0]["is-disabled"]
    run(environment, "principal enable etl")
    assert not load(environment, "principal show etl")[0]["is-disabled"]
    run(environment, "principal drop etl")
    assert "No such principal" in run(environment, "principal show etl", 2)


def test_secret_is_printed_once_or_in_a_file_of_its_owner(
    environment: Environment, services: Services, tmp_path: Path
) -> None:
    run(environment, "principal create etl")
    secret = run(environment, "principal secret create etl").strip()
    directory, file = PrincipalDirectory(services.database), tmp_path / "etl.secret"
    found = directory.find_secret("client-secret", secret)
    assert found is not None
    assert found.row is not None
    assert found.row.name == "etl"
    printed = run(environment, f"principal secret create etl --kind token --expires-in 60 --secret-file {file}")
    token = file.read_text().strip()
    assert token not in printed
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert directory.find_secret("token", token) is not None
    assert "can't be made" in run(environment, f"principal secret create etl --secret-file {file}", 2)
    listed = load(environment, "principal secret list etl")
    assert [(row["kind"], row["expires"] is None) for row in listed] == [("client-secret", True), ("token", False)]
    assert secret not in json.dumps(listed)
    assert "token" in run(environment, "principal secret list etl")
    run(environment, f"principal secret revoke etl {listed[0]['secret-id']}")
    assert directory.find_secret("client-secret", secret) is None
    (rotated,) = load(environment, "principal secret create etl --kind token --end-others-in 0")
    assert directory.find_secret("token", token) is None
    assert directory.find_secret("token", rotated["secret"]) is not None


def test_failed_secret_leaves_no_file(environment: Environment, tmp_path: Path) -> None:
    run(environment, f"principal secret create absent --secret-file {tmp_path}/secret", 2)
    assert not (tmp_path / "secret").exists()


def test_client_of_the_settings_has_its_secret_there(environment: Environment) -> None:
    run(environment, "principal create etl")
    settings = environment | {"DUCKICELAKE_OAUTH_CLIENTS": f"etl:{'a' * 64}|*"}
    assert "client of the server's settings" in run(settings, "principal secret create etl", 2)


@pytest.mark.parametrize("kind", ["group", "role"])
def test_members_come_and_go(environment: Environment, kind: str) -> None:
    run(environment, "principal create ann --kind user")
    run(environment, f"{kind} create staff --description all")
    assert "staff" in [row["name"] for row in load(environment, f"{kind} list")]
    run(environment, f"{kind} members add staff ann")
    assert load(environment, f"{kind} members list staff") == [{"name": "ann"}]
    assert load(environment, "principal show ann")[0]["in"] == ["staff"]
    assert load(environment, "principal show staff")[0]["members"] == ["ann"]
    run(environment, f"{kind} members remove staff ann")
    assert run(environment, f"{kind} members list staff") == ""
    other = {"group": "role", "role": "group"}[kind]
    assert f"staff is a {kind}, no {other}" in run(environment, f"{other} members add staff ann", 2)


def test_issuer_is_trusted_and_dropped(environment: Environment) -> None:
    run(environment, "issuer add corp https://id.example --audience lake --group-claim groups")
    assert "https://id.example" in run(environment, "issuer list")
    assert load(environment, "issuer show corp") == load(environment, "issuer list")
    assert load(environment, "issuer show corp")[0]["group-claim"] == "groups"
    run(environment, "issuer change corp --web-client-id console --label SSO --web-scope openid --web-scope email")
    run(environment, "issuer disable corp")
    assert "(disabled)" in run(environment, "issuer list")
    run(environment, "issuer change corp --group-claim=")
    shown = load(environment, "issuer show corp")[0]
    assert (shown["web-client-id"], shown["label"], shown["is-disabled"]) == ("console", "SSO", True)
    assert (shown["web-scopes"], shown["group-claim"]) == (["openid", "email"], None)
    run(environment, "issuer enable corp")
    run(environment, "group create staff --issuer https://id.example --subject dept:staff")
    run(environment, "issuer drop corp")
    assert load(environment, "issuer list") == []
    own = environment | {"DUCKICELAKE_OIDC_ISSUER": "https://own.example", "DUCKICELAKE_OIDC_AUDIENCE": "lake"}
    assert "settings" in run(own, "issuer add own https://own.example --audience lake", 2)


@pytest.mark.parametrize(
    "line",
    [
        "principal create a:b",
        "principal create ann --kind user --issuer https://id.example",
        "principal create etl --scope ns:",
        "principal drop admin",
        "principal disable absent",
        "principal secret create admin",
        "principal secret revoke admin 17",
        "group members add absent ann",
        "role members add admin admin",
        "issuer add corp ftp://id.example --audience lake",
        "issuer drop absent",
    ],
)
def test_what_cannot_be_is_refused_in_one_line(environment: Environment, line: str) -> None:
    output = run(environment, line, 2)
    assert output.startswith("duckicelake: ")
    assert output.count("\n") == 1
