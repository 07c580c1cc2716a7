"""What people get wrong with ingest is told in one line, and leaves no table behind."""

from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from duckicelake.errors import BadColumnError, BadSourceError
from duckicelake.maintenance.layout import parse_partitions, parse_sort_keys, read_partitions, read_sort_keys
from duckicelake.pipeline.destination import Target
from duckicelake.pipeline.failures import explain_failure
from duckicelake.pipeline.ingest import IngestResult
from duckicelake.pipeline.table_writer import ensure_namespace
from tests.engines.pipeline.test_ingest import Ingests, ingests

__all__ = ["ingests"]

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

COLUMNS = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (
            {"partition_by": "bucket(4, id), month(nope)"},
            "by bucket.*: the source has no column nope, but id, n",
        ),
        ({"sort_by": "`no.pe` desc"}, r"--sort-by .*: the source has no column no\.pe, but id, n"),
        ({"partition_by": "month(n)"}, "Invalid source type string for transform: month"),
    ],
)
def test_layout_by_columns_that_there_are_not(ingests: Ingests, layout: dict[str, str], words: str) -> None:
    path = ingests.file("a.csv", "id,n\n1,x\n")
    with pytest.raises(Exception, match=words) as raised:
        ingests.run(path, **layout)
    assert isinstance(explain_failure(raised.value), BadColumnError)
    assert list(ingests.client.tables((ingests.namespace,))) == []


def test_namespace_that_a_run_makes_goes_again_where_it_fails(ingests: Ingests) -> None:
    path, ingests.namespace = ingests.file("a.csv", "id,n\n1,x\n"), f"{ingests.namespace}_new"
    with pytest.raises(Exception, match="Invalid source type string"):
        ingests.run(path, partition_by="month(n)")
    assert not ingests.client.namespace_exists((ingests.namespace,))
    assert ingests.run(path).rows == 1


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("tables", {"name": "theirs", "schema": COLUMNS}),
        ("properties", {"updates": {"owner": "they"}}),
    ],
)
def test_namespace_that_others_use_by_then_stays(ingests: Ingests, route: str, body: dict[str, Any]) -> None:
    namespace = f"{ingests.namespace}_{route}"
    failing = ensure_namespace(ingests.client, Target((namespace,), "t"))
    failing.__enter__()
    ingests.client.post(f"/v1/namespaces/{namespace}/{route}", body)
    assert not failing.__exit__(BadSourceError, BadSourceError("no file"), None)
    assert ingests.client.namespace_exists((namespace,))


def test_header_that_names_a_column_twice(ingests: Ingests) -> None:
    path = ingests.file("a.csv", "id,v,ID\n1,x,2\n")
    with pytest.raises(Exception, match="CSV header") as raised:
        ingests.run(path)
    failure = explain_failure(raised.value)
    assert isinstance(failure, BadSourceError)
    assert str(failure) == "Header: id, v, ID; a CSV file names a column twice, regardless of case"


def test_schema_that_leaves_columns_out(ingests: Ingests) -> None:
    path = ingests.file("a.csv", "id,n,m\n1,x,y\n")
    with pytest.raises(BadColumnError, match="--schema leaves out n, m: it names all columns of the source"):
        ingests.run(path, schema="id int")
    assert list(ingests.client.tables((ingests.namespace,))) == []


def test_file_without_one_good_record_goes_to_quarantine_also_from_a_sorted_table(ingests: Ingests) -> None:
    columns = "id int, n string"
    ingests.run(ingests.file("a.csv", "id,n\n1,x\n"), schema=columns, partition_by="bucket(2, id)", sort_by="n")
    result = ingests.run(ingests.file("b.csv", "id,n\ny,x\nz,x\n"))
    assert (result.rows, result.quarantined, result.result) == (0, 2, "done")
    assert ingests.rows("t_quarantine", "record, reason") == [
        ("y,x", "id: 'y' is no int"),
        ("z,x", "id: 'z' is no int"),
    ]
    assert ingests.rows() == [(1, "x")]


def test_run_that_fails_midway_leaves_no_table_and_is_done_when_it_is_tried_again(ingests: Ingests) -> None:
    for number in range(2):
        damaged = ingests.folder / "p" / f"part={number}" / "rows.parquet"
        damaged.parent.mkdir(parents=True)
        parquet.write_table(pa.table({"id": [number, number + 10, number + 20], "v": ["x"] * 3}), damaged)
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:4] + bytes(40) + whole[44:])  # the first page: the columns can still be told
    layout = {"partition_by": "bucket(2, ID), part", "sort_by": "truncate(1, v), id desc"}

    def run() -> IngestResult:
        return ingests.run(ingests.folder / "p", format="parquet", run_id="r", **layout)

    with pytest.raises(Exception, match=damaged.name) as raised:
        run()
    assert isinstance(explain_failure(raised.value), BadSourceError)
    assert list(ingests.client.tables((ingests.namespace,))) == []
    damaged.write_bytes(whole)
    assert (run().rows, run().result) == (6, "unchanged")
    assert ingests.rows("t.snapshots", "1, summary['added-records']") == [(1, "6")]
    metadata = ingests.client.load_table((ingests.namespace,), "t", "refs")["metadata"]
    assert read_partitions(metadata) == parse_partitions("bucket(2, id), part")
    assert read_sort_keys(metadata) == parse_sort_keys(layout["sort_by"])
    assert [field["required"] for field in metadata["schemas"][0]["fields"]] == [False] * 3


def test_source_without_anything_in_it(ingests: Ingests) -> None:
    path = ingests.file("a.csv", "")
    with pytest.raises(BadSourceError, match=r"a\.csv has no files, or only empty ones"):
        ingests.run(path)
