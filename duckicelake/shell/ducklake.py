"""A DuckLake lake that DuckDB attaches: described by DuckLake's own tables, queried and changed by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final

from duckicelake.client.models import (
    MAIN_BRANCH,
    CatalogObject,
    FileInfo,
    Json,
    PartitionInfo,
    TableInfo,
    TableSize,
    ViewInfo,
    build_name,
    sum_partitions,
)
from duckicelake.errors import BadInputError, MissingTableError
from duckicelake.rest.connection import Connection
from duckicelake.rest.names import parse_name, parse_table
from duckicelake.shell.local_duckdb import LAKE, LocalDuckDB, quote

_METADATA: Final = f"__ducklake_metadata_{LAKE}"
_SCHEMAS: Final = f"SELECT schema_name AS name FROM duckdb_schemas() WHERE database_name = '{LAKE}' ORDER BY ALL"
_TABLES: Final = f"""
    SELECT schema_name AS schema, table_name AS name, comment, estimated_size AS rows
    FROM duckdb_tables() WHERE database_name = '{LAKE}'
    ORDER BY ALL"""
_VIEWS: Final = f"""
    SELECT schema_name AS schema, view_name AS name, comment, sql FROM duckdb_views()
    WHERE database_name = '{LAKE}' AND NOT internal ORDER BY ALL"""
_COLUMNS: Final = f"""
    SELECT column_index AS id, column_name AS name, data_type AS type, NOT is_nullable AS required, comment AS doc
    FROM duckdb_columns() WHERE database_name = '{LAKE}' AND schema_name = ? AND table_name = ? ORDER BY column_index"""
_TABLE: Final = f"""
    SELECT t.table_id, s.schema_name || '.' || t.table_name AS spelled FROM {_METADATA}.ducklake_table t
    JOIN {_METADATA}.ducklake_schema s USING (schema_id)
    WHERE s.schema_name = ? AND t.table_name = ? AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL"""
_PARTITION_FIELDS: Final = f"""
    SELECT c.column_id AS "source-id", c.column_name AS name, p.transform FROM {_METADATA}.ducklake_partition_info i
    JOIN {_METADATA}.ducklake_partition_column p USING (partition_id, table_id)
    JOIN {_METADATA}.ducklake_column c USING (table_id, column_id)
    WHERE i.table_id = ? AND i.end_snapshot IS NULL AND c.end_snapshot IS NULL ORDER BY p.partition_key_index"""
_SNAPSHOTS: Final = f"""
    SELECT snapshot_id AS id, epoch_ms(snapshot_time) AS time, to_json(changes)::VARCHAR AS text,
      map_keys(changes) AS kinds, map_values(changes) AS objects
    FROM ducklake_snapshots('{LAKE}') ORDER BY snapshot_id"""
_DELETE_FILES: Final = f"SELECT DISTINCT begin_snapshot AS at FROM {_METADATA}.ducklake_delete_file WHERE table_id = ?"
_FILES: Final = f"""
    SELECT l.data_file AS path, l.data_file_size_bytes AS bytes, l.delete_file IS NOT NULL AS has_deletes,
      f.record_count AS rows, f.data_file_id AS id
    FROM ducklake_list_files('{LAKE}', ?, schema => ?{{}}) l
    LEFT JOIN {_METADATA}.ducklake_data_file f ON f.table_id = ? AND ends_with(l.data_file, f.path) ORDER BY ALL"""
_PARTITION_VALUES: Final = f"""
    SELECT v.data_file_id AS file, c.column_name AS name, p.transform, v.partition_value AS value
    FROM {_METADATA}.ducklake_file_partition_value v
    JOIN {_METADATA}.ducklake_data_file f USING (data_file_id)
    JOIN {_METADATA}.ducklake_partition_column p USING (partition_id, partition_key_index)
    JOIN {_METADATA}.ducklake_column c ON c.table_id = v.table_id AND c.column_id = p.column_id
    WHERE v.table_id = ? AND c.end_snapshot IS NULL ORDER BY v.data_file_id, p.partition_key_index"""
_SIZES: Final = f"""
    SELECT s.schema_name AS schema, i.table_name AS name, coalesce(st.record_count, 0) AS rows, i.file_count AS files,
      i.file_size_bytes AS bytes
    FROM ducklake_table_info('{LAKE}') i JOIN {_METADATA}.ducklake_schema s USING (schema_id)
    LEFT JOIN {_METADATA}.ducklake_table_stats st USING (table_id) WHERE s.end_snapshot IS NULL"""
_OPERATIONS: Final = {
    "inlined_insert": "append",
    "tables_inserted_into": "append",
    "inlined_delete": "delete",
    "tables_deleted_from": "delete",
    "tables_created": "create",
    "tables_altered": "alter",
}
"""By the kinds of changes that DuckLake names; others stay as they are."""


class DuckLakeSession:
    """A lake that DuckDB attaches, without a catalog in between."""

    rest = None

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self.read_only_by = connection.read_only_by
        uri = connection.uri
        self._source = (
            uri
            if uri.startswith("ducklake:")
            else f"ducklake:postgres:{uri.removeprefix('postgres:') if '//' not in uri else uri}"
        )
        extensions = ("ducklake", "postgres_scanner") if "postgres" in self._source else ("ducklake",)
        self._duckdb = LocalDuckDB(extensions, connection.read_only_by)
        self.lake = DuckLakeReader(self._duckdb)
        self.set_snapshot(None)

    def set_snapshot(self, at: str | None) -> None:
        """Attach the lake as it was at a snapshot number or a time."""
        options = {}
        if at is not None and at.isdecimal():
            options["SNAPSHOT_VERSION"] = at
        elif at is not None:
            options["SNAPSHOT_TIME"] = quote(_parse_time(at))
        self._duckdb.attach(self._source, options)
        self._duckdb.run_own(f"USE {LAKE}")

    def run(self, sql: str) -> Any:
        """Run a statement of DuckDB."""
        return self._duckdb.run(sql)

    def close(self) -> None:
        """Close DuckDB."""
        self._duckdb.close()


class DuckLakeReader:
    """Describe an attached lake, with the methods of `duckicelake.client.lake.Lake` that descriptions take."""

    def __init__(self, engine: LocalDuckDB) -> None:
        self._duckdb = engine

    def list(self, namespace: str = "", *, is_recursive: bool = False) -> Iterator[CatalogObject]:
        """Yield schemas, or the tables and views of one. Raises MissingTableError."""
        schemas = [row["name"] for row in self._duckdb.find_rows(_SCHEMAS)]
        wanted = ".".join(parse_name(namespace)) if namespace else None
        if wanted is not None and wanted not in schemas:
            near = get_close_matches(wanted, schemas, n=1)
            raise MissingTableError(f"Namespace does not exist: {wanted}{f'; did you mean {near[0]}?' if near else ''}")
        objects = [("table", row) for row in self._duckdb.find_rows(_TABLES)]
        objects += [("view", row) for row in self._duckdb.find_rows(_VIEWS)]
        for schema in schemas if wanted is None else [wanted]:
            if wanted is None:
                yield CatalogObject("namespace", build_name((schema,)))
            if wanted is not None or is_recursive:
                for kind, row in objects:
                    if row["schema"] == schema:
                        yield CatalogObject("table" if kind == "table" else "view", build_name((schema,), row["name"]))

    def sizes(self, namespace: str = "") -> Iterator[TableSize]:
        """Yield how large tables are; DuckLake doesn't say when they last changed."""
        wanted = ".".join(parse_name(namespace)) if namespace else None
        for row in self._duckdb.find_rows(_SIZES):
            if wanted in {None, row["schema"]}:
                yield TableSize(
                    build_name((row["schema"],), row["name"]), row["rows"], row["files"], row["bytes"] or 0, None
                )

    def table(self, name: str) -> DuckLakeTable:
        """Return a table, which is looked up when one of its methods is called."""
        return DuckLakeTable(self._duckdb, *_parse(name))

    def find(self, name: str) -> TableInfo | ViewInfo:
        """Load a table or view."""
        schema, last = _parse(name)
        for row in self._duckdb.find_rows(_VIEWS):
            if (row["schema"], row["name"]) == (schema, last):
                fields = _find_fields(self._duckdb, schema, last)
                version = {"version-id": 0, "schema-id": 0}
                version["representations"] = [{"type": "sql", "dialect": "duckdb", "sql": row["sql"]}]  # type: ignore[assignment]
                metadata = {
                    "current-version-id": 0,
                    "versions": [version],
                    "schemas": [{"schema-id": 0, "fields": fields}],
                    "properties": _build_comment(row["comment"]),
                }
                return ViewInfo(build_name((schema,), last), metadata)
        try:
            return self.table(name).load()
        except MissingTableError as missing:
            raise MissingTableError(f"{missing}{self.suggest(name)}") from missing

    def suggest(self, name: str) -> str:
        """Return "; did you mean …?" with names like this one."""
        names = [one.name for one in self.list(is_recursive=True)]
        near = get_close_matches(name, names, n=3)
        return f"; did you mean {' or '.join(near)}?" if near else ""


