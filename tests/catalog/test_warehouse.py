"""A warehouse knows whose it is: no other lake writes or deletes files there until it was adopted."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from duckicelake.catalog import warehouse as warehouses
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.warehouse import MARKER, describe_server, prepare_lake
from duckicelake.changelog import entries, source
from duckicelake.cli.console.terminal import parse_time
from duckicelake.cli.gc import collect_orphans
from duckicelake.cli.wiring.examination import examine
from duckicelake.delta.export import logs
from duckicelake.errors import InvalidRequestError, InvalidSettingsError, UnavailableError
from duckicelake.lake.ducklake import snapshots
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup import identity
from duckicelake.lake.setup.identity import read_lake
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.settings.model import Settings
from duckicelake.storage.policy import LocationPolicy
from tests.catalog.test_gc import grow_old
from tests.conftest import new_database, new_lake, services_of
from tests.support.client import NS, Client, new_client, set_properties
from tests.support.replicas import following, running_cluster

Open = Callable[[str], Services]


@pytest.fixture
def lake(services: Services) -> Services:
    """A lake that has a table and whose server has started once."""
    prepare_lake(services)
    new_client(services).create()
    return services


@pytest.fixture
def opened(warehouse: Path) -> Iterator[Open]:
    """Gives a server of the warehouse on the lake in another database."""
    with ExitStack() as stack:
        yield lambda url: services_of(stack.enter_context(closing(open_lake_database(url, pool_size=4))), warehouse)


@pytest.fixture
def copy(postgres: EmbeddedPostgres, lake: Services, opened: Open) -> Iterator[Services]:
    """The lake as it is after a restore of its dump beside it."""
    name = psycopg.conninfo.conninfo_to_dict(lake.database.url)["dbname"]
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name])
    with new_database(postgres, str(name)) as url:
        yield opened(url)


def settings_of(services: Services) -> Settings:
    return Settings(database_url=services.database.url, warehouse=services.policy.warehouse)


def marker_of(services: Services) -> Path:
    return Path(services.policy.warehouse, MARKER)


def gc(services: Services, *, confirm: bool = False) -> None:
    collect_orphans(settings_of(services), parse_time("2h"), delete=True, confirm_warehouse=confirm)


def assert_refused(services: Services) -> None:
    """Reads are served, and nothing is written or deleted."""
    grow_old(services)
    before = set(Path(services.policy.warehouse).rglob("*"))
    load_current_table(services, NS, "t")
    writes: list[Callable[[], object]] = [
        lambda: create_namespace(services, ("another",), {}),
        lambda: Client(services).create("another"),
        lambda: Client(services).commit(set_properties(a="b")),
        services.database.gate.require_open,
    ]
    for write in writes:
        with pytest.raises(UnavailableError, match=r"Nothing was written: .* belongs to lake .*duckicelake adopt"):
            write()
    with pytest.raises(InvalidRequestError, match="Nothing was deleted"):
        gc(services)
    with pytest.raises(InvalidRequestError, match="Nothing was deleted"):
        gc(services, confirm=True)
    assert set(Path(services.policy.warehouse).rglob("*")) == before
    assert [finding.name for finding in examine(settings_of(services)) if not finding.ok] == ["warehouse"]


def assert_writes(services: Services) -> None:
    create_namespace(services, (f"n{uuid4().hex}",), {})
    assert [finding for finding in examine(settings_of(services)) if not finding.ok] == []


def test_new_lake_marks_its_warehouse_and_starts_again(lake: Services) -> None:
    assert marker_of(lake).exists()
    prepare_lake(lake)
    assert_writes(lake)
    gc(lake)


def test_another_lake_on_the_warehouse_writes_nothing_until_it_has_adopted_it(
    postgres: EmbeddedPostgres, lake: Services, warehouse: Path, opened: Open
) -> None:
    with new_lake(postgres, warehouse) as url:
        other = opened(url)
        client = new_client(other)
        client.create()
        prepare_lake(other)
        assert_refused(other)
        assert_writes(lake)
        assert "belonged to lake" in " ".join(warehouses.adopt(other))
        assert_writes(other)
        warehouses.look(lake)  # as its servers do every half minute
        assert_refused(lake)


def test_restored_copy_beside_the_living_lake_writes_nothing(lake: Services, copy: Services) -> None:
    prepare_lake(copy)
    assert read_lake(copy.database).identity.lake_id == read_lake(lake.database).identity.lake_id
    assert_refused(copy)
    assert_writes(lake)
    warehouses.adopt(copy)
    assert_writes(copy)


def test_upgraded_cluster_is_adopted_and_an_unknown_one_is_any(lake: Services) -> None:
    marker = marker_of(lake)
    system = read_lake(lake.database).identity.system
    assert system
    marker.write_text(marker.read_text().replace(system, "77"))
    warehouses.look(lake)
    assert_refused(lake)
    warehouses.adopt(lake)
    assert_writes(lake)
    marker.write_text(marker.read_text().replace(system, ""))
    warehouses.look(lake)
    assert_writes(lake)


def test_cluster_that_is_not_shown_to_the_login_is_any(services: Services) -> None:
    with services.database.transaction() as cursor:
        cursor.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
        cursor.execute("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN; GRANT pg_read_all_data TO guest")
    try:
        with closing(open_lake_database(f"{services.database.url} user=guest", pool_size=1)) as database:
            known, unknown = read_lake(services.database).identity, read_lake(database).identity
    finally:
        with services.database.transaction() as cursor:
            cursor.execute("DROP ROLE guest")
    assert (known.system, unknown.system) == (known.system or "missing", "")
    assert known.is_same(unknown)


@pytest.mark.crash
def test_promoted_standby_needs_nothing(warehouse: Path) -> None:
    with running_cluster() as primary, following(primary) as standby:
        with closing(open_lake_database(primary.url, pool_size=2)) as database:
            prepare_lake(services_of(database, warehouse), creates=True)
        standby.wait_for(primary)
        primary.stop()
        standby.promote()
        with closing(open_lake_database(standby.url, pool_size=2)) as database:
            promoted = services_of(database, warehouse)
            prepare_lake(promoted)
            create_namespace(promoted, ("n",), {})


def test_lost_marker_stops_writes_until_the_warehouse_is_adopted(lake: Services) -> None:
    """Without it another bucket of the same name, or an empty folder where a disk should be, would fill with files."""
    marker_of(lake).unlink()
    prepare_lake(lake)
    with pytest.raises(UnavailableError, match="has lost"):
        create_namespace(lake, ("another",), {})
    warehouses.adopt(lake)
    assert_writes(lake)


def test_unmarked_warehouse_with_unknown_files_is_collected_once_confirmed(services: Services) -> None:
    orphan = Path(services.policy.warehouse, "data", "theirs.parquet")
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"x")
    prepare_lake(services)
    assert not marker_of(services).exists()
    create_namespace(services, ("n",), {})
    grow_old(services)
    with pytest.raises(InvalidRequestError, match=r"theirs.parquet.*--confirm-warehouse"):
        gc(services)
    assert orphan.exists()
    gc(services, confirm=True)
    assert not orphan.exists()
    assert_writes(services)


def test_lakes_that_start_at_once_agree_whose_the_warehouse_is(
    postgres: EmbeddedPostgres, warehouse: Path, opened: Open
) -> None:
    with ExitStack() as stack:
        lakes = [opened(stack.enter_context(new_lake(postgres, warehouse))) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(prepare_lake, lakes))
        assert [lake.database.gate.reason is None for lake in lakes].count(True) == 1


def test_data_path_beside_the_warehouse_has_a_marker_of_its_own(
    postgres: EmbeddedPostgres, tmp_path: Path, lake: Services, copy: Services
) -> None:
    """A copy that was given a warehouse of its own still has the living lake's DATA_PATH."""
    elsewhere = replace(copy, policy=LocationPolicy(warehouse=str(tmp_path / "own"), allowed=()))
    with pytest.raises(InvalidSettingsError, match=r"in the warehouse .*duckicelake adopt"):
        prepare_lake(elsewhere)
    warehouses.adopt(elsewhere)
    with lake.database.transaction() as cursor:
        warehouses.look(lake)
        assert lake.database.gate.reason is None, "the folder of all of them is the living one's"
        cursor.execute("SELECT 1")
    assert (Path(lake.policy.warehouse) / "ducklake" / MARKER).exists()


