"""`duckicelake load` of files into a new table, beside bare DuckDB, and beside the Spark pipeline's ingest.

The same rows as CSV, compressed or not, JSON lines, Parquet, Arrow and Avro. A load is the whole command: Python's
start, the look at all rows for their types, the check of each row, files, and the commit. The reference is a DuckDB
that has attached the lake and reads the same file by `CREATE TABLE AS`, with types from a sample, in a process that
runs already. Spark runs already, too, and has seen one file before; it reads no Arrow, and Avro by a package of its
own. They take turns. Memory is the most that a load had resident.
"""

import gzip
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.dataset
import zstandard
from pyspark.sql import SparkSession

from duckicelake.file_import.source_rows import load_extension
from duckicelake.pipeline.destination import Target as Table
from duckicelake.pipeline.destination import build_load_request
from duckicelake.pipeline.ingest import IngestRequest, ingest
from duckicelake.pipeline.progress import SILENT
from duckicelake.pipeline.session import open_spark_session
from duckicelake.pipeline.sources import parse_source
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from scripts.bench_job.results import Result, options_of, report
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import PROGRAM, RunningLake, running_lake

NAMES: Final = ("rows.csv", "rows.csv.gz", "rows.csv.zst", "rows.jsonl", "rows.parquet", "rows.arrow", "rows.avro")
ROWS: Final = (
    "SELECT i AS id, TIMESTAMP '2026-01-01' + to_seconds(i) AS at, 'name ' || i % 97 AS name, i % 1000 AS quantity, "
    "round(i / 7, 2) AS amount, md5(i::VARCHAR) AS note FROM range({rows}) r(i)"
)
AVRO_TYPES: Final = {
    "id": "long",
    "at": {"type": "long", "logicalType": "timestamp-micros"},
    "name": "string",
    "quantity": "long",
    "amount": "double",
    "note": "string",
}
BATCH_ROWS: Final = 10_000
PEAK: Final = re.compile(r"^VmHWM:\s*(\d+) kB$", re.MULTILINE)
POLL_SECONDS: Final = 0.05
SPARK_KINDS: Final = {"csv": "csv", "gz": "csv", "jsonl": "json", "parquet": "parquet"}
"""Formats of the pipeline's ingest, by suffixes; Spark's Hadoop has no zstd of its own."""
SPARK_SCHEMA: Final = "id long, at timestamp_ntz, name string, quantity long, amount double, note string"


