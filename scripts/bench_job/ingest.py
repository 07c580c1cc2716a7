"""`pipeline ingest` of the flights data, 60 times over, which is 20 million rows: from CSV, and from Parquet.

The reference is the same Spark that reads the same files and writes Parquet to the same disk, without a table, without
looking at any record, packed as the table's files are. Both have seen one copy before.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

import duckdb
from pyspark.sql import SparkSession

from duckicelake.pipeline.destination import Target as Table
from duckicelake.pipeline.destination import build_load_request
from duckicelake.pipeline.ingest import IngestRequest, ingest
from duckicelake.pipeline.progress import SILENT
from duckicelake.pipeline.session import open_spark_session
from duckicelake.pipeline.sources import parse_source
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.bench_job.results import Result, Target, options_of, report
from scripts.demo_job.dataset import spark_columns, unpack
from scripts.demo_job.server import running_lake

ROWS_OF_A_COPY: Final = 336_776
QUICK: Final = 2


def main() -> None:
    options = options_of(__doc__, copies=(60, "how many times the data is read"))
    copies = QUICK if options.quick else options.copies
    with TemporaryDirectory(prefix="duckicelake-bench-") as name:
        report("Ingest", list(measured(Path(name), copies)), options)


def measured(folder: Path, copies: int) -> Iterator[Result]:
    folder.chmod(0o755)
    flights = unpack(folder / "data").csv("flights")
    with running_lake(folder / "lake", folder / "server.log") as lake:
        connection = Connection(lake.uri)
        with open_spark_session(connection, conf={"spark.driver.memory": "3g"}) as spark:
            columns = spark_columns("flights")
            one = spark.read.csv(str(flights), schema=columns, header=True, nullValue="NA")
            one.coalesce(1).write.parquet(str(folder / "one"))
            (parquet,) = (folder / "one").glob("*.parquet")
            client = CatalogClient(connection)
            for file, schema in ((flights, columns), (parquet, None)):
                yield compared(spark, client, folder, file, schema, copies)


def compared(
    spark: SparkSession, client: CatalogClient, folder: Path, file: Path, schema: str | None, copies: int
) -> Result:
    kind = file.suffix[1:]
    incoming = folder / f"incoming-{kind}"
    incoming.mkdir()
    for wanted, _ in ((1, "to see it once"), (copies, "to measure")):
        for number in range(len(list(incoming.iterdir())), wanted):
            os.link(file, incoming / f"{number}.{kind}")
        table = Table(("bench",), f"{kind}_{wanted}")
        ours = ingested(spark, client, table, incoming, schema)
        codec = codec_of(spark, table)
        plain = written(spark, folder / f"plain-{table.table}", incoming, schema, codec)
    rows = copies * ROWS_OF_A_COPY
    line = f"ingest of {rows:,} rows of {kind} to {codec} Parquet, {os.cpu_count()} cores"
    return Result(
        line, rows / ours, "rows/s", Target("≥", 0.8, "ratio"), rows / plain, f"rows/s Spark to {codec} Parquet"
    )


def ingested(spark: SparkSession, client: CatalogClient, table: Table, incoming: Path, schema: str | None) -> float:
    """Seconds."""
    kind, count = kind_of(incoming)
    source = parse_source([str(incoming)], kind, ("nullValue=NA",) if kind == "csv" else (), schema)
    before = time.perf_counter()
    result = ingest(spark, client, IngestRequest(source, build_load_request(table)), SILENT)
    took = time.perf_counter() - before
    assert (result.rows, result.quarantined) == (count * ROWS_OF_A_COPY, 0)
    return took


def written(spark: SparkSession, to: Path, incoming: Path, schema: str | None, codec: str) -> float:
    """Seconds."""
    kind, _ = kind_of(incoming)
    options = {"header": "true", "nullValue": "NA"} if kind == "csv" else {}
    before = time.perf_counter()
    read = spark.read.format(kind).options(**options)
    (read.schema(schema) if schema else read).load(str(incoming)).write.parquet(str(to), compression=codec)
    return time.perf_counter() - before


def kind_of(incoming: Path) -> tuple[str, int]:
    """The format of a folder's files, and how many there are."""
    names = [each.suffix[1:] for each in incoming.iterdir()]
    return names[0], len(names)


def codec_of(spark: SparkSession, table: Table) -> str:
    """How the pages of a table's files are packed."""
    file = spark.sql(f"SELECT file_path FROM {table.sql}.files LIMIT 1").collect()[0].file_path
    pages = duckdb.execute("SELECT compression FROM parquet_metadata(?) LIMIT 1", [urlsplit(file).path]).fetchall()
    return str(pages[0][0]).lower()


if __name__ == "__main__":
    main()
