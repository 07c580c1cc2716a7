"""A table that follows a Delta table: every way to write it through the server is refused, but reading and dropping."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duckicelake.catalog import tables
from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.gc import find_orphans
from duckicelake.catalog.maintenance import table_statistics
from duckicelake.catalog.restore import restore_table
from duckicelake.catalog.rows.deletes import DeleteRequest, delete_rows
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.catalog.rows.upserts import upsert_rows
from duckicelake.catalog.tables import commit_transaction
from duckicelake.delta.import_ import sources
from duckicelake.delta.import_.sources import DeltaPosition
from duckicelake.delta.import_.sync import adopt_table
from duckicelake.errors import InvalidRequestError, NoSuchTableError, ReadOnlyTableError
from duckicelake.iceberg.rest import CommitTransactionRequest, RegisterTableRequest, RenameTableRequest
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.maintenance.idle_kinds import IdleKinds
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.upkeep.planner import request_part, request_tasks
from tests.conftest import new_lake, services_of
from tests.support.client import (
    NS,
    SCHEMA,
    Client,
    Json,
    append,
    data_files,
    delete,
    new_client,
    remove,
    set_properties,
    set_ref,
)
from tests.support.seams import fresh

JSON = "application/json"
LESS = {"type": "lt", "term": "id", "value": 50}


def follow(services: Services, name: str = "t", root: str = "/delta/t") -> None:
    """Have an ordinary table be one that follows a Delta table."""
    with services.database.transaction() as cursor:
        row = cursor.execute(
            "SELECT table_id FROM ducklake_table WHERE table_name = %s AND end_snapshot IS NULL", [name]
        ).fetchone()
        assert row is not None
        sources.record_source(cursor, row[0], root, DeltaPosition("an id", 0), following=True)


@pytest.fixture(scope="module")
def services(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    warehouse = tmp_path_factory.mktemp("followed") / "warehouse"
    with new_lake(postgres, warehouse) as url:
        database = open_lake_database(url)
        yield services_of(database, warehouse)
        database.close()


@pytest.fixture(scope="module")
def client(services: Services) -> Client:
    """Its namespace has the table `t`, which is followed, and `u`, which isn't."""
    client = new_client(services)
    for name in ("t", "u"):
        client.create(name, properties={"ducklake.append-rebase": "true", "ducklake.absorb-rows": "10"})
        client.append(*((number, "first") for number in range(100)), name=name)
    client.append((1000, "inlined"))
    follow(services)
    return client


def updates(*updates: Json) -> Callable[[Json], Json]:
    return lambda _: {"requirements": [], "updates": updates}


WIDER = {"fields": [*SCHEMA["fields"], {"id": 9, "name": "more", "type": "long", "required": False}]}
COMMITS: dict[str, Callable[[Json], Json]] = {
    "append": lambda metadata: append(metadata, *((number, "new") for number in range(50))),
    "absorbed append": lambda metadata: append(metadata, (1, "new")),
    "delete": lambda metadata: delete(metadata, (data_files(metadata)[0], 1)),
    "overwrite": lambda metadata: remove(metadata, data_files(metadata)[0]),
    "properties": lambda _: set_properties(comment="said"),
    "branch": lambda metadata: {
        "requirements": [],
        "updates": [set_ref("branch", metadata["current-snapshot-id"])],
    },
    "rollback": lambda metadata: {
        "requirements": [],
        "updates": [set_ref("main", metadata["snapshots"][0]["snapshot-id"])],
    },
    "expiry": lambda metadata: {
        "requirements": [],
        "updates": [{"action": "remove-snapshots", "snapshot-ids": [metadata["snapshots"][0]["snapshot-id"]]}],
    },
    "schema": lambda metadata: {
        "requirements": [],
        "updates": [
            {"action": "add-schema", "schema": {**metadata["schemas"][0], "schema-id": 1, **WIDER}},
            {"action": "set-current-schema", "schema-id": -1},
        ],
    },
    "format version": updates({"action": "upgrade-format-version", "format-version": 3}),
}


@pytest.mark.parametrize("kind", COMMITS)
def test_commit_of_any_kind_is_refused_and_leaves_the_table_as_it_was(client: Client, kind: str) -> None:
    before = client.load()
    with pytest.raises(
        ReadOnlyTableError, match=r"ns\.t follows the Delta table /delta/t .*duckicelake delta adopt ns\.t"
    ):
        client.commit(COMMITS[kind](before["metadata"]))
    assert client.load() == before


