"""DuckDB and an Iceberg client change one table at the same time: both changes are there, or one is clearly refused.

Every operation of DuckDB meets every operation of a client, in one of the orders (with DUCKICELAKE_TEST_EVERYTHING in
both); one operation of DuckDB in thirteen always, the others in the suite `model`. What both sides then see is what the
model says of one legal outcome; nothing is lost, doubled or back again, and no snapshot of before has changed.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import duckdb
import pytest
from psycopg.conninfo import conninfo_to_dict

from duckicelake.catalog.context.services import Services
from duckicelake.errors import CatalogError, CommitFailedError, UnavailableError
from duckicelake.lake.ducklake import snapshots
from duckicelake.lake.ducklake.database import build_duckdb_attach, open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.http.errors import HTTP_ERRORS
from tests.catalog.commit.conflict_operations import DUCK, FOREIGN, NATIVE, OTHER, Act, Foreign, Native
from tests.catalog.commit.conflict_tables import prepare
from tests.catalog.commit.conflicts import (
    State,
    Subject,
    assert_healthy,
    assert_seen_by_duckdb,
    assert_versions,
    newest,
    seen_by_iceberg,
)
from tests.conftest import new_database, new_lake, services_of
from tests.support.client import Client

CONFLICT = re.compile("conflict|another transaction has")
REFUSALS = {404, 409}
IMPOSSIBLE = {400, *REFUSALS}
"""How a client is refused whose request makes no sense any more, such as a tag on a snapshot that was expired."""
EVERYTHING = bool(os.environ.get("DUCKICELAKE_TEST_EVERYTHING"))


def cases(operations: Iterable[str], first: int) -> list[object]:
    """(format version, operation of DuckDB): the versions in turn, from `first` on, or both of each for everything.

    One case in 39 is run always; the suite `model` has the others. The number is odd, so that both versions
    are run.
    """
    named = [((2, 3)[(first + number) % 2], name) for number, name in enumerate(operations)]
    chosen = [*named, *((5 - version, name) for version, name in named)] if EVERYTHING else named
    return [
        pytest.param(*case, marks=() if (first + number) % 39 == 0 else pytest.mark.model)
        for number, case in enumerate(chosen)
    ]


def those_that_meet(native: str, last: str) -> list[str]:
    """The client's operations that meet one of DuckDB's, by who commits last."""
    parity = (list(NATIVE).index(native) + (last == "client")) % 2
    return [name for number, name in enumerate(FOREIGN) if EVERYTHING or number % 2 == parity]


LAST_CASES = cases(NATIVE, 2)
WITHIN_CASES = cases([name for name in NATIVE if name != "flush"], 3)
"""A flush locks the rows, so that no client gets past it before it commits."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A lake to be copied, which has a table for every operation of an Iceberg client."""

    database: str
    warehouse: Path
    format_version: int
    subjects: dict[str, Subject]


