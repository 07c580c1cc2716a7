"""The server reads and writes for its callers with its own rights: no one gets further through it than on their own.

Mallory may do all in namespace `ns`; Bob reads `secret`, too, where there is a table of one row.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import orjson
import pytest

from duckicelake.catalog import tables, views
from duckicelake.catalog.context.caller import Caller, Principal, build_grants
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.catalog.warehouse import prepare_lake
from duckicelake.errors import CatalogError, FileMissingError, ForbiddenError, InvalidRequestError
from duckicelake.iceberg.rest import (
    CommitTableRequest,
    CommitViewRequest,
    CreateTableRequest,
    CreateViewRequest,
    RegisterTableRequest,
    RegisterViewRequest,
)
from duckicelake.storage.registry import open_store
from tests.support.client import (
    NS,
    SCHEMA,
    Client,
    Draft,
    Json,
    append,
    data_files,
    local,
    new_client,
    pyiceberg_rows,
    set_properties,
)
from tests.support.foreign_catalog import CLEANERS, new_foreign, register
from tests.support.view_requests import creation, schema

SECRET = ("secret",)
HIDDEN = "lies outside of what you may use"


def acting(services: Services, *scopes: str) -> Client:
    return Client(replace(services, caller=Caller(Principal("somebody", build_grants(scopes)))))


@dataclass(frozen=True, slots=True)
class World:
    """The lake, with a secret table of one row, and someone's commits to it."""

    root: Client
    mallory: Client
    bob: Client
    allowed: str

    def secret(self, name: str = "t") -> Json:
        answer: Json = json.loads(tables.load_table(self.root.services, SECRET, name).body)
        return answer

    def create_secret(self, name: str = "t", **request: Any) -> Json:
        body = CreateTableRequest.model_validate({"name": name, "schema": SCHEMA, **request})
        tables.create_table(self.root.services, SECRET, body)
        commit = CommitTableRequest.model_validate(append(self.secret(name)["metadata"], (7, "secret")))
        tables.commit_table(self.root.services, SECRET, name, commit)
        return self.secret(name)


@pytest.fixture
def world(services: Services, tmp_path: Path) -> World:
    allowed = f"file://{tmp_path}/shared"
    services = replace(services, policy=replace(services.policy, allowed=(allowed,)))
    root = new_client(services)
    create_namespace(services, SECRET, {})
    mallory, bob = acting(services, "ns:ns:*"), acting(services, "ns:ns:*", "ns:secret:r")
    world = World(root, mallory, bob, allowed)
    world.create_secret()
    return world


# --- Registering