class DuckLakeTable:
    """A table of an attached lake, described in the terms of Iceberg's metadata, with DuckDB's types."""

    def __init__(self, engine: LocalDuckDB, schema: str, name: str) -> None:
        self._duckdb = engine
        self._schema = schema
        self._name = name

    def load(self) -> TableInfo:
        """Load the table. Raises MissingTableError."""
        table_id, spelled = self._find()
        fields = _find_fields(self._duckdb, self._schema, self._name)
        ids = {field["name"]: field["id"] for field in fields}
        parts = [
            {
                "source-id": ids.get(part["name"], -1),
                "name": part["name"],
                "transform": _spell_transform(part["transform"]),
            }
            for part in self._duckdb.find_rows(_PARTITION_FIELDS, table_id)
        ]
        (row,) = (
            row for row in self._duckdb.find_rows(_TABLES) if (row["schema"], row["name"]) == (self._schema, self._name)
        )
        snapshots = list(self._list_snapshots(str(table_id), spelled))
        last = snapshots[-1]["snapshot-id"] if snapshots else None
        if snapshots:
            snapshots[-1]["summary"]["total-records"] = str(row["rows"])
        metadata: Json = {
            "format-version": "of DuckLake",
            "location": "",
            "properties": _build_comment(row["comment"]),
            "schemas": [{"schema-id": 0, "fields": fields}],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": parts}],
            "default-spec-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "snapshots": snapshots,
            "current-snapshot-id": last,
            "refs": {} if last is None else {MAIN_BRANCH: {"type": "branch", "snapshot-id": last}},
        }
        return TableInfo(build_name((self._schema,), self._name), metadata)

    def files(self, at: int | str | None = None) -> Iterator[FileInfo]:
        """Yield the data files of the newest snapshot, or of one of DuckLake's numbers. Inlined rows have none."""
        table_id, _ = self._find()
        values: dict[int, dict[str, str]] = {}
        for part in self._duckdb.find_rows(_PARTITION_VALUES, table_id):
            field = part["name"] if part["transform"] == "identity" else f"{part['name']}_{part['transform']}"
            values.setdefault(part["file"], {})[field] = part["value"]
        snapshot = "" if at in {None, MAIN_BRANCH} else f", snapshot_version => {_parse_number(at)}"
        for row in self._duckdb.find_rows(_FILES.format(snapshot), self._name, self._schema, table_id):
            partition = values.get(row["id"], {})
            yield FileInfo(row["path"], "parquet", row["rows"] or 0, row["bytes"], partition, int(row["has_deletes"]))

    def partitions(self, at: int | str | None = None) -> tuple[PartitionInfo, ...]:
        """Return what each partition has."""
        return sum_partitions(self.files(at))

    def _find(self) -> tuple[int, str]:
        found = self._duckdb.find_rows(_TABLE, self._schema, self._name)
        if not found:
            raise MissingTableError(f"Table does not exist: {build_name((self._schema,), self._name)}")
        return found[0]["table_id"], found[0]["spelled"]

    def _list_snapshots(self, table_id: str, spelled: str) -> Iterator[Json]:
        """Yield the lake's snapshots that changed the table."""
        deleting = {row["at"] for row in self._duckdb.find_rows(_DELETE_FILES, int(table_id))}
        for row in self._duckdb.find_rows(_SNAPSHOTS):
            changes = zip(row["kinds"], row["objects"], strict=True)
            kinds = [kind for kind, objects in changes if table_id in objects or spelled in objects]
            if kinds:
                operations = dict.fromkeys(_OPERATIONS.get(kind, kind) for kind in kinds)
                if "tables_inserted_into" in kinds and row["id"] in deleting:  # DuckDB 1.5.5 may not say so
                    operations["delete"] = None
                yield {
                    "snapshot-id": row["id"],
                    "sequence-number": row["id"],
                    "timestamp-ms": row["time"],
                    "summary": {"operation": ", ".join(operations)},
                }


def _parse(name: str) -> tuple[str, str]:
    namespace, last = parse_table(name)
    return ".".join(namespace), last


def _parse_number(at: int | str | None) -> int:
    if str(at).isdecimal():
        return int(str(at))
    raise BadInputError(f"Invalid snapshot {at!r}: a lake of DuckLake has numbers; it has no branches and tags")


def _parse_time(text: str) -> str:
    try:
        return datetime.fromisoformat(text).isoformat(" ")
    except ValueError:
        raise BadInputError(f"Invalid snapshot {text!r}: expected DuckLake's number, or a time in ISO form") from None


def _find_fields(engine: LocalDuckDB, schema: str, name: str) -> Sequence[Json]:
    return engine.find_rows(_COLUMNS, schema, name)


def _build_comment(comment: str | None) -> Mapping[str, str]:
    return {} if comment is None else {"comment": comment}


def _spell_transform(transform: str) -> str:
    """Spell a transform as Iceberg does, `bucket(4)` as `bucket[4]`."""
    return transform.replace("(", "[").replace(")", "]")
