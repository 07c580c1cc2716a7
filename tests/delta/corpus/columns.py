"""Columns that Delta fills, constraints, and other things that a table's protocol says."""

from collections.abc import Sequence
from typing import Any

from tests.delta.corpus.registry import Making, by_spark


@by_spark("generated columns")
def generated(t: Making) -> None:
    _built(t, ("n", "INT"), ("at", "TIMESTAMP"), ("day", "DATE", "generatedAlwaysAs", "CAST(at AS DATE)"),
           ("twice", "BIGINT", "generatedAlwaysAs", "CAST(n AS BIGINT) * 2"), partitions=("day",))  # fmt: skip
    t.sql("INSERT INTO {t} (n, at) VALUES (1, TIMESTAMP'2024-02-29 12:00:00'), (2, TIMESTAMP'2024-03-01 00:00:00')")
    t.sql("UPDATE {t} SET n = 3 WHERE n = 1")


@by_spark("identity columns")
def identity(t: Making) -> None:
    _built(t, ("id", "BIGINT", "generatedAlwaysAsIdentity", 10, 5), ("own", "BIGINT", "generatedByDefaultAsIdentity"),
           ("v", "STRING"))  # fmt: skip
    t.sql("INSERT INTO {t} (v) VALUES ('a'), ('b')", "INSERT INTO {t} (own, v) VALUES (100, 'c')")


def _built(t: Making, *columns: tuple[Any, ...], partitions: Sequence[str] = ()) -> None:
    """CREATE TABLE by Delta's own builder; SQL's is for catalogs that say they have generated columns."""
    jvm, session = t.session._jvm, t.session._jsparkSession
    tables = jvm.io.delta.tables.DeltaTable
    builder = tables.create(session).location(str(t.root))
    for name, kind, *generating in columns:
        column = tables.columnBuilder(session, name).dataType(kind)
        if generating:
            column = getattr(column, generating[0])(*generating[1:])
        builder = builder.addColumn(column.build())
    names = t.session.sparkContext._gateway.new_array(jvm.java.lang.String, len(partitions))
    for place, name in enumerate(partitions):
        names[place] = name
    builder.partitionedBy(names).execute()


@by_spark("default values")
def defaults(t: Making) -> None:
    t.create(
        "n INT, v STRING DEFAULT 'none', at DATE DEFAULT DATE'2024-02-29'", feature_allowColumnDefaults="supported"
    )
    t.sql("INSERT INTO {t} (n) VALUES (1)", "INSERT INTO {t} VALUES (2, 'x', DEFAULT)")
    t.sql("ALTER TABLE {t} ALTER COLUMN v SET DEFAULT 'some'", "INSERT INTO {t} (n) VALUES (3)")


@by_spark("CHECK constraints, one of them dropped again")
def constrained(t: Making) -> None:
    t.create("n INT, v STRING")
    t.insert("1, 'a'")
    t.sql("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (n > 0)",
          "ALTER TABLE {t} ADD CONSTRAINT short CHECK (v IS NULL OR length(v) < 5)")  # fmt: skip
    t.insert("2, 'b'", "3, NULL")
    t.sql("ALTER TABLE {t} DROP CONSTRAINT short")
    t.insert("4, 'longer than five'")


@by_spark("append-only tables")
def append_only(t: Making) -> None:
    t.create("n INT", appendOnly="true")
    t.insert("1")
    t.insert("2")


@by_spark("change data feed, with files of changes beside the data")
def change_feed(t: Making) -> None:
    t.create("n INT, v STRING", enableChangeDataFeed="true")
    t.insert("1, 'a'", "2, 'b'", "3, 'c'")
    t.sql("UPDATE {t} SET v = 'B' WHERE n = 2", "DELETE FROM {t} WHERE n = 1")


@by_spark("in-commit timestamps, from the start")
def in_commit_timestamps(t: Making) -> None:
    t.create("n INT", enableInCommitTimestamps="true")
    t.insert("1")
    t.insert("2")


@by_spark("in-commit timestamps that came later")
def in_commit_timestamps_later(t: Making) -> None:
    t.create("n INT")
    t.insert("1")
    t.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    t.insert("2")


@by_spark("row tracking")
def row_tracking(t: Making) -> None:
    t.create("n INT, v STRING", enableRowTracking="true")
    t.insert("1, 'a'", "2, 'b'")
    t.insert("3, 'c'")
    t.sql("UPDATE {t} SET v = 'B' WHERE n = 2", "OPTIMIZE {t}")


@by_spark("liquid clustering, changed and taken away")
def clustered(t: Making) -> None:
    t.create("n INT, v STRING, w DATE", "CLUSTER BY (n)")
    t.insert("1, 'a', DATE'2024-01-01'", "2, 'b', NULL")
    t.insert("3, 'c', DATE'2024-01-03'")
    t.sql("OPTIMIZE {t}", "ALTER TABLE {t} CLUSTER BY (v, w)", "ALTER TABLE {t} CLUSTER BY NONE")
    t.insert("4, 'd', NULL")


@by_spark("properties of the user's, and user metadata of commits")
def user_metadata(t: Making) -> None:
    t.sql("CREATE TABLE {t} (n INT) USING delta COMMENT 'for all' "
          "TBLPROPERTIES ('keeper' = 'me', 'delta.logRetentionDuration' = 'interval 60 days')")  # fmt: skip
    t.conf(spark__databricks__delta__commitInfo__userMetadata='{"why": "because — ü"}')
    t.insert("1")
    t.sql("ALTER TABLE {t} SET TBLPROPERTIES ('keeper' = 'you')", "ALTER TABLE {t} UNSET TBLPROPERTIES ('keeper')")


@by_spark("applications that count their writes (txn)")
def transactions(t: Making) -> None:
    t.create("n INT")
    for version in (1, 2, 2):
        frame = t.session.sql(f"SELECT {version} AS n")
        writer = frame.write.format("delta").mode("append")
        writer.option("txnAppId", "loader").option("txnVersion", version).save(str(t.root))


@by_spark("a feature dropped again")
def feature_dropped(t: Making) -> None:
    t.create("n INT, v STRING", enableDeletionVectors="true")
    t.insert("1, 'a'", "2, 'b'")
    t.sql("DELETE FROM {t} WHERE n = 1", "ALTER TABLE {t} DROP FEATURE deletionVectors")
    t.insert("3, 'c'")
