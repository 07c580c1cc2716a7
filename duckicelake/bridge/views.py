"""PURE. What DuckDB is shown of an Iceberg view, and what Iceberg clients are shown of a view that DuckDB made.

What one side's engine is given in place of SQL of its own is made anew from the other side's at each change. It isn't
kept with what clients wrote where that can be told apart: in DuckLake's row for Spark's views, beside DuckDB's SQL for
DuckDB's.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from hashlib import sha256
from uuid import UUID, uuid5

import orjson

from duckicelake.bridge.columns import schema_of
from duckicelake.bridge.parquet_types import quoted
from duckicelake.bridge.transpile.placeholders import DUCKDB, SPARK, placeholder, typed
from duckicelake.bridge.transpile.views import NotCarriedOver, to_duckdb, to_spark
from duckicelake.iceberg import apply_view
from duckicelake.iceberg.names import namespace_of
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.updates import LAST_ADDED, AddSchema
from duckicelake.iceberg.view import COMMENT, METADATA_LOCATION, SqlViewRepresentation, ViewMetadata, ViewVersion
from duckicelake.iceberg.view_updates import AddViewVersion, SetCurrentViewVersion
from duckicelake.lake.model import Column, LakeView, ViewDefinition

DUCKDB_DIALECT, SPARK_DIALECT = "duckdb", "spark"


def definition_of(metadata: ViewMetadata) -> ViewDefinition:
    """What DuckDB reads of the current version: SQL in its own dialect, else Spark's carried over or a placeholder."""
    version, schema = metadata.current_version(), metadata.current_schema()
    return ViewDefinition(
        dialect=DUCKDB_DIALECT,
        sql=version.sql_for(DUCKDB_DIALECT) or _duckdb_sql(version, schema),
        column_aliases=",".join(quoted(field.name) for field in schema.fields),
        comment=metadata.properties.get(COMMENT),
    )


def definition_after(before: ViewDefinition, base: ViewMetadata, target: ViewMetadata) -> ViewDefinition:
    """What DuckDB reads after a commit; without a new current version its SQL stays as DuckDB may have written it."""
    if target.current_version() == base.current_version():
        return replace(before, comment=target.properties.get(COMMENT))
    return definition_of(target)


def first_metadata(
    view: LakeView, columns: Sequence[Column] | None, unlike: Collection[str], location: str
) -> ViewMetadata:
    """The metadata of a view that DuckDB created; without known columns its schema is empty.

    `unlike` are names of columns of the lake that have another type in Spark.
    """
    comment, schema = view.definition.comment, _schema(columns)
    return apply_view.new_view_metadata(
        view_uuid=view.view_uuid,
        location=location,
        schema=schema,
        version=_version(view, schema, unlike),
        properties={} if comment is None else {COMMENT: comment},
        now_ms=view.timestamp_ms,
    )


def redefined(
    base: ViewMetadata,
    known: ViewDefinition,
    view: LakeView,
    columns: Sequence[Column] | None,
    unlike: Collection[str],
) -> ViewMetadata:
    """The metadata after DuckDB changed the view since its definition was `known`.

    Another query makes a version that has it, and what Spark is given for it: other dialects' SQL meant the old one.
    """
    now, draft = view.definition, apply_view.draft_of(base, view.timestamp_ms)
    if replace(now, comment=None) != replace(known, comment=None):
        schema = _schema(columns)
        apply_view.add_schema(draft, AddSchema(schema_=schema))
        apply_view.add_view_version(draft, AddViewVersion(view_version=_version(view, schema, unlike)))
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


def _duckdb_sql(version: ViewVersion, schema: Schema) -> str:
    spark, dialects = version.sql_for(SPARK_DIALECT), sorted(version.dialects())
    if spark is None:
        return placeholder(DUCKDB, schema, dialects)
    try:
        query = to_duckdb(spark, schema, version.default_namespace, version.default_catalog)
    except NotCarriedOver as obstacle:
        return placeholder(DUCKDB, schema, dialects, str(obstacle))
    return typed(DUCKDB, query, schema)


def _spark_sql(definition: ViewDefinition, schema: Schema, unlike: Collection[str]) -> str:
    if definition.dialect.lower() != DUCKDB_DIALECT:
        return placeholder(SPARK, schema, [definition.dialect])
    try:
        return to_spark(definition.query, schema, unlike, renamed=bool(definition.column_aliases))
    except NotCarriedOver as obstacle:
        return placeholder(SPARK, schema, [definition.dialect], str(obstacle))


def _version(view: LakeView, schema: Schema, unlike: Collection[str]) -> ViewVersion:
    """The view's SQL, behind what Spark is given: Java takes the first dialect if there isn't the one it wants."""
    spark = _spark_sql(view.definition, schema, unlike)
    sql_by_dialect = {SPARK_DIALECT: spark} | {view.definition.dialect: view.definition.query}
    return ViewVersion(
        version_id=apply_view.FIRST_VERSION_ID,
        schema_id=LAST_ADDED,
        timestamp_ms=view.timestamp_ms,
        representations=tuple(SqlViewRepresentation(dialect=key, sql=text) for key, text in sql_by_dialect.items()),
        default_namespace=namespace_of(view.schema_name),
    )
