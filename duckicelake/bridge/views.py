"""PURE. Translate views: Iceberg's for DuckDB, and DuckDB's for Iceberg clients.

SQL that a side lacks is made anew from the other side's at each change. It is kept apart from what clients wrote: in
DuckLake's row for Spark's and Trino's views, beside DuckDB's SQL for DuckDB's.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final
from uuid import UUID, uuid5

import orjson

from duckicelake.bridge.values.columns import to_schema
from duckicelake.bridge.values.types import quote_identifier
from duckicelake.iceberg import view_builder
from duckicelake.iceberg.identifiers import (
    Namespace,
    parse_readable_namespace,
    parse_schema_name,
    to_schema_name,
)
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.updates import LAST_ADDED, AddSchema
from duckicelake.iceberg.view import (
    COMMENT,
    AddViewVersion,
    SetCurrentViewVersion,
    SqlViewRepresentation,
    ViewMetadata,
    ViewVersion,
)
from duckicelake.lake.model import Column, LakeView, ViewColumns, ViewDefinition
from duckicelake.properties import METADATA_FOLDER
from duckicelake.sql_dialects import dialects
from duckicelake.sql_dialects.dialects import NotTranslatableError
from duckicelake.sql_dialects.placeholders import DUCKDB, SPARK, TRINO, SqlEngine, build_placeholder, cast_query
from duckicelake.sql_dialects.views import (
    find_output_names,
    find_table_names,
    names_schema,
    translate_to_duckdb,
    translate_to_spark,
    translate_to_trino,
)

DUCKDB_DIALECT, SPARK_DIALECT, TRINO_DIALECT = "duckdb", "spark", "trino"
_LAKE: Final = "lake"
"""What a view's SQL of DuckDB may call the lake."""
_FOREIGN_CATALOGS: Final = frozenset({"spark_catalog", "system"})
_LRU_ENTRIES: Final = 1024
_SIDES: Final = {
    DUCKDB_DIALECT: dialects.DUCKDB,
    SPARK_DIALECT: dialects.SPARK,
    TRINO_DIALECT: dialects.TRINO,
}
Place = tuple[Namespace, str]
Reference = tuple[Place, ...]
"""All tables or views that one name in a view may mean, each by namespace and name."""


def build_view_definition(metadata: ViewMetadata) -> ViewDefinition:
    """Return what DuckDB reads of the current version.

    SQL in its own dialect, else Spark's or Trino's carried over or a placeholder.
    """
    version, schema = metadata.current_version(), metadata.current_schema()
    return ViewDefinition(
        dialect=DUCKDB_DIALECT,
        sql=version.sql_for(DUCKDB_DIALECT) or _build_duckdb_sql(version, schema),
        column_aliases=",".join(quote_identifier(field.name) for field in schema.fields),
        comment=metadata.properties.get(COMMENT),
        column_comments=_build_column_comments(version.sql_for(DUCKDB_DIALECT), schema),
    )


def _build_column_comments(query: str | None, schema: Schema) -> tuple[tuple[str, str], ...]:
    """Build DuckLake's comments of the columns, by the names in the client's own query, else by the fields' names."""
    names = [field.name for field in schema.fields]
    outputs = names if query is None else find_output_names(query) or names
    if len(outputs) != len(names):
        outputs = names
    return tuple(sorted((name, field.doc) for name, field in zip(outputs, schema.fields, strict=True) if field.doc))


def build_next_view_definition(before: ViewDefinition, base: ViewMetadata, target: ViewMetadata) -> ViewDefinition:
    """Return what DuckDB reads after a commit.

    Without a new current version its SQL stays as DuckDB may have written it.
    """
    if target.current_version() == base.current_version():
        return replace(before, comment=target.properties.get(COMMENT))
    return build_view_definition(target)


def build_first_view_metadata(
    view: LakeView, known: ViewColumns, location: str, trino_catalog: str | None = None
) -> ViewMetadata:
    """Return the metadata of a view that DuckDB created; without known columns its schema is empty.

    trino_catalog: what Trino calls the lake; None for no SQL of Trino's.
    """
    comment, schema = view.definition.comment, _to_schema(known.columns)
    return view_builder.build_new_view_metadata(
        view_uuid=view.view_uuid,
        location=location,
        schema=schema,
        version=_build_version(view, schema, known.unlike, trino_catalog),
        properties={} if comment is None else {COMMENT: comment},
        now_ms=view.timestamp_ms,
    )


