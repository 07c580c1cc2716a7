"""Commands of policies and their part in the file of governance, by REST and on the lake: both ways do the same."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from duckicelake.cli.main import app
from duckicelake.postgres.embedded import EmbeddedPostgres
from scripts.backends_job.minio import Minio
from tests.support.guarded_lake import GuardedLake, serve_guarded

T = "table:sales.eu.t"
FILE = """\
principals: [{name: ann}, {name: boss}, {name: engine}, {name: root}]
roles: [{name: clerks, members: [ann]}]
column-tags:
- {tag: pii, object: table:sales.eu.t, column: EMAIL}
policies:
- {name: large, object: table:sales.eu.t, condition: id < 1000, exempt: [root, boss]}
- {name: personal, tag: pii, mask: show-last-4, to: [clerks]}
- {name: regions, object: table:sales.eu.t, mask: sha-256-global, column: REGION, to: [ann, clerks]}
"""


@dataclass
class Way:
    """Runs commands on the lake of the server, or by REST."""

    environment: dict[str, str]

    def run(self, line: str, text: str | None = None, status: int = 0) -> str:
        words = [*shlex.split(line), *([] if text is None else ["-"])]
        report = CliRunner().invoke(app, words, env=self.environment, input=text)
        assert report.exit_code == status, report.output
        return str(report.output)

    def load(self, line: str) -> list[Any]:
        return [json.loads(one) for one in self.run(f"{line} --json").splitlines()]


@pytest.fixture(scope="module")
def guarded(postgres: EmbeddedPostgres, minio: Minio) -> Iterator[GuardedLake]:
    with serve_guarded(postgres, minio) as lake:
        yield lake


def reach(guarded: GuardedLake) -> Way:
    uri = str(guarded.http.base_url)
    return Way({"DUCKICELAKE_CLIENT_URI": uri, "DUCKICELAKE_CLIENT_TOKEN": guarded.tokens["root"]})


@pytest.fixture(params=["rest", "lake"])
def way(request: pytest.FixtureRequest, guarded: GuardedLake) -> Way:
    if request.param == "rest":
        return reach(guarded)
    minio, services = guarded.bucket.minio, guarded.services
    return Way(
        {
            "DUCKICELAKE_DATABASE_URL": services.database.url,
            "DUCKICELAKE_WAREHOUSE": services.policy.warehouse,
            "DUCKICELAKE_S3_ENDPOINT": minio.endpoint,
            "DUCKICELAKE_S3_REGION": minio.region,
            "DUCKICELAKE_S3_PATH_STYLE": "true",
            "DUCKICELAKE_S3_ACCESS_KEY_ID": minio.access_key,
            "DUCKICELAKE_S3_SECRET_ACCESS_KEY": minio.secret_key,
        },
    )


@pytest.fixture
def bare(way: Way) -> Iterator[Way]:
    """Have no policy and no tag, before and after."""
    _clear(way)
    yield way
    _clear(way)


def _clear(way: Way) -> None:
    way.run("apply --prune", "policies: []\ncolumn-tags: []\n")
    assert way.load("policy list") == way.load("policy tags") == []


def test_policy_is_added_listed_shown_and_dropped(bare: Way) -> None:
    bare.run(f"policy add eu {T} --where \"region = 'eu'\" --exempt boss")
    bare.run(f"policy tag pii {T} EMAIL")
    bare.run("policy add pii --tag pii --mask replace-with-null --to ann,engine")
    assert bare.run("policy list").splitlines() == [
        f"eu                   {T}               rows where region = 'eu', to everyone but boss",
        "pii                  tag pii                        replace-with-null of its columns, to ann, engine",
    ]
    (eu,) = [json.loads(bare.run("policy show eu"))]
    assert (eu["object"], eu["condition"], eu["exempt"], eu["is-live"]) == (T, "region = 'eu'", ["boss"], True)
    assert [one["name"] for one in bare.load(f"policy list --on {T}")] == ["eu", "pii"]
    assert bare.load("policy tags") == [{"tag": "pii", "object": T, "column": "email", "is-live": True}]
    bare.run(f"policy untag pii {T} email")
    assert bare.run(f"policy drop eu --on {T}") == "Policy eu is dropped\n"
    assert "There is no policy eu" in bare.run("policy drop eu", status=2)


def test_mistake_is_named(way: Way, subtests: pytest.Subtests) -> None:
    for line, message in (
        (f"policy add bad {T} --mask hide --column id", "Invalid mask 'hide'"),
        (f"policy add bad {T}", "give one"),
        ("policy add bad namespace:sales --where true", "Policies are on tables, not on namespace:sales"),
        (f"policy add bad {T} --where true --to absent", "There is no principal absent"),
        (f"policy add bad {T} --where true --to ann --exempt ann", "for ann or it isn't"),
        ("policy tag pii table:sales.eu.absent email", "absent"),
    ):
        with subtests.test(line):
            assert message in way.run(line, status=2)


def test_file_is_applied_once_and_exported_the_same(bare: Way) -> None:
    planned = bare.run("apply --dry-run", FILE)
    assert bare.load("policy list") == []
    assert bare.run("apply", FILE).replace("changed", "to change") == planned
    assert [line for line in planned.splitlines() if "policy" in line or "tag" in line] == [
        f"+ tag pii on email of {T} in duckicelake",
        "+ policy personal on columns with a tag in duckicelake",
        f"+ policy large on {T} in duckicelake",
        f"+ policy regions on {T} in duckicelake",
    ]
    assert "nothing changed" in bare.run("apply", FILE)
    assert "nothing to change" in bare.run("apply --dry-run --prune", bare.run("export"))
    dropped = bare.run("apply --prune", "policies: []\nroles: []\n")
    assert "- policy regions" in dropped
    assert bare.load("policy tags") != []  # of which the file says nothing
    assert bare.load("policy list") == []


def test_changed_policy_is_replaced_and_others_stay(bare: Way) -> None:
    bare.run("apply", FILE)
    before = {one["name"]: one["id"] for one in bare.load("policy list")}
    other = FILE.replace("id < 1000", "id < 900").replace("show-last-4", "show-first-4")
    assert bare.run("apply", other).splitlines()[:-1] == [
        "~ policy personal on columns with a tag in duckicelake: mask 'show-last-4' -> 'show-first-4'",
        f"~ policy large on {T} in duckicelake: condition 'id < 1000' -> 'id < 900'",
    ]
    after = {one["name"]: one["id"] for one in bare.load("policy list")}
    assert {name for name in before if before[name] != after[name]} == {"large", "personal"}
    assert [one["to"] for one in bare.load("policy list") if one["name"] == "personal"] == [["clerks"]]


KEPT = """\
column-tags:
- {tag: pii, object: table:sales.eu.kept, column: place.street}
policies:
- name: both
  object: table:sales.eu.kept
  condition: "Region = 'eu' AND NOT (id >= 5 OR region IS NULL)"
  exempt: [root]
