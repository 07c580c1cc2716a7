"""Tables come from other products' catalogs: Iceberg's own server, Nessie, a Hive Metastore, moto as AWS Glue."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from scripts.backends_job.minio import Minio, create_bucket
from scripts.backends_job.servers import HOST
from scripts.bench_job.servers import running_java
from scripts.demo_job.connect import duckdb_lake, pyiceberg_catalog
from scripts.demo_job.server import PROGRAM, RunningLake, running_lake
from scripts.engines_job.catalogs import GlueServer, HiveServer, NessieServer, running_catalog
from scripts.engines_job.packages import catalogs_home
from scripts.rck_job.kit import is_there
from tests.engines.conftest import new_folder
from tests.support.commands import invoke
from tests.support.waits import wait_until

pytestmark = [pytest.mark.more_engines, pytest.mark.timeout(600)]
ROWS = pa.table({"id": pa.array(range(10), pa.int64()), "region": ["eu", "us"] * 5})


@dataclass(frozen=True)
class Migration:
    """A lake, and the catalog whose tables it may register."""

    lake: RunningLake
    kind: str
    options: Mapping[str, str]

    def run(self, *arguments: str, code: int = 0, **other: str) -> dict[str, tuple[str, str]]:
        """Return the state and the detail of each object by its name."""
        pairs = [f"--option={key}={value}" for key, value in {**self.options, **other}.items()]
        ran = invoke("migrate-catalog", "--from", self.kind, *pairs, "--uri", self.lake.uri, "--json", *arguments)
        assert ran.exit_code == code, ran.output
        return {line["name"]: (line["state"], line["detail"]) for line in map(json.loads, ran.stdout.splitlines())}


def fill(catalog: Catalog, name: str, **where: str) -> Table:
    table = catalog.create_table(name, ROWS.schema, **where)
    table.append(ROWS)
    table.delete("id < 3")
    return table


@dataclass(frozen=True)
class Nessie(Migration):
    keys: Mapping[str, str]
    uri: str

    def at(self, ref: str) -> RestCatalog:
        uri = f"{self.uri}/iceberg/{ref.replace('/', '%2F')}"
        return RestCatalog("nessie", uri=uri, **{**self.keys, "s3.remote-signing-enabled": "false"})

    def branch(self, name: str) -> None:
        with urlopen(f"{self.uri}/api/v2/trees/main") as answer:
            head = json.loads(answer.read())["reference"]
        body, kind = json.dumps(head).encode(), {"Content-Type": "application/json"}
        with urlopen(Request(f"{self.uri}/api/v2/trees?name={name}&type=BRANCH", body, kind)) as answer:
            answer.read()


@pytest.fixture(scope="module")
def nessie(minio: Minio) -> Iterator[Nessie]:
    bucket = f"nessie-{uuid4().hex[:12]}"
    create_bucket(minio, bucket)
    settings = {
        "DUCKICELAKE_WAREHOUSE": f"s3://{bucket}/lake",
        "DUCKICELAKE_ALLOWED_LOCATIONS": f"s3://{bucket}/nessie",
        "DUCKICELAKE_S3_ENDPOINT": minio.endpoint,
        "DUCKICELAKE_S3_REGION": minio.region,
        "DUCKICELAKE_S3_PATH_STYLE": "true",
        "DUCKICELAKE_S3_ACCESS_KEY_ID": minio.access_key,
        "DUCKICELAKE_S3_SECRET_ACCESS_KEY": minio.secret_key,
    }
    keys = {
        "s3.endpoint": minio.endpoint,
        "s3.access-key-id": minio.access_key,
        "s3.secret-access-key": minio.secret_key,
        "s3.region": minio.region,
    }
    with new_folder() as folder, ExitStack() as stack:
        server = NessieServer(folder / "nessie", minio, f"s3://{bucket}/nessie")
        uri = f"http://{HOST}:{stack.enter_context(running_catalog(server))}"
        lake = stack.enter_context(running_lake(folder / "lake", folder / "log", settings))
        yield Nessie(lake, "nessie", {"uri": uri, **keys}, keys, uri)


def test_tables_and_views_of_nessie_come_with_what_a_branch_has(nessie: Nessie) -> None:
    catalog = nessie.at("main")
    catalog.create_namespace("sales", {"comment": "what they sold"})
    catalog.create_namespace(("sales", "eu"))
    fill(catalog, "sales.orders")
    fill(catalog, "sales.eu.stores")
    nessie.branch("try/out")
    only = ("--namespace", "sales")
    assert nessie.run(*only, "--dry-run")["sales.orders"][0] == "would create"
    assert nessie.run(*only, "--count-rows") == {
        "sales": ("created", ""),
        "sales.eu": ("created", ""),
        "sales.orders": ("created", "7 rows"),
        "sales.eu.stores": ("created", "7 rows"),
    }
    nessie.at("try/out").load_table("sales.orders").append(ROWS)
    assert nessie.run(*only)["sales.orders"] == ("there", "")
    of_branch = nessie.run(*only, code=1, ref="try/out")
    assert (of_branch["sales.orders"][0], of_branch["sales.eu.stores"][0]) == ("behind", "there")
    gone = invoke(
        "migrate-catalog", "--from", "nessie", f"--option=uri={nessie.uri}", "--option=ref=x", "--uri", nessie.lake.uri
    )
    assert (gone.exit_code == 0, "Named reference 'x' not found" in gone.output) == (False, True)


def test_what_nessie_gains_comes_though_it_forgets_older_snapshots(nessie: Nessie) -> None:
    catalog = nessie.at("main")
    catalog.create_namespace("later")
    fill(catalog, "later.orders")
    only, ours = ("--namespace", "later"), RestCatalog("lake", uri=nessie.lake.uri, **nessie.keys)
    nessie.run(*only)
    catalog.load_table("later.orders").append(ROWS)
    assert len(catalog.load_table("later.orders").snapshots()) == 1
    newer = "newer snapshots in the source: 1; --update brings them"
    assert nessie.run(*only, code=1)["later.orders"] == ("behind", newer)
    assert nessie.run(*only, "--update", "--count-rows")["later.orders"] == ("updated", "17 rows")
    ours.load_table("later.orders").append(ROWS)
    catalog.load_table("later.orders").append(ROWS)
    assert nessie.run(*only, "--update", code=1)["later.orders"][0] == "diverged"
    assert ours.load_table("later.orders").scan().count() == 27


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with new_folder() as path:
        yield path


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[RunningLake]:
    (folder / "theirs").mkdir()
    allowed = {"DUCKICELAKE_ALLOWED_LOCATIONS": str(folder / "theirs")}
    with running_lake(folder / "lake", folder / "log", allowed) as running:
        yield running


def test_tables_and_views_of_a_hive_metastore_come(
    lake: RunningLake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(catalogs_home()))
    with running_catalog(HiveServer(folder / "hive")) as port:
        uri = f"thrift://{HOST}:{port}"
        fill_hive(uri, folder)
        hive, whole = Migration(lake, "hive", {"uri": uri}), {f"sold.t{n}": ("created", "7 rows") for n in range(6)}
        only = ("--namespace", "sold")
        assert hive.run(*only, "--dry-run")["sold.t5"] == ("would create", "snapshots: 2, files: 2")
        assert hive.run(*only, "--count-rows", "--threads", "4") == {
            "sold": ("created", ""),
            **whole,
            "sold.seen": ("created", ""),
        }
        assert set(hive.run(*only).values()) == {("there", "")}
    ours = RestCatalog("lake", uri=lake.uri)
    assert ours.load_namespace_properties("sold")["comment"] == "what they sold"
    assert len(ours.load_table("sold.t0").snapshots()) == 2
    assert ours.view_exists("sold.seen")


def fill_hive(uri: str, folder: Path) -> None:
    """Make what Java's HiveCatalog would: PyIceberg's own asks for what this Hive lacks. One table is Hive's own."""
    from hive_metastore.ttypes import Table as HiveTable  # noqa: PLC0415 - needs thrift
    from pyiceberg.catalog.hive import HiveCatalog, _construct_hive_storage_descriptor  # noqa: PLC0415 - the same

    warehouse = f"file://{folder}/theirs"
    files = SqlCatalog("files", uri=f"sqlite:///{folder}/files.db", warehouse=warehouse)
    files.create_namespace("sold")
    hive = HiveCatalog("hive", uri=uri)
    hive.create_namespace("sold", {"comment": "what they sold", "location": f"{warehouse}/sold.db"})

    def make(name: str, table: Table, kind: str, **parameters: str) -> None:
        described = _construct_hive_storage_descriptor(table.schema(), table.location())
        given = HiveTable(name, "sold", "me", 1, 1, 0, described, [], parameters, tableType=kind)
        with hive._client as client:
            client.create_table(given)

    tables = [fill(files, f"sold.t{number}") for number in range(6)]
    for number, table in enumerate(tables):
        make(f"t{number}", table, "EXTERNAL_TABLE", table_type="ICEBERG", metadata_location=table.metadata_location)
    make("plain", tables[0], "EXTERNAL_TABLE", EXTERNAL="TRUE")
    view = folder / "theirs" / "view.json"
    view.write_text(json.dumps(build_view(f"{warehouse}/seen")))
    make("seen", tables[0], "EXTERNAL_TABLE", table_type="ICEBERG-VIEW", metadata_location=f"file://{view}")
    files.engine.dispose()


