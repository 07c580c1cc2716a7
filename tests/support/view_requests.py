"""Requests about views as clients send them, and the use cases called with them."""

import json
from pathlib import Path
from typing import Any

from duckicelake.catalog import views
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.rest import CommitViewRequest, CreateViewRequest, RegisterViewRequest, RenameTableRequest

Json = Any
ID = {"id": 1, "name": "id", "type": "long", "required": False}
CITY = {"id": 2, "name": "city", "type": "string", "required": False}
SPARK = {"spark": "SELECT id, city FROM t"}


def schema(*fields: Json) -> Json:
    return {"type": "struct", "schema-id": 0, "fields": list(fields or (ID, CITY))}


def version(queries: dict[str, str], **changes: Json) -> Json:
    body = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {"engine-name": "test"},
        "default-namespace": ["main"],
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect} for dialect, sql in queries.items()],
    }
    return body | {key.replace("_", "-"): value for key, value in changes.items()}


def creation(name: str, queries: dict[str, str] | None = None, *fields: Json, **more: Json) -> Json:
    return {"name": name, "schema": schema(*fields), "view-version": version(queries or SPARK), **more}


def replacement(queries: dict[str, str], *fields: Json, **changes: Json) -> list[Json]:
    """The updates that replace a view's query."""
    return [
        {"action": "add-schema", "schema": schema(*fields)},
        {"action": "add-view-version", "view-version": version(queries, schema_id=-1, **changes)},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]


def set_properties(**properties: str) -> Json:
    return {"action": "set-properties", "updates": properties}


DROPPING = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "true"}}


def create(services: Services, name: str, *args: Any, namespace: str = "main", **more: Json) -> Json:
    request = CreateViewRequest.model_validate(creation(name, *args, **more))
    return json.loads(views.create_view(services, (namespace,), request))


def load(services: Services, name: str, namespace: str = "main") -> Json:
    return json.loads(views.load_view(services, (namespace,), name))


def commit(services: Services, name: str, *updates: Json, uuid: str | None = None, namespace: str = "main") -> Json:
    requirements = [] if uuid is None else [{"type": "assert-view-uuid", "uuid": uuid}]
    request = CommitViewRequest.model_validate({"requirements": requirements, "updates": updates})
    return json.loads(views.commit_view(services, (namespace,), name, request))


def rename(services: Services, source: str, target: str) -> None:
    """Names are "namespace.view"."""
    names = {
        key: dict(zip(("namespace", "name"), ([full.split(".")[0]], full.split(".")[1]), strict=True))
        for key, full in (("source", source), ("destination", target))
    }
    views.rename_view(services, RenameTableRequest.model_validate(names))


def register(services: Services, name: str, location: str, namespace: str = "main") -> Json:
    request = RegisterViewRequest.model_validate({"name": name, "metadata-location": location})
    return json.loads(views.register_view(services, (namespace,), request))


def current(answer: Json) -> Json:
    """The current version of a loaded view."""
    metadata = answer["metadata"]
    return next(each for each in metadata["versions"] if each["version-id"] == metadata["current-version-id"])


def queries(answer: Json) -> dict[str, str]:
    """The current version's SQL by dialect."""
    return {each["dialect"]: each["sql"] for each in current(answer)["representations"]}


def columns(answer: Json) -> list[tuple[str, Json]]:
    """(name, type) of the current version's columns."""
    wanted = current(answer)["schema-id"]
    (found,) = (each for each in answer["metadata"]["schemas"] if each["schema-id"] == wanted)
    return [(field["name"], field["type"]) for field in found["fields"]]


def written(answer: Json) -> Json:
    """What the metadata file of a loaded view says."""
    return json.loads(Path(answer["metadata-location"].removeprefix("file:")).read_bytes())
