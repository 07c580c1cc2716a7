"""CHECK constraints: posted rows are checked one by one, files by their metrics, and no one loses track of the rest."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from duckicelake.catalog.rows.inserts import PostedRows, RowsAnswer, append_rows
from duckicelake.catalog.rows.upserts import upsert_rows
from duckicelake.errors import InvalidRequestError
from tests.support.client import (
    NS,
    Client,
    Draft,
    Json,
    append,
    data_files,
    delete,
    duckdb_rows,
    pyiceberg_rows,
    set_properties,
    set_ref,
)
from tests.support.seams import fresh

POSITIVE = {"constraint.positive": "id > 0"}
NAMED = {"constraint.named": "name LIKE 'a%'"}
MARK = "constraint-unverified."


def post(client: Client, *rows: Json, upsert: Sequence[str] = ()) -> RowsAnswer:
    posted = PostedRows(NS, "t", json.dumps(rows).encode(), "application/json")
    if upsert:
        return upsert_rows(client.services, posted, tuple(upsert))
    return append_rows(client.services, posted)


def marks(client: Client) -> dict[str, str]:
    properties: dict[str, str] = client.metadata()["properties"]
    return {key.removeprefix(MARK): value for key, value in properties.items() if key.startswith(MARK)}


def summaries(client: Client) -> list[str | None]:
    return [each["summary"].get("constraints.unverified") for each in client.metadata()["snapshots"]]


def remove_properties(*names: str) -> Json:
    return {"requirements": [], "updates": [{"action": "remove-properties", "removals": list(names)}]}


def new_schema(metadata: Json, fields: list[Json]) -> Json:
    schema = {"type": "struct", "schema-id": 1, "fields": fields}
    updates = [
        {"action": "add-schema", "schema": schema, "last-column-id": metadata["last-column-id"]},
        {"action": "set-current-schema", "schema-id": -1},
    ]
    return {"requirements": [], "updates": updates}


def test_posted_rows_that_violate_are_named_and_none_is_stored(client: Client) -> None:
    client.create(properties=POSITIVE | {"constraint.short": "length(name) < 4 OR name IS NULL"})
    good = [{"id": number, "name": None} for number in range(1, 4)]
    with pytest.raises(InvalidRequestError) as caught:
        post(client, *good, {"id": -7, "name": "abcd"}, {"id": None, "name": "ok"})
    assert str(caught.value) == (
        "Nothing was stored, as not all rows fit: "
        "row 3: id is -7, which violates the constraint positive (id > 0); "
        "row 3: name is 'abcd', which violates the constraint short (length(name) < 4 OR name IS NULL); "
        "row 4: id is null, which violates the constraint positive (id > 0)"
    )
    assert post(client, *good).rows == 3
    assert post(client, *({"id": number, "name": "x"} for number in range(1, 30))).rows == 29
    assert (marks(client), set(summaries(client))) == ({}, {None})
    with pytest.raises(InvalidRequestError, match="row 0: id is 0"):
        post(client, {"id": 0, "name": "x"}, upsert=["id"])


def test_constraint_holds_for_the_next_posted_row_of_every_server(client: Client) -> None:
    client.create()
    other = Client(fresh(client.services))
    for each in (client, other):
        post(each, {"id": 1, "name": "x"})
    client.commit(set_properties(**POSITIVE))
    for each in (client, other):
        with pytest.raises(InvalidRequestError, match="positive"):
            post(each, {"id": -1, "name": "x"})
    client.commit(remove_properties("constraint.positive"))
    for each in (client, other):
        post(each, {"id": -1, "name": "x"})


def test_files_are_refused_proved_or_left_open_by_their_metrics(client: Client) -> None:
    client.create(properties=POSITIVE | NAMED)
    with pytest.raises(InvalidRequestError, match=r"constraint positive \(id > 0\) is violated: file.* whose id is -2"):
        client.commit(append(client.metadata(), (1, "a"), (-2, "a")))
    with pytest.raises(InvalidRequestError, match=r"named .* keeps it: name is null"):
        client.commit(append(client.metadata(), (1, None)))
    client.commit(append(client.metadata(), (1, "a")))  # its file has no bounds of names
    first = client.metadata()["current-snapshot-id"]
    assert summaries(client) == ["named"]
    assert marks(client) == {"named": str(first)}
    client.commit(append(client.metadata(), (2, "b")))
    assert summaries(client) == ["named", "named"]
    assert marks(client) == {"named": str(first)}
    client.commit(remove_properties("constraint.named"))
    client.commit(append(client.metadata(), (3, "b")))
    assert (summaries(client)[2], marks(client)) == (None, {})
    assert pyiceberg_rows(client.load()) == [(1, "a"), (2, "b"), (3, "b")]


def test_constraint_set_on_rows_is_refused_proved_or_left_open(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create()
    client.append((1, "a"), (5, "b"))
    path = data_files(client.metadata())[0]
    with pytest.raises(InvalidRequestError, match=r"large .* has a row whose id is 1"):
        client.commit(set_properties(**{"constraint.large": "id > 1"}))
    client.commit(delete(client.metadata(), (path, 0)))
    client.commit(set_properties(**{"constraint.large": "id > 1", **POSITIVE}))
    current = client.metadata()["current-snapshot-id"]
    assert marks(client) == {"large": str(current)}
    client.commit(set_properties(**{"constraint.large": "id >= 1"}))
    assert marks(client) == {}
    assert duckdb_rows(ducklake) == [(5, "b")]
    ducklake.execute("INSERT INTO lake.ns.t VALUES (6, 'c')")
    assert duckdb_rows(ducklake) == [(5, "b"), (6, "c")]


def test_rows_of_duckdb_are_proved_or_left_open_but_posted_ones_are_checked(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(properties=POSITIVE | {"constraint.odd": "id % 2 = 1"})
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'x'), (3, 'y')")
    assert summaries(client) == ["odd"]
    first = client.metadata()["current-snapshot-id"]
    assert marks(client) == {"odd": str(first)}
    post(client, {"id": 5, "name": "posted"})
    assert summaries(client) == ["odd", None]
    ducklake.execute("INSERT INTO lake.ns.t SELECT -range, 'z' FROM range(100)")
    assert summaries(client) == ["odd", None, "positive,odd"]
    third = client.metadata()["current-snapshot-id"]
    assert marks(client) == {"odd": str(first), "positive": str(third)}
    ducklake.execute("CALL ducklake_flush_inlined_data('lake')")
    assert summaries(client)[-1] in {None, "positive,odd"}


def test_posted_rows_of_snapshots_that_have_expired_are_left_open(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.create(properties={"constraint.odd": "id % 2 = 1"})
    post(client, {"id": 5, "name": "posted"})
    ducklake.execute("INSERT INTO lake.ns.t VALUES (6, 'duck')")
    post(client, {"id": 7, "name": "posted"})
    ducklake.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    assert set(marks(client)) == {"odd"}


def test_columns_that_a_constraint_names_stay_unless_duckdb_drops_them(
    client: Client, ducklake: duckdb.DuckDBPyConnection
) -> None:
    created = client.create(properties=POSITIVE)["metadata"]
    id_, name = created["schemas"][0]["fields"]
    for fields in ([name], [{**id_, "name": "key"}, name], [{**id_, "type": "string"}, name]):
        with pytest.raises(InvalidRequestError, match=r"constraint\.positive|string"):
            client.commit(new_schema(created, fields))
    client.commit(new_schema(client.metadata(), [id_, {**name, "name": "title"}]))
    ducklake.execute("ALTER TABLE lake.ns.t RENAME COLUMN id TO key")
    with pytest.raises(InvalidRequestError, match=r"positive .* can't be checked: .* column id"):
        post(client, {"key": 1, "title": "x"})
    metadata = client.metadata()
    draft = Draft(metadata)
    with pytest.raises(InvalidRequestError, match=r"Remove the table property constraint\.positive"):
        client.commit(draft.body([draft.manifest([draft.data_file([(1, "x")])])]))
    client.commit(set_properties(x="y"))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, 'duck')")
    assert summaries(client) == ["positive"]
    client.commit(remove_properties("constraint.positive"))
    post(client, {"key": 1, "title": "x"})


@pytest.mark.parametrize(
    ("text", "named"), [("nope > 1", "column nope"), ("rand() > 1", r"rand\(\)"), ("id >", "does not read")]
)
def test_constraint_that_cannot_be_checked_is_refused_when_it_is_set(client: Client, text: str, named: str) -> None:
    with pytest.raises(InvalidRequestError, match=named):
        client.create("other", properties={"constraint.c": text})
    client.create()
    with pytest.raises(InvalidRequestError, match=named):
        client.commit(set_properties(**{"constraint.c": text}))


def test_absorbed_rows_are_checked_as_they_are_read(client: Client) -> None:
    client.create(properties={"constraint.odd": "id % 2 = 1", "ducklake.absorb-rows": "10"})
    client.commit(append(client.metadata(), (1, "a"), (3, "b")))
    assert (summaries(client), marks(client)) == ([None], {})
    with pytest.raises(InvalidRequestError, match=r"row 1: id is 4, which violates the constraint odd"):
        client.commit(append(client.metadata(), (3, "a"), (4, "b")))
    assert pyiceberg_rows(client.load()) == [(1, "a"), (3, "b")]


def test_branches_are_checked_and_what_main_goes_back_to_is_left_open(client: Client) -> None:
    client.create()
    client.append((-1, "old"))
    old = client.metadata()["current-snapshot-id"]
    client.commit({"requirements": [], "updates": [set_ref("old", old)]})
    client.commit(delete(client.metadata(), (data_files(client.metadata())[0], 0)))
    client.commit(set_properties(**POSITIVE))
    client.commit(remove_properties(f"{MARK}positive"))
    side = Draft(client.metadata(), branch="old")
    with pytest.raises(InvalidRequestError, match="positive"):
        client.commit(side.body([side.manifest([side.data_file([(-5, "x")])]), *side.parent_manifests]))
    assert marks(client) == {}
    client.commit({"requirements": [], "updates": [set_ref("main", old)]})
    assert marks(client) == {"positive": str(old)}


def test_rewrite_of_rows_that_violate_is_none_of_new_rows(client: Client) -> None:
    client.create()
    client.append((-1, "x"), (2, "y"))
    path = data_files(client.metadata())[0]
    client.commit(delete(client.metadata(), (path, 1)))
    client.commit(set_properties(**POSITIVE))
    draft = Draft(client.metadata(), operation="replace")
    assert set(marks(client)) == {"positive"}
    client.commit(draft.body([draft.manifest([draft.data_file([(-1, "x")])])]))
    assert pyiceberg_rows(client.load()) == [(-1, "x")]


def test_many_servers_and_modes_agree(client: Client) -> None:
    other = Client(replace(fresh(client.services), snapshot_ids="ducklake"))
    client.create(properties=NAMED)
    other.commit(append(other.metadata(), (1, "a")))
    found: Any = client.metadata()
    assert marks(client) == {"named": str(found["current-snapshot-id"])}
    assert marks(other) == marks(client)
