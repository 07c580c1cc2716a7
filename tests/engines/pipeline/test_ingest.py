"""Ingest with a real Spark against a live server: nothing is left out, nothing comes twice."""

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from duckicelake.errors import BadColumnError, BadInputError
from duckicelake.pipeline.destination import LoadRequest, Target, build_load_request
from duckicelake.pipeline.epoch import SOURCE_KEY, Epoch
from duckicelake.pipeline.ingest import IngestRequest, IngestResult, ingest
from duckicelake.pipeline.progress import SILENT
from duckicelake.pipeline.sources import parse_source
from duckicelake.pipeline.table_writer import write_once
from duckicelake.rest.client import CatalogClient

pytestmark = [pytest.mark.engine, pytest.mark.spark]


class Ingests:
    """What a test of ingest needs: one Spark, one client, a namespace, a folder."""

    def __init__(self, spark: SparkSession, client: CatalogClient, namespace: str, folder: Path) -> None:
        self.spark, self.client, self.namespace, self.folder = spark, client, namespace, folder

    def run(self, *locations: object, table: str = "t", run_id: str | None = None, **how: Any) -> IngestResult:
        source = parse_source(
            [str(each) for each in locations], how.pop("format", None), how.pop("options", ()), how.pop("schema", None)
        )
        layout = {name: how.pop(name, None) for name in ("partition_by", "sort_by")}
        load: LoadRequest = build_load_request(Target((self.namespace,), table, **layout), **how)
        request = IngestRequest(source, load, run_id) if run_id else IngestRequest(source, load)
        return ingest(self.spark, self.client, request, SILENT)

    def rows(self, table: str = "t", columns: str = "*") -> list[tuple[Any, ...]]:
        found = self.spark.sql(f"SELECT {columns} FROM lake.{self.namespace}.{table} ORDER BY 1, 2").collect()
        return [tuple(row) for row in found]

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path


@pytest.fixture
def ingests(spark: SparkSession, client: CatalogClient, namespace: str, tmp_path: Path) -> Ingests:
    return Ingests(spark, client, namespace, tmp_path)


def test_bad_records_of_csv_go_to_quarantine_with_the_reason_and_all_others_to_the_table(
    ingests: Ingests, duck: duckdb.DuckDBPyConnection
) -> None:
    path = ingests.file(
        "a.csv", 'id,name,day\n1,a,2024-01-01\nx,b,2024-01-02\n3,"c, d",\n4,d\n5,e,2024-01-01,z\n6,f,soon\n'
    )
    result = ingests.run(path, schema="id int, name string, day date")
    assert (result.result, result.rows, result.quarantined) == ("done", 2, 4)
    assert [row[:2] for row in ingests.rows()] == [(1, "a"), (3, "c, d")]
    assert ingests.rows("t_quarantine", "record, reason") == [
        ("4,d", "not 3 fields, or quotes that don't end"),
        ("5,e,2024-01-01,z", "not 3 fields, or quotes that don't end"),
        ("6,f,soon", "day: 'soon' is no date"),
        ("x,b,2024-01-02", "id: 'x' is no int"),
    ]
    native = duck.sql(f"SELECT DISTINCT source, run_id FROM lake.{ingests.namespace}.t_quarantine").fetchall()
    assert native == [(f"file:{path}", result.run_id)]


def test_columns_that_only_some_files_have_are_kept_in_every_format(ingests: Ingests) -> None:
    ingests.file("c/1.csv", "id,name\n1,a\n")
    ingests.file("c/2.csv", "Name,ID,size\nb,2,2.5\n")
    ingests.file("j/1.json", '{"id": 1, "in": {"a": 1}}\n')
    ingests.file("j/2.json", '{"id": 2, "in": {"b": [1, 2]}}\n{"id": 3')
    for number, columns in enumerate(("1L AS id, 'a' AS name", "2 AS id, 2.5D AS size")):
        for kind in ("parquet", "orc"):
            ingests.spark.sql(f"SELECT {columns}").write.format(kind).save(f"{ingests.folder}/{kind}/part={number}")
    assert ingests.run(ingests.folder / "c", table="c", format="csv").quarantined == 0
    assert ingests.run(ingests.folder / "j", table="j", format="json").quarantined == 1
    ingests.run(ingests.folder / "parquet", table="p", format="parquet")
    ingests.run(ingests.folder / "orc", table="o", format="orc")
    assert ingests.rows("c", "id, name, size") == [(1, "a", None), (2, "b", 2.5)]
    assert ingests.rows("j", "id, to_json(in)") == [(1, '{"a":1}'), (2, '{"b":[1,2]}')]
    assert ingests.rows("j_quarantine", "record, reason") == [('{"id": 3', "not a JSON object")]
    for table in "po":
        assert ingests.rows(table, "id, name, size, part") == [(1, "a", None, 0), (2, None, 2.5, 1)]