- {name: flags, object: table:sales.eu.kept, condition: id < 9, exempt: [root]}
- {name: streets, tag: pii, mask: show-last-4, exempt: [root]}
"""


def test_export_reads_as_columns_are_called_now_and_can_be_applied_anew(guarded: GuardedLake) -> None:
    """After renames of columns and of the table by DuckDB, a wider type, a clone, a restore and an undrop."""
    way, tables = reach(guarded), "/v1/namespaces/sales%1Feu/tables"
    _clear(way)

    def read_conditions() -> dict[str, str]:
        return {one["name"]: one["condition"] for one in way.load("policy list") if one["condition"]}

    def read_restrictions() -> str:
        """Read what an engine gets, with constants as of the column's type when the policy was made."""
        loaded = guarded.done("GET", f"{tables}/{name}", who="engine")
        return json.dumps(loaded["read-restrictions"], sort_keys=True).replace('"int"', '"long"')

    def check_again() -> list[str]:
        """Check that the export changes nothing, and that it makes the same again where it is applied anew."""
        text, had = way.run("export"), way.load("policy list")
        assert "nothing to change" in way.run("apply --dry-run --prune", text)
        restricted = read_restrictions()
        _clear(way)
        way.run("apply", text)
        assert read_restrictions() == restricted
        new = way.load("policy list")
        assert [{**one, "id": "", "created-at": ""} for one in new] == [
            {**one, "id": "", "created-at": ""} for one in had
        ]
        return [line for line in text.splitlines() if "kept" in line or "moved" in line]

    name = "kept"
    with guarded.duckdb() as duck:
        at = 'lake."sales.eu"'
        duck.execute(f"CREATE TABLE {at}.kept (id INT, region VARCHAR, place STRUCT(street VARCHAR))")
        duck.execute(f"INSERT INTO {at}.kept VALUES (1, 'eu', {{'street': 'Elm 1'}}), (7, 'eu', NULL)")
        way.run("apply", KEPT)
        typed = read_conditions()
        assert typed["both"] == "Region = 'eu' AND NOT (id >= 5 OR region IS NULL)"
        duck.execute(f'ALTER TABLE {at}.kept RENAME COLUMN region TO "sales area"')
        duck.execute(f"ALTER TABLE {at}.kept RENAME COLUMN place TO region")
        duck.execute(f"ALTER TABLE {at}.kept RENAME COLUMN region.street TO road")
        duck.execute(f"ALTER TABLE {at}.kept ALTER COLUMN id TYPE BIGINT")
        duck.execute(f"INSERT INTO {at}.kept VALUES (2, 'eu', NULL)")
        before = guarded.done("GET", f"{tables}/kept")["metadata"]["current-snapshot-id"]
        renamed = {"both": """"sales area" = 'eu' AND NOT (id >= 5 OR "sales area" IS NULL)""", "flags": "id < 9"}
        assert read_conditions() == renamed
        assert way.load("policy tags")[0]["column"] == "region.road"
        check_again()
        duck.execute(f"ALTER TABLE {at}.kept RENAME TO moved")
    name = "moved"
    assert all("moved" in line for line in check_again())
    guarded.done("DELETE", f"{tables}/moved")
    assert "moved" not in way.run("export")
    guarded.done("POST", "/v1/namespaces/sales%1Feu/undrop", {"name": "moved"})
    check_again()
    way.run("apply --prune", way.run("export").replace("id < 9", "id < 99"))
    assert read_conditions()["flags"] == "id < 99"
    with guarded.duckdb() as duck:
        duck.execute('ALTER TABLE lake."sales.eu".moved RENAME COLUMN "sales area" TO area')
    assert read_conditions()["both"] == """"area" = 'eu' AND NOT (id >= 5 OR "area" IS NULL)"""
    guarded.done("POST", f"{tables}/moved/restore", {"to": str(before)})
    assert read_conditions()["both"] == renamed["both"]
    check_again()


