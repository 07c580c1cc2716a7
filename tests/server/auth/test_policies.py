"""Policies by their routes, and what they leave to whom: management, trusted engines, ways round by changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.read_restrictions import Mask
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from scripts.backends_job.minio import Minio
from tests.support.guarded_lake import COLUMNS, GuardedLake, list_needles, serve_guarded
from tests.support.servers import Serve
from tests.support.waits import wait_until

POLICIES = "/management/v1/policies"
TAGS = "/management/v1/column-tags"
TABLES = "/v1/namespaces/sales%1Feu/tables"
T = f"{TABLES}/t"
ON_T = {"namespace": ["sales", "eu"], "name": "t"}


@pytest.fixture(scope="module")
def guarded(postgres: EmbeddedPostgres, minio: Minio) -> Iterator[GuardedLake]:
    with serve_guarded(postgres, minio) as lake:
        yield lake


@contextmanager
def having(lake: GuardedLake, name: str, table: str, **more: Any) -> Iterator[dict[str, Any]]:
    """Have a policy for a while."""
    added = lake.add_policy(name, table, **more)
    try:
        yield added
    finally:
        lake.done("DELETE", f"{POLICIES}/{added['id']}")


def read_refusal(answer: httpx.Response) -> str:
    assert answer.status_code == 403, answer.text
    return str(answer.json()["error"]["message"])


def find_restriction(lake: GuardedLake, table: str = "t", who: str = "engine") -> Any:
    return lake.done("GET", f"{TABLES}/{table}", who=who).get("read-restrictions")


EU = {
    "type": "eq",
    "left": {"type": "reference", "id": 2},
    "right": {"type": "literal", "value": "eu", "data-type": "string"},
}
NO_EMAIL = {"action": "replace-with-null", "field-id": 3}


def test_who_is_restricted_is_sent_to_the_query_route_and_others_read_on(guarded: GuardedLake) -> None:
    message = read_refusal(guarded.ask("ann", "GET", T))
    assert "Policies hide rows or values of sales.eu.t from the caller: read it by POST /sql/v1/query" in message
    assert "read-restrictions" not in guarded.done("GET", T, who="boss")
    assert guarded.ask("ann", "HEAD", T).status_code == 204
    names = [one["name"] for one in guarded.done("GET", TABLES, who="ann")["identifiers"]]
    assert "t" in names
    assert guarded.done("GET", f"{T}/actions", who="ann")["actions"] == ["manage-grants", "ownership"]


def test_trusted_engine_gets_restrictions_and_no_one_gets_anothers(guarded: GuardedLake) -> None:
    for _ in range(3):  # from the route, then from memory
        answers = {who: guarded.ask(who, "GET", T) for who in ("boss", "engine", "root", "ann", "engine")}
        assert {who: answer.status_code for who, answer in answers.items()} == {
            "boss": 200,
            "engine": 200,
            "root": 403,  # scope `*` isn't an exemption
            "ann": 403,
        }
        assert answers["engine"].json()["read-restrictions"] == {
            "required-column-projections": [NO_EMAIL],
            "required-row-filter": EU,
        }
        assert answers["boss"].headers["etag"] != answers["engine"].headers["etag"]
    tag = answers["engine"].headers["etag"]
    assert guarded.ask("engine", "GET", T, **{"If-None-Match": tag}).status_code == 304
    with having(guarded, "more", "t", condition="id < 1000", exempt=["boss"]):
        changed = guarded.ask("engine", "GET", T, **{"If-None-Match": tag})
        assert (changed.status_code, changed.headers["etag"] != tag) == (200, True)
        restriction = changed.json()["read-restrictions"]["required-row-filter"]
        assert (restriction["type"], restriction["right"]) == ("and", EU)


def test_trusted_engine_appends_but_replaces_no_rows(guarded: GuardedLake) -> None:
    guarded.make_table("written")
    with having(guarded, "w", "written", condition="region = 'eu'"):
        rows = f"{TABLES}/written/rows"
        assert guarded.ask("engine", "POST", rows, [{"id": 3, "region": "us"}]).status_code == 200
        refused = guarded.ask("engine", "DELETE", rows, {"where": {"type": "eq", "term": "id", "value": 1}})
        assert "whoever replaces or deletes rows must see them all" in read_refusal(refused)
        assert "query" in read_refusal(guarded.ask("ann", "POST", rows, [{"id": 4}]))


def test_policy_is_for_whom_it_says_by_role_and_group(guarded: GuardedLake) -> None:
    guarded.make_table("few")
    guarded.done("POST", "/management/v1/principals", {"name": "clerks", "kind": "role"})
    with having(guarded, "few", "few", condition="region = 'eu'", to=["clerks"]):
        assert guarded.ask("ann", "GET", f"{TABLES}/few").status_code == 200
        guarded.done("POST", "/management/v1/principals/clerks/members", {"member": "ann"})
        wait_until(lambda: guarded.ask("ann", "GET", f"{TABLES}/few").status_code == 403, seconds=1)
        assert guarded.ask("boss", "GET", f"{TABLES}/few").status_code == 200
    assert guarded.ask("ann", "GET", f"{TABLES}/few").status_code == 200


def test_mask_of_a_tag_is_on_all_its_columns_and_hides_more_where_it_does_not_fit(guarded: GuardedLake) -> None:
    guarded.make_table("tagged")
    table = {"namespace": ["sales", "eu"], "name": "tagged"}
    columns = [{"tag": "pii", "table": table, "column": column} for column in ("email", "ID")]
    assert len(guarded.done("POST", TAGS, {"give": columns})["tags"]) == 2
    with having(guarded, "personal", "tagged", tag="pii", mask="show-first-4", exempt=["boss"]):
        assert guarded.ask("ann", "GET", f"{TABLES}/tagged").status_code == 403
        assert find_restriction(guarded, "tagged")["required-column-projections"] == [
            {"action": "replace-with-null", "field-id": 1},
            {"action": "show-first-4", "field-id": 3},
        ]
        guarded.done("POST", TAGS, {"take": columns[1:]})
        assert len(find_restriction(guarded, "tagged")["required-column-projections"]) == 1
        listed = guarded.done("GET", f"{POLICIES}?on=table:sales.eu.tagged")["policies"]
        assert [one["name"] for one in listed] == ["personal"]
    assert guarded.ask("ann", "GET", f"{TABLES}/tagged").status_code == 200


BAD_POLICIES = [
    ({"condition": "region = 'eu'", "mask": "replace-with-null"}, "by a condition, or a mask"),
    ({}, "by a condition, or a mask"),
    ({"mask": "hide", "column": "id"}, "Invalid mask 'hide': expected one of mask-alphanum"),
    ({"mask": "show-last-4"}, "A column is given for a mask"),
    ({"mask": "show-last-4", "column": "id"}, "show-last-4 doesn't fit id, which is a long"),
    ({"mask": "replace-with-null", "column": "no"}, "Cannot find column 'no': expected one of id, region, email"),
    ({"condition": "upper(region) = 'EU'"}, "Iceberg's filters can't say"),
    ({"condition": "region LIKE 'e%u'"}, "Iceberg's filters can't say"),
    ({"condition": "id = CAST(5.7 AS INTEGER)"}, "Iceberg's filters can't say"),
    ({"condition": "id = 'five'"}, "id is compared with 'five'"),
    ({"condition": "nothing = 1"}, "Cannot find column 'nothing'"),
    ({"condition": "region = "}, "Invalid condition"),
    ({"condition": "id IN (SELECT 1)"}, "Iceberg's filters can't say"),
    ({"condition": "region = 'eu'", "table": None}, "on a table, or on the columns that have a tag"),
    ({"condition": "region = 'eu'", "table": None, "tag": "pii"}, "A row filter is on a table"),
    ({"condition": "true", "name": "no good"}, "Invalid policy 'no good'"),
]


@pytest.mark.parametrize(("more", "message"), BAD_POLICIES)
def test_bad_policy_is_refused_with_what_would_be_right(guarded: GuardedLake, more: Any, message: str) -> None:
    answer = guarded.ask("root", "POST", POLICIES, {"name": "bad", "table": ON_T, **more})
    assert (answer.status_code, message in answer.json()["error"]["message"]) == (400, True), answer.text


def test_policies_are_managed_by_administrators_and_by_who_manages_the_table(guarded: GuardedLake) -> None:
    body = {"name": "own", "table": ON_T, "condition": "true"}
    assert guarded.ask("boss", "POST", POLICIES, body).status_code == 403
    assert guarded.done("GET", POLICIES, who="boss")["policies"] == []
    assert guarded.ask("root", "POST", POLICIES, {**body, "to": ["none-such"]}).status_code == 404
    listed = guarded.done("GET", f"{POLICIES}?on=table:sales.eu.t")["policies"]
    assert [one["name"] for one in listed] == ["emails-of-t", "regions-of-t"]
    assert guarded.ask("root", "POST", POLICIES, {**body, "name": "regions-of-t"}).status_code == 409
    assert guarded.ask("root", "GET", f"{POLICIES}/{listed[0]['id']}").json() == listed[0]
    assert guarded.ask("root", "GET", f"{POLICIES}/{UUID(int=5)}").status_code == 404
    assert guarded.ask("boss", "DELETE", f"{POLICIES}/{listed[0]['id']}").status_code == 404
    of_first = guarded.done("GET", "/management/v1/warehouses/duckicelake/policies")["policies"]
    assert of_first == guarded.done("GET", POLICIES)["policies"]


def test_why_names_the_policies(guarded: GuardedLake) -> None:
    asked = "/management/v1/decision?action={}&on=table:sales.eu.t&principal={}&scopes=*"
    for who, action, is_allowed, names in (
        ("ann", "select", False, ["emails-of-t", "regions-of-t"]),
        ("engine", "insert", True, ["emails-of-t", "regions-of-t"]),
        ("engine", "delete", False, ["emails-of-t", "regions-of-t"]),
        ("boss", "select", True, []),
    ):
        found = guarded.done("GET", asked.format(action, who))
        assert (found["is-allowed"], found["policies"]) == (is_allowed, names), who


def test_local_files_take_no_policies(services: Services, serve: Serve) -> None:
    http = serve(create_app(services))
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    http.post("/v1/namespaces", json={"namespace": ["n"]}).raise_for_status()
    http.post("/v1/namespaces/n/tables", json={"name": "t", "schema": schema}).raise_for_status()
    body = {"name": "p", "table": {"namespace": ["n"], "name": "t"}, "condition": "id < 5"}
    answer = http.post(POLICIES, json=body)
    assert answer.status_code == 400
    assert (
        "Policies take a warehouse whose files are all in S3 or in Google Cloud Storage"
        in answer.json()["error"]["message"]
    )


def test_every_mask_of_the_specification_can_be_given(guarded: GuardedLake) -> None:
    for mask in Mask:
        if mask not in {Mask.YEAR, Mask.MONTH}:
            with having(guarded, f"one-{mask}", "t", column="region", mask=str(mask), to=["engine"]):
                projections = find_restriction(guarded)["required-column-projections"]
                assert {"action": str(mask), "field-id": 2} in projections


def refuses(lake: GuardedLake, table: str, who: str = "ann") -> bool:
    answer = lake.ask(who, "GET", f"{TABLES}/{table}")
    assert not any(needle in answer.content for needle in list_needles())
    return answer.status_code in {403, 404}


def test_rename_keeps_policies_and_shows_nothing_meanwhile(guarded: GuardedLake) -> None:
    """By REST and by DuckDB, with ann asking for the new name all the time, which another table had before."""
    guarded.make_table("moved")
    with having(guarded, "m", "moved", condition="region = 'eu'", exempt=["root"]):
        assert refuses(guarded, "moved")
        for number in range(3):
            old, new = ("moved", "moved2") if number % 2 == 0 else ("moved2", "moved")
            for _ in range(3):
                assert refuses(guarded, new)
            rename = {"source": {**ON_T, "name": old}, "destination": {**ON_T, "name": new}}
            guarded.done("POST", "/v1/tables/rename", rename)
            for _ in range(20):
                assert refuses(guarded, new)
                guarded.done("GET", f"{TABLES}/{new}")  # into the cache, under the new name
        with guarded.duckdb() as duck:
            duck.execute('ALTER TABLE lake."sales.eu".moved2 RENAME TO moved3')
        for _ in range(20):
            assert refuses(guarded, "moved3")
            guarded.done("GET", f"{TABLES}/moved3")


def test_dropped_table_comes_back_with_its_policies_and_another_of_its_name_shows_no_rows(guarded: GuardedLake) -> None:
    guarded.make_table("gone")
    with having(guarded, "g", "gone", condition="region = 'eu'", exempt=["root"]):
        guarded.done("DELETE", f"{TABLES}/gone")
        shown = guarded.done("GET", "/v1/dropped", who="ann")
        assert "gone" not in str(shown)
        assert guarded.ask("ann", "POST", "/v1/namespaces/sales%1Feu/undrop", {"name": "gone"}).is_success
        assert refuses(guarded, "gone")
        guarded.done("DELETE", f"{TABLES}/gone")
        guarded.make_table("gone")
        assert refuses(guarded, "gone")
        assert find_restriction(guarded, "gone") == {"required-row-filter": False}
        (listed,) = [one for one in guarded.done("GET", POLICIES)["policies"] if one["name"] == "g"]
        assert (listed["is-live"], listed["table"]["name"]) == (False, "gone")
    assert guarded.ask("ann", "GET", f"{TABLES}/gone").status_code == 200


def test_duckdb_replaces_a_table_and_its_readers_see_no_rows(guarded: GuardedLake) -> None:
    guarded.make_table("replaced")
    with having(guarded, "r", "replaced", column="email", mask="sha-256-global", exempt=["root"]):
        with guarded.duckdb() as duck:
            duck.execute("CREATE OR REPLACE TABLE lake.\"sales.eu\".replaced AS SELECT 1 AS id, 'x' AS email")
        wait_until(lambda: refuses(guarded, "replaced"), seconds=2)
        assert find_restriction(guarded, "replaced") == {"required-row-filter": False}


def test_column_in_the_place_of_a_masked_one_shows_nothing(guarded: GuardedLake) -> None:
    guarded.make_table("altered")
    with having(guarded, "a", "altered", column="email", mask="show-last-4", exempt=["root"]):
        with guarded.duckdb() as duck:
            duck.execute('ALTER TABLE lake."sales.eu".altered RENAME COLUMN email TO mail')
        wait_until(lambda: find_restriction(guarded, "altered") is not None, seconds=2)
        only = [{"action": "show-last-4", "field-id": 3}]
        assert find_restriction(guarded, "altered")["required-column-projections"] == only
        with guarded.duckdb() as duck:
            duck.execute('ALTER TABLE lake."sales.eu".altered DROP COLUMN mail')
            duck.execute('ALTER TABLE lake."sales.eu".altered ADD COLUMN mail VARCHAR')
        wait_until(lambda: len(find_restriction(guarded, "altered")["required-column-projections"]) == 2, seconds=2)
        added = find_restriction(guarded, "altered")["required-column-projections"]
        assert sorted(one["action"] for one in added) == ["replace-with-null", "show-last-4"]


NESTED = [
    {"id": 1, "name": "id", "type": "long", "required": False},
    {"id": 2, "name": "person", "required": False, "type": {"type": "struct", "fields": [
        {"id": 3, "name": "email", "type": "string", "required": False},
        {"id": 4, "name": "age", "type": "int", "required": True},
    ]}},
    {"id": 5, "name": "notes", "required": False, "type": {
        "type": "map", "key-id": 6, "key": {"type": "struct", "fields": [
            {"id": 8, "name": "day", "type": "date", "required": True},
        ]}, "value-id": 7, "value-required": False, "value": "string",
    }},
]  # fmt: skip


def test_policy_is_on_a_field_at_any_depth_by_its_id(guarded: GuardedLake) -> None:
    schema = {"type": "struct", "schema-id": 0, "fields": NESTED}
    guarded.done("POST", TABLES, {"name": "nested", "schema": schema})
    on = {"table": {**ON_T, "name": "nested"}}
    for column, mask, message in (
        ("person.email", "truncate-to-year", "doesn't fit person.email, which is a string"),
        ("person.age", "replace-with-null", "doesn't fit person.age: the column is required"),
        ("person.phone", "show-last-4", "or a field in one as `a.b`"),
        ("notes.key.day", "truncate-to-year", "notes.key.day is in the keys of a map, which must stay distinct"),
        ("notes.key", "mask-to-fixed-value", "mask the map"),
    ):
        answer = guarded.ask("root", "POST", POLICIES, {"name": "bad", **on, "column": column, "mask": mask})
        assert (answer.status_code, message in answer.text) == (400, True), answer.text
    assert guarded.ask("root", "POST", TAGS, {"give": [{**on, "tag": "pii", "column": "notes.key"}]}).is_client_error
    guarded.done("POST", TAGS, {"give": [{**on, "tag": "notes", "column": "NOTES.value"}]})
    with (
        having(guarded, "n1", "nested", column="Person.Email", mask="show-last-4", exempt=["root"]) as added,
        having(guarded, "n2", "nested", tag="notes", mask="sha-256-global", exempt=["root"]),
    ):
        assert added["column"] == "person.email"
        assert refuses(guarded, "nested")
        assert find_restriction(guarded, "nested")["required-column-projections"] == [
            {"action": "show-last-4", "field-id": 4},
            {"action": "sha-256-global", "field-id": 7},
        ]
        with guarded.duckdb() as duck:
            duck.execute('ALTER TABLE lake."sales.eu".nested RENAME COLUMN person TO who')
            duck.execute('ALTER TABLE lake."sales.eu".nested RENAME COLUMN who.email TO mail')
        assert guarded.done("GET", f"{POLICIES}/{added['id']}")["column"] == "who.mail"
        assert guarded.done("GET", f"{TAGS}?on=table:sales.eu.nested")["tags"][0]["column"] == "notes.value"
    guarded.done("POST", TAGS, {"take": [{**on, "tag": "notes", "column": "notes.value"}]})


def test_no_key_of_a_table_of_the_same_name_reaches_the_files(guarded: GuardedLake) -> None:
    """Folders of DuckLake's files are called like tables: another table takes the name after a rename and a drop."""
    delegation = {"X-Iceberg-Access-Delegation": "vended-credentials"}
    schema: dict[str, Any] = {"type": "struct", "schema-id": 0, "fields": COLUMNS}
    for name in ("renamed", "dropped"):
        guarded.make_table(name)
        guarded.guard(name)
        loaded = guarded.done("GET", f"{TABLES}/{name}", who="boss")
        planned = guarded.done("POST", f"{TABLES}/{name}/plan", {}, who="boss")["file-scan-tasks"]
        files = [task["data-file"]["file-path"] for task in planned]
        source = {**ON_T, "name": name}
        if name == "renamed":
            guarded.done(
                "POST", "/v1/tables/rename", {"source": source, "destination": {**ON_T, "name": "elsewhere"}}, "boss"
            )
        else:
            guarded.done("DELETE", f"{TABLES}/{name}", who="boss")
        own = guarded.ask("ann", "POST", TABLES, {"name": name, "schema": schema}, **delegation).json()
        prefixes = [key["prefix"] for key in own["storage-credentials"]]
        assert prefixes
        assert [file for file in files for prefix in prefixes if file.startswith(prefix)] == []
        for file in (*files, loaded["metadata-location"]):
            uri = f"{guarded.bucket.minio.endpoint}/{file.removeprefix('s3://')}"
            wish = {"region": "us-east-1", "method": "GET", "uri": uri, "headers": {}}
            assert guarded.ask("ann", "POST", f"{TABLES}/{name}/sign", wish).status_code == 403
        for place in (loaded["metadata"]["location"], files[0].rpartition("/")[0]):
            body = {"name": "mine", "schema": schema, "location": place}
            assert guarded.ask("ann", "POST", TABLES, body).is_client_error
            update = {"action": "set-properties", "updates": {"write.data.path": place}}
            commit = {"requirements": [], "updates": [update]}
            assert guarded.ask("ann", "POST", f"{TABLES}/{name}", commit).is_client_error


