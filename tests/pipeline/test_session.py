"""What Spark is told so that OpenLineage's listener runs in it."""

from typing import Any

import pytest

from duckicelake.pipeline.session import (
    OPENLINEAGE_PACKAGE,
    ListenerMode,
    ListenerSettings,
    build_listener_settings,
    build_parent_conf,
)
from duckicelake.rest.connection import Connection

CATALOG = Connection("http://catalog:8181/")
JAR = {"spark.jars.packages": f"org.example:x:1,{OPENLINEAGE_PACKAGE}"}


@pytest.mark.parametrize(("wanted", "conf"), [("off", JAR), ("auto", {}), ("auto", {"spark.jars": "/x/iceberg.jar"})])
def test_there_is_no_listener_where_none_is_wanted_or_present(wanted: ListenerMode, conf: dict[str, str]) -> None:
    assert build_listener_settings(wanted, CATALOG, "token", conf) == ListenerSettings(conf)


@pytest.mark.parametrize(
    ("wanted", "conf", "packages"), [("on", {}, (OPENLINEAGE_PACKAGE,)), ("on", JAR, ()), ("auto", JAR, ())]
)
def test_the_jar_is_fetched_where_nothing_has_it(wanted: ListenerMode, conf: dict[str, str], packages: Any) -> None:
    found = build_listener_settings(wanted, CATALOG, None, conf)
    assert found.packages == packages
    assert found.conf["spark.extraListeners"] == "io.openlineage.spark.agent.OpenLineageSparkListener"
    assert found.conf["spark.openlineage.transport.url"] == "http://catalog:8181"
    assert not any("auth" in name for name in found.conf)


def test_events_are_sent_in_the_name_of_who_runs_the_job() -> None:
    assert (
        build_listener_settings("on", CATALOG, "t0ken", {}).conf["spark.openlineage.transport.auth.apiKey"] == "t0ken"
    )


def test_what_the_settings_say_wins_and_other_listeners_stay() -> None:
    conf = {"spark.openlineage.transport.type": "console", "spark.extraListeners": "my.Listener"}
    found = build_listener_settings("on", CATALOG, None, conf).conf
    assert found["spark.openlineage.transport.type"] == "console"
    assert found["spark.extraListeners"] == "my.Listener,io.openlineage.spark.agent.OpenLineageSparkListener"


@pytest.mark.parametrize("parent", ["", "nonsense", "a/b"])
def test_a_job_of_no_ones_is_part_of_no_run(parent: str) -> None:
    assert build_parent_conf({"OPENLINEAGE_PARENT_ID": parent}) == {}


def test_a_schedulers_run_is_reported_to_the_listener_and_with_each_snapshot() -> None:
    conf = build_parent_conf(
        {"OPENLINEAGE_PARENT_ID": "http://air/flow/dag.task/01a2", "OPENLINEAGE_ROOT_PARENT_ID": "n/r/01a3"}
    )
    assert conf["spark.openlineage.parentJobNamespace"] == "http://air/flow"
    assert conf["spark.sql.iceberg.snapshot-property.openlineage.parentJobName"] == "dag.task"
    assert conf["spark.sql.iceberg.snapshot-property.openlineage.parentRunId"] == "01a2"
    assert conf["spark.sql.iceberg.snapshot-property.openlineage.rootParentRunId"] == "01a3"
    assert len(conf) == 12