def crafted(client: Client, source: Json, **changes: Any) -> str:
    """A metadata.json of another's table, put where the caller may write."""
    place = client.create("place")["metadata"]["location"]
    path = local(f"{place}/metadata/crafted.metadata.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps({**source, "location": f"{place}/t", **changes}))
    return f"file://{path}"


def test_anothers_table_cannot_be_registered(world: World) -> None:
    with pytest.raises(ForbiddenError, match=HIDDEN):
        register(world.mallory, world.secret()["metadata-location"])


@pytest.mark.parametrize("leaves", ["location", "files"])
def test_crafted_metadata_opens_neither_the_place_nor_the_files_of_another(world: World, leaves: str) -> None:
    secret = world.secret()["metadata"]
    if leaves == "location":
        location = crafted(world.mallory, {**secret, "snapshots": [], "refs": {}, "current-snapshot-id": -1,
                                           "snapshot-log": []}, location=secret["location"])  # fmt: skip
    else:
        location = crafted(world.mallory, secret)
    with pytest.raises(ForbiddenError, match=HIDDEN):
        register(world.mallory, location)
    if leaves == "files":
        assert register(world.bob, location)["metadata"]["snapshots"]
    else:
        with pytest.raises(ForbiddenError, match=HIDDEN):  # who may only read the place must not get to write there
            register(world.bob, location)
    assert register(world.root, location, "for_root")


def test_what_a_dropped_table_left_is_still_its_namespaces(world: World) -> None:
    location = world.secret()["metadata-location"]
    tables.drop_table(world.root.services, SECRET, "t", purge=False)
    with pytest.raises(ForbiddenError, match=HIDDEN):
        register(world.mallory, location)
    assert register(world.root, location, "back")["metadata"]["snapshots"]


def test_what_a_moved_table_left_is_still_its_own(world: World) -> None:
    old = world.secret()["metadata-location"]
    moved = CommitTableRequest.model_validate(
        {"requirements": [], "updates": [{"action": "set-location", "location": f"{world.allowed}/moved"}]}
    )
    tables.commit_table(world.root.services, SECRET, "t", moved)
    with pytest.raises(ForbiddenError, match=HIDDEN):
        register(world.mallory, old)
    with pytest.raises(ForbiddenError, match=HIDDEN):
        register(world.mallory, world.secret()["metadata-location"])


def test_foreign_tables_are_registered_from_own_folders_and_allowed_ones_that_are_no_ones(world: World) -> None:
    policy = world.root.services.policy
    for number, place in enumerate((policy.namespace_folder(NS), f"{world.allowed}/free")):
        foreign = new_foreign(f"{place}/incoming")
        foreign.commit(append(foreign.metadata(), (1, "a")))
        assert pyiceberg_rows(register(world.mallory, foreign.location, f"r{number}")) == [(1, "a")]
    elsewhere = new_foreign(f"{policy.namespace_folder(SECRET)}/incoming")
    with pytest.raises(ForbiddenError, match=HIDDEN):
        register(world.mallory, elsewhere.location, "r2")


@pytest.mark.parametrize("there", [True, False])
def test_refusal_says_nothing_of_what_is_there(world: World, there: bool) -> None:
    location = world.secret()["metadata-location"] if there else f"{world.secret()['metadata']['location']}/no.json"
    missing = f"{world.root.services.policy.data_zone}/secret/no-such-table/metadata/x.metadata.json"
    with pytest.raises(ForbiddenError) as found:
        register(world.mallory, location)
    with pytest.raises(ForbiddenError) as absent:
        register(world.mallory, missing)
    assert str(found.value).replace(location, "") == str(absent.value).replace(missing, "")
    with pytest.raises(FileMissingError):
        register(world.root, missing)


def test_view_is_not_registered_from_anothers_place(world: World) -> None:
    request = CreateViewRequest.model_validate(creation("v", {"spark": "SELECT 1 AS i"}, *schema_fields()))
    location = json.loads(views.create_view(world.root.services, SECRET, request))["metadata-location"]
    again = RegisterViewRequest(name="v", metadata_location=location)
    with pytest.raises(ForbiddenError, match=HIDDEN):
        views.register_view(world.mallory.services, NS, again)
    document = json.loads(local(location).read_bytes())
    copy = crafted(world.mallory, document, location=document["location"])
    with pytest.raises(ForbiddenError, match=HIDDEN):
        views.register_view(world.bob.services, NS, RegisterViewRequest(name="v", metadata_location=copy))


def schema_fields() -> list[Json]:
    fields: list[Json] = schema({"id": 1, "name": "i", "type": "int", "required": False})["fields"]
    return fields


# --- Settling


PLACES: dict[str, Callable[[str], str]] = {
    "the place": lambda place: place,
    "below it": lambda place: f"{place}/data",
    "above it": lambda place: place.rpartition("/")[0],
    "another spelling of it": lambda place: place.replace("file:", "file://").replace("/secret/", "//secret/./"),
    "a folder for tables to come": lambda place: f"{place.rpartition('/')[0]}/t-to-come",
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_no_one_settles_where_another_lives(world: World, place: Callable[[str], str]) -> None:
    location = place(world.secret()["metadata"]["location"])
    world.mallory.create("mine")
    attempts: list[Callable[[], object]] = [
        lambda: world.mallory.create("t", location=location),
        lambda: world.mallory.create("t", location=location, stage_create=True),
        lambda: world.mallory.commit(move(location), "mine"),
        lambda: world.mallory.commit(staged(location), "t"),
        lambda: views.create_view(world.mallory.services, NS, a_view(location=location)),
        lambda: commit_view(world.mallory, {"action": "set-location", "location": location}),
        lambda: commit_view(world.mallory, set_metadata_path(location)),
    ]
    views.create_view(world.mallory.services, NS, a_view(name="w"))
    for attempt in attempts:
        with pytest.raises(ForbiddenError, match=HIDDEN):
            attempt()
    assert world.root.create("t", location=location)["metadata"]["location"] == location


def test_no_one_settles_where_another_has_left_files(world: World) -> None:
    former = f"{world.allowed}/former"
    world.create_secret("moved", location=former)
    tables.commit_table(
        world.root.services, SECRET, "moved", CommitTableRequest.model_validate(move(f"{world.allowed}/new"))
    )
    world.mallory.create("mine")
    for location in (former, f"{former}/data", world.allowed, former.replace("file:", "file://")):
        with pytest.raises(ForbiddenError, match=HIDDEN):
            world.mallory.create("t", location=location)
        with pytest.raises(ForbiddenError, match=HIDDEN):
            world.mallory.commit(set_properties(**{"write.data.path": location}), "mine")
    assert world.mallory.create("t", location=f"{former}2")
    assert world.root.create("u", location=former)


@pytest.mark.parametrize("action", ["statistics", "partition-statistics"])
def test_statistics_are_not_anothers_files(world: World, action: str) -> None:
    world.mallory.create("mine")
    mine = world.mallory.append((1, "a"), name="mine")["metadata"]
    for scheme, expected in (("secret", ForbiddenError), ("s3", InvalidRequestError), ("mine", None)):
        folder = {"secret": world.secret()["metadata"]["location"], "s3": "s3://bucket//x", "mine": mine["location"]}
        file = {
            "snapshot-id": mine["current-snapshot-id"],
            "statistics-path": f"{folder[scheme]}/metadata/x.puffin",
            "file-size-in-bytes": 1,
        }
        if action == "statistics":
            file |= {"file-footer-size-in-bytes": 1, "blob-metadata": []}
        update = {"action": f"set-{action}", action: file}
        body = {"requirements": [], "updates": [update]}
        if expected is None:
            assert world.mallory.commit(body, "mine")["metadata"][action] == [file]
        else:
            with pytest.raises(expected):
                world.mallory.commit(body, "mine")


def test_allowed_prefix_that_another_has_is_taken_for_properties_too(world: World) -> None:
    world.create_secret("shared", location=f"{world.allowed}/secret")
    world.mallory.create("mine")
    for name in ("write.data.path", "write.metadata.path", "write.object-storage.path"):
        with pytest.raises(ForbiddenError, match=HIDDEN):
            world.mallory.commit(set_properties(**{name: f"{world.allowed}/secret/data"}), "mine")
        world.mallory.commit(set_properties(**{name: f"{world.allowed}/free/data"}), "mine")


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "write.object-storage.path"])
def test_properties_lead_writers_nowhere_but_to_the_tables_places(client: Client, name: str) -> None:
    location = client.create()["metadata"]["location"]
    for elsewhere in ("s3://other/data", f"{location}2/data", location.rpartition("/")[0], "relative", ""):
        with pytest.raises(InvalidRequestError, match=r"location|files must lie in"):
            client.commit(set_properties(**{name: elsewhere}))
        with pytest.raises(InvalidRequestError, match=r"location|files must lie in"):
            client.create("other", properties={name: elsewhere})
    assert client.commit(set_properties(**{name: f"{location}/elsewhere"}))["metadata"]["properties"][name]


