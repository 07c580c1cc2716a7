"""Labels of loads: comments, owners and DuckLake's tags, of tables and views, also after DuckDB changed them."""

import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from duckicelake.bridge.labels import build_table_labels, compute_tags_digest
from duckicelake.catalog.context.services import Services
from duckicelake.lake.model import ObjectTag
from duckicelake.server.app import create_app
from tests.support.lakes import Lake
from tests.support.servers import Serve

Json = dict[str, Any]
TABLE = "/v1/namespaces/main/tables/t"


@pytest.fixture
def http(services: Services, serve: Serve) -> httpx.Client:
    app: FastAPI = create_app(services)
    return serve(app)


_TAG = """
    WITH newest AS (
        SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1
    ), made AS (
        INSERT INTO ducklake_snapshot
        SELECT snapshot_id + 1, now(), schema_version + 1, next_catalog_id, next_file_id FROM newest
        RETURNING snapshot_id
    ), changed AS (
        INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made)
        SELECT snapshot_id, 'altered_table:' || table_id FROM made, ducklake_table
        WHERE table_name = 't' AND end_snapshot IS NULL
    ), own AS (
        INSERT INTO ducklake_tag
        SELECT table_id, snapshot_id, NULL, %(key)s, %(value)s FROM made, ducklake_table
        WHERE table_name = 't' AND end_snapshot IS NULL AND %(column)s::text IS NULL
    )
    INSERT INTO ducklake_column_tag
    SELECT table_id, column_id, snapshot_id, NULL, %(key)s, %(value)s
    FROM made, ducklake_column WHERE column_name = %(column)s AND end_snapshot IS NULL
"""
"""DuckDB's SQL has one kind of tag, the comment, and DuckDB 1.5 reads no lake whose columns have others."""


def tag(lake: Lake, column: str | None, key: str, value: str) -> None:
    """Tag table t or a column of it as a tool does that writes DuckLake's tables."""
    with lake.services.database.transaction() as cursor:
        cursor.execute(_TAG, {"column": column, "key": key, "value": value})


def labels(http: httpx.Client, path: str = TABLE, **headers: str) -> Json | None:
    found: Json | None = http.get(path, headers=headers).raise_for_status().json().get("labels")
    return found


def test_a_table_without_labels_sends_none(lake: Lake, http: httpx.Client) -> None:
    lake.run("CREATE TABLE t (id INTEGER)", "CREATE VIEW v AS SELECT id FROM t")
    assert "labels" not in http.get(TABLE).json()
    assert "labels" not in http.get("/v1/namespaces/main/views/v").json()


def test_comments_and_owners_are_labels_of_the_table_and_its_fields(lake: Lake, http: httpx.Client) -> None:
    lake.run(
        "CREATE TABLE t (id INTEGER, s STRUCT(a INTEGER))",
        "COMMENT ON TABLE t IS 'all orders'",
        "COMMENT ON COLUMN t.id IS 'a key'",
    )
    lake.commit({"action": "set-properties", "updates": {"owner": "finance"}})
    assert labels(http) == {
        "object-labels": {"comment": "all orders", "owner": "finance"},
        "fields": [{"field-id": 1, "labels": {"comment": "a key"}}],
    }


def test_a_changed_tag_shows_with_the_next_load_and_in_its_etag(lake: Lake, http: httpx.Client) -> None:
    lake.run("CREATE TABLE t (id INTEGER, name VARCHAR)", "INSERT INTO t VALUES (1, 'a')")
    first = http.get(TABLE)
    assert http.get(TABLE, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    tag(lake, None, "tier", "gold")
    tag(lake, "name", "pii", "yes")
    second = http.get(TABLE, headers={"If-None-Match": first.headers["etag"]})
    assert second.status_code == 200
    assert second.json()["labels"] == {
        "object-labels": {"tier": "gold"},
        "fields": [{"field-id": 2, "labels": {"pii": "yes"}}],
    }
    assert second.headers["etag"] != first.headers["etag"]
    assert http.get(TABLE, headers={"If-None-Match": second.headers["etag"]}).status_code == 304
    tag(lake, "id", "unit", "pieces")
    third = http.get(TABLE, headers={"If-None-Match": second.headers["etag"]})
    assert third.status_code == 200
    assert {field["field-id"] for field in third.json()["labels"]["fields"]} == {1, 2}


def test_tags_stay_over_commits_and_go_with_their_column(lake: Lake, http: httpx.Client) -> None:
    lake.run("CREATE TABLE t (id INTEGER, name VARCHAR)")
    tag(lake, "name", "pii", "yes")
    assert labels(http) == {"fields": [{"field-id": 2, "labels": {"pii": "yes"}}]}
    committed = http.post(
        TABLE, json={"requirements": [], "updates": [{"action": "set-properties", "updates": {"x": "1"}}]}
    )
    loaded = http.get(TABLE)
    assert loaded.json()["labels"] == {"fields": [{"field-id": 2, "labels": {"pii": "yes"}}]}
    assert loaded.headers["etag"] == committed.headers["etag"]
    http.post(
        TABLE,
        json={
            "requirements": [],
            "updates": [
                {
                    "action": "add-schema",
                    "schema": {"type": "struct", "fields": loaded.json()["metadata"]["schemas"][0]["fields"][:1]},
                },
                {"action": "set-current-schema", "schema-id": -1},
            ],
        },
    ).raise_for_status()
    assert labels(http) is None


def test_both_representations_have_the_labels(lake: Lake, http: httpx.Client) -> None:
    lake.run("CREATE TABLE t (id INTEGER)")
    tag(lake, None, "tier", "gold")
    assert labels(http, f"{TABLE}?snapshots=refs") == labels(http) == {"object-labels": {"tier": "gold"}}


def test_views_have_labels_of_their_own(lake: Lake, http: httpx.Client) -> None:
    lake.run("CREATE TABLE t (id INTEGER)", "CREATE VIEW v AS SELECT id FROM t", "COMMENT ON VIEW v IS 'theirs'")
    assert labels(http, "/v1/namespaces/main/views/v") == {"object-labels": {"comment": "theirs"}}
    with lake.services.database.transaction() as cursor:
        cursor.execute("UPDATE ducklake_tag SET key = 'tier'")
    lake.run("COMMENT ON VIEW v IS 'new'")
    assert labels(http, "/v1/namespaces/main/views/v") == {"object-labels": {"tier": "theirs", "comment": "new"}}


def test_only_live_fields_are_labelled_and_tags_have_a_digest_of_their_own(lake: Lake) -> None:
    lake.run("CREATE TABLE t (id INTEGER)")
    tags = (ObjectTag(None, "tier", "gold"), ObjectTag(7, "pii", "yes"), ObjectTag(1, "unit", "pieces"))
    assert build_table_labels(lake.metadata(), tags) == {
        "object-labels": {"tier": "gold"},
        "fields": [{"field-id": 1, "labels": {"unit": "pieces"}}],
    }
    digests = {compute_tags_digest(tags[:count]) for count in range(4)}
    assert len(digests) == 4
    assert "" in digests
    assert json.loads(json.dumps(build_table_labels(lake.metadata()))) == {}
