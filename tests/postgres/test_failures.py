import asyncio
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest

from duckicelake.errors import FailoverError, UnavailableError
from duckicelake.lake.ducklake.database import open_lake_database, open_lake_session
from duckicelake.lake.setup.format import prepare_catalog
from duckicelake.lake.side_tables.freshness import FreshnessLine
from duckicelake.postgres.database import Database
from duckicelake.postgres.failures import TimelineGuard, read_timeline
from tests.support.replicas import Cluster, following, running_cluster, url_of


def test_timeline_that_postgres_does_not_show_is_any() -> None:
    left: list[bool] = []
    timeline = TimelineGuard(lambda: left.append(True))
    for met in (None, "00000001", None, "00000001"):
        timeline.check(met)
    assert not left


def test_timeline_is_left_once_and_for_good() -> None:
    left: list[bool] = []
    timeline = TimelineGuard(lambda: left.append(True))
    timeline.check("00000001")
    for met in ("00000002", "00000002", "00000001", None):
        with pytest.raises(FailoverError):
            timeline.check(met)
    assert left == [True]


def test_who_remembers_uses_one_timeline_only() -> None:
    left: list[bool] = []
    with running_cluster() as primary, following(primary) as standby:
        url = url_of([standby, primary])
        with (
            closing(open_lake_database(url, 2)) as forgetful,
            closing(open_lake_database(url, 2, left=lambda: left.append(True))) as database,
        ):
            begins = (database.transaction, database.reading, database.statement, database.open_listener("n").connect)
            for begin in begins:
                with begin() as cursor:
                    assert cursor.execute("SELECT 1").fetchone() == (1,)
            fail_over(primary, standby)
            for begin in begins:
                with pytest.raises(FailoverError), begin():
                    pytest.fail("what it remembers may be of commits that are lost")
            with forgetful.transaction() as cursor:
                assert cursor.execute("SELECT 1").fetchone() == (1,)
    assert left == [True]


def test_session_on_a_standby_that_becomes_the_primary_is_on_another_timeline() -> None:
    """As may be of several hosts of which the URL takes any."""
    left: list[bool] = []
    with running_cluster() as primary, following(primary) as standby:
        url = f"{url_of([standby, primary])}?target_session_attrs=any&load_balance_hosts=random"
        with closing(that_has_met_both(lambda: open_lake_database(url, 2, left=lambda: left.append(True)))) as database:
            fail_over(primary, standby)
            for begin in (database.transaction, database.reading, database.statement):
                with pytest.raises(FailoverError), begin():
                    pytest.fail("what it remembers may be of commits that are lost")
    assert left == [True]


def that_has_met_both(connect: Callable[[], Database]) -> Database:
    """With a session on a primary, and one on a standby."""
    while True:
        database = connect()
        with database.reading() as first, database.reading() as second:
            found = {cursor.execute("SELECT pg_is_in_recovery()").fetchone() for cursor in (first, second)}
        if len(found) == 2:
            return database
        database.close()


def test_freshness_is_asked_of_no_standby() -> None:
    """A line lasts, and on it no one would hear that the standby has become the primary."""
    with running_cluster() as primary, following(primary) as standby:
        with closing(open_lake_database(primary.url, 1)) as database:
            prepare_catalog(database, "/lake/")
        standby.wait_for(primary)

        async def ask() -> None:
            line = FreshnessLine(standby.url, {}, open_lake_session(), TimelineGuard(pytest.fail))
            for _ in range(10):
                with pytest.raises(UnavailableError, match="no line"):
                    await line.freshness([])
                await asyncio.sleep(0.1)
            line.close()

        asyncio.run(asyncio.wait_for(ask(), 60))


def test_freshness_is_not_asked_of_another_timeline() -> None:
    left: list[bool] = []
    with running_cluster() as primary, following(primary) as standby:
        with psycopg.connect(primary.url) as connection:
            timeline = TimelineGuard(lambda: left.append(True))
            timeline.check(read_timeline(connection))
        fail_over(primary, standby)

        async def ask() -> None:
            line = FreshnessLine(standby.url, {}, open_lake_session(), timeline)
            while not left:
                with pytest.raises(UnavailableError, match="no line"):
                    await line.freshness([])
                await asyncio.sleep(0.01)
            line.close()

        asyncio.run(asyncio.wait_for(ask(), 60))
    assert left == [True]


def test_role_that_may_not_see_the_timeline_may_use_the_database() -> None:
    with running_cluster() as postgres:
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            assert read_timeline(connection) == "00000001"
            connection.execute("REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC")
            connection.execute("CREATE ROLE guest LOGIN")
        url = postgres.url.replace("postgres@", "guest@")
        with psycopg.connect(url) as connection:
            assert read_timeline(connection) is None
        with closing(open_lake_database(url, 1, left=pytest.fail)) as database, database.reading() as cursor:
            assert cursor.execute("SELECT current_user").fetchone() == ("guest",)


def fail_over(primary: Cluster, standby: Cluster) -> None:
    primary.stop()
    standby.promote()
