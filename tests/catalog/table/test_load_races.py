"""A table is purged, or loses snapshots, while a load reads it in several transactions: the load begins again."""

from collections.abc import Callable

import duckdb
import pytest

from duckicelake.catalog import tables
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import NoSuchTableError
from tests.support.client import NS, Client
from tests.support.seams import Fuse, fresh, fused

Act = Callable[[Services, str], None]
STEPS = (3, 4, 10)
"""When the load has read the table's state, when it has read the manifests that this names, and when it writes files.
None is in a transaction of the load, for whose locks the act would wait."""


def purge(services: Services, name: str) -> None:
    tables.drop_table(services, NS, name, purge=True)


def expire(services: Services, name: str) -> None:
    client = Client(services)
    metadata = client.metadata(name)
    old = [row["snapshot-id"] for row in metadata["snapshots"] if row["snapshot-id"] != metadata["current-snapshot-id"]]
    client.commit({"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": old}]}, name)


def load_amid(act: Act, services: Services, duck: duckdb.DuckDBPyConnection, name: str, step: int) -> bool:
    """Load a table that DuckDB changed, on a new server, and act once at this step; whether the load came so far."""
    client = Client(fresh(services))
    client.create(name)
    client.append(*[(number, "a") for number in range(10)], name=name)
    duck.execute(f"INSERT INTO lake.ns.{name} VALUES (21, 'inlined'), (22, 'gone')")
    duck.execute(f"DELETE FROM lake.ns.{name} WHERE name = 'gone' OR id = 3")
    reached: list[str] = []

    def act_once() -> None:
        if not reached:
            reached.append(fuse.log[-1])
            act(fresh(services), name)

    fuse = Fuse(step, act_once)
    try:
        loaded = load_current_table(fused(services, fuse), NS, name)
    except NoSuchTableError:
        assert act is purge
        assert reached
    else:
        assert loaded.metadata.current_snapshot_id is not None
    return bool(reached)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("act", [purge, expire])
def test_load_begins_again_when_rows_that_it_has_named_are_gone(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, act: Act, step: int
) -> None:
    assert load_amid(act, services, ducklake, "t", step)