def test_transaction_with_other_tables_is_refused_as_a_whole(client: Client) -> None:
    before = client.load("u")
    bodies = {name: append(client.metadata(name), *((number, "new") for number in range(50))) for name in ("u", "t")}
    changes = [{"identifier": {"namespace": NS, "name": name}, **body} for name, body in bodies.items()]
    with pytest.raises(ReadOnlyTableError):
        commit_transaction(client.services, CommitTransactionRequest.model_validate({"table-changes": changes}))
    assert client.load("u") == before


def test_rows_are_refused(client: Client) -> None:
    services, before = client.services, client.load()
    posted = PostedRows(NS, "t", json.dumps([{"id": 1, "name": "x"}]).encode(), JSON)
    many = PostedRows(NS, "t", json.dumps([{"id": id_, "name": "x"} for id_ in range(200)]).encode(), JSON)
    for write in (
        lambda: append_rows(services, posted),
        lambda: append_rows(services, many),
        lambda: upsert_rows(services, posted, ("id",)),
        lambda: delete_rows(services, DeleteRequest(NS, "t", b'{"keys": [{"id": 1}]}', ("id",))),
        lambda: delete_rows(fresh(services), DeleteRequest(NS, "t", json.dumps({"filter": LESS}).encode())),
        lambda: flush_rows(services, NS, "t"),
    ):
        with pytest.raises(ReadOnlyTableError):
            write()
    assert client.load() == before


def test_restoring_is_refused(client: Client) -> None:
    oldest = client.metadata()["snapshots"][0]["snapshot-id"]
    with pytest.raises(ReadOnlyTableError):
        restore_table(client.services, NS, "t", str(oldest))


def test_rows_for_other_tables_go_on(client: Client) -> None:
    body = json.dumps([{"id": 7, "name": "x"}]).encode()
    assert append_rows(client.services, PostedRows(NS, "u", body, JSON)).rows == 1


def test_upkeep_passes_followed_tables_by(client: Client) -> None:
    listed = table_statistics(client.services, PageRequest()).items
    kept = {each.table: each.policies.get("maintenance.enabled") for each in listed}
    assert (kept["t"], kept["u"]) == ("false", None)


def test_upkeep_says_that_a_table_is_followed_and_not_that_a_policy_keeps_it_away(client: Client) -> None:
    idle = IdleKinds(["sort"])
    request_tasks(client.services, NS, "t", ["sort"], idle)
    assert idle.explain() == ["no table asks for sort: it follows a Delta table"]
    with pytest.raises(InvalidRequestError, match="left alone: it follows a Delta table"):
        request_part(client.services, NS, "t", ["compact"], "id = 1")


def test_nothing_in_a_deltas_folder_is_an_orphan(client: Client) -> None:
    services = client.services
    client.create("orphaned")
    folder = Path(services.policy.warehouse) / "data" / "delta"
    follow(services, "orphaned", str(folder))
    (folder / "_delta_log").mkdir(parents=True)
    for place in (folder / "vacuumed.parquet", folder / "_delta_log" / f"{9:020}.checkpoint.parquet"):
        place.write_bytes(b"PAR1")
    assert [each for each in find_orphans(services, 2**62) if "/delta/" in each.location] == []


def test_renamed_table_is_followed_and_dropped_one_is_not(client: Client) -> None:
    services = client.services
    client.create("old")
    follow(services, "old")
    names = [{"namespace": NS, "name": name} for name in ("old", "new")]
    tables.rename_table(services, RenameTableRequest.model_validate({"source": names[0], "destination": names[1]}))
    with pytest.raises(ReadOnlyTableError, match=r"adopt ns\.new"):
        client.append((1, "x"), name="new")
    tables.drop_table(services, NS, "new", purge=True)
    with services.database.reading() as cursor:
        assert sources.read_sources(cursor, "ns.new") == []
    client.create("new")
    client.append((1, "x"), name="new")


def test_table_that_is_registered_in_its_place_or_given_up_is_not_followed(client: Client) -> None:
    services = client.services
    client.create("replaced")
    follow(services, "replaced")
    location = client.load("u")["metadata-location"]
    request = {"name": "replaced", "metadata-location": location, "overwrite": True}
    tables.register_table(services, NS, RegisterTableRequest.model_validate(request))
    client.append((1, "x"), name="replaced")
    client.create("given")
    follow(services, "given")
    tables.unregister_table(services, NS, "given")
    with pytest.raises(NoSuchTableError):
        client.load("given")


def test_adopted_table_takes_everything(client: Client) -> None:
    client.create("adopted")
    follow(client.services, "adopted")
    adopt_table(client.services, "ns.adopted")
    client.append((1, "x"), name="adopted")
    body = json.dumps([{"id": 7, "name": "y"}]).encode()
    assert append_rows(client.services, PostedRows(NS, "adopted", body, JSON)).rows == 1
