"""The table "What works" of docs/how-to/stores.md: each of its cells is tried on a served lake in that store."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from duckdb_extensions import import_extension
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.client.lake import Lake, connect
from duckicelake.client.table import Table
from duckicelake.errors import PipelineError
from duckicelake.storage.azure import AzureStore
from duckicelake.storage.gcs import GcsStore
from duckicelake.storage.protocol import ObjectStore
from duckicelake.storage.s3 import S3Store
from scripts.backends_job.azurite import Azurite
from scripts.backends_job.fake_gcs import FakeGcs
from scripts.backends_job.minio import Minio
from scripts.demo_job.server import PROGRAM, RunningLake, own_environment, running_lake
from tests.engines.conftest import new_folder
from tests.other_catalogs.test_parquet_copy import SourceTable
from tests.support.backends import NUMBERS, make_bucket
from tests.support.commands import invoke
from tests.support.stores import AzureContainer, GcsBucket, make_key_file, running_token_service
from tests.support.waits import wait_until

pytestmark = [pytest.mark.stores, pytest.mark.timeout(300)]
PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "stores.md"
STORES: Final = ("S3", "Google", "Azure")
_names = (f"t{number}" for number in count(1))


@dataclass(frozen=True, slots=True)
class StoreLake:
    """A served lake in a bucket. files: the bucket as the server reaches it. secret: of DuckDB; none: it can't read."""

    running: RunningLake
    lake: Lake
    catalog: RestCatalog
    files: ObjectStore
    settings: Mapping[str, str]
    folder: Path
    secret: str

    def make(self, *, files: int = 1) -> tuple[Table, str]:
        """Make a table whose files the server writes, each of two rows."""
        name = f"ns.{next(_names)}"
        table = self.lake.create_table(name, "id long, name string")
        for number in range(files):
            table.append([{"id": 2 * number, "name": "a"}, {"id": 2 * number + 1, "name": "b"}])
            table.flush()
            table.load()  # which makes the snapshot
        return table, name

    def find_path(self, name: str, *segments: str) -> str:
        """Return the path of a table's route."""
        return self.lake.client.iceberg("namespaces", "ns", "tables", name.removeprefix("ns."), *segments)

    def read(self, name: str) -> list[int]:
        """Return the ids of a table as PyIceberg reads its files."""
        found: list[int] = self.catalog.load_table(name).scan().to_arrow()["id"].to_pylist()
        return sorted(found)

    def command(self, *arguments: str) -> str:
        """Run a command against the server. Raises PipelineError with what it says."""
        ran = invoke(*arguments, "--uri", self.running.uri)
        if ran.exit_code:
            raise PipelineError(ran.output)
        return ran.stdout

    def command_of_operator(self, *arguments: str) -> str:
        """Run a command on the lake itself, with the server's settings. Raises PipelineError with what it says."""
        command = [PROGRAM, *arguments, "--lake", str(self.running.folder)]
        ran = subprocess.run(command, env=own_environment(self.settings), capture_output=True, text=True, check=False)
        if ran.returncode:
            raise PipelineError(ran.stderr)
        return ran.stdout

    @contextmanager
    def duckdb(self) -> Iterator[duckdb.DuckDBPyConnection]:
        for extension in ("ducklake", "postgres_scanner", "httpfs"):
            import_extension(extension)
        with duckdb.connect() as connection:
            connection.execute("LOAD httpfs")
            connection.execute(self.secret)
            yield connection.execute(f"ATTACH '{self.running.ducklake_attach}' AS lake")


@dataclass(frozen=True, slots=True)
class _Place:
    uri: str
    files: ObjectStore
    settings: Mapping[str, str]
    secret: str = ""


