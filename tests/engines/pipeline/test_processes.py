"""The pipeline in processes of its own, as they can only be tried: by spark-submit, out of memory, interrupted."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from duckicelake.cli.pipeline import submit
from duckicelake.pipeline.launcher import ICEBERG_AWS_PACKAGE, ICEBERG_PACKAGE
from scripts.demo_job.server import RunningLake

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark, pytest.mark.timeout(900)]

SPARK_SUBMIT = Path(sys.executable).with_name("spark-submit")
ON_LOOPBACK = ["--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"]


def finished(*command: str, **environment: str) -> tuple[int, str, str]:
    result = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=800, check=False
    )
    return result.returncode, result.stdout, result.stderr


def test_spark_submit_runs_a_job_with_the_same_arguments(
    lake: RunningLake, catalog: Catalog, namespace: str, tmp_path: Path
) -> None:
    source = tmp_path / "birds.csv"
    source.write_text("name,legs\nduck,2\nspider,8\n")
    packages = f"{ICEBERG_PACKAGE},{ICEBERG_AWS_PACKAGE}" if lake.backend.minio else ICEBERG_PACKAGE
    command = [str(SPARK_SUBMIT), "--master", "local[2]", "--packages", packages, *ON_LOOPBACK, str(submit.__file__)]
    arguments = ["ingest", str(source), "--table", f"{namespace}.birds", "--uri", lake.uri, "--json"]
    login = {"DUCKICELAKE_PIPELINE_CREDENTIAL": lake.backend.catalog.get("credential", "")}
    code, out, err = finished(*command, *arguments, PYSPARK_PYTHON=sys.executable, **login)
    assert code == 0, err
    summary = json.loads(out)
    assert (summary["rows"], summary["result"]) == (2, "done")
    table = catalog.load_table(f"{namespace}.birds")
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == summary["snapshot_ids"]
    assert sorted(row["name"] for row in table.scan().to_arrow().to_pylist()) == ["duck", "spider"]


OUT_OF_MEMORY = """
import typer
from duckicelake.cli.pipeline.app import one_line_errors
from duckicelake.rest.connection import Connection
from duckicelake.pipeline.session import open_spark_session

memory = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.task.maxFailures": "1"}
query = "SELECT length(array_join(collect_list(repeat(md5(string(id)), 100)), '')) FROM range(3000000)"
for master in ("local[1]", "local-cluster[1,1,512]"):
    try:
        with one_line_errors(), open_spark_session(Connection(), master=master, conf=memory) as spark:
            spark.sql(query).collect()
    except typer.Exit as exit:
        print(exit.exit_code)
"""


def test_driver_or_executor_out_of_memory_is_a_line_and_a_code() -> None:
    code, out, err = finished(sys.executable, "-c", OUT_OF_MEMORY)
    assert (code, out) == (0, "7\n7\n"), err
    lines = err.splitlines()
    assert lines[0].startswith("duckicelake: Spark ran out of memory: give it more")
    refused = "an executor ended as it was given a task, which is how it looks when "  # where that is heard first
    assert lines[1].replace(refused, "").startswith("duckicelake: Spark ran out of memory: give it more")
    assert len(lines) == 2


BUSY = """
import sys
import threading
import time
import typer
from duckicelake.cli.pipeline.app import one_line_errors
from duckicelake.pipeline.session import open_spark_session
from duckicelake.rest.connection import Connection

def tell_once_busy(context):
    while sys.argv[1] == "busy" and not context.statusTracker().getActiveStageIds():
        time.sleep(0.1)
    print(sys.argv[1], flush=True)

memory = {"spark.driver.memory": "512m"}
try:
    with one_line_errors(), open_spark_session(Connection(), master="local[1]", conf=memory) as spark:
        threading.Thread(target=tell_once_busy, args=(spark.sparkContext,), daemon=True).start()
        spark.range(10**15).selectExpr("sum(hash(id))").collect()
except typer.Exit as exit:
    raise SystemExit(exit.exit_code)
"""


@pytest.mark.parametrize("what", ["busy", "planning"])
def test_interruption_cancels_what_spark_does_and_is_a_line_and_a_code(what: str) -> None:
    command = [sys.executable, "-c", BUSY, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{what}\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (
        130,
        "duckicelake: interrupted; what was committed stays, and nothing is half-committed\n",
    )


SECRETS = """
import sys
import time
from duckicelake.rest.connection import Connection
from duckicelake.pipeline.foreign_catalog import attach_source
from duckicelake.pipeline.session import open_spark_session

log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": sys.argv[1], "spark.eventLog.compress": "false"}
with open_spark_session(Connection(credential="me:SECRET1"), master="local[1]", conf=log) as spark:
    theirs = {"type": "rest", "uri": "http://127.0.0.1:1", "credential": "them:SECRET2"}
    attach_source(spark, {**theirs, "header.Authorization": "Bearer SECRET4"})
    spark.sql("SELECT count(*) FROM range(3)").collect()
    with open_spark_session(Connection(token="SECRET3")) as joined:
        assert joined.conf.get("spark.sql.catalog.lake.credential", None) is None
        joined.sql("SELECT count(*) FROM range(4)").collect()
"""


def test_secrets_stay_out_of_sparks_event_log(tmp_path: Path) -> None:
    code, _, err = finished(sys.executable, "-c", SECRETS, str(tmp_path))
    assert code == 0, err
    log = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".crc")
    assert "spark.sql.catalog.lake.credential" in log
    assert "spark.sql.catalog.lake.token" in log
    assert "SECRET" not in log