def test_same_run_again_does_nothing_and_other_content_under_its_id_is_refused(ingests: Ingests) -> None:
    path = ingests.file("a.csv", "id,v\n1,a\nx,b\n")
    first = ingests.run(path, schema="id int, v string", run_id="r1")
    again = ingests.run(path, schema="id int, v string", run_id="r1")
    assert (again.result, again.rows, again.quarantined, again.snapshot_ids) == ("unchanged", 1, 1, first.snapshot_ids)
    assert ingests.run(path, schema="id int, v string", run_id="r2").result == "done"
    assert ingests.rows() == [(1, "a"), (1, "a")]
    ingests.file("a.csv", "id,v\n1,a\n2,b\n")
    with pytest.raises(BadInputError, match="put other content"):
        ingests.run(path, schema="id int, v string", run_id="r1")
    assert [job["result"] for job in ingests.client.jobs(namespace=ingests.namespace)] == [
        "failed", "done", "unchanged", "done",
    ]  # fmt: skip


def test_two_drivers_at_the_same_run_commit_it_once(ingests: Ingests) -> None:
    path = ingests.file("a.csv", "id,v\n" + "".join(f"{number},v\n" for number in range(500)) + "x,bad\n")
    ingests.run(ingests.file("0.csv", "id,v\n"), schema="id int, v string")
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda _: ingests.run(path, run_id="r"), range(2)))
    assert {(run.rows, run.quarantined, run.snapshot_ids) for run in runs} == {(500, 1, runs[0].snapshot_ids)}
    assert len(ingests.rows()) == 500
    assert ingests.rows("t_quarantine", "record, reason") == [("x,bad", "id: 'x' is no int")]


def test_run_that_lost_a_race_to_other_content_under_its_id_is_refused(ingests: Ingests) -> None:
    ingests.spark.sql(f"CREATE TABLE lake.{ingests.namespace}.t (id bigint)")
    target = Target((ingests.namespace,), "t")
    write_once(ingests.client, target, ingests.spark.range(3), Epoch("r", 0, {SOURCE_KEY: "mine"}), "append")
    with pytest.raises(BadInputError, match="Run r has put other content into"):
        write_once(ingests.client, target, ingests.spark.range(9), Epoch("r", 0, {SOURCE_KEY: "other"}), "append")
    assert ingests.spark.table(target.sql).count() == 3


def test_columns_are_added_and_widened_unless_evolution_is_strict(ingests: Ingests) -> None:
    ingests.spark.sql("SELECT 1 AS id, named_struct('x', 1) AS s").write.parquet(f"{ingests.folder}/1.parquet")
    ingests.spark.sql("SELECT 5000000000L AS id, named_struct('x', 1L, 'y', 'new') AS s, true AS more").write.parquet(
        f"{ingests.folder}/2.parquet"
    )
    ingests.run(f"{ingests.folder}/1.parquet")
    refused = r"id would have to become bigint .* s\.y isn't a column .* more isn't a column"
    with pytest.raises(BadColumnError, match=refused):
        ingests.run(f"{ingests.folder}/2.parquet", may_change=False)
    assert len(ingests.rows()) == 1
    ingests.run(f"{ingests.folder}/2.parquet")
    assert ingests.rows("t", "id, s.x, s.y, more") == [(1, 1, None, None), (5000000000, 1, "new", True)]
    ingests.spark.sql("SELECT 'seven' AS id").write.parquet(f"{ingests.folder}/3.parquet")
    with pytest.raises(BadColumnError, match="id is bigint, which doesn't hold string"):
        ingests.run(f"{ingests.folder}/3.parquet")


def test_merge_updates_and_inserts_and_puts_records_aside_that_have_no_key_of_their_own(ingests: Ingests) -> None:
    ingests.run(ingests.file("1.csv", "id,v,w\n1,a,x\n2,b,y\n"), schema="id int, v string, w string")
    news = ingests.file("2.csv", "id,v\n2,B\n3,c\n4,d\n4,e\n,f\n")
    result = ingests.run(news, mode="merge", keys=("ID",))
    assert (result.rows, result.quarantined) == (2, 3)
    assert ingests.rows() == [(1, "a", "x"), (2, "B", "y"), (3, "c", None)]
    assert [reason for _, reason in ingests.rows("t_quarantine", "record, reason")] == [
        "2 records have this id", "2 records have this id", "id must have a value",
    ]  # fmt: skip
    nothing = ingests.file("3.csv", "id,v\n")
    assert [ingests.run(nothing, mode="merge", keys=("id",), run_id="none").result for _ in range(2)] == [
        "done", "unchanged",
    ]  # fmt: skip


def test_merges_at_the_same_time_in_one_session_keep_their_runs_apart(ingests: Ingests) -> None:
    names = [f"m{number}" for number in range(3)]
    for name in names:
        ingests.run(ingests.file(f"{name}.csv", "id,v\n1,a\n"), table=name, schema="id int, v string")

    def merge(name: str) -> str:
        return ingests.run(ingests.folder / f"{name}.csv", table=name, mode="merge", keys=("id",), run_id=name).result

    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(merge, names)) == ["done"] * len(names)
    for name in names:
        _, *later = ingests.rows(f"{name}.snapshots", "committed_at, summary['duckicelake.run-id']")
        assert [run_id for _, run_id in later] == [name]