def move(location: str) -> Json:
    return {"requirements": [], "updates": [{"action": "set-location", "location": location}]}


def staged(location: str) -> Json:
    """The commit of a table that was staged before."""
    updates = [
        {"action": "assign-uuid", "uuid": str(uuid4())},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": location},
    ]
    return {"requirements": [{"type": "assert-create"}], "updates": updates}


def a_view(name: str = "v", **more: Any) -> CreateViewRequest:
    return CreateViewRequest.model_validate(creation(name, {"spark": "SELECT 1 AS i"}, *schema_fields(), **more))


def commit_view(client: Client, update: Json) -> bytes:
    request = CommitViewRequest.model_validate({"requirements": [], "updates": [update]})
    return views.commit_view(client.services, NS, "w", request)


def set_metadata_path(location: str) -> Json:
    return {"action": "set-properties", "updates": {"write.metadata.path": location}}


# --- Committing


@pytest.mark.parametrize("named", ["data file", "manifest", "manifest list"])
def test_commit_cannot_bring_anothers_files(world: World, named: str) -> None:
    world.create_secret("shared", location=f"{world.allowed}/secret")
    world.mallory.create("mine")
    for name in ("t", "shared"):
        secret = world.secret(name)["metadata"]
        draft = Draft(world.mallory.metadata("mine"))
        if named == "data file":
            (path,) = data_files(secret)
            body = draft.body([draft.manifest([replace(draft.data_file([(1, "x")]), file_path=path)])])
        elif named == "manifest":
            (line,) = Draft(secret).parent_manifests
            body = draft.body([line])
        else:
            body = draft.body(secret["snapshots"][-1]["manifest-list"])
        before = world.mallory.metadata("mine")
        with pytest.raises(ForbiddenError, match=HIDDEN):
            world.mallory.commit(body, "mine")
        assert world.mallory.metadata("mine") == before


