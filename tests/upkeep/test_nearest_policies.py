"""What the nearest says of one policy is found for many tables at once, as for each alone."""

from dataclasses import replace
from itertools import product
from typing import Any

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.namespaces import create_namespace
from duckicelake.catalog.tables import create_table
from duckicelake.iceberg.identifiers import to_schema_name
from duckicelake.iceberg.rest import CreateTableRequest
from duckicelake.maintenance.policy import QUIET_HOURS, parse_policy
from duckicelake.maintenance.task import UpkeepTask
from duckicelake.upkeep import sources
from duckicelake.upkeep.policies import find_nearest, find_policies
from tests.support.client import SCHEMA, Client
from tests.upkeep.test_queue import set_policies

HOURS = "01:00-02:00"


class CountingDatabase:
    """A database that counts the statements and transactions that are begun."""

    begun = 0

    def __init__(self, database: Any) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        if name in {"statement", "transaction", "reading"}:
            self.begun += 1
        return getattr(self._database, name)


def make_tables(services: Services) -> list[tuple[tuple[str, ...], str]]:
    """Make tables below namespaces; each of the levels says something of quiet hours, nothing, or an empty text."""
    said: list[str | None] = [None, "", HOURS]
    made: list[tuple[tuple[str, ...], str]] = []
    for number, (outer, inner, own) in enumerate(product(said, said, said)):
        namespaces = (f"n{number}",), (f"n{number}", "inner")
        for namespace, value in zip(namespaces, (outer, inner), strict=True):
            properties = {} if value is None else {QUIET_HOURS: value}
            create_namespace(services, namespace, properties)
        body = {"name": "t", "schema": SCHEMA, "properties": {} if own is None else {QUIET_HOURS: own}}
        create_table(services, namespaces[1], CreateTableRequest.model_validate(body))
        made.append((namespaces[1], "t"))
    return made


def read_each(services: Services, tables: list[tuple[tuple[str, ...], str]]) -> list[str | None]:
    values = [{value.name: value.value for value in find_policies(services, *table).values} for table in tables]
    return [found.get(QUIET_HOURS) for found in values]


def test_nearest_is_that_of_each_table(services: Services) -> None:
    tables = make_tables(services)
    names = [(to_schema_name(namespace), table) for namespace, table in tables]
    for lake, settings in product(({}, {QUIET_HOURS: "03:00-04:00"}), ({}, {QUIET_HOURS: "05:00-06:00"})):
        set_policies(services, lake)
        asked = replace(services, maintenance=settings)
        found = find_nearest(asked, QUIET_HOURS, [*names, ("gone", "t")])
        assert [found[name][1] for name in names] == read_each(asked, tables)
        assert found.keys() == set(names)
        assert len({table_id for table_id, _ in found.values()}) == len(names)


def test_tables_of_tasks_are_looked_up_at_once(client: Client) -> None:
    for name in "abc":
        client.create(name)
    policy = parse_policy({})
    tasks = [UpkeepTask("refresh", ("ns",), name, "it is due", policy, 0) for name in ("a", "b", "gone", "c")]
    database = CountingDatabase(client.services.database)
    services: Any = replace(client.services, database=database)  # type: ignore[arg-type]
    assert [item.task.table for item in sources._identify(services, tasks)] == ["a", "b", "c"]
    assert database.begun == 1
    assert sources._identify(services, []) == []
    assert database.begun == 1
