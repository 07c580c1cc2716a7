"""Changes of the lake as runs of OpenLineage: what their datasets, jobs and runs are called and say."""

from datetime import timedelta, timezone
from typing import Any
from uuid import UUID

import orjson
import pytest
from jsonschema_rs import ValidationError

from duckicelake.changelog.entries import ChangeKind
from duckicelake.lineage.openlineage.names import NamedLake, hide_credentials, name_location
from duckicelake.lineage.openlineage.runs import describe_run
from tests.support.lineage_changes import LAKE, SCHEMA, SPARK, START, change, completed, events, report
from tests.support.openlineage import check_event

Json = dict[str, Any]
METRICS = {"added-records": 10, "added-data-files": 2, "added-files-size": 900, "total-records": 30}


def output(event: Json) -> Json:
    (only,) = event["outputs"]
    return dict(only)


def lifecycle(event: Json) -> str | None:
    facet = output(event)["facets"].get("lifecycleStateChange")
    return None if facet is None else facet["lifecycleStateChange"]


@pytest.mark.parametrize(
    ("location", "name"),
    [
        ("file:///lake/ns/t/", ("file", "/lake/ns/t")),
        ("file:/lake/ns/t", ("file", "/lake/ns/t")),
        ("/lake/a%20b", ("file", "/lake/a%20b")),
        ("s3://bucket/a/b/", ("s3://bucket", "a/b")),
        ("s3a://bucket/a", ("s3://bucket", "a")),
        ("s3://bucket", ("s3://bucket", "/")),
        ("s3://key:secret@bucket/a?token=x#y", ("s3://bucket", "a")),
        ("gs://bucket/a", ("gs://bucket", "a")),
        ("abfss://box@account.dfs.core.windows.net/a", ("abfss://box@account.dfs.core.windows.net", "a")),
        ("hdfs://namenode:8020/a/", ("hdfs://namenode:8020", "/a")),
    ],
)
def test_a_dataset_is_named_by_where_it_lies(location: str, name: tuple[str, str]) -> None:
    assert name_location(location) == name


def test_a_catalogs_uri_keeps_no_secret() -> None:
    assert hide_credentials("https://me:secret@lake.example:8181/base/?key=x") == "https://lake.example:8181/base"


DONE = [
    (ChangeKind.CREATE_TABLE, {"schema": SCHEMA}, "CREATE"),
    (ChangeKind.ALTER_TABLE, {"schema": SCHEMA}, "ALTER"),
    (ChangeKind.UPDATE_TABLE, {"updates": ["set-properties"]}, "ALTER"),
    (ChangeKind.DROP_TABLE, {}, "DROP"),
    (ChangeKind.APPEND, {"metrics": METRICS}, None),
    (ChangeKind.DELETE, {"metrics": {"deleted-records": 5, "total-records": 1}}, None),
    (ChangeKind.DELETE, {"metrics": {"deleted-records": 5, "total-records": 0}}, "TRUNCATE"),
    (ChangeKind.OVERWRITE, {"metrics": METRICS | {"deleted-records": 2}}, None),
    (ChangeKind.OVERWRITE, {"metrics": METRICS | {"deleted-records": 2, "total-records": 10}}, "OVERWRITE"),
    (
        ChangeKind.OVERWRITE,
        {"metrics": METRICS | {"deleted-records": 2}, "summary": {"replace-partitions": "true"}},
        "OVERWRITE",
    ),
    (ChangeKind.REPLACE, {"metrics": METRICS | {"deleted-data-files": 9, "deleted-records": 10}}, None),
]


@pytest.mark.parametrize(("kind", "facts", "state"), DONE)
def test_what_befell_a_table_is_its_lifecycle(kind: ChangeKind, facts: Json, state: str | None) -> None:
    event = completed(change(kind, facts=facts))
    assert lifecycle(event) == state
    assert (output(event)["namespace"], output(event)["name"]) == ("file", "/lake/ns/t")
    (symlink,) = output(event)["facets"]["symlinks"]["identifiers"]
    assert symlink == {"namespace": "http://catalog:8181", "name": "ns.t", "type": "TABLE"}
    assert output(event)["facets"]["duckicelake_table"]["name"] == "t"
    assert output(event)["outputFacets"]["duckicelake_change"]["kinds"] == [str(kind)]


