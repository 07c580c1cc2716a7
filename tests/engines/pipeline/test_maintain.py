"""Maintenance with a real Spark, beside writers of both kinds: rows carry ids, none is lost, doubled or back again."""

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from threading import Event

import duckdb
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from duckicelake.maintenance.layout import RowOrder
from duckicelake.maintenance.plan import Plan, parse_order_options, plan_optimization
from duckicelake.pipeline.job import run_job
from duckicelake.pipeline.maintenance import FinishedJob, MaintainRequest, build_plan, read_states, run_plan
from duckicelake.pipeline.progress import SILENT, SilentReporter
from duckicelake.properties import JOB_KEY
from duckicelake.rest.client import CatalogClient
from scripts.demo_job.connect import duckdb_lake
from scripts.demo_job.server import PROGRAM, RunningLake
from tests.engines.engines import Engines, sorted_rows
from tests.engines.refs import FORMATS, Refs, created
from tests.engines.sequences import BIG

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]

MOST_JOBS = 60
EAGER = {
    "maintenance.flush.min-rows": "1",
    "maintenance.compaction.min-files": "2",
    "maintenance.compaction.delete-ratio": "0.1",
    "maintenance.delete-files.min-excess": "1",
    "maintenance.manifests.min-small": "2",
    "maintenance.statistics.every": "0m",
    "history.expire.max-snapshot-age-ms": "1",
    "maintenance.orphans.older-than": "1h",
}
"""Policies by which there is always something to do."""


