"""Governance as one file: written, applied, applied again, pruned, and refused with the place."""

import shlex
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.cli.main import app
from tests.support.documents import snippets

FILE = """\
principals:
- {name: etl, description: loads sales}
- {name: ann, kind: user, issuer: https://id.example, subject: 00u1}
groups:
- {name: staff, issuer: https://id.example, subject: "dept:staff", members: [ann]}
roles:
- {name: analysts, members: [staff]}
- {name: admin, members: []}
issuers:
- {name: corp, url: https://id.example, audience: lake, group-claim: groups, web-client-id: console, leeway: 0}
warehouses:
- {name: duckicelake, grants-on: true}
- {name: north, grants-on: true}
grants:
- {principal: analysts, object: namespace:sales, privileges: [select]}
- {principal: etl, object: namespace:sales, privileges: [select, insert]}
- {principal: analysts, warehouse: north, object: warehouse, privileges: [select]}
"""
NEW_WAREHOUSE = """\
warehouses: [{name: x}]
grants: [{principal: admin, object: namespace:a, privileges: [drop], warehouse: x}]
"""
Run = Callable[..., str]


@pytest.fixture
def run(services: Services, tmp_path: Path) -> Run:
    create_namespace(services, ("sales",), {})
    environment = {
        "DUCKICELAKE_DATABASE_URL": services.database.url,
        "DUCKICELAKE_WAREHOUSE": services.policy.warehouse,
        "DUCKICELAKE_WAREHOUSE_ROOTS": f"{tmp_path}/warehouses",
    }

    def run(*words: str, text: str | None = None, status: int = 0) -> str:
        report = CliRunner().invoke(app, [*words, *(["-"] if text is not None else [])], env=environment, input=text)
        assert report.exit_code == status, report.output
        return report.output

    return run


def test_file_is_applied_once_and_exported_the_same(run: Run) -> None:
    planned = run("apply", "--dry-run", text=FILE)
    assert "+ service etl" in planned
    assert run("apply", "--dry-run", text=FILE) == planned
    assert run("apply", text=FILE).replace("changed", "to change") == planned
    assert "nothing changed" in run("apply", text=FILE)
    assert "nothing to change" in run("apply", "--dry-run", "--prune", text=FILE)
    assert "may select" in run("why", "ann", "select", "namespace:sales")
    assert "may select" in run("why", "ann", "select", "warehouse", "--warehouse", "north")
    assert "service etl" in run("audit")
    exported = run("export")
    assert "nothing to change" in run("apply", "--dry-run", "--prune", text=exported)
    assert "secret" not in exported


def test_file_that_lacks_something_takes_it_only_if_asked(run: Run) -> None:
    run("apply", text=FILE)
    less = FILE.replace("members: [ann]", "members: []").replace("[select, insert]", "[select]")
    less = less.replace("- {name: etl, description: loads sales}\n", "- {name: etl}\n- {name: bot}\n")
    less = "\n".join(line for line in less.splitlines() if "corp" not in line and "north, object" not in line)
    less = less.replace("issuers:", "issuers: []")
    assert run("apply", text=less).splitlines()[0] == "+ service bot"
    assert run("apply", "--prune", text=less).splitlines()[:-1] == [
        "- grant insert on namespace:sales in duckicelake to etl",
        "- ann in staff",
        "- issuer corp",
        "- grant select on warehouse in north to analysts",
    ]
    assert "nothing changed" in run("apply", "--prune", text=less)
    run("why", "ann", "select", "namespace:sales", status=1)
    dropped = run("apply", "--prune", text="principals: []\nroles: []\ngroups: []\n")
    assert {"- service etl", "- user ann", "- role analysts", "- group staff"} <= set(dropped.splitlines())
    assert "role admin" not in dropped


def test_options_of_warehouses_are_applied_exported_and_pruned(run: Run) -> None:
    text = "warehouses: [{name: duckicelake, options: {max-tables: 9}}, {name: north, options: {flush-rows: 5}}]"
    assert "+ warehouse north" in run("apply", "--dry-run", text=text)
    assert run("apply", text=text).splitlines()[:-1] == [
        "~ warehouse duckicelake: max-tables None -> 9",
        "+ warehouse north",
        "~ warehouse north: flush-rows None -> 5",
    ]
    assert "nothing to change" in run("apply", "--dry-run", "--prune", text=run("export"))
    assert run("warehouse", "options", "north").split()[-2:] == ["flush-rows", "5"]
    assert '"max-tables": "9"' in run("warehouse", "options", "duckicelake", "--json")
    assert "max-namespaces" in run("warehouse", "options", "north", "flush-rows=", "max-namespaces=3")
    fewer = "warehouses: [{name: duckicelake, options: {}}, {name: north, options: {max-namespaces: 3}}]"
    assert "nothing changed" in run("apply", text=fewer)
    assert run("apply", "--prune", text=fewer).splitlines()[0] == "~ warehouse duckicelake: max-tables 9 -> None"
    for bad, place in (("max-table: 1", "warehouses[0]: There is no option"), ("max-tables: x", "Invalid max-tables")):
        assert place in run("apply", "--dry-run", text=f"warehouses: [{{name: north, options: {{{bad}}}}}]", status=2)
    assert "expected OPTION=VALUE" in run("warehouse", "options", "north", "max-tables", status=2)
    assert "Invalid max-tables" in run("warehouse", "options", "north", "max-tables=-1", status=2)


