"""Logs of every form: checkpoints, compaction, lost beginnings, few statistics, many versions."""

import json

from tests.delta.corpus.registry import Making, by_delta_rs, by_spark


def _fill(t: Making, versions: int = 4) -> None:
    for n in range(versions):
        t.insert(f"{n}, 'v{n}'")


def _age(t: Making, upto: int) -> None:
    """Lose the JSON of all versions before one, as clean-up does."""
    for version in range(upto):
        (t.log / f"{version:020}.json").unlink()
        (t.log / f"{version:020}.crc").unlink(missing_ok=True)


@by_spark("a classic checkpoint, and commits after it")
def checkpointed(t: Making) -> None:
    t.create("n INT, v STRING, p INT", "PARTITIONED BY (p)", checkpointInterval="3")
    for n in range(5):
        t.insert(f"{n}, 'v{n}', {n % 2}")
    t.sql("DELETE FROM {t} WHERE n = 1")


@by_spark("a checkpoint in several parts")
def checkpoint_in_parts(t: Making) -> None:
    t.conf(spark__databricks__delta__checkpoint__partSize="2")
    t.create("n INT, v STRING", checkpointInterval="4")
    _fill(t, 5)


@by_spark("a checkpoint of version 2 with sidecars")
def checkpoint_v2(t: Making) -> None:
    t.create("n INT, v STRING", checkpointPolicy="v2", checkpointInterval="3", enableDeletionVectors="true")
    t.insert("10, 'x'", "11, 'y'")
    t.sql("DELETE FROM {t} WHERE n = 11")
    _fill(t, 3)


@by_spark("a checkpoint of version 2 in JSON, without the commits before it")
def checkpoint_v2_json(t: Making) -> None:
    t.conf(spark__databricks__delta__checkpointV2__topLevelFileFormat="json")
    t.create("n INT, v STRING", checkpointPolicy="v2", checkpointInterval="3")
    _fill(t)
    _age(t, 3)


@by_spark("a checkpoint whose statistics are structs, not JSON")
def checkpoint_of_structs(t: Making) -> None:
    t.create("n INT, v STRING, at TIMESTAMP, p DATE", "PARTITIONED BY (p)", checkpointInterval="2",
             checkpoint_writeStatsAsStruct="true", checkpoint_writeStatsAsJson="false")  # fmt: skip
    t.insert("1, 'a', TIMESTAMP'2024-02-29 12:00:00.123456', DATE'2024-02-29'")
    t.insert("2, NULL, NULL, NULL")
    _age(t, 2)


@by_spark("commits lost before a checkpoint")
def beginning_lost(t: Making) -> None:
    t.create("n INT, v STRING", checkpointInterval="2")
    _fill(t)
    _age(t, 2)


@by_spark("_last_checkpoint absent")
def last_checkpoint_absent(t: Making) -> None:
    t.create("n INT, v STRING", checkpointInterval="2")
    _fill(t)
    (t.log / "_last_checkpoint").unlink()
    _age(t, 2)


@by_spark("_last_checkpoint that names an older checkpoint, one that isn't there, or is no JSON")
def last_checkpoint_wrong(t: Making) -> None:
    t.create("n INT, v STRING", checkpointInterval="2")
    _fill(t)
    (t.log / "_last_checkpoint").write_text(json.dumps({"version": 2, "size": 4}))


@by_spark("a checkpoint beside the last commit, deletion vectors in it")
def checkpoint_newest(t: Making) -> None:
    t.create("n INT, v STRING", enableDeletionVectors="true", columnMapping_mode="name",
             checkpointInterval="2")  # fmt: skip
    t.insert("1, 'a'", "2, 'b'")
    t.sql("DELETE FROM {t} WHERE n = 1")


@by_spark("files without statistics")
def no_statistics(t: Making) -> None:
    t.conf(spark__databricks__delta__stats__collect="false")
    t.create("n INT, v STRING")
    t.insert("1, 'a'", "2, NULL")
    t.insert("3, 'c'")


@by_spark("statistics of the first column only, then of a chosen one")
def few_statistics(t: Making) -> None:
    t.create("n INT, v STRING, s STRUCT<a: INT, b: INT>", dataSkippingNumIndexedCols="1")
    t.insert("1, 'a', struct(1, 2)")
    t.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 's.b')")
    t.insert("2, 'b', struct(2, NULL)")


@by_spark("a table of many small versions")
def many_versions(t: Making) -> None:
    t.create("n INT, v STRING", checkpointInterval="10")
    _fill(t, 12)


@by_spark("an empty table")
def empty(t: Making) -> None:
    t.create("n INT, v STRING")


@by_spark("a table that has lost all its rows")
def emptied(t: Making) -> None:
    t.create("n INT, v STRING")
    t.insert("1, 'a'")
    t.sql("DELETE FROM {t}")


@by_delta_rs("nothing but protocol and metadata, by hand")
def metadata_only(t: Making) -> None:
    t.log.mkdir(parents=True)
    schema = {"type": "struct", "fields": [{"name": "n", "type": "integer", "nullable": True, "metadata": {}}]}
    told = {"id": "b7c5a0de-0000-4000-8000-000000000001", "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema), "partitionColumns": [], "configuration": {}}  # fmt: skip
    lines = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": told}]
    (t.log / f"{0:020}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
