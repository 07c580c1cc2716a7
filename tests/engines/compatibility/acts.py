"""How each engine that speaks SQL does what the abilities want. `{t}` is its name of the table, `{v}` of the view."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Lacks:
    """The engine has no statement or call for it. why: a phrase for docs/engines.md."""

    why: str


@dataclass(frozen=True, slots=True)
class Fails:
    """The engine is asked, and fails with a message that matches. why: a phrase for docs/engines.md.

    by_server: the catalog refuses it; else the engine itself fails.
    """

    statements: tuple[str, ...]
    match: str
    why: str
    by_server: bool = False


Act = tuple[str, ...] | Lacks | Fails
Acts = Mapping[str, Act]

READ: Final = ("SELECT id, name FROM {t} ORDER BY id",)
APPEND: Final = "INSERT INTO {t} VALUES (5, 'Eve')"
DELETE: Final = ("DELETE FROM {t} WHERE id = 2",)
UPDATE: Final = ("UPDATE {t} SET name = 'Bea' WHERE id = 2",)
MERGE: Final = (
    "MERGE INTO {t} t USING (SELECT 2 AS id, 'Bea' AS name UNION ALL SELECT 6, 'Fay') s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
)
COMMON: Final[Acts] = {
    "read": READ,
    "append": (APPEND,),
    "delete": DELETE,
    "update": UPDATE,
    "merge": (MERGE,),
    "vectors": READ,
}
VIEW: Final = ("CREATE VIEW {v} AS SELECT id FROM {t} WHERE id < 3", "SELECT id FROM {v} ORDER BY id")

SPARK_3: Final[Acts] = {
    **COMMON,
    "create": ("CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg",),
    "overwrite": ("INSERT OVERWRITE {t} VALUES (7, 'Gus')",),
    "time_travel": ("SELECT id, name FROM {t} VERSION AS OF {snapshot} ORDER BY id",),
    "refs": ("ALTER TABLE {t} CREATE BRANCH side", "ALTER TABLE {t} CREATE TAG first"),
    "views": VIEW,
    "schema": (
        "ALTER TABLE {t} ADD COLUMN legs INT",
        "ALTER TABLE {t} RENAME COLUMN name TO called",
        "INSERT INTO {t} VALUES (5, 'Eve', 2)",
    ),
    "partitions": ("ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)", APPEND),
    "version_3": (
        "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ('format-version' = '3')",
        APPEND,
    ),
    "row_ids": ("SELECT id, _row_id FROM {t} ORDER BY id",),
    "variant": Lacks("Spark 3.5 has no type VARIANT"),
}
SPARK_4: Final[Acts] = {**SPARK_3, "variant": ("SELECT variant_get(v, '$.a', 'int') AS a FROM {t} WHERE id = 1",)}
TRINO: Final[Acts] = {
    **COMMON,
    "create": ("CREATE TABLE {t} (id bigint, name varchar)",),
    "overwrite": ("CREATE OR REPLACE TABLE {t} AS SELECT BIGINT '7' AS id, 'Gus' AS name",),
    "time_travel": ("SELECT id, name FROM {t} FOR VERSION AS OF BIGINT '{snapshot}' ORDER BY id",),
    "refs": Lacks("reads branches and tags; has no statement that makes them"),
    "views": VIEW,
    "schema": (
        "ALTER TABLE {t} ADD COLUMN legs integer",
        "ALTER TABLE {t} RENAME COLUMN name TO called",
        "INSERT INTO {t} VALUES (5, 'Eve', 2)",
    ),
    "partitions": ("ALTER TABLE {t} SET PROPERTIES partitioning = ARRAY['bucket(id, 4)']", APPEND),
    "version_3": ("CREATE TABLE {t} (id bigint, name varchar) WITH (format_version = 3)", APPEND),
    "row_ids": ('SELECT id, "$row_id" FROM {t} ORDER BY id',),
    "variant": Fails(("SELECT v FROM {t}",), "exactly 2 children", "can't read variants that DuckDB has shredded"),
}
FLINK: Final[Acts] = {
    **COMMON,
    "create": ("CREATE TABLE {t} (id BIGINT, name STRING)",),
    "append": ("INSERT INTO {t} VALUES (CAST(5 AS BIGINT), 'Eve')",),
    "delete": Fails(
        DELETE, "perform delete operation", "tables of Iceberg take no DELETE; a stream's deletes are taken"
    ),
    "update": Fails(UPDATE, "perform update operation", "tables of Iceberg take no UPDATE; upserts are taken"),
    "merge": (
        "DROP TABLE {t}",
        (
            "CREATE TABLE {t} (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) "
            "WITH ('format-version' = '2', 'write.upsert.enabled' = 'true')"
        ),
        "INSERT INTO {t} VALUES (CAST(1 AS BIGINT), 'n1'), (CAST(2 AS BIGINT), 'n2'), (CAST(3 AS BIGINT), 'n3')",
        "INSERT INTO {t} VALUES (CAST(2 AS BIGINT), 'Bea'), (CAST(6 AS BIGINT), 'Fay')",
    ),
    "overwrite": ("INSERT OVERWRITE {t} SELECT CAST(7 AS BIGINT), 'Gus'",),
    "time_travel": ("SELECT id, name FROM {t} /*+ OPTIONS('snapshot-id'='{snapshot}') */ ORDER BY id",),
    "refs": Lacks("writes to branches; has no statement that makes branches or tags"),
    "views": Fails((VIEW[0],), "should be resolved", "makes no views in catalogs of Iceberg"),
    "schema": (
        "ALTER TABLE {t} ADD (legs INT)",
        "ALTER TABLE {t} RENAME `name` TO `called`",
        "INSERT INTO {t} VALUES (CAST(5 AS BIGINT), 'Eve', 2)",
    ),
    "partitions": Lacks("has no statement that changes partitions"),
    "version_3": (
        "CREATE TABLE {t} (id BIGINT, name STRING) WITH ('format-version' = '3')",
        "INSERT INTO {t} VALUES (CAST(5 AS BIGINT), 'Eve')",
    ),
    "row_ids": Lacks("has no column of row ids"),
    "variant": Fails(("SELECT v FROM {t}",), "ariant|VARIANT|parse Iceberg table schema", "has no type for variants"),
}
_ONLY_WRITES = Lacks("only writes rows of messages")
KAFKA_CONNECT: Final[Acts] = {
    **dict.fromkeys(
        ("read", "delete", "update", "merge", "overwrite", "time_travel", "vectors", "row_ids", "variant"), _ONLY_WRITES
    ),
    "create": ('{t} {{"id": 5, "name": "Eve"}}',),
    "append": ('{t} {{"id": 5, "name": "Eve"}}',),
    "refs": Lacks("writes to branches; makes no branches or tags"),
    "views": Lacks("has no views"),
    "schema": Lacks("adds columns; renames none"),
    "partitions": Lacks("partitions tables that it makes, and changes no partitions"),
    "version_3": ('{t} {{"id": 5, "name": "Eve"}} format-version=3',),
}
CLICKHOUSE: Final[Acts] = {
    **COMMON,
    "create": Lacks("makes tables with keys of one's own alone ([ClickHouse](clients.md#clickhouse))"),
    "delete": ("ALTER TABLE {t} DELETE WHERE id = 2",),
    "update": ("ALTER TABLE {t} UPDATE name = 'Bea' WHERE id = 2",),
    "merge": Lacks("has no MERGE"),
    "overwrite": Fails(("INSERT OVERWRITE {t} VALUES (7, 'Gus')",), "yntax", "has no INSERT OVERWRITE"),
    "time_travel": ("SELECT id, name FROM {t} ORDER BY id SETTINGS iceberg_snapshot_id = {snapshot}",),
    "refs": Lacks("has no statement for branches or tags"),
    "views": Lacks("has no views in catalogs of Iceberg"),
    "schema": (
        "ALTER TABLE {t} ADD COLUMN legs Nullable(Int32)",
        "ALTER TABLE {t} RENAME COLUMN name TO called",
        "INSERT INTO {t} VALUES (5, 'Eve', 2)",
    ),
    "partitions": Lacks("has no statement that changes partitions"),
    "version_3": Lacks("makes versions 1 and 2"),
    "vectors": Fails(READ, "only for parquet", "can't read deletion vectors"),
    "row_ids": Lacks("has no column of row ids"),
    "variant": Fails(("SELECT v FROM {t}",), "ariant|VARIANT|parse Iceberg table schema", "has no type for variants"),
}
_BESIDE: Final = (
    "takes no rows out of files of the `ducklake` extension ([MISSING](../MISSING.md#duckdbs-iceberg-extension))"
)
DUCKDB_ICEBERG: Final[Acts] = {
    **COMMON,
    **{
        name: Fails(statements, "Forbidden|403", _BESIDE, by_server=True)
        for name, statements in {
            "delete": DELETE,
            "update": UPDATE,
            "merge": (MERGE,),
            "overwrite": ("BEGIN", "DELETE FROM {t}", "INSERT INTO {t} VALUES (7, 'Gus')", "COMMIT"),
        }.items()
    },
    "create": ("CREATE TABLE {t} (id BIGINT, name VARCHAR)",),
    "time_travel": ("SELECT id, name FROM {t} AT (VERSION => {snapshot}) ORDER BY id",),
    "refs": Lacks("has no statement that makes branches or tags"),
    "views": Fails((VIEW[0],), "Create View", "makes no views in catalogs of Iceberg"),
    "schema": (
        "ALTER TABLE {t} ADD COLUMN legs INT",
        "ALTER TABLE {t} RENAME COLUMN name TO called",
        "INSERT INTO {t} VALUES (5, 'Eve', 2)",
    ),
    "partitions": ("ALTER TABLE {t} SET PARTITIONED BY (bucket(4, id))", APPEND),
    "version_3": ("CREATE TABLE {t} (id BIGINT, name VARCHAR) WITH ('format-version' = 3)", APPEND),
    "row_ids": ("SELECT id, _row_id FROM {t} ORDER BY id",),
    "variant": ("SELECT v.a::INT AS a FROM {t} WHERE id = 1",),
}