def build_view(location: str) -> dict[str, Any]:
    representation = {"type": "sql", "sql": "SELECT id FROM sold.t0", "dialect": "spark"}
    version = {
        "version-id": 1,
        "timestamp-ms": 1_700_000_000_000,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["sold"],
        "representations": [representation],
    }
    field = {"id": 1, "name": "id", "required": False, "type": "long"}
    return {
        "view-uuid": str(uuid4()),
        "format-version": 1,
        "location": location,
        "current-version-id": 1,
        "versions": [version],
        "version-log": [{"timestamp-ms": 1_700_000_000_000, "version-id": 1}],
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [field]}],
        "properties": {},
    }


def test_tables_of_glue_come(lake: RunningLake, folder: Path) -> None:
    with running_catalog(GlueServer(folder / "glue")) as port:
        keys = {"glue.region": "us-east-1", "glue.access-key-id": "a", "glue.secret-access-key": "b"}
        options = {"glue.endpoint": f"http://{HOST}:{port}", **keys}
        catalog = load_catalog("glue", type="glue", **options)
        catalog.create_namespace("glued", {"comment": "what they sold"})
        fill(catalog, "glued.orders", location=f"file://{folder}/theirs/glued")
        glue = Migration(lake, "glue", options)
        assert glue.run("--count-rows") == {"glued": ("created", ""), "glued.orders": ("created", "7 rows")}
        assert set(glue.run().values()) == {("there", "")}