def test_merge_of_files_with_different_columns_is_refused_before_any_row_loses_a_value(ingests: Ingests) -> None:
    ingests.run(ingests.file("0.csv", "id,v,w\n1,a,x\n2,b,y\n"), schema="id int, v string, w string")
    ingests.file("csv/1.csv", "id,v\n1,A\n")
    ingests.file("csv/2.csv", "id,w\n2,Y\n")
    for number, columns in enumerate(("1 AS id, 'A' AS v", "2 AS id, 'Y' AS w")):
        ingests.spark.sql(f"SELECT {columns}").write.parquet(f"{ingests.folder}/parquet/{number}")
    for kind in ("csv", "parquet"):
        with pytest.raises(BadColumnError, match="Only some of the files have v, w, so a merge"):
            ingests.run(ingests.folder / kind, format=kind, mode="merge", keys=("id",))
    with pytest.raises(BadColumnError, match="--key w: the source has no such column"):
        ingests.run(ingests.folder / "csv" / "1.csv", mode="merge", keys=("w",))
    assert ingests.rows() == [(1, "a", "x"), (2, "b", "y")]


def test_overwrites_replace_the_table_or_the_partitions_that_come(ingests: Ingests) -> None:
    layout = {"partition_by": "month(day), bucket(2, id)", "sort_by": "id desc"}
    schema = "id int, day date"
    ingests.run(ingests.file("1.csv", "id,day\n1,2024-01-01\n2,2024-02-01\n"), schema=schema, **layout)
    ingests.run(ingests.file("2.csv", "id,day\n1,2024-01-31\n"), mode="overwrite-partitions", **layout)
    assert [f"{day} {id_}" for id_, day in ingests.rows()] == ["2024-01-31 1", "2024-02-01 2"]
    ingests.run(ingests.file("3.csv", "id,day\n9,2024-03-01\n"), mode="overwrite")
    assert [id_ for id_, _ in ingests.rows()] == [9]
    with pytest.raises(BadInputError, match="isn't partitioned by day"):
        ingests.run(ingests.folder / "3.csv", partition_by="day(day)")
    ingests.run(ingests.file("4.csv", "id\n1\n"), table="plain")
    with pytest.raises(BadInputError, match="has no partitions"):
        ingests.run(ingests.folder / "4.csv", table="plain", mode="overwrite-partitions")


def test_records_without_a_value_that_the_table_demands_go_to_quarantine(ingests: Ingests) -> None:
    inner = "struct<a: int NOT NULL, b: int>"
    columns = f"id int NOT NULL, v string, s {inner}, l array<{inner}>, m map<string, {inner}>"
    ingests.spark.sql(f"CREATE TABLE lake.{ingests.namespace}.t ({columns})")
    whole, broken = {"a": 1, "b": 2}, {"b": 2}
    good: list[dict[str, Any]] = [
        {"id": 1, "v": "a"}, {"id": 2, "s": whole, "l": [whole, None], "m": {"k": whole, "n": None}},
    ]  # fmt: skip
    bad: list[dict[str, Any]] = [
        {"v": "b"}, {"id": 3, "s": broken}, {"id": 4, "l": [whole, broken]}, {"id": 5, "m": {"k": broken}},
    ]  # fmt: skip
    lines = "".join(json.dumps(each) + "\n" for each in [*good, *bad])
    result = ingests.run(ingests.file("1.jsonl", lines), schema=columns)
    assert (result.rows, result.quarantined) == (2, 4)
    aside = [(json.loads(record), reason) for record, reason in ingests.rows("t_quarantine", "record, reason")]
    reasons = ["id must have a value", *(f"{name}.a must have a value" for name in ("s", "l.element", "m.value"))]
    assert sorted(aside, key=str) == sorted(zip(bad, reasons, strict=True), key=str)
    with pytest.raises(BadColumnError, match="id must have a value"):
        ingests.run(ingests.file("2.jsonl", '{"v": "c"}\n'))


def test_every_record_of_a_large_dirty_file_is_in_the_table_or_in_quarantine(ingests: Ingests) -> None:
    path = ingests.folder / "big.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "v"])
        writer.writerows([f"bad{number}" if number % 7 == 0 else number, f"v,{number}"] for number in range(20_000))
    result = ingests.run(path, schema="id int, v string")
    assert result.rows + result.quarantined == 20_000
    kept = {id_ for id_, _ in ingests.rows()}
    aside = {int(record.partition(",")[0][3:]) for record, _ in ingests.rows("t_quarantine", "record, reason")}
    assert kept | aside == set(range(20_000))
    assert not kept & aside