@contextmanager
def open_s3(request: pytest.FixtureRequest, folder: Path) -> Iterator[_Place]:
    minio: Minio = request.getfixturevalue("minio")
    bucket = make_bucket(minio)
    settings = {
        "DUCKICELAKE_S3_ENDPOINT": minio.endpoint,
        "DUCKICELAKE_S3_STS_ENDPOINT": minio.endpoint,
        "DUCKICELAKE_S3_VENDING": "sts",
        "DUCKICELAKE_S3_REGION": minio.region,
        "DUCKICELAKE_S3_PATH_STYLE": "true",
        "DUCKICELAKE_S3_ACCESS_KEY_ID": minio.access_key,
        "DUCKICELAKE_S3_SECRET_ACCESS_KEY": minio.secret_key,
    }
    host = minio.endpoint.removeprefix("http://")
    secret = (
        f"CREATE SECRET (TYPE s3, KEY_ID '{minio.access_key}', SECRET '{minio.secret_key}', REGION '{minio.region}', "
        f"ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
    )
    yield _Place(bucket.uri, S3Store(bucket.uri, bucket.options()), settings, secret)


@contextmanager
def open_google(request: pytest.FixtureRequest, folder: Path) -> Iterator[_Place]:
    fake: FakeGcs = request.getfixturevalue("fake_gcs")
    name = f"bucket-{next(NUMBERS)}"
    fake.create_bucket(name)
    (folder / "key.json").write_text(make_key_file())
    with running_token_service() as tokens:
        bucket = GcsBucket(name, fake, tokens)
        settings = {
            "DUCKICELAKE_GCS_ENDPOINT": fake.endpoint,
            "DUCKICELAKE_GCS_STS_ENDPOINT": tokens.endpoint,
            "DUCKICELAKE_GCS_KEY_FILE": str(folder / "key.json"),
        }
        host = fake.endpoint.removeprefix("http://")
        secret = f"CREATE SECRET (TYPE gcs, BEARER_TOKEN 'any', ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
        yield _Place(bucket.uri, GcsStore(bucket.uri, bucket.options(), now_ms), settings, secret)


@contextmanager
def open_azure(request: pytest.FixtureRequest, folder: Path) -> Iterator[_Place]:
    azurite: Azurite = request.getfixturevalue("azurite")
    name = f"container-{next(NUMBERS)}"
    azurite.create_container(name)
    container = AzureContainer(name, azurite)
    settings = {
        "DUCKICELAKE_AZURE_ENDPOINT": azurite.endpoint,
        "DUCKICELAKE_AZURE_ACCOUNT_KEY": azurite.key,
        "DUCKICELAKE_AZURE_VENDING": "container",
    }
    yield _Place(container.uri, AzureStore(container.uri, container.options(), now_ms), settings)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


OPENERS: Final[Mapping[str, Callable[[pytest.FixtureRequest, Path], AbstractContextManager[_Place]]]] = {
    "S3": open_s3,
    "Google": open_google,
    "Azure": open_azure,
}


@pytest.fixture(scope="module", params=STORES)
def stored(request: pytest.FixtureRequest) -> Iterator[tuple[str, StoreLake]]:
    store: str = request.param
    if store == "Azure":
        pytest.importorskip("adlfs", reason="PyIceberg reads Azure by adlfs")
    with new_folder() as folder, ExitStack() as stack:
        place = stack.enter_context(OPENERS[store](request, folder))
        warehouse = {
            "DUCKICELAKE_WAREHOUSE": f"{place.uri}/lake",
            "DUCKICELAKE_ALLOWED_LOCATIONS": f"{place.uri}/theirs",
        }
        settings = {**place.settings, **warehouse, "DUCKICELAKE_UPKEEP_WORKERS": "1"}
        running = stack.enter_context(running_lake(folder / "lake", folder / "log", settings))
        lake = stack.enter_context(connect(running.uri))
        lake.create_namespace("ns")
        catalog = stack.enter_context(RestCatalog("lake", uri=running.uri))
        yield store, StoreLake(running, lake, catalog, place.files, settings, folder, place.secret)


