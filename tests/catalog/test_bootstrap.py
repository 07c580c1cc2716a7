"""The first admin is made once, and only where no client could log in yet."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duckicelake.catalog.principals import has_registered_logins
from duckicelake.cli.wiring.authentication import bootstrap
from duckicelake.errors import InvalidSettingsError
from duckicelake.lake.side_tables import issuers, principals
from duckicelake.lake.side_tables.issuers import Issuer
from duckicelake.lake.side_tables.principals import NewPrincipal
from duckicelake.postgres.database import Database


def test_of_servers_that_start_at_once_one_makes_the_first_admin(database: Database, tmp_path: Path) -> None:
    files = [tmp_path / f"secret{number}" for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda file: bootstrap(database, file), files))
    assert sorted(made) == [False, False, False, True]
    (written,) = [file for file in files if file.exists()]
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert written.read_text().startswith("root:dlk_sec_")
    with database.reading() as cursor:
        assert principals.read_memberships(cursor) == [("admin", "root")]
    assert has_registered_logins(database)


def test_no_admin_is_made_where_there_are_principals_or_issuers(database: Database, tmp_path: Path) -> None:
    with database.transaction() as cursor:
        issuers.insert_issuer(cursor, Issuer("corp", "https://id.example", "lake"))
    assert not bootstrap(database, tmp_path / "secret")
    assert has_registered_logins(database)
    with database.transaction() as cursor:
        issuers.delete_issuer(cursor, "corp")
        principals.insert_principal(cursor, NewPrincipal("ann", "user"))
    assert not bootstrap(database, tmp_path / "secret")
    assert not has_registered_logins(database)
    assert not (tmp_path / "secret").exists()


def test_without_its_file_no_admin_is_made(database: Database, tmp_path: Path) -> None:
    taken = tmp_path / "secret"
    taken.write_text("another's")
    for file in (taken, tmp_path / "nowhere" / "secret"):
        with pytest.raises(InvalidSettingsError, match="can't be made"):
            bootstrap(database, file)
    assert taken.read_text() == "another's"
    with database.reading() as cursor:
        assert principals.read_principals(cursor, ("service",)) == []
