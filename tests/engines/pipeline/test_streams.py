"""Streams into a table, in a Spark of ours; `test_kills.py` has those that are killed."""

import os
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from duckicelake.errors import BadColumnError
from duckicelake.pipeline.destination import LoadRequest, Target, build_load_request
from duckicelake.pipeline.progress import SILENT
from duckicelake.pipeline.sources import parse_source
from duckicelake.pipeline.stream import FollowRequest, StreamRequest, follow_files, write_stream
from duckicelake.rest.client import CatalogClient

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]


def follow_once(
    spark: SparkSession, client: CatalogClient, incoming: Path, load: LoadRequest, checkpoint: Path
) -> tuple[int, int]:
    """How many rows came to the table, and to its quarantine."""
    source = parse_source([str(incoming)], "json")
    result = follow_files(spark, client, FollowRequest(source, load, str(checkpoint), until_idle=True), SILENT)
    assert result.table == str(load.target)
    return result.rows, result.quarantined


def test_files_that_come_into_a_folder_are_ingested_once_by_their_own_columns(
    spark: SparkSession, client: CatalogClient, namespace: str, tmp_path: Path
) -> None:
    incoming, checkpoint = tmp_path / "incoming", tmp_path / "checkpoint"
    incoming.mkdir()
    load = build_load_request(Target((namespace,), "t"), "merge", ("id",))
    (incoming / "1.json").write_text('{"id": 1, "v": "a"}\n{"id": 2, "v"\n')
    assert follow_once(spark, client, incoming, load, checkpoint) == (1, 1)
    assert follow_once(spark, client, incoming, load, checkpoint) == (0, 0)
    (incoming / "2.json").write_text('{"id": 1, "v": "b", "more": true}\n{"id": 3, "v": "c"}\n')
    os.utime(incoming / "2.json", (time.time() - 30 * 24 * 3600,) * 2)
    follow_once(spark, client, incoming, load, checkpoint)
    rows = [tuple(row) for row in spark.sql(f"SELECT id, v, more FROM lake.{namespace}.t ORDER BY id").collect()]
    assert rows == [(1, "b", True), (3, "c", None)]
    assert [row.record for row in spark.sql(f"SELECT record FROM lake.{namespace}.t_quarantine").collect()] == [
        '{"id": 2, "v"'
    ]
    strict = build_load_request(Target((namespace,), "t"), "merge", ("id",), may_change=False)
    (incoming / "3.json").write_text('{"id": 4, "other": 1}\n')
    with pytest.raises(BadColumnError, match="other isn't a column of the table"):
        follow_once(spark, client, incoming, strict, checkpoint)
    follow_once(spark, client, incoming, load, checkpoint)
    assert spark.table(f"lake.{namespace}.t").count() == 3
    told = [(job["result"], job["counts"].get("rows")) for job in client.jobs(namespace=namespace, kind="stream")]
    assert told == [("done", 1), ("failed", None), ("done", 2), ("done", None), ("done", 1)]


def test_any_stream_goes_to_a_table_with_every_row_once(
    spark: SparkSession, client: CatalogClient, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        spark.range(number * 100, number * 100 + 100).write.parquet(f"{tmp_path}/in/{number}.parquet")
    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(f"{tmp_path}/in/*.parquet")
    request = StreamRequest(
        build_load_request(Target((namespace,), "t")), str(tmp_path / "checkpoint"), until_idle=True
    )
    for _ in range(2):
        write_stream(client, stream, request, SILENT)
    rows = spark.table(f"lake.{namespace}.t")
    assert sorted(row.id for row in rows.collect()) == list(range(400))
    summaries = spark.sql(f"SELECT summary FROM lake.{namespace}.t.snapshots").collect()
    assert len({row.summary["duckicelake.run-epoch"] for row in summaries}) == len(summaries) >= 4
    assert len({row.summary["duckicelake.run-id"] for row in summaries}) == 1
