"""DuckDB with the ducklake extension, beside the server on the same Postgres: it inserts, deletes and looks."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from duckdb_extensions import import_extension

from scripts.history_job.client import NAMESPACE, Session, now, pause
from scripts.history_job.history import SMALL_INSERT, Observation, Operation, Outcome, Token, row_ids, row_tokens
from scripts.history_job.sql_server import Failed, SqlProcess

NAME: Final = "duckdb"
FILE_ROWS: Final = 15
"""More than DuckLake inlines."""
PAUSE_SECONDS: Final = 0.05
OWN_SHARE: Final = 0.4
"""Statements of DuckDB's for each step of the clients, all together: it is faster than they are."""


@dataclass(slots=True)
class Native:
    """One DuckDB that goes on until it is stopped. What fails may have happened: DuckDB can't ask again."""

    session: Session
    opening: Sequence[str]
    """The statements by which DuckDB gets to the lake."""
    random: Random
    ended: threading.Event
    process: SqlProcess | None = None
    written: list[tuple[str, range]] = field(default_factory=list)
    statements: int = 0
    failures: int = 0

    def run(self) -> None:
        while not self.ended.wait(PAUSE_SECONDS):
            if self.statements > OWN_SHARE * self.session.attempted:
                continue
            self.statements += 1
            try:
                process = self._started()
                self.random.choices([self._insert, self._delete, self._look], [6, 2, 3])[0](process)
            except Failed:  # Postgres or the store is away: DuckDB must be started anew
                self.failures += 1
                self._close()
                pause(3)
        self._close()

    def _close(self) -> None:
        if self.process is not None:
            self.process.close()
            self.process = None

    def _started(self) -> SqlProcess:
        if self.process is None:
            self.process = SqlProcess()
            self.process.execute(*self.opening)
        return self.process

    def _insert(self, process: SqlProcess) -> None:
        number, table = next(self.session.history.numbers), self._table()
        ids = row_ids(number, self.random.choice([1, 3, FILE_ROWS]))
        kind = "insert" if len(ids) == FILE_ROWS else SMALL_INSERT
        statement = f"INSERT INTO {_name(table)} (id) SELECT unnest({list(ids)})"
        self._execute(process, kind, number, statement, row_tokens(table, ids), frozenset())
        self.written.append((table, ids))

    def _delete(self, process: SqlProcess) -> None:
        """Delete some or all rows of an earlier insert; clients may have been faster."""
        if not self.written:
            return
        table, ids = self.written.pop(self.random.randrange(len(self.written)))
        gone = ids[: self.random.randint(1, len(ids))]
        statement = f"DELETE FROM {_name(table)} WHERE id IN ({', '.join(map(str, gone))})"
        number = next(self.session.history.numbers)
        self._execute(process, "native delete", number, statement, frozenset(), row_tokens(table, gone))

    def _execute(
        self,
        process: SqlProcess,
        kind: str,
        number: int,
        statement: str,
        adds: frozenset[Token],
        removes: frozenset[Token],
    ) -> None:
        """What changes no row is no operation."""
        began, outcome, said, changed = now(), Outcome.UNKNOWN, "ok", True
        try:
            ((rows,),) = process.execute(statement)
            outcome, changed = Outcome.ACKNOWLEDGED, rows > 0
        except Failed as error:
            said = str(error)[:200]
            raise
        finally:
            if changed:
                operation = Operation(number, NAME, kind, adds, removes, began, now(), outcome, (said,))
                self.session.history.operations.append(operation)

    def _look(self, process: SqlProcess) -> None:
        """Some tables, all in one transaction."""
        self.session.history.observations.append(
            look(process, [*self.session.active_tables(), *self.session.keyed_tables])
        )

    def _table(self) -> str:
        return self.random.choice(self.session.active_tables())


def look(process: SqlProcess, tables: Sequence[str]) -> Observation:
    """All rows of some tables, as one transaction shows them."""
    invoked = now()
    parts = (f"SELECT '{table}', id FROM {_name(table)}" for table in tables)
    rows = process.execute(" UNION ALL ".join(parts))
    tokens: list[Token] = [("row", table, id_) for table, id_ in rows]
    domains = frozenset(("row", table) for table in tables)
    return Observation("DuckDB", invoked, now(), domains, tuple(tokens))


def install() -> None:
    """Put the extensions where DuckDB finds them."""
    for extension in ("ducklake", "postgres_scanner", "httpfs"):
        import_extension(extension)


def opening(attach: str, secrets: Sequence[str]) -> list[str]:
    """The statements by which DuckDB gets to the lake."""
    return [*secrets, "LOAD ducklake", "LOAD postgres_scanner", f"ATTACH '{attach}' AS lake"]


def _name(table: str) -> str:
    return f"lake.{NAMESPACE}.{table}"
