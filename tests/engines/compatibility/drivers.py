"""Each engine with what docs/clients.md gives it, and a function that runs its statements."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
from duckdb_extensions import import_extension
from pyiceberg.catalog import Catalog

from scripts.backends_job.minio import Minio
from scripts.demo_job.backend import SECRET
from scripts.demo_job.connect import pyiceberg_catalog
from scripts.demo_job.server import RunningLake
from scripts.engines_job.clickhouse import running_clickhouse
from scripts.engines_job.flink import running_flink
from scripts.engines_job.kafka_connect import running_kafka_connect
from scripts.engines_job.packages import EngineError, go_program, python_home, rust_program
from scripts.engines_job.python import running_python
from scripts.engines_job.spark import running_spark
from scripts.engines_job.trino import running_trino
from tests.engines.compatibility import acts, libraries
from tests.engines.compatibility.acts import Acts
from tests.engines.guarded import CREDENTIAL
from tests.support.documents import snippets
from tests.support.kafka import run_kafka, send_messages

Run = Callable[[str], Iterable[Iterable[Any]]]
"""Runs a statement, and returns its rows."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine runs. folder: for its files."""

    lake: RunningLake
    minio: Minio
    folder: Path

    def snippet(self, name: str) -> str:
        """Return a snippet of docs/clients.md with the addresses and the secret of this lake."""
        [found] = [each for each in snippets("docs/clients.md") if each.name == name]
        places = {"http://localhost:8181": self.lake.uri, "engines:secret": CREDENTIAL, "'secret'": f"'{SECRET}'"}
        return found.placed(places)


@dataclass(frozen=True, slots=True)
class Engine:
    """A row of the tables in docs/engines.md.

    table, view: what it calls them, of a namespace `{0}` and a name `{1}`.
    """

    name: str
    version: str
    acts: Acts
    run: Callable[[Place], AbstractContextManager[Run]]
    table: str = "lake.{0}.{1}"
    view: str = "lake.{0}.v_{1}"


@contextmanager
def _run_spark(version: str, place: Place) -> Iterator[Run]:
    properties = dict(line.split("=", 1) for line in place.snippet("spark_login").splitlines())
    prefix = "spark.sql.catalog.lake."
    given = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    with running_spark(version, place.folder, {"lake": given}) as spark:
        yield spark.rows


@contextmanager
def _run_trino(place: Place) -> Iterator[Run]:
    store = f"s3.endpoint={place.minio.endpoint}\ns3.path-style-access=true\n"
    with running_trino(place.folder, f"{place.snippet('trino')}{store}") as trino:
        yield trino.rows


@contextmanager
def _run_flink(place: Place) -> Iterator[Run]:
    store = f"'s3.endpoint' = '{place.minio.endpoint}', 's3.path-style-access' = 'true', 'type' = "
    with running_flink(place.folder) as flink:
        flink.rows(place.snippet("flink").replace("'type' = ", store, 1))

        def run(statement: str) -> list[list[Any]]:
            return [_parse_flink(row) for row in flink.rows(statement)]

        yield run


def _parse_flink(row: str) -> list[Any]:
    values = row.removeprefix("+I[").removesuffix("]").split(", ")
    return [int(value) if value.isdigit() else value for value in values]


_MESSAGE: Final = {
    "type": "struct",
    "fields": [
        {"field": "id", "type": "int64", "optional": True},
        {"field": "name", "type": "string", "optional": True},
    ],
}
"""Gives the columns their order: without it a table that the sink makes has them in any."""


@contextmanager
def _run_kafka_connect(place: Place) -> Iterator[Run]:
    properties = dict(line.split("=", 1) for line in place.snippet("kafka_connect").splitlines())
    store = {"iceberg.catalog.s3.endpoint": place.minio.endpoint, "iceberg.catalog.s3.path-style-access": "true"}
    with (
        run_kafka(place.folder) as broker,
        running_kafka_connect(broker, place.folder) as worker,
        pyiceberg_catalog(place.lake) as catalog,
    ):

        def run(statement: str) -> list[list[Any]]:
            table, _, message = statement.partition(" ")
            record, _, wanted = message.partition("} ")
            topic = table.replace(".", "-")
            payload = json.loads(f"{record.removesuffix('}')}}}")
            send_messages(broker, topic, [json.dumps({"schema": _MESSAGE, "payload": payload}).encode()])
            named = {"topics": topic, "iceberg.tables": table, "value.converter.schemas.enable": "true"}
            name, _, value = wanted.partition("=")
            made = {f"iceberg.tables.auto-create-props.{name}": value} if name else {}
            worker.add(topic, {**properties, **store, **named, **made})
            worker.wait_for(topic, lambda: _has_position(catalog, table))
            return []

        yield run


def _has_position(catalog: Catalog, table: str) -> bool:
    """Return whether the sink has committed to the table."""
    snapshot = catalog.load_table(table).current_snapshot() if catalog.table_exists(table) else None
    summary = snapshot.summary if snapshot is not None else None
    return summary is not None and any(key.startswith("kafka.connect.") for key in summary.additional_properties)


@contextmanager
def _run_clickhouse(place: Place) -> Iterator[Run]:
    with running_clickhouse(place.folder) as clickhouse:
        clickhouse.rows(place.snippet("clickhouse"))
        clickhouse.rows("SET allow_insert_into_iceberg = 1")
        yield clickhouse.rows