def test_clone_carries_the_policies_and_only_who_sees_all_makes_one(guarded: GuardedLake) -> None:
    body = {"name": "copy", "source": ON_T}
    clone = "/v1/namespaces/sales%1Feu/clone"
    for who in ("ann", "root"):
        assert "Policies hide" in read_refusal(guarded.ask(who, "POST", clone, body))
    guarded.done("POST", clone, body, who="boss")
    assert refuses(guarded, "copy")
    assert find_restriction(guarded, "copy") == find_restriction(guarded)
    listed = guarded.done("GET", f"{POLICIES}?on=table:sales.eu.copy")["policies"]
    assert {(one["name"], tuple(one["exempt"])) for one in listed} == {
        ("emails-of-t", ("boss",)),
        ("regions-of-t", ("boss",)),
    }


def test_files_are_registered_by_no_one_who_sees_a_part(guarded: GuardedLake) -> None:
    location = guarded.done("GET", T, who="boss")["metadata-location"]
    register = "/v1/namespaces/sales%1Feu/register"
    body = {"name": "again", "metadata-location": location}
    for who in ("ann", "engine"):
        assert guarded.ask(who, "POST", register, body).status_code in {400, 403, 409}
    assert guarded.ask("boss", "POST", f"{T}/unregister").status_code == 409
    over = {"name": "t", "metadata-location": location, "overwrite": True}
    assert guarded.ask("boss", "POST", register, over).status_code == 409


def test_policies_end_with_themselves(guarded: GuardedLake) -> None:
    guarded.make_table("free")
    with having(guarded, "f", "free", condition="region = 'eu'"):
        assert refuses(guarded, "free")
    assert guarded.ask("ann", "GET", f"{TABLES}/free").status_code == 200
    assert "read-restrictions" not in guarded.done("GET", f"{TABLES}/free", who="engine")


def test_policy_whose_only_principal_is_dropped_is_for_everyone(guarded: GuardedLake) -> None:
    guarded.make_table("left")
    guarded.done("POST", "/management/v1/principals", {"name": "temp", "kind": "service"})
    with having(guarded, "l", "left", condition="region = 'eu'", to=["temp"]):
        assert guarded.ask("ann", "GET", f"{TABLES}/left").status_code == 200
        guarded.done("DELETE", "/management/v1/principals/temp")
        wait_until(lambda: refuses(guarded, "left"), seconds=1)