def planned(client: CatalogClient, namespace: str, *kinds: str, **more: str) -> Plan:
    overrides = EAGER | {name.replace("_", "."): value for name, value in more.items()}
    request = MaintainRequest((namespace,), None, kinds, overrides)
    return build_plan(client, request, time.time_ns() // 1_000_000)


def maintained(spark: SparkSession, client: CatalogClient, namespace: str, *kinds: str) -> dict[str, FinishedJob]:
    """What came of each kind of job on the one table of the namespace."""
    return {done.kind: done for done in run_plan(spark, client, planned(client, namespace, *kinds), SILENT)}


@pytest.mark.parametrize("form", ["v2-merge-on-read", "v3-merge-on-read"])
def test_table_of_both_sides_is_put_in_shape_and_shows_the_same_rows(
    engines: Engines, client: CatalogClient, namespace: str, form: str
) -> None:
    refs = created(engines, f"{namespace}.t", FORMATS[form], "PARTITIONED BY (bucket(2, id))")
    refs.same("INSERT INTO {t} VALUES (1, 'a', 1), (2, 'b', 2), (3, NULL, 3)")
    refs.same(BIG)
    refs.spark("ALTER TABLE {t} CREATE TAG before")
    refs.point("before", "main")
    both(refs, "INSERT INTO {t} VALUES (4, 'inlined', 4), (5, 'too', NULL), (6, 'gone', 6)")
    both(refs, BIG.replace("+ 100", "+ 200"))
    both(refs, "DELETE FROM {t} WHERE id IN (2, 6, 105, 206)")
    refs.same("DELETE FROM {t} WHERE id = 5 OR id BETWEEN 110 AND 115")
    refs.check()
    done = maintained(engines.spark, client, namespace)
    assert {name: job.result for name, job in done.items() if job.result not in {"done", "unchanged"}} == {}
    assert {"flush", "compact", "statistics", "expire"} <= {name for name, job in done.items() if job.result == "done"}
    refs.check()
    assert [job.kind for job in planned(client, namespace, "flush", "compact", "rewrite-deletes", "expire").jobs] == []
    (table,) = client.get("/pipeline/v1/tables", {"namespace": namespace})["tables"]
    assert (table["inlined-rows"], table["deleted"], table["files"], table["snapshots"]) == (0, 0, 2, 2)
    stamped = {job["snapshot-ids"][-1]: job["id"] for job in client.jobs(namespace=namespace) if job["snapshot-ids"]}
    head = engines.catalog.load_table(f"{namespace}.t").current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert stamped[head.snapshot_id] == head.summary[JOB_KEY]


def both(table: Refs, statement: str) -> None:
    """What DuckDB does on main."""
    table.duck(statement, statement.replace("{t}", "main"))


def test_manifests_of_all_specs_are_packed_once(engines: Engines, client: CatalogClient, namespace: str) -> None:
    name = f"lake.{namespace}.t"
    engines.spark.sql(
        f"CREATE TABLE {name} (id bigint) PARTITIONED BY (bucket(2, id))"
        " TBLPROPERTIES ('commit.manifest-merge.enabled'='false')"
    )
    for number in range(3):
        engines.duck.execute(f"INSERT INTO {name} SELECT range FROM range({20 * number}, {20 * number + 20})")
    engines.spark.sql(f"ALTER TABLE {name} DROP PARTITION FIELD bucket(2, id)")
    for number in range(3, 6):
        engines.duck.execute(f"INSERT INTO {name} SELECT range FROM range({20 * number}, {20 * number + 20})")
    assert maintained(engines.spark, client, namespace, "pack-manifests")["pack-manifests"].result == "done"
    assert planned(client, namespace, "pack-manifests").jobs == ()
    assert len(engines.catalog.load_table(f"{namespace}.t").inspect.manifests()) == 2
    assert engines.catalog.load_table(f"{namespace}.t").scan().count() == 120


def test_sorted_table_is_sorted_once_and_again_after_much_has_come(
    engines: Engines, client: CatalogClient, namespace: str
) -> None:
    name = f"lake.{namespace}.t"
    engines.spark.sql(
        f"CREATE TABLE {name} (x bigint, y bigint) TBLPROPERTIES ('format-version'='3',"
        " 'maintenance.sort.order'='zorder(x, y)', 'maintenance.statistics.enabled'='false')"
    )
    for seed in range(3):
        engines.duck.execute(f"INSERT INTO {name} SELECT (range * 7919 + {seed}) % 1000, range % 37 FROM range(500)")
    rows = sorted_rows(engines.duck.sql(f"FROM {name}").to_arrow_table())
    ids = engines.duck.sql(f"SELECT rowid, x, y FROM {name} ORDER BY ALL").fetchall()
    assert maintained(engines.spark, client, namespace, "sort", "compact")["sort"].result == "done"
    assert planned(client, namespace, "sort", "compact").jobs == ()
    engines.duck.execute(f"INSERT INTO {name} SELECT range, range FROM range(30)")
    assert planned(client, namespace, "sort").jobs == ()
    engines.duck.execute(f"INSERT INTO {name} SELECT range, range FROM range(30, 1000)")
    assert [job.kind for job in planned(client, namespace, "sort", "compact").jobs] == ["sort"]
    engines.duck.execute(f"DELETE FROM {name} WHERE x = y")
    assert sorted_rows(engines.spark.table(name).where("x <> y").toArrow()) == [row for row in rows if row[0] != row[1]]
    assert engines.duck.sql(f"SELECT rowid, x, y FROM {name} ORDER BY ALL").fetchall() == [
        each for each in ids if each[1] != each[2]
    ]


def test_optimize_rewrites_the_files_of_a_condition_now_and_says_what_it_cannot(
    engines: Engines, client: CatalogClient, namespace: str
) -> None:
    name = f"{namespace}.t"
    engines.spark.sql(f"CREATE TABLE lake.{name} (day int, x bigint, y bigint) PARTITIONED BY (day)")
    for seed in range(3):
        engines.spark.sql(
            f"INSERT INTO lake.{name} SELECT id % 2, (id * 7919 + {seed}) % 1000, id % 37 FROM range(500)"
        )
    rows = sorted_rows(engines.spark.table(f"lake.{name}").toArrow())

    def optimized(order: RowOrder | None, where: str | None = None) -> FinishedJob:
        plan = plan_optimization(read_states(client, MaintainRequest((namespace,), "t")), name, order, where, None)
        (done,) = run_plan(engines.spark, client, plan, SILENT)
        return done

    def files() -> Counter[int]:
        paths = engines.spark.table(f"lake.{name}.files").select("partition.day").collect()
        return Counter(row.day for row in paths)

    assert files() == {0: 3, 1: 3}
    assert optimized(parse_order_options(None, "x,y"), "day = 1").counts["rewritten files"] == 3
    assert files() == {0: 3, 1: 1}
    done = optimized(None)
    assert (done.kind, done.counts["rewritten files"], done.counts["added files"]) == ("compact", 3, 1)
    assert optimized(None).result == "unchanged"
    assert sorted_rows(engines.spark.table(f"lake.{name}").toArrow()) == rows
    assert sorted_rows(engines.duck.sql(f"FROM lake.{name}").to_arrow_table()) == rows
    failed = optimized(None, "nothing = 1")
    assert failed.result == "failed"
    assert "nothing" in (failed.message or "")
    failed = optimized(None, "rand() > 0.5")
    assert failed.result == "failed"
    assert "RAND() > 0.5" in (failed.message or "")


def test_compaction_packs_as_duckdb_would_unless_the_table_says_how(
    engines: Engines, client: CatalogClient, namespace: str
) -> None:
    def codecs(name: str, **options: str) -> set[str]:
        for option, value in options.items():
            engines.duck.execute(
                f"CALL lake.set_option('{option}', '{value}', schema => '{namespace}', table_name => '{name}')"
            )
        for _ in range(2):
            engines.duck.execute(f"INSERT INTO lake.{namespace}.{name} FROM range(100)")
        assert maintained(engines.spark, client, namespace, "compact")["compact"].result == "done"
        (file,) = engines.duck.execute(
            f"SELECT data_file FROM ducklake_list_files('lake', '{name}', schema => '{namespace}')"
        ).fetchall()
        pages = engines.duck.execute("SELECT DISTINCT compression FROM parquet_metadata(?)", file)
        return {codec for (codec,) in pages.fetchall()}

    engines.duck.execute(f"CREATE TABLE lake.{namespace}.native (id BIGINT)")
    assert codecs("native") == {"ZSTD"}
    assert codecs("native", parquet_compression="snappy") == {"SNAPPY"}
    properties = "TBLPROPERTIES ('write.parquet.compression-codec' = 'gzip')"
    engines.spark.sql(f"ALTER TABLE lake.{namespace}.native SET {properties}")
    assert codecs("native") == {"GZIP"}


@pytest.mark.usefixtures("lake_in_a_folder")
def test_orphans_go_once_they_are_old_enough(engines: Engines, client: CatalogClient, namespace: str) -> None:
    name = f"{namespace}.t"
    engines.spark.sql(f"CREATE TABLE lake.{name} (id bigint)")
    engines.spark.sql(f"INSERT INTO lake.{name} VALUES (1)")
    engines.duck.execute(f"INSERT INTO lake.{name} VALUES (2)")
    location = Path(engines.catalog.load_table(name).location().removeprefix("file:"))
    old, young = location / "data" / "old.parquet", location / "data" / "young.parquet"
    for path in (old, young):
        path.write_bytes(b"of a writer that was killed")
    for path in location.rglob("*"):
        if path != young:
            os.utime(path, (time.time() - 7200,) * 2)
    done = maintained(engines.spark, client, namespace, "remove-orphans")["remove-orphans"]
    assert done.result == "done"
    assert done.counts["deleted files"] >= 1
    assert (old.exists(), young.exists()) == (False, True)
    assert sorted(row.id for row in engines.spark.table(f"lake.{name}").collect()) == [1, 2]
    assert planned(client, namespace, "remove-orphans").jobs == ()


def test_two_runs_do_not_fight(engines: Engines, client: CatalogClient, namespace: str) -> None:
    for table in ("a", "b"):
        engines.spark.sql(f"CREATE TABLE lake.{namespace}.{table} (id bigint)")
        engines.duck.execute(f"INSERT INTO lake.{namespace}.{table} VALUES (1)")
    plan = planned(client, namespace, "flush")
    with run_job(client, "compact", (namespace,), "a", lease="maintenance") as other:
        done = run_plan(engines.spark, client, plan, SILENT, parallel=2)
    results = {job.table: job for job in done}
    assert results[f"{namespace}.a"].result == "skipped"
    assert f"{namespace}.a is held by job {other.id} (compact of " in str(results[f"{namespace}.a"].message)
    assert (results[f"{namespace}.b"].result, results[f"{namespace}.b"].counts["rows in Postgres"]) == ("done", 1)


class Impatient(SilentReporter):
    """Somebody who presses Ctrl-C when the first job has ended."""

    def advance(self, amount: int = 1) -> None:  # noqa: ARG002 - the protocol has it
        raise KeyboardInterrupt


def test_jobs_that_have_not_begun_when_a_run_is_stopped_never_begin(
    engines: Engines, client: CatalogClient, namespace: str
) -> None:
    name = f"lake.{namespace}.t"
    engines.spark.sql(f"CREATE TABLE {name} (id bigint)")
    engines.spark.sql(f"INSERT INTO {name} VALUES (1)")
    engines.duck.execute(f"INSERT INTO {name} VALUES (2)")
    plan = planned(client, namespace)
    assert [job.kind for job in plan.jobs] == ["flush", "statistics", "remove-orphans"]
    with pytest.raises(KeyboardInterrupt):
        run_plan(engines.spark, client, plan, Impatient())
    begun = [job["kind"] for job in client.jobs(namespace=namespace)]
    assert begun[-1] == "flush"
    assert len(begun) < len(plan.jobs)
    assert list(client.jobs(namespace=namespace, result="running")) == []


def test_next_run_does_what_a_killed_one_has_not(
    lake: RunningLake, engines: Engines, client: CatalogClient, namespace: str
) -> None:
    name = f"lake.{namespace}.t"
    engines.spark.sql(f"CREATE TABLE {name} (id bigint) TBLPROPERTIES ('maintenance.compaction.min-files'='2')")
    for number in range(40):
        engines.duck.execute(f"INSERT INTO {name} SELECT range FROM range({number * 20}, {number * 20 + 20})")
    dry = command(lake, namespace, "--dry-run")
    (job,) = json.loads(dry.communicate()[0])["jobs"]
    assert (dry.returncode, job["why"]) == (0, "40 files in 1 partition are under 3/4 of the target size of 537 MB")
    killed = command(lake, namespace)
    while not (jobs := list(client.jobs(namespace=namespace, result="running"))):
        assert killed.poll() is None
        time.sleep(0.02)
    killed.kill()
    killed.communicate()
    (other,) = run_plan(engines.spark, client, planned(client, namespace, "compact"), SILENT)
    assert other.result == "skipped"
    give_up = f"UPDATE duckicelake_job SET lease_until = started WHERE id = ''{jobs[0]['id']}''"
    engines.duck.execute(f"CALL postgres_execute('__ducklake_metadata_lake', '{give_up}')")
    (done,) = run_plan(engines.spark, client, planned(client, namespace, "compact"), SILENT)
    assert done.result == "done"
    assert planned(client, namespace, "compact").jobs == ()
    assert sorted(row.id for row in engines.spark.table(name).collect()) == list(range(800))
    assert [job["result"] for job in client.jobs(namespace=namespace)] == ["done", "lost"]


def command(lake: RunningLake, namespace: str, *options: str) -> subprocess.Popen[bytes]:
    """`duckicelake pipeline maintain`, compacting the namespace's table."""
    asked = [PROGRAM, "pipeline", "maintain", f"{namespace}.t", "--only", "compact", "--uri", lake.uri, "--json"]
    memory = ["--conf", "spark.driver.memory=1g"]
    return subprocess.Popen([*asked, *memory, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


@pytest.mark.parametrize("version", [2, 3])
def test_nothing_is_lost_or_doubled_beside_writers_of_both_kinds(
    lake: RunningLake, engines: Engines, client: CatalogClient, namespace: str, version: int
) -> None:
    name = f"lake.{namespace}.t"
    engines.spark.sql(
        f"CREATE TABLE {name} (id bigint, note string) TBLPROPERTIES ('format-version'='{version}',"
        " 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')"
    )
    pace, stop = Pace(), Event()
    done: Counter[tuple[str, str]] = Counter()
    failed: list[str] = []
    with duckdb_lake(lake) as one, duckdb_lake(lake) as two, ThreadPoolExecutor() as pool:
        writers = [
            pool.submit(write, one.execute, name, 10_000_000, stop, pace),
            pool.submit(write, two.execute, name, 20_000_000, stop, pace),
            pool.submit(write, engines.spark.sql, name, 30_000_000, stop, pace),
        ]
        try:
            while min(done["flush", "done"], done["compact", "done"]) < 2 and done.total() < MOST_JOBS:
                each = run_plan(engines.spark, client, planned(client, namespace, "flush", "compact"), SILENT)
                done.update((job.kind, job.result) for job in each)
                failed += [str(job) for job in each if job.result == "failed"]
                if each and all(job.result == "skipped" for job in each):
                    pace.seconds *= 2
        finally:
            stop.set()
        expected = sorted(row for writer in writers for row in writer.result())
    assert failed == []
    assert min(done["flush", "done"], done["compact", "done"]) >= 2
    assert len(expected) > 50
    assert {engine: sorted_rows(table) for engine, table in engines.read(f"{namespace}.t").items()} == dict.fromkeys(
        ("Spark", "PyIceberg", "DuckDB"), expected
    )


@dataclass
class Pace:
    """How long writers rest after each round: longer where a slow machine's jobs never come between them."""

    seconds: float = 2.0


Execute = Callable[[str], object]
REFUSALS = (duckdb.TransactionException, PySparkException, Py4JJavaError)


def write(execute: Execute, name: str, first: int, stop: Event, pace: Pace) -> list[tuple[int, str]]:
    """Insert, update and delete rows of its own until it is told to stop; the rows that must be there then.

    What is refused wasn't done.
    """
    rows: dict[int, str] = {}
    for number in takewhile(lambda _: not stop.is_set(), count()):
        added = {first + number * 100 + each: "new" for each in range(3 if number % 4 else 30)}
        if tried(execute, f"INSERT INTO {name} VALUES {', '.join(map(str, added.items()))}"):
            rows |= added
        some = sorted(rows)[number % 5 :: 7][:2]
        listed = ", ".join(map(str, (-1, *some)))
        if number % 3 == 1 and tried(execute, f"DELETE FROM {name} WHERE id IN ({listed})"):
            rows = {id_: note for id_, note in rows.items() if id_ not in some}
        if number % 3 == 2 and tried(execute, f"UPDATE {name} SET note = 'n{number}' WHERE id IN ({listed})"):
            rows |= dict.fromkeys(some, f"n{number}")
        stop.wait(pace.seconds)
    return sorted(rows.items())


def tried(execute: Execute, statement: str) -> bool:
    try:
        execute(statement)
    except REFUSALS:
        return False
    return True
