"""The change stream of a table: the rows that each snapshot inserted, deleted and updated.

    for step, rows in changes(spark, client, ChangesRequest(("web",), "events", after=17)):
        rows.show()    # _change_type, _change_ordinal, _commit_snapshot_id, and the table's columns

Iceberg's own changelog refuses tables with delete files and knows no row ids. Here a snapshot is compared with the one
before it, and only files are read in which they differ. Rows that were only moved to other files are no changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from duckicelake.errors import CatalogUnreachable
from duckicelake.pipeline.failures import explained
from duckicelake.pipeline.history import Step, steps_between
from duckicelake.pipeline.outlets import Outlet
from duckicelake.pipeline.reporting import Reporter
from duckicelake.pipeline.streaming import Outage
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.names import Namespace, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ChangesRequest:
    """after, upto: snapshots of main, by Iceberg's ids or DuckLake's; None: from the beginning, to where main is.

    keys: columns that tell rows apart; none: row ids, in format version 3, else the table's identifier fields.
    ordinal: of the first snapshot that changes any.
    """

    namespace: Namespace
    table: str
    after: int | None = None
    upto: int | None = None
    keys: Sequence[str] = ()
    ordinal: int = 0

    def __str__(self) -> str:
        return shown(self.namespace, self.table)


def changes(spark: SparkSession, client: CatalogClient, request: ChangesRequest) -> Iterator[tuple[Step, DataFrame]]:
    """Each snapshot that the request asks for, with its changes, to be read before the next one is asked for.

    They have the columns that the table has now; one that only moved rows has none. BadInput, BadColumn, NoTable.
    """
    from duckicelake.pipeline.row_changes import RowChanges

    metadata = client.load_table(request.namespace, request.table)["metadata"]
    steps = steps_between(metadata, request.after, request.upto)
    if not steps:
        return
    table = RowChanges(spark, request.namespace, request.table, request.keys)
    ordinal = request.ordinal
    for step in steps:
        with table.of(step, ordinal) as rows:
            yield step, rows
        ordinal += not step.only_moves


def send_changes(
    spark: SparkSession, client: CatalogClient, request: ChangesRequest, outlet: Outlet, reporter: Reporter
) -> None:
    """Send the outlet all that it doesn't have yet; where it has something, that counts, and not `after`."""
    wanted, reached = request, outlet.reached
    if reached is not None:
        wanted = replace(request, after=reached.snapshot_id, ordinal=reached.ordinal)
    for step, rows in changes(spark, client, wanted):
        outlet.take(step, rows)
        reporter.advance()


def follow_changes(
    spark: SparkSession,
    client: CatalogClient,
    request: ChangesRequest,
    outlet: Outlet,
    reporter: Reporter,
    wait: Callable[[], object],
) -> None:
    """Send all that there is and all that comes, until it is interrupted; waits between looks, and for the catalog."""
    outage = Outage()
    seen = None
    while True:
        try:
            head = client.load_table(request.namespace, request.table, "refs")["metadata"].get("current-snapshot-id")
            if head != seen:
                send_changes(spark, client, request, outlet, reporter)
            seen = head
            outage.end()
        except Exception as error:
            failure = explained(error)
            if not isinstance(failure, CatalogUnreachable) or outage.is_too_long(time.monotonic()):
                raise
            reporter.say(f"{failure}; it goes on when it is back")
        wait()