def test_commit_cannot_bring_files_that_duckdb_keeps_for_another(
    world: World, ducklake: duckdb.DuckDBPyConnection
) -> None:
    ducklake.execute("CREATE TABLE lake.secret.native AS SELECT range AS id, 'x' AS name FROM range(100)")
    ducklake.execute("CREATE TABLE lake.ns.native AS SELECT range AS id, 'x' AS name FROM range(100)")
    world.mallory.create("mine")
    for schema_name in ("secret", "ns"):
        query = f"SELECT data_file FROM ducklake_list_files('lake', 'native', schema => '{schema_name}')"
        ((path,),) = ducklake.sql(query).fetchall()
        draft = Draft(world.mallory.metadata("mine"))
        file = replace(draft.data_file([(1, "x")]), file_path=path, record_count=100)
        body = draft.body([draft.manifest([file]), *draft.parent_manifests])
        if schema_name == "ns":
            assert world.mallory.commit(body, "mine")
        else:
            with pytest.raises(ForbiddenError, match=HIDDEN):
                world.mallory.commit(body, "mine")


def test_own_commits_pass_with_the_narrowest_scopes(world: World, ducklake: duckdb.DuckDBPyConnection) -> None:
    world.mallory.create("mine")
    world.mallory.append((1, "a"), (2, "b"), name="mine")
    ducklake.execute("INSERT INTO lake.ns.mine VALUES (3, 'c')")
    world.mallory.append((4, "d"), name="mine")
    assert ducklake.sql("SELECT count(*) FROM lake.ns.mine").fetchall() == [(4,)]


# --- Links


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("linked", ["file", "folder", "chain"])
def test_uploaded_file_behind_a_link_is_not_read(client: Client, outside: Path, linked: str) -> None:
    metadata = client.create()["metadata"]
    draft = Draft(metadata)
    listed = local(draft.manifest_list([draft.manifest([draft.data_file([(1, "a")])])]))
    listed.rename(outside / "list.avro")
    named = listed.parent / "trick" / "list.avro"
    if linked == "file":
        named.parent.mkdir()
        named.symlink_to(outside / "list.avro")
    else:
        target = outside
        if linked == "chain":
            (listed.parent / "hop").symlink_to(outside)
            target = listed.parent / "hop"
        named.parent.symlink_to(target)
    with pytest.raises(InvalidRequestError, match="symbolic link") as refused:
        client.commit(draft.body(f"file://{named}"))
    assert str(outside) not in str(refused.value)


def test_link_within_the_table_is_followed(client: Client) -> None:
    draft = Draft(client.create()["metadata"])
    listed = local(draft.manifest_list([draft.manifest([draft.data_file([(1, "a")])])]))
    (listed.parent / "link").symlink_to(listed.parent)
    assert client.commit(draft.body(f"file://{listed.parent}/link/{listed.name}"))


def test_metadata_folder_behind_a_link_is_not_written(client: Client, outside: Path) -> None:
    location = client.create()["metadata"]["location"]
    folder = local(f"{location}/metadata")
    for file in folder.iterdir():
        file.rename(outside / file.name)
    folder.rmdir()
    folder.symlink_to(outside)
    before = sorted(outside.iterdir())
    with pytest.raises(CatalogError, match="symbolic link"):
        client.commit(set_properties(a="1"))
    assert sorted(outside.iterdir()) == before


def test_warehouse_may_be_a_link_itself(services: Services, tmp_path: Path) -> None:
    warehouse, link = Path(services.policy.warehouse), tmp_path / "link"
    warehouse.mkdir()
    link.symlink_to(warehouse)
    behind = replace(services, store=open_store(str(link)), policy=replace(services.policy, warehouse=str(link)))
    client = new_client(behind)
    assert client.create()["metadata"]["location"].startswith(f"file:{link}/data/ns/t-")
    assert pyiceberg_rows(client.append((1, "a"))) == [(1, "a")]


def test_pipe_is_no_file_and_no_one_waits_for_it(client: Client) -> None:
    draft = Draft(client.create()["metadata"])
    pipe = draft.new_file("pipe.avro", b"")
    local(pipe).unlink()
    os.mkfifo(local(pipe))
    with pytest.raises(InvalidRequestError, match="does not exist"):
        client.commit(draft.body(pipe))


