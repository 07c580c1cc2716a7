"""After the faults: what is still open is settled, then every reader reads everything, and the catalog is examined."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from random import Random
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Final

import psycopg
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.lake.side_tables.idempotency import OUTCOME_LIFETIME
from scripts.demo_job.server import PROGRAM, own_environment
from scripts.history_job.chains import judge_chain, judge_ids
from scripts.history_job.client import NAMESPACE, Client, Reply, Session, now
from scripts.history_job.history import FOREVER, Anomaly, Observation, Outcome, Token
from scripts.history_job.native import look
from scripts.history_job.served import Served
from scripts.history_job.sql_server import SqlProcess
from scripts.history_job.workload import pyiceberg_rows

REPEATED: Final = 60
"""Acknowledged requests that are sent once more, to no effect."""
_REMEMBERED: Final = int((OUTCOME_LIFETIME / timedelta(microseconds=1)) * 1000 * 0.8)
"""For so many nanoseconds the server knows keys for sure."""


def settle(session: Session, client: Client) -> int:
    """Ask again what came of each request with a key that isn't too old; how many there were."""
    count = 0
    for operation, change in session.open_ends:
        if now() - operation.invoked > _REMEMBERED:
            session.history.operations.append(operation)
            continue
        count += 1
        reply, said = client.ask_again(change)
        outcome = {Reply.DONE: Outcome.ACKNOWLEDGED, Reply.REFUSED: Outcome.REFUSED}.get(reply, Outcome.UNKNOWN)
        if outcome is Outcome.UNKNOWN:
            text = f"{operation.kind} {operation.number}, sent again without any faults, was answered {said}"
            session.history.anomalies.append(Anomaly("not settled", text))
        answers = (*operation.answers, f"settled: {said}")
        session.history.operations.append(replace(operation, outcome=outcome, answered=now(), answers=answers))
    session.open_ends.clear()
    return count


def repeat(session: Session, client: Client, random: Random) -> int:
    """Send some acknowledged requests again: each must be answered as done. How many these were."""
    young = [each for each in session.done if now() - each[0].invoked < _REMEMBERED]
    chosen = random.sample(young, min(REPEATED, len(young)))
    for operation, change in chosen:
        reply, said = client.ask_again(change)
        if reply is not Reply.DONE:
            text = f"{operation.kind} {operation.number} was acknowledged, and sent again it was answered {said}"
            session.history.anomalies.append(Anomaly("not settled", text))
    return len(chosen)


def read_everything(session: Session, client: Client, served: Served, storage: dict[str, str]) -> None:
    """All tables through PyIceberg, by the REST catalog and from files alone, and through DuckDB."""
    for table in (*session.lasting_tables(), *_own_tables(session)):
        metadata = client.load(table)
        if metadata is not None and table in session.lasting_tables():
            session.history.anomalies.extend(judge_chain(table, metadata, expires=table in session.expiring))
            _, answer = client.remembered[table]
            _note(session, "PyIceberg (files)", table, pyiceberg_rows(answer["metadata-location"], storage))
    with RestCatalog("lake", uri=served.proxy.target, **storage) as catalog:
        for table in session.lasting_tables():
            scan = catalog.load_table((NAMESPACE, table)).scan(selected_fields=("id",))
            _note(session, "PyIceberg", table, scan.to_arrow()["id"].to_pylist())


def read_as_duckdb(session: Session, opening: Sequence[str]) -> None:
    process = SqlProcess()
    try:
        process.execute(*opening)
        session.history.observations.append(look(process, session.lasting_tables()))
    finally:
        process.close()


def readers_disagree(session: Session, since: int) -> Iterator[Anomaly]:
    """Of rows whose insert nobody knows the outcome of, too, all readers have the same."""
    by_table: dict[str, dict[str, frozenset[Token]]] = {}
    for observation in session.history.observations:
        if observation.invoked < since:
            continue
        for kind, table in observation.domains:
            if kind == "row":
                seen = frozenset(token for token in observation.tokens if token[:2] == (kind, table))
                by_table.setdefault(table, {})[observation.reader] = seen
    for table, readers in by_table.items():
        (first, rows), *others = readers.items()
        for reader, found in others:
            if found != rows:
                text = f"{table}: {first} and {reader} differ in {sorted(found ^ rows)[:5]}"
                yield Anomaly("readers disagree", text)


def examine(served: Served) -> Iterator[Anomaly]:
    """DuckLake's snapshot ids, and what `duckicelake doctor` finds."""
    with closing(psycopg.connect(served.database_url)) as connection:
        rows = connection.execute("SELECT snapshot_id FROM ducklake_snapshot ORDER BY snapshot_id").fetchall()
    yield from judge_ids([id_ for (id_,) in rows])
    command = [PROGRAM, "doctor", "--lake", str(served.folder)]
    environment = own_environment(served.settings) | {"COLUMNS": os.environ.get("COLUMNS", "200")}
    done = subprocess.run(
        command, env=environment, cwd=served.folder, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, text=True, check=False
    )
    if done.returncode:
        failures = [line for line in done.stdout.splitlines() if not line.startswith("ok")]
        yield Anomaly("doctor", "\n".join(failures)[:2000] or f"doctor exits with {done.returncode}")


def _own_tables(session: Session) -> list[str]:
    """All names that clients' own tables had."""
    added = {token for operation in session.history.operations for token in operation.adds}
    return sorted({table for kind, table, _ in added if kind == "table"} - set(session.lasting_tables()))


def _note(session: Session, reader: str, table: str, ids: list[int]) -> None:
    tokens = tuple(("row", table, id_) for id_ in ids)
    domains = frozenset({("row", table)})
    observation = Observation(reader, now(), FOREVER - 1, domains, tokens, table)
    session.history.observations.append(observation)
