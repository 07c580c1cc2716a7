"""A small lake over HTTP to attack: tables with history, and real commits to them, made anew from what is there."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import uuid4

from scripts.attack_job.target import Target
from tests.support.client import SCHEMA, Draft, append, data_files, delete, set_ref

Json = dict[str, Any]
NAMESPACE = "/v1/namespaces/attacked"
TABLES, VIEWS = f"{NAMESPACE}/tables", f"{NAMESPACE}/views"
_numbers = count(1)
MAP: Json = {
    "type": "map", "key-id": 4, "key": "string", "value-id": 5, "value-required": False, "value": "decimal(9, 2)",
}  # fmt: skip
EVOLVED: Json = {
    **SCHEMA,
    "schema-id": 1,
    "fields": [*SCHEMA["fields"], {"id": 3, "name": "m", "required": False, "type": MAP}],
}


class NotThereError(Exception):
    """What the attack builds on isn't there (any more)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request that would succeed."""

    method: str
    path: str
    body: Json


def build(target: Target) -> None:
    """The namespace, and a table in it that no one attacks."""
    target.send("POST", "/v1/namespaces", _json({"namespace": ["attacked"], "properties": {"owner": "me"}}))
    create(target, "bystander")
    commit(target, "bystander", append(metadata(target, "bystander"), (1, "one"), (2, "two")))
    commit(
        target, "bystander", delete(metadata(target, "bystander"), (data_files(metadata(target, "bystander"))[0], 0))
    )


def create(target: Target, name: str, version: int = 2) -> Json:
    answer = target.send("POST", TABLES, _json(creation(name, version)))
    if answer is None or answer.status_code != 200:
        raise NotThereError(f"{name} can't be created: {answer and answer.text}")
    created: Json = answer.json()["metadata"]
    return created


def creation(name: str, version: int = 2) -> Json:
    spec = {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"}]}
    order = {"order-id": 1, "fields": [{"source-id": 2, "transform": "identity", "direction": "asc",
                                        "null-order": "nulls-first"}]}  # fmt: skip
    partitioned = {"partition-spec": spec, "write-order": order} if "partitioned" in name else {}
    return {"name": name, "schema": SCHEMA, "properties": {"format-version": str(version)}, **partitioned}


def metadata(target: Target, name: str) -> Json:
    answer = target.send("GET", f"{TABLES}/{name}")
    if answer is None or answer.status_code != 200:
        raise NotThereError(name)
    found: Json = answer.json()["metadata"]
    return found


def commit(target: Target, name: str, body: Json) -> int:
    answer = target.send("POST", f"{TABLES}/{name}", _json(body))
    return 0 if answer is None else answer.status_code


def new_victim(target: Target, version: int) -> str:
    """A table with two snapshots, a tag and a branch."""
    name = f"victim{next(_numbers)}"
    create(target, name, version)
    if version == 2:
        commit(target, name, append(metadata(target, name), (1, "one"), (2, "two"), (3, None)))
        commit(target, name, append(metadata(target, name), (4, "four")))
    else:
        draft = Draft(metadata(target, name), format_version=version)
        commit(target, name, draft.body([draft.manifest([draft.data_file([(1, "one"), (2, "two")])])]))
    current = metadata(target, name).get("current-snapshot-id")
    refs = [set_ref("old", current, "tag"), set_ref("side", current)] if current else []
    commit(target, name, {"requirements": [], "updates": refs})
    return name


def requests(target: Target, name: str) -> Iterator[Request]:
    """Real requests about a table as it is now."""
    known, table = metadata(target, name), f"{TABLES}/{name}"
    uuid = [{"type": "assert-table-uuid", "uuid": known["table-uuid"]}]
    draft = Draft(known, format_version=known["format-version"])
    appended = draft.body([draft.manifest([draft.data_file([(5, "five")])]), *draft.parent_manifests])
    identifier = {"namespace": ["attacked"], "name": name}
    properties = {"requirements": uuid, "updates": [{"action": "set-properties", "updates": {"t": "1"}}]}
    changes = [{"identifier": identifier, **properties}, {**appended, "identifier": identifier}]
    registration = {"name": f"r{uuid4().hex}", "metadata-location": known["location"], "overwrite": True}
    yield Request("POST", table, appended)
    yield Request("POST", table, {"requirements": uuid, "updates": _evolution()})
    yield Request("POST", table, {"requirements": uuid, "updates": _settings(known.get("current-snapshot-id"))})
    yield Request("POST", "/v1/transactions/commit", {"table-changes": changes})
    yield Request("POST", TABLES, creation(f"partitioned{uuid4().hex}", 3))
    yield Request("POST", "/v1/tables/rename", {"source": identifier, "destination": identifier})
    yield Request("POST", f"{NAMESPACE}/register", registration)
    yield Request("POST", f"{table}/metrics", _scan_report(name))
    yield from _of_views(name)
    yield Request("POST", "/v1/namespaces", {"namespace": ["attacked", f"n{uuid4().hex}"], "properties": {"a": "b"}})
    yield Request("POST", f"{NAMESPACE}/properties", {"removals": ["a"], "updates": {"b": "c"}})


def _evolution() -> list[Json]:
    sort_field = {"source-id": 1, "transform": "identity", "direction": "desc", "null-order": "nulls-last"}
    return [
        {"action": "add-schema", "schema": EVOLVED, "last-column-id": 5},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"fields": [{"source-id": 1, "name": "p", "transform": "truncate[10]"}]}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 7, "fields": [sort_field]}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]


def _settings(current: int | None) -> list[Json]:
    blob = {"type": "x", "snapshot-id": 1, "sequence-number": 1, "fields": [1], "properties": {}}
    statistics = {
        "snapshot-id": current,
        "statistics-path": "/s",
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [blob],
    }
    return [
        {"action": "set-properties", "updates": {"a": "1", "write.metadata.previous-versions-max": "3"}},
        {"action": "remove-properties", "removals": ["b"]},
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "set-snapshot-ref", "ref-name": "side", "type": "branch", "snapshot-id": current},
        {"action": "remove-snapshots", "snapshot-ids": [1]},
        {"action": "set-statistics", "snapshot-id": current, "statistics": statistics},
    ]


def _scan_report(name: str) -> Json:
    equal = {"type": "eq", "term": "id", "value": 1}
    return {
        "report-type": "scan-report",
        "table-name": name,
        "snapshot-id": 1,
        "filter": {"type": "and", "left": equal, "right": True},
        "schema-id": 0,
        "projected-field-ids": [1],
        "projected-field-names": ["id"],
        "metrics": {},
    }


def _of_views(name: str) -> Iterator[Request]:
    sql = f"SELECT id, upper(name) AS n FROM attacked.{name} WHERE id > 1 GROUP BY 1, 2"
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {"engine-name": "spark"},
        "default-namespace": ["attacked"],
        "default-catalog": "lake",
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }
    view = f"view{uuid4().hex}"
    updates = [
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 2},
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": -1},
        {"action": "set-properties", "updates": {"comment": "c"}},
    ]
    yield Request("POST", VIEWS, {"name": view, "schema": SCHEMA, "view-version": version, "properties": {"a": "b"}})
    yield Request("POST", f"{VIEWS}/{view}", {"requirements": [], "updates": updates})


def _json(body: Json) -> bytes:
    return json.dumps(body).encode()