def change_tables(on: StoreLake) -> None:
    table, name = on.make(files=2)
    table.set_ref("audit", "branch", table.resolve_snapshot())
    table.append([{"id": 9, "name": "z"}], branch="audit")
    version = {
        "version-id": 1,
        "timestamp-ms": now_ms(),
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["ns"],
        "representations": [{"type": "sql", "sql": f"SELECT id FROM {name}", "dialect": "duckdb"}],
    }
    schema = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
    body = {"name": f"{name.removeprefix('ns.')}_view", "schema": schema, "view-version": version, "properties": {}}
    on.lake.client.change("POST", on.lake.client.iceberg("namespaces", "ns", "views"), body)
    table.expire(datetime.now(UTC) + timedelta(days=1))
    assert on.read(name) == [0, 1, 2, 3]


def make_view(on: StoreLake) -> None:
    _, name = on.make()
    on.lake.create_view(f"{name}_view", f"SELECT id FROM {name}")
    assert [column.name for column in on.lake.view(f"{name}_view").load().columns] == ["id"]


def write_by_pyiceberg(on: StoreLake) -> None:
    name = f"ns.{next(_names)}"
    rows = pa.table({"id": pa.array(range(100), pa.int64())})
    on.catalog.create_table(name, rows.schema).append(rows)
    on.catalog.load_table(name).delete("id < 50")
    assert on.read(name) == list(range(50, 100))


def write_by_duckdb(on: StoreLake) -> None:
    name = f"ns.{next(_names)}"
    with on.duckdb() as duck:
        duck.execute(f"CREATE TABLE lake.{name} AS SELECT range AS id FROM range(5000)")
        duck.execute(f"DELETE FROM lake.{name} WHERE id >= 3")
        assert on.read(name) == [0, 1, 2]
        on.catalog.load_table(name).append(pa.table({"id": pa.array([7], pa.int64())}))
        assert duck.execute(f"SELECT id FROM lake.{name} ORDER BY id").fetchall() == [(0,), (1,), (2,), (7,)]


def give_keys(on: StoreLake) -> None:
    _, name = on.make()
    given = on.lake.client.get(on.find_path(name, "credentials"))["storage-credentials"]
    assert name.removeprefix("ns.") in given[0]["prefix"]
    assert any("token" in key for key in given[0]["config"])


def flush_rows(on: StoreLake) -> None:
    table, name = on.make(files=0)
    table.append([{"id": 5, "name": "x"}])
    assert table.flush().files == 1
    assert on.read(name) == [5]


def run_query(on: StoreLake) -> None:
    _, name = on.make()
    assert on.lake.sql(f"SELECT sum(id)::BIGINT AS s FROM {name}").to_arrow()["s"].to_pylist() == [1]


def save_result(on: StoreLake) -> None:
    _, name = on.make()
    on.lake.save_sql(f"SELECT id * 10 AS id FROM {name}", f"{name}_saved")
    assert on.read(f"{name}_saved") == [0, 10]


def read_changes(on: StoreLake) -> None:
    _, name = on.make()
    lines = on.command("changes", name, "--from", "0").splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == [0, 1]


def refresh_view(on: StoreLake) -> None:
    table, name = on.make()
    on.command("materialized-view", "create", f"{name}_sums", f"SELECT sum(id)::BIGINT AS id FROM {name}")
    table.append([{"id": 40, "name": "x"}])
    on.command("materialized-view", "refresh", f"{name}_sums")
    assert on.read(f"{name}_sums") == [41]


def filter_rows(on: StoreLake) -> None:
    _, name = on.make()
    body = {"name": name, "table": {"namespace": ["ns"], "name": name.removeprefix("ns.")}, "condition": "id > 0"}
    on.lake.client.change("POST", "/management/v1/policies", body)
    assert on.lake.sql(f"FROM {name}").to_arrow()["id"].to_pylist() == [1]
    with pytest.raises(PipelineError):
        on.lake.client.get(on.find_path(name, "credentials"))


