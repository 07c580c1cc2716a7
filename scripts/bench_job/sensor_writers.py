"""What inserts the sensor workload's batches, each in its own way, and comes back when all are there."""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, TypeAlias

import duckdb
import orjson
import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.client.batch import Batching
from duckicelake.client.writer import Writer
from duckicelake.pipeline.sensor_bench import SENSOR_COLUMNS, DuckDBEngine, SensorRow
from duckicelake.rest.connection import Connection
from scripts.bench_job.posts import post

NAMESPACE: Final = ("main",)
Batches: TypeAlias = Sequence[Sequence[SensorRow]]
Insert: TypeAlias = Callable[[str, Batches], None]
"""Inserts batches into a table that is there."""


def by_duckdb(connection: duckdb.DuckDBPyConnection) -> Insert:
    def insert(table: str, batches: Batches) -> None:
        engine = DuckDBEngine(connection, NAMESPACE, table)
        for batch in batches:
            engine.insert(batch)

    return insert


def by_pyiceberg(uri: str) -> Insert:
    def insert(table: str, batches: Batches) -> None:
        loaded = RestCatalog("lake", uri=uri).load_table((*NAMESPACE, table))
        schema = loaded.schema().as_arrow()
        for batch in batches:
            columns = zip(zip(*batch, strict=True), schema, strict=True)
            arrays = [pa.array(values, field.type) for values, field in columns]
            loaded.append(pa.Table.from_arrays(arrays, schema=schema))

    return insert


def by_endpoint(uri: str, clients: int) -> Insert:
    """Each client sends one batch after the other, as JSON; all of them to one table."""

    def insert(table: str, batches: Batches) -> None:
        bodies = [orjson.dumps([dict(zip(SENSOR_COLUMNS, row, strict=True)) for row in batch]) for batch in batches]
        post(uri, f"/v1/namespaces/{'.'.join(NAMESPACE)}/tables/{table}/rows", bodies, clients)

    return insert


def by_writer(uri: str) -> Insert:
    """Our client for Python, which takes dicts."""

    def insert(table: str, batches: Batches) -> None:
        with Writer(".".join((*NAMESPACE, table)), Connection(uri), Batching(max_rows=len(batches[0]))) as writer:
            for batch in batches:
                writer.append(dict(zip(SENSOR_COLUMNS, row, strict=True)) for row in batch)

    return insert


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    began = perf_counter()
    work()
    return perf_counter() - began