def redefine_view(
    base: ViewMetadata,
    known: ViewDefinition,
    view: LakeView,
    columns: ViewColumns,
    trino_catalog: str | None = None,
) -> ViewMetadata:
    """Return the metadata after DuckDB changed the view since its definition was `known`.

    Another query makes a version that has it, and what Spark and Trino are given for it: other dialects' SQL meant the
    old one. Other comments of columns make a version with the same SQL.
    """
    now, draft = view.definition, view_builder.begin_view_draft(base, view.timestamp_ms)
    version: ViewVersion | None = None
    if replace(now, comment=None, column_comments=()) != replace(known, comment=None, column_comments=()):
        schema = _to_schema(columns.columns)
        version = _build_version(view, schema, columns.unlike, trino_catalog)
    elif now.column_comments != known.column_comments:
        schema = _replace_docs(base.current_schema(), known, now, columns.outputs)
        version = base.current_version().replace_fields(schema_id=LAST_ADDED, timestamp_ms=view.timestamp_ms)
    if version is not None:
        view_builder.add_schema(draft, AddSchema(schema_=schema))
        view_builder.add_view_version(draft, AddViewVersion(view_version=version))
        view_builder.set_current_view_version(draft, SetCurrentViewVersion(view_version_id=LAST_ADDED))
    draft.properties.pop(COMMENT, None)
    if now.comment is not None:
        draft.properties[COMMENT] = now.comment
    return view_builder.finish_view_draft(draft)


def _replace_docs(schema: Schema, known: ViewDefinition, now: ViewDefinition, outputs: Sequence[str]) -> Schema:
    """Return the schema with the comments that have changed; fields without a comment in DuckLake keep their docs."""
    before, after = dict(known.column_comments), dict(now.column_comments)
    names = outputs if len(outputs) == len(schema.fields) else [field.name for field in schema.fields]
    fields = tuple(
        field if before.get(name) == after.get(name) else field.replace_fields(doc=after.get(name))
        for name, field in zip(names, schema.fields, strict=True)
    )
    return schema.replace_fields(fields=fields)


def encode_view_metadata(metadata: ViewMetadata, version: int) -> tuple[str, bytes]:
    """Return (the path, the content) of a version's metadata.json; the path holds the hash of the content."""
    data = orjson.dumps(metadata.to_json())
    unique = uuid5(UUID(metadata.view_uuid), sha256(data).hexdigest())
    return f"{get_view_metadata_folder(metadata)}/{version:05d}-{unique}.metadata.json", data


def get_view_metadata_folder(metadata: ViewMetadata) -> str:
    """Return where the view's metadata files are written."""
    return metadata.properties.get(METADATA_FOLDER, f"{metadata.location.rstrip('/')}/metadata").rstrip("/")


def is_naming_schema(duckdb_sql: str, version: Mapping[str, Any] | None, namespace: Namespace) -> bool:
    """Return whether a view reads tables of the namespace, or of one below it, by their names.

    version: Iceberg's, as JSON. Names in it without a namespace are in its default one.
    """
    schema_name = to_schema_name(namespace)
    if names_schema(duckdb_sql, dialects.DUCKDB, schema_name):
        return True
    if version is None:
        return False
    if tuple(version.get("default-namespace", ())[: len(namespace)]) == namespace:
        return True
    queries = (
        (_SIDES.get(query.get("dialect")), str(query.get("sql", ""))) for query in version.get("representations", ())
    )
    return any(names_schema(sql, side or dialects.SPARK, schema_name) for side, sql in queries)