def load_files(on: StoreLake) -> None:
    name = f"ns.{next(_names)}"
    file = on.folder / "rows.csv"
    file.write_text("id,name\n1,a\n2,b\n")
    on.command("load", str(file), "--table", name, "--yes")
    file.write_text("id,name\n2,c\n3,d\n")
    on.command("load", str(file), "--table", name, "--mode", "merge", "--key", "id", "--yes")
    assert on.read(name) == [1, 2, 3]


def watch_folder(on: StoreLake) -> None:
    name, folder = f"ns.{next(_names)}", on.folder / "incoming"
    folder.mkdir(exist_ok=True)
    (folder / "rows.csv").write_text("id,name\n1,a\n2,b\n")
    on.command("watch", str(folder), "--table", name, "--yes", "--until-idle", "--every", "0.1", "--still", "0")
    assert on.read(name) == [1, 2]


def run_upkeep(on: StoreLake, name: str, kind: str) -> Mapping[str, Any]:
    """Ask for a task and wait until a worker ended it. Raises PipelineError with what it says of one that failed."""
    client, given = on.lake.client, {"namespace": "ns", "table": name.removeprefix("ns.")}
    path = client.own("pipeline", "namespaces", "ns", "tables", given["table"], "upkeep")
    client.change("POST", path, {"kinds": [kind]})

    def find() -> Mapping[str, Any]:
        task: Mapping[str, Any] = client.get(client.own("pipeline", "upkeep"), given)["tasks"][0]
        return task

    wait_until(lambda: find()["state"] not in {"queued", "running"})
    task = find()
    if task["state"] not in {"done", "unchanged"}:
        raise PipelineError(str(task))
    return task


def keep_table(on: StoreLake) -> None:
    table, name = on.make(files=2)
    table.append([{"id": 9, "name": "z"}])
    due = {"maintenance.flush.min-rows": "1", "history.expire.max-snapshot-age-ms": "1"}
    table.update_properties(due | {"history.expire.min-snapshots-to-keep": "1"})
    for kind in ("flush", "expire", "remove-orphans"):
        run_upkeep(on, name, kind)
    assert on.read(name) == [0, 1, 2, 3, 9]


def compact_table(on: StoreLake) -> None:
    table, name = on.make(files=6)
    run_upkeep(on, name, "compact")
    assert len(list(table.files())) == 1
    assert on.read(name) == list(range(12))


def list_orphans(on: StoreLake) -> None:
    """A file that no table needs is none to delete for an hour; tests/server/test_stores.py moves the clock."""
    table, name = on.make()
    on.files.write(f"{table.load().metadata['location']}/data/orphan.parquet", b"left")
    found = on.lake.orphans(datetime.now(UTC) - timedelta(hours=2))
    assert (found.files, found.unlisted, found.doubt) == ((), 0, None)
    on.command("gc", "--older-than", "2h", "--delete")
    assert on.read(name) == [0, 1]


def restore_table(on: StoreLake) -> None:
    table, name = on.make(files=2)
    first = table.load().snapshots[0].snapshot_id
    table.clone(f"{name}_clone")
    table.restore(str(first))
    assert on.read(name) == [0, 1]
    assert on.read(f"{name}_clone") == [0, 1, 2, 3]


def undrop_table(on: StoreLake) -> None:
    table, name = on.make()
    table.drop()
    on.command("undrop", name)
    assert on.read(name) == [0, 1]


def register_again(on: StoreLake) -> None:
    table, name = on.make()
    on.lake.register_table(name, table.unregister())
    assert on.read(name) == [0, 1]


def export_delta(on: StoreLake) -> None:
    table, name = on.make()
    table.update_properties({"delta.enabled": "true"})
    on.command_of_operator("delta", "export", name)
    assert on.files.exists(f"{table.load().metadata['location']}/_delta_log/{0:020}.json")