def test_policy_on_a_dropped_column_stays_as_it_was_and_is_refused_anew(guarded: GuardedLake) -> None:
    way = reach(guarded)
    _clear(way)
    guarded.make_table("lessened")
    text = "policies: [{name: eu, object: table:sales.eu.lessened, condition: region = 'eu', exempt: [root]}]"
    way.run("apply", text)
    with guarded.duckdb() as duck:
        duck.execute('ALTER TABLE lake."sales.eu".lessened DROP COLUMN region')
    assert "nothing to change" in way.run("apply --dry-run --prune", text)
    assert "region = 'eu'" in way.run("export")
    loaded = guarded.done("GET", "/v1/namespaces/sales%1Feu/tables/lessened", who="engine")
    assert loaded["read-restrictions"] == {"required-row-filter": False}
    _clear(way)
    assert "policies[0]: Cannot find column 'region'" in way.run("apply", text, status=2)


BAD = [
    ("policies: [{name: p, object: table:sales.eu.t, condition: 'upper(region) = 1'}]", "policies[0]: "),
    ("policies: [{name: p, object: table:sales.eu.t, condition: 'nothing = 1'}]", "policies[0]: Cannot find column"),
    ("policies: [{name: p, object: table:sales.eu.no, condition: 'true'}]", "policies[0]: "),
    ("policies: [{name: p, object: namespace:sales, condition: 'true'}]", "policies[0]: Policies are on tables"),
    ("policies: [{name: p, object: table:sales.eu.t}]", "policies[0]: A policy is a row filter"),
    ("policies: [{name: p, tag: pii, mask: hide}]", "policies[0]: Invalid mask 'hide'"),
    ("policies: [{name: p, tag: pii, mask: show-last-4, to: [absent]}]", "policies[0]: there is no principal absent"),
    ("policies: [{name: p, tag: t, mask: show-last-4}, {name: p, tag: u, mask: show-last-4}]", "policies[1]: policy p"),
    (
        "policies: [{name: p, tag: t, mask: show-last-4, warehouse: absent}]",
        "policies[0]: there is no warehouse absent",
    ),
    ("policies: [{name: p, tag: t, mask: show-last-4, where: x}]", "policies[0].where"),
    (
        "column-tags: [{tag: pii, object: table:sales.eu.t, column: absent}]",
        "column-tags[0]: Cannot find column",
    ),
    ("column-tags: [{tag: 'a b', object: table:sales.eu.t, column: id}]", "column-tags[0]: Invalid tag 'a b'"),
    ("column-tags: [{tag: pii, object: table:sales.eu.t}]", "column-tags[0].column"),
    ("warehouses: [{name: x}]\ncolumn-tags: [{tag: a, object: table:a.b, column: c, warehouse: x}]", "which is new"),
]


def test_what_cannot_be_is_refused_with_its_place(guarded: GuardedLake, subtests: pytest.Subtests) -> None:
    way = reach(guarded)
    had = way.run("export")
    for text, place in BAD:
        with subtests.test(text):
            output = way.run("apply", text, status=2)
            assert output.startswith("duckicelake: document: ")
            assert place in output
            assert output.count("\n") == 1
    assert way.run("export") == had


def test_policy_is_not_left_for_everyone_by_a_principal_that_is_dropped(bare: Way) -> None:
    bare.run("apply", FILE)
    without = FILE.replace("roles: [{name: clerks, members: [ann]}]", "roles: []")
    assert "policies[1]: there is no principal clerks" in bare.run("apply --prune", without, status=2)
    assert [one["to"] for one in bare.load("policy list") if one["name"] == "personal"] == [["clerks"]]
