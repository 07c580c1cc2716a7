"""A table is purged, or loses snapshots, while a load reads it in several transactions: the load begins again."""

from collections.abc import Callable
from threading import Thread

import duckdb
import pytest

from duckicelake.catalog import tables
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.catalog.table.materialize import materialize
from duckicelake.errors import NoSuchTableError
from duckicelake.iceberg.rest import CommitTransactionRequest
from duckicelake.lake.side_tables import reader
from tests.support.client import NS, Client, append, assert_whole, pyiceberg_rows
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


def record_unseen(services: Services) -> None:
    """Write what a commit left unwritten, on a server that doesn't look for changes of DuckDB's."""
    with services.database.reading() as cursor:
        table_id = reader.find_table_id(cursor, "ns", "t")
    assert table_id is not None
    materialize(services, table_id)


@pytest.mark.parametrize("step", [4, 8, 11])
def test_file_says_what_loads_say_whichever_server_records_the_version_before(
    services: Services, client: Client, ducklake: duckdb.DuckDBPyConnection, step: int
) -> None:
    """A commit of several tables leaves its version unwritten; a load that catches up makes the next one meanwhile."""
    client.create()
    client.append((1, "a"))
    change = append(client.metadata(), (2, "b")) | {"identifier": {"namespace": ["ns"], "name": "t"}}
    tables.commit_transaction(services, CommitTransactionRequest.model_validate({"table-changes": [change]}))
    ducklake.execute("INSERT INTO lake.ns.t VALUES (3, 'c')")
    others: list[Thread] = []

    def act_once() -> None:
        if not others:
            others.append(Thread(target=record_unseen, args=[fresh(services)]))
            others[0].start()
            others[0].join(0.5)  # in a transaction of the load it waits for that

    Client(fused(fresh(services), Fuse(step, act_once))).load()
    for other in others:
        other.join()
    answer = Client(fresh(services)).load()
    assert_whole(answer)
    assert pyiceberg_rows(answer) == [(1, "a"), (2, "b"), (3, "c")]