@pytest.mark.parametrize("kind", [ChangeKind.CREATE_VIEW, ChangeKind.ALTER_VIEW, ChangeKind.DROP_VIEW])
def test_a_view_has_the_catalogs_name_alone(kind: ChangeKind) -> None:
    event = completed(change(kind, facts={"location": "file:///lake/views/v"}))
    assert (output(event)["namespace"], output(event)["name"]) == ("http://catalog:8181", "ns.t")
    assert output(event)["facets"]["datasetType"]["datasetType"] == "VIEW"
    assert {"storage", "version"}.isdisjoint(output(event)["facets"])
    assert lifecycle(event) == kind.partition("-")[0].upper()


@pytest.mark.parametrize("kind", [ChangeKind.RENAME_TABLE, ChangeKind.RENAME_VIEW])
def test_a_rename_names_what_was(kind: ChangeKind) -> None:
    facet = output(completed(change(kind, previous="old.name")))["facets"]["lifecycleStateChange"]
    assert facet["lifecycleStateChange"] == "RENAME"
    assert facet["previousIdentifier"] == {"namespace": "http://catalog:8181", "name": "old.name"}


@pytest.mark.parametrize("kind", [kind for kind in ChangeKind if kind.value.endswith("-namespace")])
def test_a_namespace_is_no_dataset_but_the_run_names_it(kind: ChangeKind) -> None:
    event = completed(change(kind, None))
    assert event["outputs"] == []
    assert event["run"]["facets"]["duckicelake_commit"]["namespaces"] == ["ns"]


def test_every_kind_has_a_test() -> None:
    kinds = {ChangeKind.RENAME_TABLE, *(kind for kind, _, _ in DONE)}
    assert kinds == {kind for kind in ChangeKind if not kind.endswith(("-view", "-namespace"))}


