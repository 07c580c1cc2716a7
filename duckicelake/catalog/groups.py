"""Group commit: commits that wait at the same time share one Postgres transaction, each with snapshots of its own.

In one process, who comes first writes all that came meanwhile. One that no longer holds is left out, and one that
Postgres refuses has all of them written one by one. Several processes wait for each other in Postgres.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Final

from duckicelake.catalog.courtesy import Courtesy
from duckicelake.catalog.measuring import Meter
from duckicelake.catalog.turns import Turns
from duckicelake.errors import CommitStateUnknown, Unavailable
from duckicelake.lake import writer
from duckicelake.lake.changes import ChangeSet, Written
from duckicelake.lake.database import Database, Transaction, is_retryable
from duckicelake.lake.snapshots import duckdb_waits, lock, queue, queue_alone, retrying

MOST: Final = 64
"""Commits in one transaction, so that others don't wait for long."""

Settle = Callable[[Transaction, Sequence[Written]], None]
"""The last step of a transaction, given what was written."""


@dataclass(slots=True)
class Commit:
    """Changes that are written together or not at all; `settle` is the last step of their transaction."""

    changes: Sequence[ChangeSet]
    settle: Settle
    since: float = field(default_factory=monotonic)
    outcome: Sequence[Written] | Exception | None = None

    def result(self) -> Sequence[Written]:
        """What was written; raises what it failed with."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome is None:
            raise CommitStateUnknown("The server was stopped while it wrote the commit")
        return self.outcome


class CommitQueue:
    """Where the commits of one process wait, holding no connection that others need."""

    def __init__(self) -> None:
        self._turns = Turns[Commit](MOST)
        self._courtesy = Courtesy()

    def write(self, database: Database, meter: Meter, commit: Commit) -> Sequence[Written]:
        """Write the commit, with others if they wait, too; StaleBase, and what `writer.write` and `settle` raise."""
        self._turns.do(commit, partial(self._write_all, database, meter))
        return commit.result()

    @contextmanager
    def alone(self, database: Database) -> Iterator[None]:
        """Keep all other commits waiting, in other processes, too; what is to be written goes through `write_alone`."""
        with self._turns.alone(), database.statement() as cursor, queue_alone(cursor):
            yield

    def write_alone(self, database: Database, meter: Meter, commit: Commit) -> Sequence[Written]:
        """Write the commit within `alone`, and raise as `write` does."""
        self._write_all(database, meter, [commit], is_alone=True)
        return commit.result()

    def _write_all(self, database: Database, meter: Meter, group: Sequence[Commit], *, is_alone: bool = False) -> None:
        """Settle the outcome of each."""

        def again(error: BaseException) -> bool:
            """In a group it may be one commit's fault: then they are written one by one."""
            if len(group) > 1 or not is_retryable(error):
                return False
            meter.retried("serialization")
            return True

        try:
            retrying(lambda: self._attempt(database, meter, group, is_alone=is_alone), again)
        except (Unavailable, CommitStateUnknown) as error:
            for each in group:
                each.outcome = error
        except Exception as error:  # noqa: BLE001 - what it is becomes the outcome of the commit that made it
            if len(group) == 1:
                group[0].outcome = error
                return
            for each in group:
                self._write_all(database, meter, [each])

    def _attempt(self, database: Database, meter: Meter, group: Sequence[Commit], *, is_alone: bool) -> None:
        """One transaction with all that still hold; nobody has an outcome before its COMMIT."""
        with database.transaction() as cursor:
            with cursor.connection.pipeline():
                if not is_alone:
                    queue(cursor)
                lock(cursor)
                self._courtesy.keep(cursor, meter)
                together = writer.Group(cursor, [each.changes for each in group])
                locked = monotonic()
                results = together.write()
                for each, result in zip(group, results, strict=True):
                    if not isinstance(result, Exception):
                        each.settle(cursor, result)
                waits = duckdb_waits(cursor)
            self._courtesy.noted(waits(), monotonic() - locked)
        committed = monotonic()
        for each, result in zip(group, results, strict=True):
            meter.took("lock_wait", locked - each.since)
            each.outcome = result
        meter.took("critical_section", committed - locked)
        meter.written_together(sum(not isinstance(result, Exception) for result in results))
