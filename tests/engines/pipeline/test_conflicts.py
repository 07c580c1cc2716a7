"""Others commit between what a job reads and its commit: nothing is lost, and whoever looks is told what came of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from duckicelake.errors import JobConflictError
from duckicelake.pipeline.destination import Target, build_load_request
from duckicelake.pipeline.ingest import IngestRequest, ingest
from duckicelake.pipeline.maintenance import MaintainRequest, build_plan, read_states, run_plan
from duckicelake.pipeline.progress import SILENT
from duckicelake.pipeline.session import open_spark_session
from duckicelake.pipeline.sources import parse_source
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection
from tests.engines.engines import Engines, sorted_rows
from tests.support.cutting_proxy import CuttingProxy, serving

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]

EAGER = {"maintenance.flush.min-rows": "1", "maintenance.compaction.min-files": "2"}
FOR_EVER = 1_000_000


class Meddler(CuttingProxy):
    """The way to the catalog of somebody whose commits to table `t` come too late: before each, `acts` is called.

    It is called `times` times; `commits` counts those that came through here.
    """

    def __init__(self, target: str, acts: Callable[[int], object], times: int) -> None:
        super().__init__(target)
        self.acts, self.times, self.commits = acts, times, 0

    def before(self, request: str) -> None:
        if request.startswith("POST /v1/") and request.endswith(("/tables/t", "/rows/flush")):
            self.commits += 1
            if self.commits <= self.times:
                self.acts(self.commits)

    def loses(self, request: str, key: str | None) -> bool:  # noqa: ARG002 - the answers come through
        return False


@contextmanager
def too_late(
    connection: Connection, acts: Callable[[int], object], times: int
) -> Iterator[tuple[SparkSession, CatalogClient, Meddler]]:
    """Spark and the catalog as the pipeline sees them through a Meddler."""
    with serving(Meddler(connection.uri, acts, times)) as proxy:
        way = replace(connection, uri=proxy.uri)
        with open_spark_session(way) as spark:
            yield spark, CatalogClient(way), proxy


def rows_of(engines: Engines, namespace: str) -> list[tuple[Any, ...]]:
    """The table's rows, which all engines must agree on."""
    first, *others = (sorted_rows(table) for table in engines.read(f"{namespace}.t").values())
    assert others == [first, first]
    return first


def made(engines: Engines, namespace: str, kind: str) -> str:
    """A table with rows 0 to 19 for which there is a job of the kind; its name."""
    name = f"lake.{namespace}.t"
    engines.spark.sql(f"CREATE TABLE {name} (id bigint, v string)")
    for first in (0, 10):
        values = ", ".join(f"({number}, 'old')" for number in range(first, first + 10))
        (engines.duck.execute if kind == "flush" else engines.spark.sql)(f"INSERT INTO {name} VALUES {values}")
    return name


@pytest.mark.parametrize("kind", ["flush", "compact"])
def test_job_whose_rows_are_deleted_before_its_commit_is_done_again(
    engines: Engines, connection: Connection, client: CatalogClient, namespace: str, kind: str
) -> None:
    name = made(engines, namespace, kind)
    plan = build_plan(client, MaintainRequest((namespace,), "t", (kind,), EAGER), 0)
    with too_late(connection, lambda _: engines.duck.execute(f"DELETE FROM {name} WHERE id = 3"), 1) as (spark, way, _):
        (done,) = run_plan(spark, way, plan, SILENT)
    assert (done.kind, done.result, done.counts["failed files" if kind == "compact" else "added files"]) == (
        kind, "done", 0 if kind == "compact" else 1,
    )  # fmt: skip
    assert rows_of(engines, namespace) == [(number, "old") for number in range(20) if number != 3]
    assert build_plan(client, MaintainRequest((namespace,), "t", (kind,), EAGER), 0).jobs == ()


def test_rows_that_are_appended_before_the_commit_of_a_sort_are_left_to_the_next(
    engines: Engines, connection: Connection, client: CatalogClient, namespace: str
) -> None:
    name = made(engines, namespace, "sort")
    request = MaintainRequest((namespace,), "t", ("sort",), {"maintenance.sort.order": "id DESC"})
    plan = build_plan(client, request, 0)
    appended = f"INSERT INTO {name} SELECT range, 'late' FROM range(100)"
    with too_late(connection, lambda _: engines.duck.execute(appended), 1) as (spark, way, _):
        (done,) = run_plan(spark, way, plan, SILENT)
    assert done.result == "done"
    (left,) = read_states(client, request)
    assert (left.files, 0 < left.unsorted_bytes < left.bytes) == (2, True)


def test_job_that_others_are_always_faster_than_is_skipped_soon_and_its_row_says_why(
    engines: Engines, connection: Connection, client: CatalogClient, namespace: str
) -> None:
    name = made(engines, namespace, "compact")
    plan = build_plan(client, MaintainRequest((namespace,), "t", ("compact",), EAGER), 0)
    update = f"UPDATE {name} SET v = '{{}}' WHERE id = 3"
    acts = lambda number: engines.duck.execute(update.format(number))  # noqa: E731
    with too_late(connection, acts, FOR_EVER) as (spark, way, meddler):
        (done,) = run_plan(spark, way, plan, SILENT)
    assert done.result == "skipped"
    assert meddler.commits <= 3 * 2
    (row,) = client.jobs(namespace=namespace)
    assert (row["result"], row["message"], row["snapshot-ids"]) == ("skipped", done.message, [])
    assert "others changed the same files each of 3 times" in str(done.message)
    assert rows_of(engines, namespace) == [
        (number, str(meddler.commits) if number == 3 else "old") for number in range(20)
    ]  # fmt: skip


@pytest.mark.parametrize(("times", "result"), [(1, "done"), (FOR_EVER, "failed")])
def test_merge_beside_a_writer_who_is_faster_takes_in_what_that_one_wrote_or_is_refused(
    engines: Engines,
    connection: Connection,
    client: CatalogClient,
    namespace: str,
    tmp_path: Path,
    times: int,
    result: str,
) -> None:
    made(engines, namespace, "compact")
    table = engines.catalog.load_table(f"{namespace}.t")
    news = tmp_path / "news.csv"
    news.write_text("id,v\n3,new\n30,new\n")
    load = build_load_request(Target((namespace,), "t"), "merge", ("id",))

    def acts(_: int) -> None:
        table.refresh()
        table.append(table.scan(row_filter="id = 0").to_arrow().take([0]))

    with too_late(connection, acts, times) as (spark, way, meddler):
        try:
            ingest(spark, way, IngestRequest(parse_source([str(news)], None, (), None), load), SILENT)
        except JobConflictError:
            assert times == FOR_EVER
    (row,) = client.jobs(namespace=namespace)
    assert row["result"] == result
    merged = {3: "new", 30: "new"} if times == 1 else {}
    expected = dict.fromkeys(range(20), "old") | merged
    others = [(0, "old")] * min(meddler.commits, times)
    assert rows_of(engines, namespace) == sorted([*expected.items(), *others])
