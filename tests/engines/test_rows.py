"""Rows by HTTP on either backend: in Postgres, in files and flushed, DuckDB and PyIceberg read the same of them."""

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import httpx
import pytest
from pyiceberg.catalog import Catalog

from scripts.demo_job.server import RunningLake

pytestmark = [pytest.mark.engine]


class Rows:
    """A table's rows, as they are sent and as both sides read them."""

    def __init__(self, http: httpx.Client, catalog: Catalog, duck: duckdb.DuckDBPyConnection, namespace: str) -> None:
        self.http, self.catalog, self.duck, self.namespace = http, catalog, duck, namespace

    def send(self, rows: list[dict[str, Any]], **parameters: str) -> None:
        kind = {"Content-Type": "application/x-ndjson"}
        body = "".join(f"{json.dumps(row)}\n" for row in rows)
        answer = self.http.post("/rows", content=body, params=parameters, headers=kind)
        assert (answer.status_code, answer.json().get("rows")) == (200, len(rows)), answer.text

    def flush(self) -> dict[str, Any]:
        answer = self.http.post("/rows/flush")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def files(self) -> set[str]:
        """Data files by DuckLake, which are those that Iceberg's clients read once no rows are in Postgres."""
        listed = f"SELECT data_file FROM ducklake_list_files('lake', 't', schema => '{self.namespace}')"
        return {str(path) for (path,) in self.duck.execute(listed).fetchall()}

    def read(self) -> list[tuple[Any, ...]]:
        """By DuckDB; PyIceberg reads the same."""
        native = self.duck.execute(f"FROM lake.{self.namespace}.t ORDER BY id").fetchall()
        table = self.catalog.load_table(f"{self.namespace}.t").scan().to_arrow().sort_by("id")
        assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == native
        return native


@pytest.fixture
def rows(lake: RunningLake, catalog: Catalog, duck: duckdb.DuckDBPyConnection, namespace: str) -> Iterator[Rows]:
    duck.execute(f"CREATE TABLE lake.{namespace}.t (id BIGINT, name VARCHAR)")
    table = f"{lake.uri}/v1/namespaces/{namespace}/tables/t"
    with httpx.Client(base_url=table, headers=lake.login(), timeout=60) as http:
        yield Rows(http, catalog, duck, namespace)


@pytest.mark.parametrize("version", ["2", "3"])
def test_rows_are_the_same_to_both_sides_before_and_after_they_are_flushed(
    rows: Rows, lake: RunningLake, version: str
) -> None:
    with rows.catalog.load_table(f"{rows.namespace}.t").transaction() as transaction:
        transaction.set_properties({"format-version": version})
    rows.send([{"id": 1, "name": "one"}, {"id": 2}, {"id": 3, "name": "é🦆"}])
    assert rows.files() == set()
    assert rows.read() == [(1, "one"), (2, None), (3, "é🦆")]
    rows.send([{"id": number, "name": f"n{number}"} for number in range(100, 200)])
    assert len(rows.files()) == 1
    rows.send([{"id": 2, "name": "two"}, {"id": 150, "name": "new"}], mode="upsert", key="id")
    wanted = [(1, "one"), (2, "two"), (3, "é🦆"), *((number, f"n{number}") for number in range(100, 200))]
    wanted[wanted.index((150, "n150"))] = (150, "new")
    assert rows.read() == wanted
    flushed = rows.flush()
    assert flushed["files"] >= 1
    assert rows.flush() == {"files": 0, "rows": 0, "deletes": 0, "snapshot-id": None}
    assert len(rows.files()) >= 2
    assert rows.read() == wanted
    where = lake.backend.minio and "s3://"
    assert all(path.startswith(where or "/") for path in rows.files())