@contextmanager
def _run_duckdb(place: Place) -> Iterator[Run]:
    for extension in ("iceberg", "avro", "httpfs"):
        import_extension(extension)
    with duckdb.connect() as connection:
        connection.execute(place.snippet("duckdb_iceberg"))

        def run(statement: str) -> list[tuple[Any, ...]]:
            try:
                return connection.execute(statement).fetchall()
            except duckdb.Error as error:
                if statement not in {"BEGIN", "COMMIT"}:
                    _roll_back(connection)
                raise EngineError(str(error)) from error

        yield run


def _roll_back(connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.execute("ROLLBACK")
    except duckdb.Error:  # there was no transaction
        return


@contextmanager
def _run_python(home: str | None, snippet: str, place: Place) -> Iterator[Run]:
    homes = [python_home(home)] if home else []
    with running_python("python_statements.py", place.folder, *homes) as python:
        for name in dict.fromkeys(("pyiceberg_login", snippet)):
            python.rows(place.snippet(name))
        yield python.rows


@contextmanager
def _run_program(program: Callable[[], Path], place: Place) -> Iterator[Run]:
    environment = {**os.environ, "RUST_BACKTRACE": "0", "CATALOG_URI": place.lake.uri, "CATALOG_CREDENTIAL": CREDENTIAL}

    def run(statement: str) -> list[list[Any]]:
        done = subprocess.run(
            [str(program()), *statement.split()], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise EngineError(done.stderr[-2000:])
        found = [json.loads(line) for line in done.stdout.splitlines()]
        return sorted(row if isinstance(row, list) else _pick(row) for row in found)

    yield run


def _pick(row: dict[str, Any]) -> list[Any]:
    """Return what an ability asks for of a row as iceberg-go prints it."""
    if "v" in row:
        return [row["v"]["a"]]
    return [row[key] for key in (("id", "_row_id") if "_row_id" in row else ("id", "name"))]


def _pinned(file: str, pattern: str) -> str:
    """Return a version that a file of scripts/engines_job, or the lock, names."""
    path = Path(__file__).parents[3] / file
    found = re.search(pattern, path.read_text())
    assert found, f"{file} has no {pattern}"
    return found[1]


_JOB: Final = "scripts/engines_job"


def _describe_maven(file: str) -> str:
    name = file.partition("-")[0].removesuffix(".xml")
    return f"{_pinned(f'{_JOB}/{file}', f'<{name}>(.*)</')}, Iceberg {_pinned(f'{_JOB}/{file}', '<iceberg>(.*)</')}"


def _spark(version: str, found: Acts) -> Engine:
    described = _describe_maven(f"spark-{version}.xml")
    return Engine(f"Spark {version}", described, found, lambda place: _run_spark(version, place))


def _python(name: str, version: str, found: Acts, home: str | None, snippet: str) -> Engine:
    return Engine(name, version, found, lambda place: _run_python(home, snippet, place), "{0}.{1}", "{0}.v_{1}")


def _program(name: str, version: str, found: Acts, program: Callable[[], Path]) -> Engine:
    return Engine(name, version, found, lambda place: _run_program(program, place), "{0} {1}", "{0} v_{1}")


ENGINES: Final[tuple[Engine, ...]] = (
    _spark("3.5", acts.SPARK_3),
    _spark("4.0", acts.SPARK_4),
    _spark("4.1", acts.SPARK_4),
    Engine("Trino", _pinned(f"{_JOB}/trino.xml", "<version>([0-9]{3})<"), acts.TRINO, _run_trino),
    Engine("Flink", _describe_maven("flink.xml"), acts.FLINK, _run_flink),
    Engine(
        "Kafka Connect",
        _describe_maven("kafka-connect.xml"),
        acts.KAFKA_CONNECT,
        _run_kafka_connect,
        "{0}.{1}",
        "{0}.v_{1}",
    ),
    Engine(
        "ClickHouse",
        _pinned(f"{_JOB}/requirements.lock", "chdb-core==(\\S+)"),
        acts.CLICKHOUSE,
        _run_clickhouse,
        "lake.`{0}.{1}`",
        "lake.`{0}.v_{1}`",
    ),
    Engine("DuckDB `iceberg`", duckdb.__version__, acts.DUCKDB_ICEBERG, _run_duckdb),
    _python("PyIceberg 0.11", "0.11.1", libraries.PYICEBERG, "pyiceberg-0.11", "pyiceberg_login"),
    _python("PyIceberg 0.12", "0.12.0", libraries.PYICEBERG, None, "pyiceberg_login"),
    _python("Polars", _pinned(f"{_JOB}/polars.lock", "polars==(\\S+)"), libraries.POLARS, "polars", "polars"),
    _python("Daft", _pinned(f"{_JOB}/daft.lock", "daft==(\\S+)"), libraries.DAFT, "daft", "daft"),
    _program("iceberg-go", _pinned(f"{_JOB}/go/go.mod", "iceberg-go v(\\S+)"), libraries.GO, go_program),
    _program("iceberg-rust", _pinned(f"{_JOB}/rust/Cargo.toml", 'iceberg = "=(.*)"'), libraries.RUST, rust_program),
)