# --- Names of files


TRICKS = ["s3://bucket/x.parquet?s3_endpoint=evil.example", "s3://bucket/../x.parquet", "s3://user@bucket/x.parquet",
          "file://host/x.parquet", "/x\n/y.parquet", "/" + "x" * 3000]  # fmt: skip


@pytest.mark.parametrize("path", TRICKS)
def test_data_file_that_readers_would_not_find_in_the_same_place_is_refused(client: Client, path: str) -> None:
    draft = Draft(client.create()["metadata"])
    file = replace(draft.data_file([(1, "a")]), file_path=path)
    with pytest.raises(InvalidRequestError):
        client.commit(draft.body([draft.manifest([file])]))


def test_manifest_whose_name_postgres_could_not_keep_is_refused(client: Client) -> None:
    draft = Draft(client.create()["metadata"])
    line = draft.manifest([draft.data_file([(1, "a")])])
    with pytest.raises(InvalidRequestError, match="a manifest"):
        client.commit(draft.body([replace(line, manifest_path=f"{line.manifest_path}\0")]))


NOT_OURS = ["s3://bucket/list.avro", "s3a://bucket/list.avro", "http://169.254.169.254/latest/list.avro",
            "https://example.com/list.avro", "file://host/list.avro", "{location}/../other/list.avro", "/etc/passwd",
            "{location}%2F..%2Fother/list.avro", "{location}/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "{location}\\..\\l",
            "{location}2/list.avro", "list.avro", "", "{location}", "{location}/metadata", "ftp://h/l",
            "FILE://{location}x", "jar:file:{location}!/list.avro", "{location}/" + "x" * 5000,
            "{location}/" + "x/" * 3000, "{location}/\x7f", "file:///proc/self/environ",
            "{location}/\uff0e\uff0e/\uff0e\uff0e/list.avro"]  # fmt: skip


@pytest.mark.parametrize("named", NOT_OURS)
def test_manifest_lists_and_metadata_are_read_from_nowhere_else(client: Client, named: str) -> None:
    metadata = client.create()["metadata"]
    path = named.replace("{location}", metadata["location"])
    with pytest.raises(InvalidRequestError) as refused:
        client.commit(Draft(metadata).body(path))
    assert "root:" not in str(refused.value)
    with pytest.raises((InvalidRequestError, FileMissingError)):
        register(client, path)
    with pytest.raises((InvalidRequestError, FileMissingError)):
        views.register_view(client.services, NS, RegisterViewRequest(name="v", metadata_location=path))


# --- Cleaning up


def test_cleanup_never_deletes_what_is_not_the_lakes(
    services: Services, ducklake: duckdb.DuckDBPyConnection, outside: Path
) -> None:
    prepare_lake(services)
    client = new_client(services)
    draft = Draft(client.create()["metadata"])
    ours = draft.data_file([(1, "a")])
    theirs = outside / "precious.parquet"
    theirs.write_bytes(local(ours.file_path).read_bytes())
    files = [ours, replace(ours, file_path=f"file://{theirs}")]
    client.commit(draft.body([draft.manifest(files)]))
    tables.drop_table(services, NS, "t", purge=True)
    for cleaner in CLEANERS:
        ducklake.execute(cleaner)
    assert theirs.exists()
    assert not local(ours.file_path).exists()


def test_metadata_log_of_a_registered_table_leads_no_cleanup_to_anothers_files(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client = new_client(services)
    victim = client.create("victim")
    foreign = new_foreign(f"{services.policy.data_zone}/foreign")
    trimming = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    log = [{"metadata-file": victim["metadata-location"], "timestamp-ms": 1}]
    crafted = foreign.metadata() | {"metadata-log": log, "properties": trimming}
    local(foreign.location).write_bytes(orjson.dumps(crafted))
    register(client, foreign.location)
    for number in range(4):
        client.commit(set_properties(number=str(number)), "r")
    tables.drop_table(services, NS, "r", purge=True)
    for cleaner in CLEANERS:
        ducklake.execute(cleaner)
    assert local(victim["metadata-location"]).exists()
    assert client.load("victim") == victim


def test_scope_of_the_whole_catalog_asks_nothing_of_the_database(world: World) -> None:
    request = RegisterTableRequest(name="r", metadata_location=world.secret()["metadata-location"])
    assert tables.register_table(acting(world.root.services, "*").services, NS, request).body