@pytest.fixture(scope="module")
def lakes(
    postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory, extensions: None
) -> Iterator[Callable[[int], Prepared]]:
    """The lake of each format version, made when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def made(format_version: int) -> Prepared:
            warehouse = tmp_path_factory.mktemp("warehouse")
            url = stack.enter_context(new_lake(postgres, warehouse))
            with closing(open_lake_database(url)) as database, duckdb.connect() as duck:
                duck.execute("LOAD ducklake; LOAD postgres_scanner").execute(build_duckdb_attach(url))
                subjects = prepare(services_of(database, warehouse), duck, format_version)
            return Prepared(str(conninfo_to_dict(url)["dbname"]), warehouse, format_version, subjects)

        yield made


@pytest.fixture(params=[2, 3])
def prepared(request: pytest.FixtureRequest, lakes: Callable[[int], Prepared]) -> Prepared:
    return lakes(request.param)


@pytest.fixture
def database_url(prepared: Prepared, postgres: EmbeddedPostgres) -> Iterator[str]:
    with new_database(postgres, prepared.database) as url:
        yield url


@pytest.fixture
def warehouse(prepared: Prepared) -> Path:
    return prepared.warehouse


@dataclass(slots=True)
class Meeting:
    """One operation of each side on one table. Every order returns who was refused, and what the error said."""

    services: Services
    duck: duckdb.DuckDBPyConnection
    subject: Subject
    native: Native
    foreign: Foreign
    start: State

    def client_commits_within_duckdbs_transaction(self) -> str:
        self.begin()
        self.prepared()()
        after = self._after_client(self.start)
        assert after is not None
        middle = self._version(after)
        refusal = self.end()
        if refusal is None and self.native.shows_early:
            middle = {}
        expected = self._after_duckdb(after) if refusal is None else after
        assert expected is not None, "DuckDB changed what isn't there any more"
        self._check(expected, middle)
        return f"DuckDB refused: {refusal}" if refusal else "both applied"

    def duckdb_commits_after_client_loaded(self) -> str:
        act = self.prepared()
        self.begin()
        return self._client_comes_last(act)

    def client_loads_within_duckdbs_transaction(self) -> str:
        self.begin()
        return self._client_comes_last(self.prepared())

    def _client_comes_last(self, act: Act) -> str:
        assert self.end() is None
        after = self._after_duckdb(self.start)
        assert after is not None
        middle = self._version(after)
        possible = self._after_client(after)
        refusal = _refusal(act, IMPOSSIBLE if possible is None else REFUSALS)
        expected = possible if refusal is None else after
        assert expected is not None, "the client changed what isn't there any more"
        self._check(expected, middle)
        return f"client refused: {refusal}" if refusal else "both applied"

    def begin(self) -> None:
        self.duck.execute("BEGIN")
        for statement in self.native.statements(self.subject):
            self.duck.execute(statement).fetchall()

    def end(self) -> str | None:
        try:
            self.duck.execute("COMMIT")
        except duckdb.TransactionException as raised:
            refusal = str(raised)
        else:
            return None
        assert CONFLICT.search(refusal)
        return refusal

    def prepared(self) -> Act:
        client = Client(self.services)
        return self.foreign.prepared(client, self.subject, client.metadata(self.subject.name))

    def _after_client(self, state: State) -> State | None:
        return self.foreign.effect(state, self.start, self.subject)

    def _after_duckdb(self, state: State) -> State | None:
        return self.native.effect(state, self.subject)

    def _version(self, state: State) -> dict[int, State]:
        return {newest(self.services): state}

    def _check(self, expected: State, middle: dict[int, State]) -> None:
        names = [self.subject.name, f"{self.subject.name}_{DUCK}", f"{self.subject.name}_{OTHER}"]
        found = seen_by_iceberg(self.services, self.subject, names)
        if expected.name is None:
            assert found is None
            assert not set(names) & _duckdbs_tables(self.duck)
        else:
            assert found == expected
            assert_seen_by_duckdb(self.duck, expected)
        assert_versions(self.duck, middle)
        assert_healthy(self.services)


def _refusal(act: Act, statuses: Collection[int]) -> str | None:
    try:
        act()
    except CatalogError as raised:
        error = raised
    else:
        return None
    answer = HTTP_ERRORS[type(error)]
    assert answer.status in statuses, error
    return f"{answer.status} {answer.type} {error}"


def _duckdbs_tables(duck: duckdb.DuckDBPyConnection) -> set[str]:
    return {row[0] for row in duck.sql("SHOW TABLES FROM lake.ns").fetchall()}


LAST = {2: Meeting.duckdb_commits_after_client_loaded, 3: Meeting.client_loads_within_duckdbs_transaction}
"""To the server these two are one, so each format version gets one of them."""


def expected_outcomes() -> dict[str, tuple[str, str]]:
    """By DuckDB's operation, what `conflict_matrix.txt` says of (DuckDB, the client) committing last."""
    lines = Path(__file__).with_name("conflict_matrix.txt").read_text().splitlines()
    rows = [line.rsplit(maxsplit=2) for line in lines if not line.startswith("#")]
    return {name: (within, after) for name, within, after in rows}