def test_creators_keep_what_they_own(run: Run, services: Services) -> None:
    run("apply", text=FILE)
    run("grant", "etl", "ownership", "namespace:sales")
    run("grant", "ann", "ownership", "namespace:sales")
    with services.database.transaction() as cursor:
        cursor.execute(
            "UPDATE duckicelake_grant g SET granted_by = p.name FROM duckicelake_principal p "
            "WHERE p.principal_id = g.grantee_id AND p.name = 'etl' AND g.privilege = 'ownership'"
        )
    pruned = run("apply", "--prune", text=FILE).splitlines()
    assert pruned[:-1] == ["- grant ownership on namespace:sales in duckicelake to ann"]
    run("why", "etl", "drop", "namespace:sales")


def test_changes_of_what_there_is(run: Run) -> None:
    run("apply", text=FILE)
    changed = run("apply", text="principals: [{name: etl, is-disabled: true, scopes: [grants, 'ns:a:r']}]")
    assert "~ service etl: scopes ('grants',) -> ('grants', 'ns:a:r'), is-disabled False -> True" in changed
    assert "loads sales" in run("principal", "show", "etl")
    assert "~ warehouse north: grants off" in run("apply", text="warehouses: [{name: north, grants-on: false}]")


def test_failure_changes_nothing(run: Run) -> None:
    circle = "principals: [{name: etl}]\nroles: [{name: a, members: [b]}, {name: b, members: [a]}]"
    assert "standard input: roles[1].members" in run("apply", text=circle, status=2)
    assert "No such principal" in run("principal", "show", "etl", status=2)
    assert "standard input: roles[1].members" in run("apply", "--dry-run", text=circle, status=2)


def test_what_cannot_be_is_refused_with_its_place(run: Run, subtests: pytest.Subtests) -> None:
    for text, place in [
        ("principals: [{name: etl, secret: x}]", "principals[0].secret"),
        ("principles: []", "principles"),
        ("principals: [{name: etl}, {name: etl}]", "principals[1]: etl stands twice"),
        ("principals: [{name: 17}]", "principals[0].name"),
        ("principals: [{name: 'a:b'}]", "principals[0]: Invalid name"),
        ("principals: [{name: etl, name: ann}]", "line 1: name stands twice"),
        ("principals: [{name: etl, kind: role}]", "principals[0].kind"),
        ("groups: [{name: staff, members: [absent]}]", "groups[0].members: there is no principal absent"),
        ("roles: [{name: staff}, {name: x, members: [x]}]", "roles[1].members"),
        ("groups: [{name: admin}]", "groups[0]: kind of admin is role"),
        ("grants: [{principal: admin, object: table:sales.absent, privileges: [select]}]", "grants[0]: "),
        ("grants: [{principal: admin, object: cellar, privileges: [select]}]", "grants[0]: Invalid object"),
        ("grants: [{principal: admin, object: warehouse, privileges: [fly]}]", "grants[0]: 'fly'"),
        ("grants: [{principal: absent, object: warehouse, privileges: [drop]}]", "grants[0]: there is no principal"),
        ("grants: [{principal: admin, object: warehouse, privileges: [drop], warehouse: x}]", "no warehouse x"),
        (NEW_WAREHOUSE, "grants[0]: there is no namespace:a in x"),
        ("warehouses: [{name: duckicelake, location: /elsewhere}]", "warehouses[0]: location"),
        ("issuers: [{name: corp, url: 'ftp://x', audience: lake}]", "issuers[0]: Invalid url"),
        ("- 1", "the whole"),
        ("a: &a [1]\nb: *a", "references"),
        ("{", "is no YAML"),
        ("principals: [{name: 2024-99-99}]", "can't be read"),
    ]:
        with subtests.test(text):
            output = run("apply", text=text, status=2)
            assert output.startswith("duckicelake: standard input")
            assert place in output
            assert output.count("\n") == 1


def test_example_company_goes_from_zero_to_least_privilege(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (snippet,) = [one for one in snippets("docs/governance.md") if one.name == "company"]
    monkeypatch.chdir(tmp_path)
    for line in snippet.code.splitlines():
        command, _, promised = line.partition("# -> ")
        output = run(*shlex.split(command, comments=True)[1:], status=1 if " not " in promised else 0)
        assert promised in output.splitlines()[:1] or not promised
    assert stat.S_IMODE((tmp_path / "etl.secret").stat().st_mode) == 0o600
    assert "nothing changed" in run("apply", "--prune", text=run("export"))


def test_file_that_is_not_there_is_refused(run: Run, tmp_path: Path) -> None:
    assert "can't be read" in run("apply", str(tmp_path / "absent.yaml"), status=2)