def test_an_append_says_how_much_and_of_which_columns() -> None:
    event = completed(
        change(ChangeKind.APPEND, iceberg_snapshot_id=99, facts={"metrics": METRICS, "schema": SCHEMA}), owner="bo"
    )
    facets, statistics = output(event)["facets"], output(event)["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (10, 900, 2)
    assert facets["version"]["datasetVersion"] == "99"
    assert facets["ownership"]["owners"] == [{"name": "bo", "type": "OWNER"}]
    assert facets["schema"]["fields"] == [
        {"name": "id", "type": "long", "description": "of the order"},
        {"name": "tags", "type": "array", "fields": [{"name": "_element", "type": "string"}]},
        {
            "name": "at",
            "type": "map",
            "fields": [
                {"name": "key", "type": "string"},
                {"name": "value", "type": "struct", "fields": [{"name": "x", "type": "double"}]},
            ],
        },
    ]
    assert b"4711" not in orjson.dumps(event)


@pytest.mark.parametrize(
    ("kind", "more", "version"),
    [
        (ChangeKind.APPEND, {"iceberg_snapshot_id": 99}, "99"),
        (ChangeKind.APPEND, {"source": "duckdb"}, "17"),
        (ChangeKind.CREATE_TABLE, {"source": "duckdb"}, None),
        (ChangeKind.ALTER_TABLE, {}, None),
    ],
)
def test_the_version_is_the_snapshot_that_engines_read(kind: ChangeKind, more: Json, version: str | None) -> None:
    facet = output(completed(change(kind, **more)))["facets"].get("version")
    assert (facet and facet["datasetVersion"]) == version


def test_a_wide_schema_is_cut() -> None:
    fields = [{"id": i, "name": f"c{i}", "required": False, "type": "int"} for i in range(6000)]
    event = completed(change(ChangeKind.APPEND, facts={"schema": {"type": "struct", "fields": fields}}))
    assert len(output(event)["facets"]["schema"]["fields"]) == 5000


def test_a_transaction_of_several_tables_is_one_run() -> None:
    one = change(ChangeKind.APPEND, "a", 17, operation="commit_transaction", request_id="r", object_id=1)
    two = change(ChangeKind.APPEND, "b", 18, operation="commit_transaction", request_id="r", object_id=2)
    three = change(ChangeKind.UPDATE_TABLE, "c", 18, 0.01, operation="commit_transaction", request_id="r", object_id=3)
    event = completed(one, two, three, location=None)
    assert [each["name"] for each in event["outputs"]] == ["ns.a", "ns.b", "ns.c"]
    assert event["job"]["name"].startswith("unknown.append.ns.a+2.")


def test_job_over_several_namespaces_is_named_after_none_of_their_tables() -> None:
    both = [
        change(ChangeKind.APPEND, namespace=each, operation="commit_transaction", object_id=i)
        for i, each in enumerate("ab")
    ]
    assert completed(*both)["job"]["name"].startswith("unknown.append.several-namespaces.")


def test_what_was_done_to_one_table_at_once_is_one_output() -> None:
    made = change(ChangeKind.CREATE_TABLE, facts={"schema": SCHEMA, "summary": SPARK})
    filled = change(ChangeKind.APPEND, ordinal=1, facts={"metrics": METRICS, "summary": SPARK})
    event = completed(made, filled)
    assert lifecycle(event) == "CREATE"
    assert output(event)["outputFacets"]["outputStatistics"]["rowCount"] == 10
    assert event["job"]["name"].startswith("nightly.create-table.ns.t.")


def test_a_rewrite_as_drop_and_create_keeps_both_tables() -> None:
    dropped = change(ChangeKind.DROP_TABLE, object_id=3)
    made = change(ChangeKind.CREATE_TABLE, ordinal=1, object_id=4, facts={"location": "file:///lake/ns/t2"})
    event = completed(dropped, made)
    assert [each["name"] for each in event["outputs"]] == ["/lake/ns/t", "/lake/ns/t2"]


def test_requests_with_one_id_are_runs_of_their_own() -> None:
    found = events(
        change(ChangeKind.APPEND, snapshot=17, request_id="fixed"),
        change(ChangeKind.APPEND, snapshot=18, seconds=1, request_id="fixed"),
    )
    assert len({each["run"]["runId"] for each in found}) == 2


def test_duckdb_commits_are_its_jobs_of_whom_it_names() -> None:
    native = {"source": "duckdb", "principal": None, "request_id": None, "operation": None}
    unknown = completed(change(ChangeKind.APPEND, **native))
    signed = completed(change(ChangeKind.APPEND, **native | {"facts": {"author": "bo", "message": "secret"}}))
    assert unknown["job"]["facets"]["jobType"]["integration"] == "DUCKDB"
    assert "principal" not in unknown["run"]["facets"]["duckicelake_commit"]
    assert signed["run"]["facets"]["duckicelake_commit"]["principal"] == "bo"
    assert unknown["job"]["name"] != signed["job"]["name"]
    assert b"secret" not in orjson.dumps(signed)


def test_several_things_in_one_duckdb_snapshot_are_one_run() -> None:
    native = {"source": "duckdb", "principal": None, "request_id": None, "operation": None}
    event = completed(
        change(ChangeKind.APPEND, "a", object_id=1, **native),
        change(ChangeKind.DELETE, "b", object_id=2, ordinal=1, **native),
    )
    assert len(event["outputs"]) == 2


@pytest.mark.parametrize(
    ("facts", "more", "engine"),
    [
        ({"summary": SPARK}, {}, ("spark", "4.1.4", "local-17")),
        ({"summary": {"trino_query_id": "20261122_1"}}, {}, ("trino", "unknown", None)),
        ({"summary": {"flink.job-id": "f00"}}, {}, ("flink", "unknown", "f00")),
        ({}, {"agent": "PyIceberg/0.11.0"}, ("pyiceberg", "0.11.0", None)),
        ({}, {"agent": "Apache-HttpClient/5.6.4 (Java/17.0.15)"}, ("iceberg-java", "unknown", None)),
        ({"client": {"user-agent": "curl/8.1"}}, {}, ("curl", "8.1", None)),
        ({"client": {"engine": "Apache Doris 3.1"}}, {}, ("apache-doris", "3.1", None)),
        ({"client": {"application": "app-1"}}, {}, ("unknown", "unknown", "app-1")),
        ({"summary": {"engine-name": "x" * 900}}, {}, ("x" * 200, "unknown", None)),
    ],
)
def test_the_engine_is_known_by_its_traces(facts: Json, more: Json, engine: tuple[str, str, str | None]) -> None:
    facets = completed(change(ChangeKind.APPEND, facts=facts, **more))["run"]["facets"]
    found = facets["processing_engine"]
    assert (found["name"], found["version"], facets["duckicelake_commit"].get("application")) == engine


def test_trinos_query_is_named() -> None:
    facets = completed(change(ChangeKind.APPEND, facts={"summary": {"trino_query_id": "q_1"}}))["run"]["facets"]
    assert (facets["externalQuery"]["externalQueryId"], facets["externalQuery"]["source"]) == ("q_1", "trino")


RUN, ROOT = str(UUID(int=5)), str(UUID(int=6))


@pytest.mark.parametrize(
    "facts",
    [
        {"client": {"parent-run-id": RUN, "parent-job-name": "dag.task", "parent-job-namespace": "airflow"}},
        {
            "summary": {
                "openlineage.parentRunId": RUN,
                "openlineage.parentJobName": "dag.task",
                "openlineage.parentJobNamespace": "airflow",
            }
        },
    ],
)
def test_the_run_is_part_of_the_one_that_the_client_names(facts: Json) -> None:
    parent = completed(change(ChangeKind.APPEND, facts=facts))["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["job"]["namespace"], parent["job"]["name"]) == (RUN, "airflow", "dag.task")


def test_a_root_goes_with_the_parent() -> None:
    client = {"parent-run-id": RUN, "root-run-id": ROOT, "root-job-name": "dag"}
    parent = completed(change(ChangeKind.APPEND, facts={"client": client}))["run"]["facets"]["parent"]
    assert (parent["root"]["run"]["runId"], parent["root"]["job"]["name"]) == (ROOT, "dag")


def test_nonsense_of_clients_is_left_out() -> None:
    summary = {"openlineage.parentRunId": "nonsense", "openlineage.nominalStartTime": "soon"}
    facets = completed(change(ChangeKind.APPEND, facts={"summary": summary}))["run"]["facets"]
    assert {"parent", "nominalTime"}.isdisjoint(facets)


def test_nominal_times_are_utc() -> None:
    summary = {"openlineage.nominalStartTime": "2026-11-22T02:00:00+02:00", "openlineage.nominalEndTime": "2026-11-23"}
    facet = completed(change(ChangeKind.APPEND, facts={"summary": summary}))["run"]["facets"]["nominalTime"]
    assert facet["nominalStartTime"] == "2026-11-22T00:00:00.000000Z"
    assert facet["nominalEndTime"] == "2026-11-23T00:00:00.000000Z"


def test_ids_are_version_7_of_the_commits_time_and_the_same_each_time() -> None:
    first, again = completed(change(ChangeKind.APPEND)), completed(change(ChangeKind.APPEND))
    assert first == again
    run_id = UUID(first["run"]["runId"])
    assert run_id.version == 7
    assert run_id.int >> 80 == round(START.timestamp() * 1000)
    elsewhere = describe_run(report(change(ChangeKind.APPEND)), NamedLake(UUID(int=8), LAKE.uri))
    assert elsewhere["run"]["runId"] != first["run"]["runId"]
    assert elsewhere["job"]["name"] != first["job"]["name"]


def test_a_job_stays_the_same_and_others_differ() -> None:
    def name(**more: Any) -> str:
        return str(completed(change(ChangeKind.APPEND, **more))["job"]["name"])

    assert name() == name(snapshot=99, seconds=5)
    assert len({name(), name(principal="bo"), name(name="u"), name(facts={"summary": SPARK})}) == 4


def test_times_are_utc() -> None:
    local = START.astimezone(timezone(timedelta(hours=2)))
    assert completed(change(ChangeKind.APPEND, at=local))["eventTime"] == "2026-11-22T12:00:00.000000Z"


def test_no_value_of_data_or_of_a_property_is_reported() -> None:
    facts = {
        "location": "s3://key:s3cr3t@bucket/t?X-Amz-Signature=s3cr3t",
        "summary": {**SPARK, "partitions.day=s3cr3t": "added-records=1", "password": "s3cr3t"},
        "updates": ["set-properties"],
        "properties": {"token": "s3cr3t"},
        "message": "s3cr3t",
    }
    assert b"s3cr3t" not in orjson.dumps(events(change(ChangeKind.APPEND, facts=facts)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"eventTime": "yesterday"},
        {"eventType": "DONE"},
        {"producer": None},
        {"run": {"runId": "17", "facets": {}}},
        {"job": {"namespace": "x", "facets": {}}},
        {"outputs": [{"name": "t"}]},
        {"job": {"namespace": "x", "name": "y", "facets": {"jobType": {"_producer": "urn:x", "_schemaURL": "urn:y"}}}},
        {
            "job": {
                "namespace": "x",
                "name": "y",
                "facets": {"duckicelake_x": {"_producer": "urn:x", "_schemaURL": "urn:y"}},
            }
        },
    ],
)
def test_the_check_of_these_tests_finds_what_is_wrong(wrong: Json) -> None:
    with pytest.raises((ValidationError, AssertionError)):
        check_event({**completed(change(ChangeKind.APPEND)), **wrong})
