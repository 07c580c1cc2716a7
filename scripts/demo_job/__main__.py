"""python -m scripts.demo_job: start a lake, run the main job on it, say what held."""

import argparse
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from rich.console import Console

from scripts.backends_job.stack import running_backends
from scripts.demo_job import curl_job, duckdb_job, identity, pyiceberg_job, spark_job
from scripts.demo_job.backend import EMBEDDED, Backend, on_servers
from scripts.demo_job.checks import Checks
from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog, spark_session
from scripts.demo_job.dataset import unpack
from scripts.demo_job.model import Model
from scripts.demo_job.server import RunningLake, running_lake

WIDTH = 160


def main() -> int:
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    checks = Checks(Console(width=None if sys.stdout.isatty() else WIDTH))
    try:
        run(options, checks)
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001
        if interrupted(error):
            checks.console.print("[red]interrupted[/]: everything that the demo started is stopped")
            return 130
        checks.console.print_exception(max_frames=4)
        checks.equal(
            "the job runs to its end", "no error", f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        )
    return 0 if checks.report() else 1


def interrupted(error: BaseException | None) -> bool:
    """Ctrl-C, or what stopping Spark raised after it."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or interrupted(error.__context__))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description="Run the main job on a fresh lake.")
    parser.add_argument("--snapshot-ids", dest="mode", choices=("client", "ducklake"), default="client")
    parser.add_argument("--lake", type=Path, metavar="DIR", help="the folder of the new lake; it is kept")
    parser.add_argument("--backend", choices=("embedded", "s3"), default="embedded", help="s3: Postgres and MinIO")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder and say where it is")
    options = parser.parse_args(arguments)
    if options.lake and options.lake.exists() and any(options.lake.iterdir()):
        parser.error(f"{options.lake} is not empty; name a new folder")
    return options


def run(options: argparse.Namespace, checks: Checks) -> None:
    scratch = Path(mkdtemp(prefix="duckicelake-demo-"))
    folder = options.lake.absolute() if options.lake else scratch / "lake"
    settings = {"DUCKICELAKE_SNAPSHOT_IDS": options.mode}
    try:
        with (
            chosen_backend(options.backend, folder, scratch) as backend,
            running_lake(folder, scratch / "server.log", settings, backend) as lake,
        ):
            introduce(lake, options.mode, checks)
            tell(lake, scratch, options.mode, checks)
    finally:
        if not options.keep:
            shutil.rmtree(scratch)
    if options.lake or options.keep:
        first = f'eval "$(scripts/backends up --folder {folder}/backends)" && ' if options.backend == "s3" else ""
        checks.console.print(f"\nThe lake is kept: {first}scripts/serve --lake {folder}", markup=False, highlight=False)


@contextmanager
def chosen_backend(name: str, folder: Path, scratch: Path) -> Iterator[Backend]:
    if name == "embedded":
        yield EMBEDDED
        return
    scratch.chmod(0o711)  # as root, Postgres runs as another user, who must get through
    with running_backends(folder / "backends") as backends:
        yield on_servers(backends)


def introduce(lake: RunningLake, mode: str, checks: Checks) -> None:
    lines = (f"The lake:     {lake.folder}", f"Iceberg REST: {lake.uri} (snapshot ids: {mode})")
    for line in (*lines, f"DuckDB:       ATTACH '{lake.ducklake_attach}' AS lake"):
        checks.console.print(line, markup=False, highlight=False, soft_wrap=True)


def tell(lake: RunningLake, scratch: Path, mode: str, checks: Checks) -> None:
    """The story, chapter by chapter. Every chapter compares what the engines read with what `model` expects."""
    with ExitStack() as stack:
        with checks.section("Unpack the flights of 2013 and start the engines"):
            data = unpack(scratch / "csv")
            model = Model(data)
            spark = stack.enter_context(spark_session(lake))
            signal.signal(
                signal.SIGINT, signal.default_int_handler
            )  # Spark's own one trips over the call it interrupts
            catalog = stack.enter_context(pyiceberg_catalog(lake))
            duck = stack.enter_context(duckdb_lake(lake))
        with checks.section("Spark creates five tables and loads them, flights month by month"):
            spark_job.load(spark, data, model, checks)
        with checks.section("Spark joins and aggregates"):
            spark_job.ask(spark, model, checks)
        with checks.section("Spark changes rows and columns: DELETE, UPDATE, ADD COLUMN, MERGE"):
            spark_job.change(spark, model, checks)
        with checks.section("Spark looks back, and into the metadata tables"):
            spark_job.look_back(spark, model, checks)
            spark_job.read_metadata_tables(spark, model, checks)
        duck.execute(f"USE lake.{spark_job.NAMESPACE}")
        readers: duckdb_job.Readers = {
            "Spark": partial(spark_job.table, spark),
            "PyIceberg": partial(pyiceberg_job.table, catalog),
            "DuckDB": lambda table: duck.table(table).to_arrow_table(),
        }
        with checks.section("DuckDB attaches the same lake and asks the same questions"):
            duckdb_job.ask(duck, model, checks)
        with checks.section("DuckDB writes; Spark and PyIceberg see exactly that"):
            duckdb_job.change(duck, readers, model, checks)
        with checks.section("PyIceberg scans with a filter and appends"):
            pyiceberg_job.scan(catalog, model, checks)
            pyiceberg_job.append(catalog, readers, model, checks)
        with checks.section("curl looks at the server"):
            curl_job.show(lake, catalog, checks)
        with checks.section("Both sides agree on which snapshot is which"):
            identity.check(duck, catalog, mode, checks)


if __name__ == "__main__":
    sys.exit(main())