@lru_cache(_LRU_ENTRIES)
def find_view_references(
    schema_name: str,
    dialect: str,
    _sql: str,
    _aliases: str,
    query: str,
    queries: tuple[tuple[str, str], ...],
    namespace: Namespace,
    catalog: str | None,
) -> frozenset[Reference]:
    """Find what a view reads, by its definition in the lake and the queries (dialect, SQL) of Iceberg's version.

    catalog: the version's default one. A name that isn't the lake's, or stands in SQL that doesn't parse, is left out.
    """
    found: set[Reference] = set()
    own = parse_readable_namespace(schema_name)
    if dialect.lower() == "duckdb" and own is not None:
        found.update(tuple(_resolve_duckdb_name(names, own)) for names in find_table_names(query, dialects.DUCKDB))
    for kind, text in queries:
        if kind.lower() == "spark":
            names_of_spark = find_table_names(text, dialects.SPARK)
            found.update(tuple(_resolve_spark_name(names, namespace, catalog)) for names in names_of_spark)
    return frozenset(found)


def _resolve_duckdb_name(parts: Sequence[str], namespace: Namespace) -> Iterator[Place]:
    """Yield what a name in a view's SQL of DuckDB means; one without a schema is in the view's namespace."""
    *levels, name = parts
    if len(levels) == 2 and levels[0] == _LAKE:
        levels = levels[1:]
    found = parse_readable_namespace(".".join(levels)) if levels else namespace
    if found:
        yield found, name


def _resolve_spark_name(parts: Sequence[str], namespace: Namespace, catalog: str | None) -> Iterator[Place]:
    """Yield what a name in Spark's SQL may mean. Without a catalog it is in the default one; None is the view's own."""
    *levels, name = parts
    if len(levels) > 1 and levels[0] not in {catalog, *_FOREIGN_CATALOGS}:
        yield tuple(levels[1:]), name
    if catalog is None and (levels or namespace):
        yield tuple(levels) or namespace, name


def _to_schema(columns: Sequence[Column] | None) -> Schema:
    return to_schema(columns, 0) if columns else Schema(fields=())


def _build_duckdb_sql(version: ViewVersion, schema: Schema) -> str:
    listed, obstacle = sorted(version.dialects()), ""
    for dialect, side in ((SPARK_DIALECT, dialects.SPARK), (TRINO_DIALECT, dialects.TRINO)):
        sql = version.sql_for(dialect)
        if sql is None:
            continue
        try:
            query = translate_to_duckdb(sql, schema, version.default_namespace, version.default_catalog, side)
            return cast_query(DUCKDB, query, schema)
        except NotTranslatableError as error:
            obstacle = obstacle or str(error)
    return build_placeholder(DUCKDB, schema, listed, obstacle)


def _translate(engine: SqlEngine, definition: ViewDefinition, schema: Schema, translate: Callable[[], str]) -> str:
    """Return what `translate` makes of DuckDB's view, or what says why there is nothing."""
    if definition.dialect.lower() != DUCKDB_DIALECT:
        return build_placeholder(engine, schema, [definition.dialect])
    try:
        return translate()
    except NotTranslatableError as obstacle:
        return build_placeholder(engine, schema, [definition.dialect], str(obstacle))


def _build_version(view: LakeView, schema: Schema, unlike: Collection[str], trino_catalog: str | None) -> ViewVersion:
    """Return the view's SQL, behind what Spark and Trino are given.

    Java takes the first dialect if there isn't the one it wants.
    """
    definition = view.definition
    query, renamed = definition.query, bool(definition.column_aliases)

    def write_trino(catalog: str) -> str:
        sql = translate_to_trino(query, schema, catalog, unlike, renamed=renamed)
        return cast_query(TRINO, sql, schema)

    sql_by_dialect = {
        SPARK_DIALECT: _translate(
            SPARK, definition, schema, lambda: translate_to_spark(query, schema, unlike, renamed=renamed)
        )
    }
    if trino_catalog is not None:
        sql_by_dialect[TRINO_DIALECT] = _translate(TRINO, definition, schema, lambda: write_trino(trino_catalog))
    sql_by_dialect |= {definition.dialect: query}
    return ViewVersion(
        version_id=view_builder.FIRST_VERSION_ID,
        schema_id=LAST_ADDED,
        timestamp_ms=view.timestamp_ms,
        representations=tuple(SqlViewRepresentation(dialect=key, sql=text) for key, text in sql_by_dialect.items()),
        default_namespace=parse_schema_name(view.schema_name),
    )
