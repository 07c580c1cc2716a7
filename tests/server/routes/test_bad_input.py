"""Bad input over HTTP: a 4xx that names the problem, nothing written, everything else as it was.

The tests share one lake: each compares the whole catalog before and after its request, so none can disturb another.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.manifest.entry import EntryStatus, FileContent, ManifestContent, ManifestEntry
from duckicelake.iceberg.partition import PartitionField, PartitionSpec, Transform
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import prepare_catalog
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from duckicelake.storage.policy import LocationPolicy
from duckicelake.storage.registry import open_store
from tests.support.client import (
    SCHEMA,
    Client,
    Draft,
    Json,
    append,
    data_files,
    live,
    local,
    new_client,
    pyiceberg_rows,
)
from tests.support.servers import running

TABLE = "/v1/namespaces/ns/tables/t"
TABLES = "/v1/namespaces/ns/tables"
HUGE = 2**63 - 1


@pytest.fixture(scope="module")
def services(postgres: EmbeddedPostgres) -> Iterator[Services]:
    name = f"bad_input_{uuid4().hex}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with (
        TemporaryDirectory() as folder,
        closing(open_lake_database(make_conninfo(postgres.url, dbname=name), 8)) as database,
    ):
        warehouse = f"{folder}/warehouse"
        prepare_catalog(database, f"{warehouse}/ducklake/")
        policy = LocationPolicy(warehouse=warehouse, allowed=(f"{folder}/shared",))
        yield Services(database, open_store(warehouse), policy, "client", lambda: time.time_ns() // 1_000_000)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def client(services: Services) -> Client:
    client = new_client(services)
    client.create("t")
    client.append((1, "one"), (2, "two"), name="t")
    client.create("other")
    client.append((3, "three"), name="other")
    client.create("empty")
    return client


@pytest.fixture(scope="module")
def http(services: Services, client: Client) -> Iterator[httpx.Client]:
    with running(create_app(services)) as uri, httpx.Client(base_url=uri, timeout=30) as connected:
        yield connected


@pytest.fixture
def metadata(client: Client) -> Json:
    return client.metadata("t")


@pytest.fixture
def refuse(http: httpx.Client, services: Services) -> Callable[..., str]:
    """Send a request that must be refused; the message, once it is sure that nothing was written."""

    def send(body: Any, path: str = TABLE, status: int = 400, method: str = "POST") -> str:
        before = catalog_of(services), http.get(f"{TABLES}/other").content
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = http.request(method, path, content=content)
        assert answer.status_code == status, answer.text
        error = answer.json()["error"]
        assert error["code"] == status
        assert http.get("/readyz").status_code == 200
        assert (catalog_of(services), http.get(f"{TABLES}/other").content) == before
        message = error["message"]
        assert isinstance(message, str)
        return message

    return send


def catalog_of(services: Services) -> dict[str, str]:
    """A digest of each table of the catalog but the audit trail, which tells of refusals."""
    with services.database.reading() as cursor:
        names = cursor.execute(
            "SELECT tablename FROM pg_tables "
            "WHERE tablename ~ '^duck(lake|icelake)_' AND tablename <> 'duckicelake_audit'"
        ).fetchall()
        digests = " UNION ALL ".join(
            f"SELECT '{name}', md5(coalesce(string_agg(t::text, ' ' ORDER BY t::text), '')) FROM \"{name}\" t"
            for (name,) in names
        )
        return dict(cursor.execute(digests).fetchall())


def bucket(width: int) -> Json:
    return {"source-id": 1, "name": f"b{width}", "transform": f"bucket[{width}]"}


def commit(*updates: Json, requirements: Sequence[Json] = ()) -> Json:
    return {"requirements": list(requirements), "updates": list(updates)}


def properties(**values: Any) -> Json:
    return commit({"action": "set-properties", "updates": values})


def with_field(**changes: Any) -> Json:
    """The schema with one more field."""
    return {
        **SCHEMA,
        "fields": [*SCHEMA["fields"], {"id": 3, "name": "x", "type": "int", "required": False, **changes}],
    }


# --- JSON and its shape


MALFORMED = {
    "nothing": (b"", "not JSON"),
    "half of an object": (b'{"requirements": [', "not JSON"),
    "a list": (b"[]", "must be an object"),
    "not UTF-8": (b'{"requirements": [], "updates": [], "x": "\xff"}', "not JSON"),
    "lone surrogate": (b'{"requirements":[],"updates":[{"action":"set-location","location":"\\ud800"}]}', "not JSON"),
    "nested without end": (b"[" * 100_000, "not JSON"),
    "no updates": (b'{"requirements": []}', "updates: Field required"),
    "null updates": (b'{"requirements": [], "updates": null}', "updates"),
    "updates is an object": (b'{"requirements": [], "updates": {}}', "updates: must be a valid"),
    "update is a string": (b'{"requirements": [], "updates": ["set-properties"]}', "unknown update"),
    "requirement is null": (b'{"requirements": [null], "updates": []}', "unknown requirement"),
}


@pytest.mark.parametrize(("body", "problem"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_body_is_refused(refuse: Callable[..., str], body: bytes, problem: str) -> None:
    assert problem in refuse(body)


WRONG = {
    "unknown update": (commit({"action": "explode"}), "unknown update 'explode'"),
    "update of views": (commit({"action": "add-view-version"}), "'add-view-version' is for views"),
    "no action": (commit({"updates": {}}), "unknown update None"),
    "action of a wrong type": (commit({"action": ["set-properties"]}), "unknown update"),
    "unknown requirement": (commit(requirements=[{"type": "assert-luck"}]), "unknown requirement 'assert-luck'"),
    "requirement of views": (commit(requirements=[{"type": "assert-view-uuid", "uuid": "x"}]), "is for views"),
    "requirement without its value": (commit(requirements=[{"type": "assert-table-uuid"}]), "uuid: Field required"),
    "requirement without its ref": (
        commit(requirements=[{"type": "assert-ref-snapshot-id", "snapshot-id": 7}]),
        "ref: Field required",
    ),
    "properties that are numbers": (properties(a=1), "must be a valid string (got 1)"),
    "properties that are lists": (commit({"action": "set-properties", "updates": []}), "updates"),
    "snapshot id as text": (
        commit({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": "1"}),
        "must be a valid integer",
    ),
    "snapshot id beyond a long": (commit({"action": "remove-snapshots", "snapshot-ids": [2**63]}), "snapshot-ids"),
    "fraction": (commit({"action": "set-current-schema", "schema-id": 0.5}), "schema-id"),
    "format version as text": (commit({"action": "upgrade-format-version", "format-version": "2"}), "format-version"),
    "schema that is none": (commit({"action": "add-schema", "schema": {"type": "list"}}), "schema"),
    "unknown type": (commit({"action": "add-schema", "schema": with_field(type="int128")}), "int128"),
    "unknown schema": (commit({"action": "set-current-schema", "schema-id": 99}), "99"),
    "schema never added": (commit({"action": "set-current-schema", "schema-id": -1}), "schema"),
    "unknown spec": (commit({"action": "set-default-spec", "spec-id": 99}), "99"),
    "unknown order": (commit({"action": "set-default-sort-order", "sort-order-id": 99}), "99"),
    "spec of an unknown field": (
        commit({"action": "add-spec", "spec": {"fields": [{"source-id": 77, "name": "p", "transform": "identity"}]}}),
        "77",
    ),
    "unknown transform": (
        commit({"action": "add-spec", "spec": {"fields": [{"source-id": 1, "name": "p", "transform": "zorder"}]}}),
        "zorder",
    ),
    "main at an unknown snapshot": (
        commit({"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5}),
        "unknown snapshot: 5",
    ),
    "current schema removed": (commit({"action": "remove-schemas", "schema-ids": [0]}), "current schema"),
    "default spec removed": (commit({"action": "remove-partition-specs", "spec-ids": [0]}), "default partition spec"),
    "another uuid": (commit({"action": "assign-uuid", "uuid": str(uuid4())}), "uuid"),
    "uuid that is none": (commit({"action": "assign-uuid", "uuid": "no uuid"}), "uuid"),
    "columns that differ by case": (commit({"action": "add-schema", "schema": with_field(name="NAME")}), "case"),
    "columns of one name": (commit({"action": "add-schema", "schema": with_field(name="name")}), "name"),
    "columns of one id": (commit({"action": "add-schema", "schema": with_field(id=1)}), "1"),
    "column without a name": (commit({"action": "add-schema", "schema": with_field(name="")}), "name"),
    "negative column id": (commit({"action": "add-schema", "schema": with_field(id=-1)}), "-1"),
    "column id beyond the reserved ones": (
        commit({"action": "add-schema", "schema": with_field(id=2**31 - 1)}),
        str(2**31 - 1),
    ),
    "specs beyond all need": (
        commit(*({"action": "add-spec", "spec": {"fields": [bucket(width)]}} for width in range(1, 502))),
        "one request may add 1000",
    ),
    "schemas beyond all need": (
        commit(*({"action": "add-schema", "schema": with_field(id=1000 + number)} for number in range(1001))),
        "one request may add 1000",
    ),
    "default that no JSON of ours can hold": (
        commit(
            {"action": "upgrade-format-version", "format-version": 3},
            {"action": "add-schema", "schema": with_field(type="double", **{"initial-default": 10**30})},
        ),
        "exponent",
    ),
    "downgrade": (commit({"action": "upgrade-format-version", "format-version": 1}), "1"),
    "format version of tomorrow": (commit({"action": "upgrade-format-version", "format-version": 9}), "9"),
    "create of what exists with company": (
        commit(requirements=[{"type": "assert-create"}, {"type": "assert-default-spec-id", "default-spec-id": 0}]),
        "assert-create",
    ),
}


@pytest.mark.parametrize(("body", "problem"), WRONG.values(), ids=WRONG.keys())
def test_wrong_commit_is_refused_naming_the_problem(refuse: Callable[..., str], body: Json, problem: str) -> None:
    assert problem in refuse(body)


NUL = {
    "property": properties(a="b\0c"),
    "property key": properties(**{"a\0b": "c"}),
    "comment": properties(comment="b\0c"),
    "column": commit(
        {"action": "add-schema", "schema": with_field(name="a\0b")}, {"action": "set-current-schema", "schema-id": -1}
    ),
    "doc": commit(
        {"action": "add-schema", "schema": with_field(doc="a\0b")}, {"action": "set-current-schema", "schema-id": -1}
    ),
    "location": commit({"action": "set-location", "location": "file:///a\0b"}),
}


@pytest.mark.parametrize("body", NUL.values(), ids=NUL.keys())
def test_nul_character_is_refused(refuse: Callable[..., str], body: Json) -> None:
    refuse(body)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/history?principal=%00",
        "/lineage/v1/datasets?search=a%00b",
        "/lineage/v1/graph?node=%00",
        "/pipeline/v1/jobs?kind=%00",
        "/api/v1/namespaces/%00/jobs",
    ],
)
def test_nul_character_in_a_path_or_query_is_refused(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException")
    assert "NUL" in answer.json()["error"]["message"]


@pytest.mark.parametrize("total", ["x", "-5", "9" * 30, "9" * 5000, "²"])
def test_nonsense_in_a_summary_harms_no_later_snapshot(http: httpx.Client, client: Client, total: str) -> None:
    http.post(TABLES, json={"name": "totals", "schema": SCHEMA}).raise_for_status()
    try:
        draft = Draft(client.metadata("totals"))
        summary = {"operation": "append", "total-records": total, "total-data-files": total}
        http.post(f"{TABLES}/totals", json=draft.body([draft.manifest([draft.data_file([(9, "x")])])], summary=summary))
        client.append((10, "y"), name="totals")
        assert len(data_files(http.get(f"{TABLES}/totals").json()["metadata"])) == 2
    finally:
        http.delete(f"{TABLES}/totals").raise_for_status()


@pytest.mark.parametrize("value", ["-1", "x", "1e3", "9" * 30, "9" * 5000, "", "²"])
def test_nonsense_in_a_property_that_the_server_reads_harms_nothing(
    http: httpx.Client, value: str, metadata: Json
) -> None:
    key = "write.metadata.previous-versions-max"
    answer = http.post(TABLE, json=properties(**{key: value}))
    assert answer.status_code in (200, 400)
    loaded = http.get(TABLE)
    assert loaded.status_code == 200
    assert len(loaded.json()["metadata"].get("metadata-log", ())) < 200
    assert http.post(TABLE, json=commit({"action": "remove-properties", "removals": [key]})).status_code == 200


# --- names


def test_missing_namespace_is_404_for_create_and_staged_create_and_commit(refuse: Callable[..., str]) -> None:
    for body in ({"name": "x", "schema": SCHEMA}, {"name": "x", "schema": SCHEMA, "stage-create": True}):
        assert "nowhere" in refuse(body, "/v1/namespaces/nowhere/tables", 404)
    assert "nowhere" in refuse(commit(), "/v1/namespaces/nowhere/tables/t", 404)


def test_missing_table_is_404(refuse: Callable[..., str]) -> None:
    assert "ns.missing" in refuse(properties(a="b"), f"{TABLES}/missing", 404)
    assert "ns.missing" in refuse(b"", f"{TABLES}/missing", 404, "DELETE")
    names = {
        "source": {"namespace": ["ns"], "name": "missing"},
        "destination": {"namespace": ["ns"], "name": "x"},
    }
    assert "ns.missing" in refuse(names, "/v1/tables/rename", 404)


def test_names_that_differ_by_case_are_refused(refuse: Callable[..., str]) -> None:
    assert "ns.t" in refuse({"name": "T", "schema": SCHEMA}, TABLES)
    rename = {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": "OTHER"}}
    assert "ns.other" in refuse(rename, "/v1/tables/rename")
    assert "ns" in refuse({"namespace": ["NS"]}, "/v1/namespaces")
    twice = {"type": "struct", "fields": [{**SCHEMA["fields"][0]}, {**SCHEMA["fields"][1], "name": "ID"}]}
    assert "ID" in refuse({"name": "x", "schema": twice}, TABLES)


def test_taken_name_is_409(refuse: Callable[..., str]) -> None:
    assert "ns.t" in refuse({"name": "t", "schema": SCHEMA}, TABLES, 409)
    rename = {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": "other"}}
    assert "ns.other" in refuse(rename, "/v1/tables/rename", 409)


@pytest.mark.parametrize("name", ["", "a\0b", "a\x1fb"])
def test_name_that_is_none_is_refused(refuse: Callable[..., str], name: str) -> None:
    refuse({"name": name, "schema": SCHEMA}, TABLES)


# --- format versions and locations


@pytest.mark.parametrize("version", ["0", "4", "two", "2.0", "-1", "", "9" * 5000])
def test_format_version_that_is_none_is_refused(refuse: Callable[..., str], version: str) -> None:
    refuse({"name": "x", "schema": SCHEMA, "properties": {"format-version": version}}, TABLES)


FOREIGN_LOCATIONS = [
    "/etc",
    "file:///",
    "file://{warehouse}",
    "file://{warehouse}/data",
    "file://{warehouse}/ducklake",
    "file://{warehouse}/ducklake/main/t",
    "file://{warehouse}/data/../ducklake/t",
    "file://{warehouse}/data/../../x",
    "{warehouse}/data2/t",
    "s3://bucket/t",
    "relative/t",
    "",
    "http:",
    "file://{warehouse}/data/a\x00b",
]


@pytest.mark.parametrize("location", FOREIGN_LOCATIONS)
def test_location_outside_of_the_zone_of_tables_is_refused(
    refuse: Callable[..., str], services: Services, location: str
) -> None:
    where = location.format(warehouse=services.policy.warehouse)
    refuse({"name": "x", "schema": SCHEMA, "location": where or "/"}, TABLES)
    refuse(commit({"action": "set-location", "location": where}))


# --- numbers


def test_sequence_number_at_the_end_of_all_numbers_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    body = draft.body([draft.manifest([draft.data_file([(9, "x")])]), *draft.parent_manifests])
    snapshot = body["updates"][0]["snapshot"]
    for number in (HUGE, HUGE - 1, 2**40):
        snapshot["sequence-number"] = number
        assert "sequence" in refuse(body)


def test_sequence_number_of_the_past_is_409(refuse: Callable[..., str], metadata: Json) -> None:
    body = append(metadata, (9, "x"))
    body["updates"][0]["snapshot"]["sequence-number"] = 1
    assert "sequence number 1" in refuse(body, status=409)


@pytest.mark.parametrize("snapshot_id", [-1, -5, -(2**63)])
def test_negative_snapshot_id_is_refused(refuse: Callable[..., str], metadata: Json, snapshot_id: int) -> None:
    draft = Draft(metadata)
    manifest_list = draft.manifest_list(draft.parent_manifests)
    assert "snapshot-id" in refuse(draft.body(manifest_list, snapshot_id=snapshot_id))


def test_snapshot_with_the_id_of_another_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    known = metadata["current-snapshot-id"]
    draft = Draft(metadata, snapshot_id=known)
    body = draft.body([draft.manifest([draft.data_file([(9, "x")])]), *draft.parent_manifests])
    assert str(known) in refuse(body)


def test_snapshot_of_an_unknown_schema_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    body = draft.body([draft.manifest([draft.data_file([(9, "x")])]), *draft.parent_manifests], schema_id=7)
    assert "schema-id 7" in refuse(body)


@pytest.mark.parametrize("moment", [-(2**63), -1])
def test_negative_timestamp_is_refused(refuse: Callable[..., str], metadata: Json, moment: int) -> None:
    draft = Draft(metadata)
    manifest_list = draft.manifest_list(draft.parent_manifests)
    assert f"timestamp-ms {moment}" in refuse(draft.body(manifest_list, timestamp_ms=moment))


def test_clock_of_a_client_that_is_wrong_does_not_move_the_tables(http: httpx.Client) -> None:
    http.post(TABLES, json={"name": "clock", "schema": SCHEMA}).raise_for_status()
    try:
        for moment in (HUGE, 0, HUGE - 1):
            draft = Draft(http.get(f"{TABLES}/clock").json()["metadata"])
            body = draft.body([draft.manifest([draft.data_file([(9, "x")])])], timestamp_ms=moment)
            http.post(f"{TABLES}/clock", json=body).raise_for_status()
        found = http.get(f"{TABLES}/clock").json()["metadata"]
        times = [snapshot["timestamp-ms"] for snapshot in found["snapshots"]]
        assert times == sorted(times) == [entry["timestamp-ms"] for entry in found["snapshot-log"]]
        assert all(abs(moment - time.time() * 1000) < 60_000 for moment in times)
    finally:
        http.delete(f"{TABLES}/clock").raise_for_status()


@pytest.mark.parametrize("numbers", [{"record_count": HUGE}, {"file_size_in_bytes": HUGE}])
def test_files_beyond_all_counting_are_refused(refuse: Callable[..., str], metadata: Json, numbers: Any) -> None:
    draft = Draft(metadata)
    file = replace(draft.data_file([(9, "x")]), **numbers)
    assert "more than can be counted" in refuse(draft.body([draft.manifest([file]), *draft.parent_manifests]))


# --- manifest lists


def test_snapshot_without_a_manifest_list_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    body = append(metadata, (9, "x"))
    del body["updates"][0]["snapshot"]["manifest-list"]
    assert "manifest-list" in refuse(body)


def test_manifest_list_that_does_not_exist_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    path = f"{metadata['location']}/metadata/missing.avro"
    message = refuse(Draft(metadata).body(path))
    assert path in message
    assert "does not exist" in message


def test_manifest_list_that_is_a_folder_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    assert "metadata" in refuse(Draft(metadata).body(f"{metadata['location']}/metadata"))


NOT_LISTS = {
    "empty": lambda data: data[:0],
    "text": lambda data: b"hello, I am a manifest list"[: len(data)],
    "JSON": lambda data: b'{"manifests": []}'[: len(data)],
    "truncated in the header": lambda data: data[:100],
    "truncated in a block": lambda data: data[:-20],
    "without its last byte": lambda data: data[:-1],
    "with more at the end": lambda data: data + b"\0" * 7,
    "with another magic": lambda data: b"Obj\2" + data[4:],
    "only the magic": lambda data: data[:4],
}


@pytest.mark.parametrize("spoil", NOT_LISTS.values(), ids=NOT_LISTS.keys())
def test_manifest_list_that_is_none_is_refused(
    refuse: Callable[..., str], metadata: Json, spoil: Callable[[bytes], bytes]
) -> None:
    draft = Draft(metadata)
    good = draft.manifest_list([draft.manifest([draft.data_file([(9, "x")])]), *draft.parent_manifests])
    bad = draft.new_file("list.avro", spoil(local(good).read_bytes()))
    message = refuse(draft.body(bad))
    assert bad in message
    assert "manifest list" in message


def test_manifest_instead_of_a_list_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    line = draft.manifest([draft.data_file([(9, "x")])])
    assert line.manifest_path in refuse(draft.body(line.manifest_path))


OUTSIDE = [
    "file:///etc/passwd",
    "/etc/passwd",
    "file:/etc/passwd",
    "file://localhost/etc/passwd",
    "FILE:///etc/passwd",
    "{location}/../../../../../../../../etc/passwd",
    "{location}/metadata/../../../../x.avro",
    "{location}2/metadata/list.avro",
    "{other}/metadata/list.avro",
    "{warehouse}/ducklake/list.avro",
    "s3://bucket/list.avro",
    "s3a://bucket/list.avro",
    "http://169.254.169.254/latest/meta-data",
    "hdfs://x/y",
    "list.avro",
    "file://host/etc/passwd",
    "{location}/metadata/a\nb.avro",
    "",
]


def outside(pattern: str, client: Client) -> str:
    known = {
        "location": client.metadata("t")["location"],
        "other": client.metadata("other")["location"],
        "warehouse": client.services.policy.warehouse,
    }
    return pattern.format(**known)


@pytest.mark.parametrize("pattern", OUTSIDE)
def test_manifest_list_outside_of_the_table_is_refused(
    refuse: Callable[..., str], client: Client, metadata: Json, pattern: str
) -> None:
    message = refuse(Draft(metadata).body(outside(pattern, client)))
    assert "root:" not in message


# --- manifests


@pytest.mark.parametrize("pattern", OUTSIDE)
def test_manifest_outside_of_the_table_is_refused(
    refuse: Callable[..., str], client: Client, metadata: Json, pattern: str
) -> None:
    draft = Draft(metadata)
    line = draft.manifest([draft.data_file([(9, "x")])], manifest_path=outside(pattern, client))
    message = refuse(draft.body([line]))
    assert "root:" not in message


def test_symbolic_link_out_of_the_table_is_not_followed(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    link = local(f"{metadata['location']}/metadata/{uuid4()}-link.avro")
    link.symlink_to("/etc/passwd")
    assert "root:" not in refuse(draft.body(str(link)))


def test_manifest_that_does_not_exist_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    line = draft.manifest([draft.data_file([(9, "x")])])
    local(line.manifest_path).unlink()
    message = refuse(draft.body([line]))
    assert line.manifest_path in message
    assert "does not exist" in message


def test_truncated_manifest_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    line = draft.manifest([draft.data_file([(9, "x")])])
    path = local(line.manifest_path)
    path.write_bytes(path.read_bytes()[:-10])
    assert line.manifest_path in refuse(draft.body([line]))
    shorter = replace(line, manifest_length=line.manifest_length - 10)
    assert line.manifest_path in refuse(draft.body([shorter]))


@pytest.mark.parametrize("wrong", [0, 1, 10**12])
def test_manifest_of_another_length_is_refused(refuse: Callable[..., str], metadata: Json, wrong: int) -> None:
    draft = Draft(metadata)
    line = draft.manifest([draft.data_file([(9, "x")])], manifest_length=wrong)
    message = refuse(draft.body([line]))
    assert line.manifest_path in message
    assert str(wrong) in message


def test_manifest_that_keeps_a_file_the_parent_does_not_hold_is_refused(
    refuse: Callable[..., str], metadata: Json
) -> None:
    draft = Draft(metadata)
    file = draft.data_file([(9, "x")])
    line = draft.manifest([ManifestEntry(EntryStatus.EXISTING, metadata["current-snapshot-id"], 1, 1, file)])
    assert file.file_path in refuse(draft.body([line, *draft.parent_manifests]))


def test_manifest_that_keeps_a_file_and_whose_list_keeps_it_too_is_refused(
    refuse: Callable[..., str], metadata: Json
) -> None:
    draft = Draft(metadata)
    kept = [replace(entry, status=EntryStatus.EXISTING) for entry in live(draft.parent_manifests[0])]
    line = draft.manifest(kept)
    assert kept[0].data_file.file_path in refuse(draft.body([line, *draft.parent_manifests]))


def test_file_that_is_added_twice_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    file = draft.data_file([(9, "x")])
    assert file.file_path in refuse(draft.body([draft.manifest([file, file]), *draft.parent_manifests]))
    two = [draft.manifest([file]), draft.manifest([file])]
    assert file.file_path in refuse(draft.body([*two, *draft.parent_manifests]))


def test_manifest_that_is_listed_twice_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    line = draft.manifest([draft.data_file([(9, "x")])])
    assert line.manifest_path in refuse(draft.body([line, line, *draft.parent_manifests]))
    parent = draft.parent_manifests
    assert parent[0].manifest_path in refuse(Draft(metadata).body([*parent, *parent]))


def test_unknown_partition_spec_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    line = draft.manifest([draft.data_file([(9, "x")])], partition_spec_id=5)
    assert "spec 5" in refuse(draft.body([line, *draft.parent_manifests]))


def test_partition_of_another_spec_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    by_id = PartitionField(source_id=1, field_id=1000, name="p", transform=Transform.parse("identity"))
    file = replace(draft.data_file([(9, "x")]), partition=(9,))
    line = draft.manifest([file], PartitionSpec(spec_id=0, fields=(by_id,)))
    assert "partition fields [1000]" in refuse(draft.body([line, *draft.parent_manifests]))


@pytest.mark.parametrize(
    ("transform", "source", "value"),
    [("day", 3, 10**9), ("day", 3, -(10**9)), ("month", 3, 2**31 - 1), ("identity", 2, "a\0b"), ("bucket[4]", 1, -7)],
)
def test_partition_beyond_what_the_other_side_can_say_harms_nothing(
    http: httpx.Client, client: Client, transform: str, source: int, value: Any
) -> None:
    """DuckLake has no calendar beyond the year 9999: such a file is refused, or has no partition there."""
    schema = with_field(name="d", type="date")
    fields = [{"source-id": source, "field-id": 1000, "name": "p", "transform": transform}]
    table = {"name": "parts", "schema": schema, "partition-spec": {"spec-id": 0, "fields": fields}}
    http.post(TABLES, json=table).raise_for_status()
    try:
        draft = Draft(client.metadata("parts"))
        field = PartitionField(source_id=source, field_id=1000, name="p", transform=Transform.parse(transform))
        file = replace(draft.data_file([(9, "x")]), partition=(value,))
        line = draft.manifest([file], PartitionSpec(spec_id=0, fields=(field,)))
        answer = http.post(f"{TABLES}/parts", json=draft.body([line]))
        assert answer.status_code in (200, 400), answer.text
        assert http.get(f"{TABLES}/parts").status_code == 200
        duckdb_partitions = catalog_rows(client.services, "ducklake_file_partition_value")
        assert all(row[-1] is not None for row in duckdb_partitions)
    finally:
        http.delete(f"{TABLES}/parts").raise_for_status()


def catalog_rows(services: Services, table: str) -> list[tuple[Any, ...]]:
    with services.database.reading() as cursor:
        return cursor.execute(f'SELECT * FROM "{table}"').fetchall()


def test_list_that_calls_a_manifest_of_data_one_of_deletes_is_refused(
    refuse: Callable[..., str], metadata: Json
) -> None:
    draft = Draft(metadata)
    line = draft.manifest([draft.data_file([(9, "x")])], content=ManifestContent.DELETES)
    assert line.manifest_path in refuse(draft.body([line, *draft.parent_manifests]))


def test_nul_character_in_a_file_path_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    file = replace(draft.data_file([(9, "x")]), file_path=f"{metadata['location']}/data/a\0b.parquet")
    assert "isn't the name of a file" in refuse(draft.body([draft.manifest([file])]))


@pytest.mark.parametrize("bounds", [{1: b"\1\2\3"}, {2: b"a\0b"}, {1: b""}, {99: b"x"}, {2: b"\xff\xfe"}, {-7: b"x"}])
def test_bounds_that_are_no_values_do_not_harm_the_table(http: httpx.Client, bounds: dict[int, bytes]) -> None:
    http.post(TABLES, json={"name": "bounds", "schema": SCHEMA})
    try:
        draft = Draft(http.get(f"{TABLES}/bounds").json()["metadata"])
        file = replace(draft.data_file([(9, "x")]), lower_bounds=bounds, upper_bounds=bounds)
        answer = http.post(f"{TABLES}/bounds", json=draft.body([draft.manifest([file])]))
        assert answer.status_code in (200, 400), answer.text
        assert http.get(f"{TABLES}/bounds").status_code == 200
    finally:
        http.delete(f"{TABLES}/bounds").raise_for_status()


# --- delete files


def test_delete_file_that_does_not_exist_is_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    file = draft.delete_file([(data_files(metadata)[0], 0)])
    local(file.file_path).unlink()
    assert file.file_path in refuse(draft.body([draft.manifest([file]), *draft.parent_manifests]))


@pytest.mark.parametrize("pattern", OUTSIDE)
def test_delete_file_outside_of_the_table_is_not_read(
    refuse: Callable[..., str], client: Client, metadata: Json, pattern: str
) -> None:
    draft = Draft(metadata)
    file = draft.delete_file([(data_files(metadata)[0], 0)])
    file = replace(file, file_path=outside(pattern, client) or "x")
    assert "root:" not in refuse(draft.body([draft.manifest([file]), *draft.parent_manifests]))


NOT_DELETES = {
    "empty": b"",
    "text": b"hello",
    "truncated": b"PAR1PAR1",
    "data": None,
}


@pytest.mark.parametrize("content", NOT_DELETES.values(), ids=NOT_DELETES.keys())
def test_delete_file_that_is_none_is_refused(refuse: Callable[..., str], metadata: Json, content: bytes | None) -> None:
    draft = Draft(metadata)
    data = local(draft.data_file([(1, "x")]).file_path).read_bytes() if content is None else content
    file = replace(draft.delete_file([(data_files(metadata)[0], 0)]), file_path=draft.new_file("d.parquet", data))
    assert file.file_path in refuse(draft.body([draft.manifest([file]), *draft.parent_manifests]))


@pytest.mark.parametrize("position", [-1, 2, HUGE])
def test_position_that_the_data_file_does_not_have_is_refused(
    refuse: Callable[..., str], metadata: Json, position: int
) -> None:
    draft = Draft(metadata)
    path = data_files(metadata)[0]
    file = draft.delete_file([(path, position)])
    message = refuse(draft.body([draft.manifest([file]), *draft.parent_manifests]))
    assert path in message
    assert f"position {position} " in message


def test_equality_deletes_that_do_not_exist_are_refused(refuse: Callable[..., str], metadata: Json) -> None:
    draft = Draft(metadata)
    file = replace(draft.delete_file([("x", 0)]), content=FileContent.EQUALITY_DELETES, equality_ids=(1,))
    local(file.file_path).unlink()
    message = refuse(draft.body([draft.manifest([file]), *draft.parent_manifests]))
    assert file.file_path in message


# --- after all of it


def test_what_is_refused_comes_back_without_its_middle_if_it_is_long(refuse: Callable[..., str]) -> None:
    field = {"source-id": 1, "name": "long", "transform": f"begin{'x' * 1_000_000}end"}
    message = refuse(commit({"action": "add-spec", "spec": {"fields": [field]}}))
    assert "begin" in message
    assert "end" in message
    assert len(message) < 20_000


def test_tables_still_read_and_write(client: Client) -> None:
    assert pyiceberg_rows(client.load("t")) == [(1, "one"), (2, "two")]
    assert pyiceberg_rows(client.load("other")) == [(3, "three")]
    client.append((4, "four"), name="empty")
    assert pyiceberg_rows(client.load("empty")) == [(4, "four")]