def main() -> None:
    options = options_of(
        __doc__,
        rows=(2_000_000, "rows of a file"),
        rounds=(3, "how often each is loaded"),
        spark=(1, "0: without Spark"),
    )
    rows, rounds = (options.rows // 10, 1) if options.quick else (options.rows, options.rounds)
    with TemporaryDirectory(prefix="duckicelake-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        write_files(folder, rows)
        with (
            running_lake(folder / "lake", folder / "server.log") as lake,
            duckdb_lake(lake) as duck,
            spark_if(Connection(lake.uri), is_wanted=bool(options.spark)) as spark,
        ):
            bench = FileBench(lake, duck, spark, folder, rows)
            report("Load of files", [one for name in NAMES for one in bench.measure(name, rounds)], options)


def write_files(folder: Path, rows: int) -> None:
    """Write the same rows in each form."""
    select = ROWS.format(rows=rows)
    with duckdb.connect() as duck:
        for name, options in (("csv", "HEADER"), ("jsonl", "FORMAT json"), ("parquet", "FORMAT parquet")):
            duck.execute(f"COPY ({select}) TO '{folder}/rows.{name}' ({options})")
        write_typed(duck, folder, rows)
    text = (folder / "rows.csv").read_bytes()
    (folder / "rows.csv.gz").write_bytes(gzip.compress(text, 5))
    (folder / "rows.csv.zst").write_bytes(zstandard.compress(text))


def write_typed(duck: duckdb.DuckDBPyConnection, folder: Path, rows: int) -> None:
    """Write the rows as Arrow and as Avro, batch by batch."""
    reader = duck.execute(ROWS.format(rows=rows)).to_arrow_reader(BATCH_ROWS)
    with pa.OSFile(f"{folder}/rows.arrow", "wb") as file, pa.ipc.new_file(file, reader.schema) as arrow:
        for batch in reader:
            arrow.write_batch(batch)
    fields = [{"name": name, "type": kind} for name, kind in AVRO_TYPES.items()]
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
    written = pa.dataset.dataset(f"{folder}/rows.arrow", format="ipc").to_batches()
    with (folder / "rows.avro").open("wb") as avro:
        fastavro.writer(avro, schema, (row for batch in written for row in batch.to_pylist()), codec="deflate")


class FileBench:
    """Loads each file in each way, into a table of its own."""

    def __init__(
        self, lake: RunningLake, duck: duckdb.DuckDBPyConnection, spark: SparkSession | None, folder: Path, rows: int
    ) -> None:
        self._lake, self._duck, self._spark, self._folder, self._rows = lake, duck, spark, folder, rows
        self._client = CatalogClient(Connection(lake.uri))
        self._tables = 0
        self._peaks: dict[str, list[int]] = {}

    def measure(self, name: str, rounds: int) -> Iterator[Result]:
        """Measure one file; yield the rate beside DuckDB, then beside Spark."""
        file = self._folder / name
        ways: dict[str, Callable[[Path, str], None]] = {"load": self._load, "DuckDB": self._copy}
        if self._spark is not None and file.suffix[1:] in SPARK_KINDS:
            ways["Spark"] = self._ingest
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds):
            start = number % len(ways)
            for way in [*ways][start:] + [*ways][:start]:
                self._tables += 1
                seconds[way].append(self._time(ways[way], file, f"t{self._tables}"))
        megabytes, ours = file.stat().st_size / 1e6, median(seconds["load"])
        size = f"{name}, {self._rows:,} rows, {megabytes:,.0f} MB"
        for other in [*ways][1:]:
            rate = self._rows / median(seconds[other])
            yield Result(f"{size}: {megabytes / ours:,.0f} MB/s", self._rows / ours, "rows/s", None, rate, other)
        yield Result(f"{name}: memory", max(self._peaks[name]) / 1e6, "MB")

    def _time(self, way: Callable[[Path, str], None], file: Path, table: str) -> float:
        began = time.perf_counter()
        way(file, table)
        took = time.perf_counter() - began
        found = self._duck.execute(f"SELECT count(*) FROM lake.main.{table}").fetchall()
        assert found == [(self._rows,)], (file, table, found)
        return took

    def _load(self, file: Path, table: str) -> None:
        command = [PROGRAM, "load", str(file), "--table", f"main.{table}", "--yes", "--uri", self._lake.uri]
        peak = 0
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as load:
            while load.poll() is None:
                peak = max(peak, read_peak(load.pid))
                time.sleep(POLL_SECONDS)
        assert load.returncode == 0, command
        self._peaks.setdefault(file.name, []).append(peak)

    def _copy(self, file: Path, table: str) -> None:
        rows = f"'{file}'"
        if file.suffix == ".arrow":
            self._duck.register("arrow_rows", pa.dataset.dataset(str(file), format="ipc"))
            rows = "arrow_rows"
        elif file.suffix == ".avro":
            load_extension(self._duck, "avro")
            rows = f"read_avro('{file}')"
        self._duck.execute(f"CREATE TABLE lake.main.{table} AS FROM {rows}")

    def _ingest(self, file: Path, table: str) -> None:
        assert self._spark is not None
        kind = SPARK_KINDS[file.suffix[1:]]
        source = parse_source([str(file)], kind, (), None if kind == "parquet" else SPARK_SCHEMA)
        request = IngestRequest(source, build_load_request(Table(("main",), table)))
        ingest(self._spark, self._client, request, SILENT)


def read_peak(pid: int) -> int:
    """Read the most bytes that a process has had resident: wait4 would count those of this one, which forked it."""
    with suppress(OSError):
        found = PEAK.search(Path(f"/proc/{pid}/status").read_text())
        return 1024 * int(found[1]) if found else 0
    return 0


@contextmanager
def spark_if(connection: Connection, *, is_wanted: bool) -> Iterator[SparkSession | None]:
    if not is_wanted:
        yield None
        return
    with open_spark_session(connection, conf={"spark.driver.memory": "3g"}) as spark:
        yield spark


if __name__ == "__main__":
    main()
