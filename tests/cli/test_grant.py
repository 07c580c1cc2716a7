"""Commands of grants on a lake: give, list, explain and take privileges, and let them decide."""

import json
import shlex

import pytest
from typer.testing import CliRunner

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.cli.main import app


@pytest.fixture
def environment(services: Services) -> dict[str, str]:
    create_namespace(services, ("sales",), {})
    with services.database.transaction() as cursor:
        cursor.execute(
            "INSERT INTO duckicelake_principal (name, kind) "
            "VALUES ('ann', 'user'), ('analysts', 'role'), ('staff', 'role')"
        )
        cursor.execute(
            "INSERT INTO duckicelake_membership SELECT c.principal_id, m.principal_id "
            "FROM duckicelake_principal c, duckicelake_principal m "
            "WHERE (m.name, c.name) IN (('ann', 'analysts'), ('analysts', 'staff'))"
        )
    return {"DUCKICELAKE_DATABASE_URL": services.database.url, "DUCKICELAKE_WAREHOUSE": services.policy.warehouse}


def run(environment: dict[str, str], line: str, status: int = 0) -> str:
    report = CliRunner().invoke(app, shlex.split(line), env=environment)
    assert report.exit_code == status, report.output
    return report.output


def test_grant_is_given_explained_listed_and_taken(environment: dict[str, str]) -> None:
    assert "scopes alone decide" in run(environment, "grant staff select,insert namespace:sales")
    assert "grants are off" in run(environment, "why ann select namespace:sales", 1)
    run(environment, "warehouse grants duckicelake on")
    why = run(environment, "why ann select table:sales.any")
    assert why.splitlines() == [
        "ann may select on table:sales.any",
        "  its scopes allow it: grants",
        "  select on namespace:sales, granted to ann in analysts in staff",
    ]
    assert "don't allow it: ns:hr:r" in run(environment, "why ann select table:sales.any --scopes ns:hr:r", 1)
    run(environment, "why ann select table:sales.any --scopes 'ns:hr:r ns:sales:r'")
    run(environment, "why user:ann select table:sales.any")
    assert "There is no role ann" in run(environment, "why role:ann select table:sales.any", 2)
    assert "ann may not drop on namespace:sales" in run(environment, "why ann drop namespace:sales", 1)
    assert json.loads(run(environment, "why ann drop namespace:sales --json", 1))["by"] == []
    listed = [json.loads(line) for line in run(environment, "list-grants staff --json").splitlines()]
    assert [(one["privilege"], one["object"]) for one in listed] == [
        ("insert", "namespace:sales"),
        ("select", "namespace:sales"),
    ]
    assert "1 of 2 privileges" in run(environment, "revoke staff select,delete namespace:sales")
    run(environment, "why ann select namespace:sales", 1)
    assert "definer-keys" not in run(environment, "export")
    run(environment, "warehouse options duckicelake definer-keys=on")
    assert "definer-keys" in run(environment, "export")
    run(environment, "warehouse options duckicelake definer-keys=yes", 2)
    run(environment, "warehouse grants duckicelake off")


@pytest.mark.parametrize(
    "line",
    [
        "grant nobody-at-all select warehouse",
        "grant ann fly warehouse",
        "grant ann select namespace:absent",
        "grant ann select table:sales",
        "grant ann select cellar",
        "why nobody-at-all select warehouse",
        "why user:admin select warehouse",
        "why ann select warehouse --scopes fly",
        "grant ann select warehouse --warehouse absent",
    ],
)
def test_what_there_is_not_is_refused(environment: dict[str, str], line: str) -> None:
    run(environment, "warehouse grants duckicelake on")
    assert run(environment, line, 2).startswith("duckicelake: ")
