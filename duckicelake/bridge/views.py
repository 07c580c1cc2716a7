"""PURE. What DuckDB is shown of an Iceberg view, and what Iceberg clients are shown of a view that DuckDB made."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from uuid import UUID, uuid5

import orjson

from duckicelake.bridge.columns import schema_of
from duckicelake.bridge.placeholders import DUCKDB, SPARK, placeholder
from duckicelake.iceberg import apply_view
from duckicelake.iceberg.names import namespace_of
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.updates import LAST_ADDED, AddSchema
from duckicelake.iceberg.view import COMMENT, METADATA_LOCATION, SqlViewRepresentation, ViewMetadata, ViewVersion
from duckicelake.iceberg.view_updates import AddViewVersion, SetCurrentViewVersion
from duckicelake.lake.model import Column, LakeView, ViewDefinition

DUCKDB_DIALECT, SPARK_DIALECT = "duckdb", "spark"


def definition_of(metadata: ViewMetadata) -> ViewDefinition:
    """What DuckDB reads of the current version: SQL in its own dialect, else a placeholder for it."""
    version, schema = metadata.current_version(), metadata.current_schema()
    return ViewDefinition(
        dialect=DUCKDB_DIALECT,
        sql=version.sql_for(DUCKDB_DIALECT) or placeholder(DUCKDB, schema, sorted(version.dialects())),
        column_aliases=",".join(_quoted(field.name) for field in schema.fields),
        comment=metadata.properties.get(COMMENT),
    )


def definition_after(before: ViewDefinition, base: ViewMetadata, target: ViewMetadata) -> ViewDefinition:
    """What DuckDB reads after a commit; without a new current version its SQL stays as DuckDB may have written it."""
    if target.current_version() == base.current_version():
        return replace(before, comment=target.properties.get(COMMENT))
    return definition_of(target)


def first_metadata(view: LakeView, columns: Sequence[Column] | None, location: str) -> ViewMetadata:
    """The metadata of a view that DuckDB created; without known columns its schema is empty."""
    comment, schema = view.definition.comment, _schema(columns)
    return apply_view.new_view_metadata(
        view_uuid=view.view_uuid,
        location=location,
        schema=schema,
        version=_version(view, schema),
        properties={} if comment is None else {COMMENT: comment},
        now_ms=view.timestamp_ms,
    )


def redefined(
    base: ViewMetadata, known: ViewDefinition, view: LakeView, columns: Sequence[Column] | None
) -> ViewMetadata:
    """The metadata after DuckDB changed the view since its definition was `known`.

    Another query makes a version that has it in DuckDB's dialect only: what the other dialects had meant the old one.
    """
    now, draft = view.definition, apply_view.draft_of(base, view.timestamp_ms)
    if replace(now, comment=None) != replace(known, comment=None):
        schema = _schema(columns)
        apply_view.add_schema(draft, AddSchema(schema_=schema))
        apply_view.add_view_version(draft, AddViewVersion(view_version=_version(view, schema)))
        apply_view.set_current_view_version(draft, SetCurrentViewVersion(view_version_id=LAST_ADDED))
    draft.properties.pop(COMMENT, None)
    if now.comment is not None:
        draft.properties[COMMENT] = now.comment
    return apply_view.finished(draft)


def metadata_file(metadata: ViewMetadata, version: int) -> tuple[str, bytes]:
    """(the path, the content) of a version's metadata.json; the path holds the hash of the content."""
    data = orjson.dumps(metadata.to_json())
    unique = uuid5(UUID(metadata.view_uuid), sha256(data).hexdigest())
    return f"{metadata_folder(metadata)}/{version:05d}-{unique}.metadata.json", data


def metadata_folder(metadata: ViewMetadata) -> str:
    """Where the view's metadata files are written."""
    return metadata.properties.get(METADATA_LOCATION, f"{metadata.location.rstrip('/')}/metadata").rstrip("/")


def _schema(columns: Sequence[Column] | None) -> Schema:
    return schema_of(columns, 0) if columns else Schema(fields=())


def _version(view: LakeView, schema: Schema) -> ViewVersion:
    """The view's SQL, behind a placeholder for Spark: Java takes the first dialect if there isn't the one it wants."""
    dialect, sql = view.definition.dialect, view.definition.query
    sql_by_dialect = {SPARK_DIALECT: placeholder(SPARK, schema, [dialect])} | {dialect: sql}
    return ViewVersion(
        version_id=apply_view.FIRST_VERSION_ID,
        schema_id=LAST_ADDED,
        timestamp_ms=view.timestamp_ms,
        representations=tuple(SqlViewRepresentation(dialect=key, sql=text) for key, text in sql_by_dialect.items()),
        default_namespace=namespace_of(view.schema_name),
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
