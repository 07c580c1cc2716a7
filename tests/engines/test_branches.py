"""Branches and tags as stock engines make them: DuckDB sees main, and each of the others what it asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession

from tests.engines.engines import Engines, arrow
from tests.engines.refs import FORMATS, Refs, created

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

ROWS = "INSERT INTO {t} VALUES (1, 'a', 1), (2, 'b', 2), (3, NULL, 3), (4, 'd', 4), (5, 'e', 5)"


@pytest.fixture(params=["v2", "v3-merge-on-read"])
def refs(request: pytest.FixtureRequest, engines: Engines, namespace: str) -> Refs:
    """A table with five rows, and a session in Spark that settings may be made in."""
    session = engines.spark.newSession()
    session.conf.set("spark.sql.catalog.lake.uri", str(engines.spark.conf.get("spark.sql.catalog.lake.uri")))
    table = created(Engines(session, engines.catalog, engines.duck), f"{namespace}.t", FORMATS[request.param])
    table.same(ROWS)
    return table


@contextmanager
def setting(session: SparkSession, name: str, value: str) -> Iterator[None]:
    session.conf.set(name, value)
    yield
    session.conf.unset(name)


def is_v3(refs: Refs) -> bool:
    return refs.engines.catalog.load_table(refs.name).format_version == 3


def test_branches_and_tags_are_made_written_replaced_and_dropped(refs: Refs) -> None:
    refs.spark("ALTER TABLE {t} CREATE BRANCH audit RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 DAYS")
    refs.spark("ALTER TABLE {t} CREATE TAG first RETAIN 365 DAYS")
    refs.point("audit", "main")
    refs.point("first", "main")
    refs.spark("INSERT INTO {t}.branch_audit VALUES (10, 'x', 1)", "INSERT INTO audit VALUES (10, 'x', 1)")
    refs.spark("DELETE FROM {t}.branch_audit WHERE id = 2", "DELETE FROM audit WHERE id = 2")
    refs.check()
    refs.duck("INSERT INTO {t} VALUES (20, 'duck', 0)", "INSERT INTO main VALUES (20, 'duck', 0)")
    refs.duck("DELETE FROM {t} WHERE id = 1", "DELETE FROM main WHERE id = 1")
    refs.spark("UPDATE {t}.branch_audit SET amount = 9 WHERE id = 3", "UPDATE audit SET amount = 9 WHERE id = 3")
    refs.check()
    kept = refs.engines.catalog.load_table(refs.name).refs()
    assert (kept["audit"].min_snapshots_to_keep, kept["audit"].max_snapshot_age_ms) == (2, 3 * 86_400_000)
    assert (kept["audit"].max_ref_age_ms, kept["first"].max_ref_age_ms) == (7 * 86_400_000, 365 * 86_400_000)
    if not is_v3(refs):
        by_pyiceberg(refs)
    refs.spark(f"ALTER TABLE {{t}} REPLACE BRANCH audit AS OF VERSION {refs.head()}")
    refs.spark(f"ALTER TABLE {{t}} REPLACE TAG first AS OF VERSION {refs.head('audit')}")
    refs.point("audit", "main")
    refs.point("first", "main")
    refs.check()
    refs.spark("ALTER TABLE {t} DROP BRANCH audit")
    refs.spark("ALTER TABLE {t} DROP TAG first")
    refs.check()
    assert list(refs.engines.catalog.load_table(refs.name).refs()) == ["main"]


def by_pyiceberg(refs: Refs) -> None:
    """PyIceberg 0.12 writes no format version 3."""
    table = refs.engines.catalog.load_table(refs.name)
    table.append(arrow(table, [(11, "py", 2)]), branch="audit")
    table.delete("id = 4", branch="audit")
    refs.mean("INSERT INTO audit VALUES (11, 'py', 2)", "DELETE FROM audit WHERE id = 4")
    with table.manage_snapshots() as manage:
        manage.create_branch(refs.head("audit"), "python").create_tag(refs.head("first"), "marked")
    refs.point("python", "audit")
    refs.point("marked", "first")
    refs.check()
    with table.manage_snapshots() as manage:
        manage.remove_branch("python").remove_tag("marked")


def test_main_is_fast_forwarded_rolled_back_and_set(refs: Refs) -> None:
    refs.point("first", "main")
    first, moment = refs.head(), datetime.now(UTC)
    refs.spark("ALTER TABLE {t} CREATE BRANCH work")
    refs.point("work", "main")
    refs.spark("DELETE FROM {t}.branch_work WHERE id < 3", "DELETE FROM work WHERE id < 3")
    refs.spark("INSERT INTO {t}.branch_work VALUES (6, 'f', 6)", "INSERT INTO work VALUES (6, 'f', 6)")
    refs.call("fast_forward(branch => 'main', to => 'work')")
    refs.point("main", "work")
    refs.check()
    refs.duck("UPDATE {t} SET name = 'duck' WHERE id >= 5", "UPDATE main SET name = 'duck' WHERE id >= 5")
    refs.duck("DELETE FROM {t} WHERE id = 3", "DELETE FROM main WHERE id = 3")
    refs.check()
    last = refs.head()
    refs.point("last", "main")
    refs.call(f"rollback_to_snapshot(snapshot_id => {first})")
    refs.point("main", "first")
    refs.check()
    refs.same("INSERT INTO {t} VALUES (7, 'g', 7)")
    refs.duck("DELETE FROM {t} WHERE id = 2", "DELETE FROM main WHERE id = 2")
    refs.check()
    refs.call(f"rollback_to_timestamp(timestamp => TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S.%f}')")
    refs.point("main", "first")
    refs.check()
    refs.call(f"set_current_snapshot(snapshot_id => {last})")
    refs.point("main", "last")
    refs.check()
    refs.call("set_current_snapshot(ref => 'work')")
    refs.point("main", "work")
    refs.check()
    ancestors = [row[0] for row in refs.call(f"ancestors_of(snapshot_id => {last})")]
    assert (ancestors[0], ancestors[-1]) == (last, first)


def test_audited_branch_is_published(refs: Refs) -> None:
    refs.spark("ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled'='true')")
    refs.spark("ALTER TABLE {t} CREATE BRANCH audit")
    refs.point("audit", "main")
    with setting(refs.engines.spark, "spark.wap.branch", "audit"):
        refs.spark("INSERT INTO {t} VALUES (6, 'audited', 6)", "INSERT INTO audit VALUES (6, 'audited', 6)")
        refs.spark("DELETE FROM {t} WHERE id = 1", "DELETE FROM audit WHERE id = 1")
    refs.check()
    refs.call("fast_forward(branch => 'main', to => 'audit')")
    refs.point("main", "audit")
    refs.check()


def test_staged_changes_are_published(refs: Refs) -> None:
    refs.spark("ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled'='true')")
    for number, wap_id in enumerate(("moved-on", "fast-forward")):
        with setting(refs.engines.spark, "spark.wap.id", wap_id):
            refs.spark(f"INSERT INTO {{t}} VALUES ({30 + number}, '{wap_id}', 0)")
        refs.check()
        if wap_id == "moved-on":
            refs.duck("INSERT INTO {t} VALUES (8, 'between', 8)", "INSERT INTO main VALUES (8, 'between', 8)")
        refs.call(f"publish_changes(wap_id => '{wap_id}')", f"INSERT INTO main VALUES ({30 + number}, '{wap_id}', 0)")
        refs.check()
    refs.duck("DELETE FROM {t} WHERE id IN (30, 31, 2)", "DELETE FROM main WHERE id IN (30, 31, 2)")
    refs.check()


def test_snapshots_are_cherry_picked(refs: Refs) -> None:
    refs.spark("ALTER TABLE {t} CREATE BRANCH side")
    refs.point("side", "main")
    refs.spark("INSERT INTO {t}.branch_side VALUES (6, 'side', 6)", "INSERT INTO side VALUES (6, 'side', 6)")
    appended = refs.head("side")
    refs.same("DELETE FROM {t} WHERE id = 1")
    refs.duck("INSERT INTO {t} VALUES (9, 'duck', 9)", "INSERT INTO main VALUES (9, 'duck', 9)")
    refs.call(f"cherrypick_snapshot(snapshot_id => {appended})", "INSERT INTO main VALUES (6, 'side', 6)")
    refs.check()
    refs.same("UPDATE {t} SET amount = 60 WHERE id = 6")
    refs.duck("UPDATE {t} SET amount = 90 WHERE id IN (6, 9)", "UPDATE main SET amount = 90 WHERE id IN (6, 9)")
    refs.check()
