"""PURE. Labels of tables and views in load responses (REST specification, `Labels`): comments, owners, DuckLake's tags.

Labels say what people note about an object and its fields. They are no part of metadata.json: a change of a tag makes
no version of the table.
"""

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson

from duckicelake.bridge.definitions import COMMENT
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.model import Json, parse
from duckicelake.iceberg.schema import Schema
from duckicelake.lake.model import ObjectTag

OWNER: Final = "owner"
"""The table property that names the owner, and its label; Spark sets it."""
_DIGEST_BYTES: Final = 6


def compute_tags_digest(tags: Iterable[ObjectTag]) -> str:
    """Compute a text that differs for other tags; empty without tags."""
    rows = [list(tag) for tag in tags]
    return blake2b(orjson.dumps(rows), digest_size=_DIGEST_BYTES).hexdigest() if rows else ""


def build_table_labels(metadata: TableMetadata, tags: Collection[ObjectTag] = ()) -> dict[str, Json]:
    """Build the member `labels` of a table's load response; an empty object if the table has no labels."""
    return _build_labels(metadata.properties, metadata.schema(), tags)


def build_view_labels(metadata: Mapping[str, Any], tags: Collection[ObjectTag] = ()) -> dict[str, Json]:
    """Build the same of a view, whose metadata is JSON."""
    schema_ids = {version["version-id"]: version["schema-id"] for version in metadata["versions"]}
    schema_id = schema_ids.get(metadata["current-version-id"])
    found = next((json for json in metadata["schemas"] if json["schema-id"] == schema_id), None)
    schema = None if found is None else parse(Schema, found, "schema of the view")
    return _build_labels(
        metadata.get("properties", {}), None if schema is None else parse(Schema, schema, "schema"), tags
    )


def _build_labels(properties: Mapping[str, str], schema: Schema | None, tags: Collection[ObjectTag]) -> dict[str, Json]:
    """Build labels. Comment and owner of the object win over its tags of these names."""
    own = {tag.key: tag.value for tag in tags if tag.column_id is None}
    own |= {name: properties[name] for name in (COMMENT, OWNER) if properties.get(name)}
    fields = {} if schema is None else {id_: dict(labels) for id_, labels in schema.compute_once(_list_docs).items()}
    known = {} if schema is None else schema.map_fields_by_id()
    for tag in tags:
        if tag.column_id in known:
            fields.setdefault(tag.column_id, {})[tag.key] = tag.value
    labels: dict[str, Json] = {"object-labels": own} if own else {}
    if fields:
        labels["fields"] = [{"field-id": id_, "labels": fields[id_]} for id_ in sorted(fields)]
    return labels


def _list_docs(schema: Schema) -> dict[int, dict[str, str]]:
    return {id_: {COMMENT: field.doc} for id_, field in schema.map_fields_by_id().items() if field.doc}