def import_delta(on: StoreLake) -> None:
    name, local = f"ns.{next(_names)}", on.folder / "delta"
    root = on.settings["DUCKICELAKE_ALLOWED_LOCATIONS"]
    write_deltalake(local, pa.table({"id": pa.array([1, 2, 3], pa.int64())}), mode="overwrite")
    for path in local.rglob("*"):
        if path.is_file():
            on.files.write(f"{root}/delta/{path.relative_to(local)}", path.read_bytes())
    on.command_of_operator("delta", "import", f"{root}/delta", "--table", name)
    assert on.read(name) == [1, 2, 3]


def copy_orc(on: StoreLake) -> None:
    name = f"ns.{next(_names)}"
    mapping = json.dumps([{"field-id": 1, "names": ["id"]}])
    columns = [{"id": 1, "name": "id", "required": False, "type": "long"}]
    source = SourceTable(on.folder, columns, properties={"schema.name-mapping.default": mapping})
    source.add_orc(pa.table({"id": pa.array([4, 5], pa.int64())}))
    source.commit()
    metadata = max((source.folder / "metadata").glob("*.metadata.json"))
    on.command("register", name, str(metadata), "--rewrite")
    assert on.read(name) == [4, 5]


FEATURES: Final[Mapping[str, Callable[[StoreLake], None]]] = {
    "tables, views, commits, branches, expiry": change_tables,
    "PyIceberg": write_by_pyiceberg,
    "DuckDB's `ducklake` extension": write_by_duckdb,
    "keys for clients": give_keys,
    "posted rows and their flush": flush_rows,
    "views of SQL alone: client, shell, console": make_view,
    "[queries](../queries.md)": run_query,
    "[saved results](../queries.md#save-a-result)": save_result,
    "[row changes](../row-changes.md)": read_changes,
    "[materialized views](../materialized-views.md)": refresh_view,
    "[policies](../governance.md#policies)": filter_rows,
    "[`load`](../load.md)": load_files,
    "[`watch`](../load.md#watch-a-folder)": watch_folder,
    "[upkeep](../upkeep.md): flush, expiry, orphans": keep_table,
    "upkeep: compaction, sorting, delete files": compact_table,
    "`gc`": list_orphans,
    "`restore`, `clone`": restore_table,
    "`undrop`": undrop_table,
    "`register`, `unregister`": register_again,
    "[Delta](../delta.md): export": export_delta,
    "Delta: import": import_delta,
    "[`register --rewrite`, `migrate-catalog --rewrite`](migrate.md#tables-in-orc-and-avro)": copy_orc,
}
NO_QUERIES: Final = "Queries read folders, S3 and Google Cloud Storage, and files of this lake are in abfss://"
REFUSALS: Final[Mapping[str, str]] = {
    "[policies](../governance.md#policies)": "all in S3 or in Google Cloud Storage",
}
"""What the refusal of a feature says where it isn't NO_QUERIES."""


def parse_table() -> Mapping[str, Mapping[str, str]]:
    """Return the cells of the page's table, by feature and store."""
    section = PAGE.read_text().partition("\n## What works\n\n")[2]
    lines = takewhile(lambda line: line.startswith("|"), section.splitlines())
    heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(heads[1:], row[1:], strict=True)) for row in rows}


def test_the_table_has_the_features_that_are_tried() -> None:
    table = parse_table()
    assert list(table) == list(FEATURES)
    assert {head for row in table.values() for head in row} == {"folder", *STORES}
    cells = {cell.partition(":")[0] for row in table.values() for store, cell in row.items() if store != "folder"}
    assert cells <= {"yes", "with STS", "with adlfs", "refused", "untested"}


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_works_in_a_store_or_is_refused_by_name(stored: tuple[str, StoreLake], feature: str) -> None:
    store, lake = stored
    match parse_table()[feature][store].partition(":")[0]:
        case "untested":
            pytest.skip("the page says why")
        case "refused":
            with pytest.raises(PipelineError, match=REFUSALS.get(feature, NO_QUERIES)):
                FEATURES[feature](lake)
        case _:
            FEATURES[feature](lake)