@pytest.fixture(scope="module")
def reference(folder: Path) -> Iterator[str]:
    """Iceberg's own REST server, over a JDBC catalog in SQLite, with its files where the lake may register them."""
    if not is_there():
        pytest.skip("Iceberg's kit isn't here: RCK_KIT names its folder")
    place = f"file://{folder}/theirs/reference"
    with running_java({"CATALOG_WAREHOUSE": place, "REFERENCE_HEAP": "256m", "JAVA_HOME": ""}) as uri:
        yield uri


def test_a_migration_from_icebergs_own_server_that_is_killed_goes_on(lake: RunningLake, reference: str) -> None:
    names = [f"bought.t{number:02}" for number in range(15)]
    with RestCatalog("reference", uri=reference) as theirs, pyiceberg_catalog(lake) as ours:
        theirs.create_namespace("bought", {"comment": "what they bought"})
        for name in names:
            fill(theirs, name)
        options = ("--from", "rest", f"--option=uri={reference}", "--uri", lake.uri, "--threads", "1")
        with Popen([PROGRAM, "migrate-catalog", *options]) as running:
            wait_until(lambda: ours.table_exists(names[0]))
            running.kill()
        kept = [name for name in names if ours.table_exists(name)]
        assert len(kept) < len(names)
        found = Migration(lake, "rest", {"uri": reference}).run("--namespace", "bought", "--count-rows")
        assert found.pop("bought") == ("there", "")
        assert found == {name: ("there" if name in kept else "created", "7 rows") for name in names}
        assert ours.load_namespace_properties("bought")["comment"] == "what they bought"
        theirs.load_table(names[0]).append(ROWS)
        updated = Migration(lake, "rest", {"uri": reference}).run("--namespace", "bought", "--update", "--count-rows")
        assert updated[names[0]] == ("updated", "17 rows")


def test_tables_that_leave_for_icebergs_own_server_all_arrive_though_the_command_is_killed(
    lake: RunningLake, reference: str
) -> None:
    names = [f"left.t{number:02}" for number in range(15)]
    with duckdb_lake(lake) as duck:
        duck.execute("CREATE SCHEMA lake.left")
        for name in names:
            duck.execute(f"CREATE TABLE lake.{name} AS SELECT range AS id FROM range(5000)")
            duck.execute(f"DELETE FROM lake.{name} WHERE id % 5 = 0")
            duck.execute(f"INSERT INTO lake.{name} VALUES (7000)")
    leave = ("unregister", "--uri", lake.uri, "--namespace", "left")
    with pyiceberg_catalog(lake) as ours, Popen([PROGRAM, *leave], stdout=PIPE) as running:
        wait_until(lambda: not ours.table_exists(names[0]))
        running.kill()
        left = [name for name in names if ours.table_exists(name)]
    again = invoke(*leave, "--json")
    went = [json.loads(line)["name"] for line in again.stdout.splitlines()]
    assert went in (left, left[1:]), again.output  # the server may still have done what the killed command asked for
    assert 0 < len(left) < len(names)

    def list_given_up() -> dict[str, str]:
        lines = invoke(*leave, "--given-up", "--json").stdout.splitlines()
        return {line["name"]: line["detail"] for line in map(json.loads, lines)}

    wait_until(lambda: list_given_up().keys() == set(names))
    with RestCatalog("reference", uri=reference) as theirs:
        theirs.create_namespace("left")
        for name, location in list_given_up().items():
            theirs.register_table(name, location).append(pa.table({"id": pa.array([9000], pa.int64())}))
            ids = theirs.load_table(name).scan().to_arrow()["id"].to_pylist()
            assert sorted(ids) == [*(number for number in range(5000) if number % 5), 7000, 9000]
