"""A served lake for loads of files, DuckDB beside it, and a folder for files."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psycopg
import pytest

from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import RunningLake, running_lake
from tests.engines.conftest import new_folder
from tests.support.commands import invoke

_numbers = count(1)
Content = str | bytes


@dataclass
class Loads:
    """A served lake, DuckDB beside it, and a folder for files."""

    lake: RunningLake
    duck: duckdb.DuckDBPyConnection
    folder: Path

    def file(self, name: str, content: Content) -> str:
        path = self.new_folder() / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def new_folder(self) -> Path:
        path = self.folder / str(next(_numbers))
        path.mkdir()
        return path

    def run(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Load, and return the summary or the error."""
        given = () if "--uri" in arguments else ("--uri", self.lake.uri)
        ran = invoke("load", *arguments, *given, "--json")
        assert ran.exit_code == code, ran.output
        found: dict[str, Any] = json.loads(ran.stdout if code == 0 else ran.stderr.splitlines()[-1])
        return found if code == 0 else found["error"]

    def watch(self, location: object, table: str, *options: str, code: int = 0) -> list[dict[str, Any]]:
        """Watch until all is loaded; return the events, the summary last, or the error."""
        fixed = ("--yes", "--until-idle", "--every", "0.1", "--still", "0", "--json", "--uri", self.lake.uri)
        ran = invoke("watch", str(location), "--table", table, *fixed, *options)
        assert ran.exit_code == code, ran.output
        return [json.loads(line) for line in (ran.stdout if code == 0 else ran.stderr).splitlines()]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.duck.execute(query).fetchall()

    def has(self, table: str) -> bool:
        namespace, name = table.split(".")
        found = self.rows(
            "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'lake' "
            f"AND schema_name = '{namespace}' AND table_name = '{name}'"
        )
        return bool(found[0][0])

    def list_files(self, table: str) -> set[str]:
        """Return the data files of a table."""
        namespace, name = table.split(".")
        found = self.rows(f"SELECT data_file FROM ducklake_list_files('lake', '{name}', schema => '{namespace}')")
        return {path for (path,) in found}

    def commit(self, namespace: str, name: str, updates: Sequence[dict[str, Any]]) -> None:
        """Commit updates of a table as an Iceberg client."""
        address = f"{self.lake.uri}/v1/namespaces/{namespace}/tables/{name}"
        answer = httpx.post(address, json={"requirements": [], "updates": list(updates)})
        assert answer.status_code == 200, answer.text

    def postgres(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect to the lake's Postgres."""
        return psycopg.connect(self.lake.ducklake_attach.removeprefix("ducklake:postgres:"), autocommit=True)

    def expire_leases(self) -> None:
        """Let the leases of killed loaders run out."""
        with self.postgres() as connection:
            for table in ("duckicelake_file_batch", "duckicelake_job"):
                connection.execute(f"UPDATE {table} SET lease_until = clock_timestamp() - interval '1 minute'")


@pytest.fixture(scope="package")
def loads() -> Iterator[Loads]:
    with new_folder() as folder, running_lake(folder / "lake", folder / "lake.log") as lake, duckdb_lake(lake) as duck:
        (folder / "files").mkdir()
        yield Loads(lake, duck, folder / "files")


@pytest.fixture
def table() -> str:
    return f"loads.t{next(_numbers)}"
