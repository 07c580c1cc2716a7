"""`duckicelake constraints`: an operator hears what isn't verified, and has DuckDB verify it."""

from pathlib import Path

import duckdb
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.constraints.verification import report_constraints
from duckicelake.errors import InvalidRequestError, NoSuchTableError
from duckicelake.settings.model import Settings
from tests.support.client import Client, append, new_client, set_properties


@pytest.fixture
def client(services: Services) -> Client:
    return new_client(services)


def lines(database_url: str, warehouse: Path, *, verify: bool = False) -> list[str]:
    found = report_constraints(Settings(database_url=database_url, warehouse=str(warehouse)), "ns.t", verify=verify)
    assert all(each.is_well == str(each).endswith("\tverified") for each in found)
    return [str(each) for each in found]


def test_what_all_rows_keep_is_noted_as_verified_and_what_one_violates_is_reported(
    client: Client, ducklake: duckdb.DuckDBPyConnection, database_url: str, warehouse: Path
) -> None:
    client.create(properties={"constraint.odd": "id % 2 = 1", "constraint.named": "name LIKE 'a%'"})
    assert lines(database_url, warehouse) == ["odd\tid % 2 = 1\tverified", "named\tname LIKE 'a%'\tverified"]
    client.commit(append(client.metadata(), (1, "a"), (3, "ab")))
    first = client.metadata()["current-snapshot-id"]
    ducklake.execute("INSERT INTO lake.ns.t VALUES (5, 'b')")
    second = client.metadata()["current-snapshot-id"]
    unverified = [f"odd\tid % 2 = 1\tunverified since snapshot {first}"]
    unverified += [f"named\tname LIKE 'a%'\tunverified since snapshot {first}"]
    assert lines(database_url, warehouse) == unverified
    found = lines(database_url, warehouse, verify=True)
    assert found == ["odd\tid % 2 = 1\tverified", "named\tname LIKE 'a%'\tVIOLATED by 1 row"]
    assert lines(database_url, warehouse)[0] == "odd\tid % 2 = 1\tverified"
    ducklake.execute("DELETE FROM lake.ns.t WHERE id = 5")
    assert lines(database_url, warehouse, verify=True)[1] == "named\tname LIKE 'a%'\tverified"
    assert second != first
    client.commit(append(client.metadata(), (7, "a")))
    third = client.metadata()["current-snapshot-id"]
    assert lines(database_url, warehouse)[0] == f"odd\tid % 2 = 1\tunverified since snapshot {third}"


def test_constraint_without_its_column_is_reported_as_broken(
    client: Client, ducklake: duckdb.DuckDBPyConnection, database_url: str, warehouse: Path
) -> None:
    client.create(properties={"constraint.c": "id > 0"})
    ducklake.execute("ALTER TABLE lake.ns.t DROP COLUMN id")
    (line,) = lines(database_url, warehouse, verify=True)
    assert "BROKEN: The constraint c (id > 0) can't be checked: it has the column id" in line


def test_names_of_no_table_are_refused(client: Client, database_url: str, warehouse: Path) -> None:
    client.create()
    client.commit(set_properties(x="y"))
    settings = Settings(database_url=database_url, warehouse=str(warehouse))
    with pytest.raises(NoSuchTableError):
        report_constraints(settings, "ns.none", verify=False)
    with pytest.raises(InvalidRequestError):
        report_constraints(settings, "t", verify=False)
