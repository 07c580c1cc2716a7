"""The server's use cases in this process, with its memory settings, on a lake of its own, and DuckDB beside them."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import duckdb
from duckdb_extensions import import_extension

from duckicelake.catalog.context.services import Services
from duckicelake.cli.serve import process
from duckicelake.lake.ducklake.database import build_duckdb_attach, open_lake_database
from duckicelake.lake.setup.format import prepare_catalog
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.storage.local import LocalStore
from duckicelake.storage.policy import LocationPolicy


@dataclass(frozen=True, slots=True)
class Embedded:
    services: Services
    url: str

    @contextmanager
    def duckdb(self, *, inlining: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """DuckDB with the lake attached; small inserts and deletes are inlined, as by default, or not."""
        import_extension("ducklake")
        import_extension("postgres_scanner")
        with duckdb.connect(config={"threads": 1}) as connection:
            connection.execute("LOAD ducklake; LOAD postgres_scanner")
            connection.execute(build_duckdb_attach(self.url))
            if not inlining:
                connection.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
            yield connection.execute("USE lake")


def bench_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes with the block."""
    return tempfile.TemporaryDirectory(prefix="duckicelake-bench-")


@contextmanager
def embedded_lake(within: str | None = None) -> Iterator[Embedded]:
    """A lake that goes with the block, or stays in the folder if one is given.

    Where thousands of files have been deleted, ext4 takes up to 20 times as long to create one, for minutes.
    """
    kept = tempfile.mkdtemp(dir=within) if within else None
    with nullcontext(kept) if kept else bench_folder() as folder, EmbeddedPostgres(Path(folder)) as postgres:
        database, policy = open_lake_database(postgres.url), LocationPolicy(f"{folder}/warehouse")
        prepare_catalog(database, policy.data_path)
        process.freeze_memory()
        store = LocalStore(Path(policy.warehouse))
        yield Embedded(Services(database, store, policy, "client", lambda: time.time_ns() // 1_000_000), postgres.url)
        database.close()