def test_server_with_other_settings_than_those_that_run_is_refused(lake: Services, tmp_path: Path) -> None:
    running = describe_server(lake)
    with lake.database.transaction() as cursor:
        running.register(cursor)
        cursor.execute("UPDATE duckicelake_server SET host = 'another machine'")
    prepare_lake(lake)
    others = replace(lake, snapshot_ids="ducklake")
    with pytest.raises(InvalidSettingsError, match="snapshot_ids 'client', and this one has 'ducklake'"):
        prepare_lake(others)
    with lake.database.transaction() as cursor:
        running.forget(cursor)
    prepare_lake(others)
    with pytest.raises(InvalidSettingsError, match=r"in the warehouse .*/warehouse, and this server has .*/elsewhere"):
        prepare_lake(replace(lake, policy=replace(lake.policy, warehouse=str(tmp_path / "elsewhere"))))


def test_bucket_is_marked_and_refused_to_another_lake(on_s3: Services, postgres: EmbeddedPostgres) -> None:
    prepare_lake(on_s3)
    create_namespace(on_s3, ("n",), {})
    with new_lake(postgres, Path("/nowhere")) as url, closing(open_lake_database(url, pool_size=2)) as database:
        with database.transaction() as cursor:
            data_path = f"{on_s3.policy.warehouse}/ducklake/"
            cursor.execute("UPDATE ducklake_metadata SET value = %s WHERE key = 'data_path'", [data_path])
        other = replace(on_s3, database=database)
        prepare_lake(other)
        with pytest.raises(UnavailableError, match="belongs to lake"):
            create_namespace(other, ("n",), {})
        warehouses.adopt(other)
        create_namespace(other, ("n",), {})
    warehouses.look(on_s3)
    with pytest.raises(UnavailableError, match="belongs to lake"):
        create_namespace(on_s3, ("another",), {})


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"lake_id": null'])
def test_marker_that_can_not_be_read_is_no_ones(lake: Services, content: str) -> None:
    marker_of(lake).write_text(content)
    warehouses.look(lake)
    assert lake.database.gate.reason is not None
    warehouses.adopt(lake)
    assert_writes(lake)


def test_no_two_locks_of_sessions_and_transactions_have_one_key() -> None:
    """Servers wait for each other with the one and hold the other for as long as they run."""
    keys = [
        snapshots.LOCK_KEY,
        snapshots.QUEUE_KEY,
        source.FOLLOWER_KEY,
        logs.KEEPER_KEY,
        entries.AWAITED_KEY,
        identity.SERVERS_KEY,
    ]
    assert len(set(keys)) == len(keys)


def test_server_registers_while_another_follows_the_lake(lake: Services) -> None:
    with lake.database.open_listener(None).connect() as follower:
        assert source.take_lead(follower)
        with lake.database.transaction() as cursor:
            cursor.execute("SET LOCAL lock_timeout TO '2s'")
            describe_server(lake).register(cursor)
