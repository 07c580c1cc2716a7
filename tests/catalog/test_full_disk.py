"""Disks that are full, for real: small file systems in memory, which only root may make."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from duckicelake.catalog.context.services import Services
from duckicelake.errors import CommitStateUnknownError, UnavailableError
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.embedded import EmbeddedPostgres
from tests.conftest import TEMPLATE, services_of
from tests.support.client import Client, append, assert_whole, new_client, pyiceberg_rows, set_properties
from tests.support.seams import fresh

MIB = 1 << 20
FILL = "INSERT INTO filler SELECT repeat(md5(n::text), 60) FROM generate_series(1, %s) n"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")


@contextmanager
def small_disk(size: int) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="duckicelake-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "none", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


@pytest.fixture
def warehouse() -> Iterator[Path]:
    """The lake's files lie on a disk of their own."""
    with small_disk(2 * MIB) as folder:
        yield folder / "warehouse"


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """No byte more goes on the disk while the block runs."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    yield
    filler.unlink()


def test_commit_that_fills_the_disk_of_the_files_can_be_tried_again_and_is_made_once(
    services: Services, client: Client, warehouse: Path
) -> None:
    client.create()
    client.append((1, "one"))
    body = append(client.metadata(), (2, "two"))
    with filled(warehouse.parent):
        with pytest.raises((UnavailableError, CommitStateUnknownError), match="No space left") as failed:
            client.commit(body)
        is_written = failed.type is CommitStateUnknownError
        if is_written:
            with pytest.raises(UnavailableError, match="No space left"):
                Client(fresh(services)).load()
    if not is_written:
        client.commit(body)
    answer = Client(fresh(services)).load()
    assert pyiceberg_rows(answer) == [(1, "one"), (2, "two")]
    assert_whole(answer)
    assert list(warehouse.rglob(".tmp-*")) == []
    assert len(pyiceberg_rows(client.append((3, "three")))) == 3


@pytest.fixture
def cramped_url(postgres: EmbeddedPostgres) -> Iterator[str]:
    """A database on a disk of its own, with room for little more than a new lake."""
    with small_disk(40 * MIB) as disk, psycopg.connect(postgres.url, autocommit=True) as connection:
        os.chown(disk, Path(f"/proc/{connection.info.backend_pid}").stat().st_uid, -1)
        connection.execute(f"CREATE TABLESPACE cramped LOCATION '{disk}'")
        connection.execute(f"CREATE DATABASE cramped TEMPLATE {TEMPLATE} TABLESPACE cramped STRATEGY file_copy")
        try:
            yield make_conninfo(postgres.url, dbname="cramped")
        finally:
            connection.execute("DROP DATABASE cramped WITH (FORCE)")
            connection.execute("DROP TABLESPACE cramped")


@contextmanager
def filled_database(url: str) -> Iterator[None]:
    """No page more goes into any table while the block runs."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE filler (filling text)")
        for rows in (200, 1):
            with suppress(psycopg.errors.DiskFull):
                while True:
                    connection.execute(FILL, [rows])
        yield
        connection.execute("DROP TABLE filler")
        connection.execute("CHECKPOINT")


def test_commit_that_fills_the_disk_of_postgres_writes_nothing_and_can_be_tried_again(
    cramped_url: str, tmp_path: Path
) -> None:
    with closing(open_lake_database(cramped_url, 4)) as database:
        client = Client(services_of(database, tmp_path / "warehouse"))
        with database.transaction() as cursor:
            cursor.execute("UPDATE ducklake_metadata SET value = %s WHERE key = 'data_path'", [f"{tmp_path}/x/"])
        new_client(client.services).create()
        large = {f"p{number}": os.urandom(4000).hex() for number in range(40)}
        with filled_database(cramped_url), pytest.raises(UnavailableError, match=r"disk is full; nothing was written"):
            client.commit(set_properties(**large))
        assert "p0" not in Client(fresh(client.services)).metadata()["properties"]
        assert client.commit(set_properties(**large))["metadata"]["properties"].items() >= large.items()