EXPECTED = expected_outcomes()


def meet(
    prepared: Prepared,
    services: Services,
    duck: duckdb.DuckDBPyConnection,
    native: str,
    foreign: Iterable[str],
    order: Callable[[Meeting], str],
) -> tuple[dict[str, str], dict[str, Exception]]:
    """The outcome, or what was wrong, by the client's operation; each has a table of its own."""
    outcomes: dict[str, str] = {}
    wrong: dict[str, Exception] = {}
    duck.execute("SET ducklake_retry_wait_ms = 1")
    for name in foreign:
        subject = prepared.subjects[name]
        start = subject.state(prepared.format_version)
        try:
            outcomes[name] = order(Meeting(services, duck, subject, NATIVE[native], FOREIGN[name], start))
        except (AssertionError, CatalogError, duckdb.Error) as error:
            wrong[name] = error
    return outcomes, wrong


def marks(outcomes: dict[str, str]) -> dict[str, str]:
    return {name: "+" if outcome == "both applied" else "-" for name, outcome in outcomes.items()}


def expected(said: str, met: Iterable[str]) -> dict[str, str]:
    """What a line says of those of the client's operations."""
    known = dict(zip(FOREIGN, said, strict=True))
    return {name: known[name] for name in met}


@pytest.mark.parametrize(("prepared", "native"), WITHIN_CASES, indirect=["prepared"])
def test_client_commits_within_duckdbs_transaction(
    prepared: Prepared, services: Services, ducklake: duckdb.DuckDBPyConnection, native: str
) -> None:
    met, order = those_that_meet(native, "DuckDB"), Meeting.client_commits_within_duckdbs_transaction
    outcomes, wrong = meet(prepared, services, ducklake, native, met, order)
    assert not wrong
    assert marks(outcomes) == expected(EXPECTED[native][0], met)


@pytest.mark.parametrize(("prepared", "native"), LAST_CASES, indirect=["prepared"])
def test_client_commits_what_it_prepared_before_duckdb_committed(
    prepared: Prepared, services: Services, ducklake: duckdb.DuckDBPyConnection, native: str
) -> None:
    met = those_that_meet(native, "client")
    outcomes, wrong = meet(prepared, services, ducklake, native, met, LAST[prepared.format_version])
    assert not wrong
    said = EXPECTED[native][1].replace("2", "+" if prepared.format_version == 2 else "-")
    assert marks(outcomes) == expected(said, met)


def test_client_gives_way_to_a_flush(
    prepared: Prepared, services: Services, ducklake: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = prepared.subjects["delete rows"]
    meeting = Meeting(services, ducklake, subject, NATIVE["flush"], FOREIGN["delete rows"], subject.state(2))
    delete = meeting.prepared()
    meeting.begin()
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "MAX_ATTEMPTS", 2)
        with pytest.raises(UnavailableError, match="try again"):
            delete()
    assert meeting.end() is None
    with pytest.raises(CommitFailedError):
        delete()
    meeting.prepared()()
    assert Client(services).metadata(subject.name)["refs"]["main"]["snapshot-id"] not in subject.shown


def test_flush_and_client_at_the_same_time_never_wait_for_each_other(
    prepared: Prepared, services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    subject = prepared.subjects["delete rows"]
    state = subject.state(prepared.format_version)
    meeting = Meeting(services, ducklake, subject, NATIVE["flush"], FOREIGN["delete rows"], state)
    delete = meeting.prepared()
    meeting.begin()
    with ThreadPoolExecutor() as pool:
        deleting = pool.submit(delete)
        assert meeting.end() is None
        with pytest.raises(CommitFailedError):
            deleting.result()
    assert seen_by_iceberg(services, subject, [subject.name]) == state
    assert_seen_by_duckdb(ducklake, state)
    assert_healthy(services)
