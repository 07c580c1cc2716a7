"""Pages of a table's snapshots are those of its metadata, whoever made them."""

from collections.abc import Iterator

import duckdb
import pytest

from duckicelake.catalog.expiry import expire_snapshots
from duckicelake.catalog.snapshot_list import ListedSnapshot, list_snapshots
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import NoSuchTableError, NotFoundError
from tests.support.client import NS, Client, set_ref


def test_pages_are_the_snapshots_of_the_metadata(client: Client, ducklake: duckdb.DuckDBPyConnection) -> None:
    client.create()
    for number in range(3):
        client.append((number, "x"))
    first, last = (client.metadata()["snapshots"][place]["snapshot-id"] for place in (0, -1))
    client.commit({"requirements": [], "updates": [set_ref("side", first, "branch")]})
    for number in range(2):
        ducklake.execute(f"INSERT INTO ns.t VALUES ({number}, 'y')")
    ducklake.execute("DELETE FROM ns.t WHERE id = 1")
    newest = next(_read_pages(client, 2))[0]
    assert newest.summary["operation"] == "delete", "what DuckDB did is listed, though no client has loaded the table"
    _assert_listed(client)
    expire_snapshots(client.services, NS, "t", newest.timestamp_ms + 1)
    _assert_listed(client)
    with pytest.raises(NotFoundError, match=f"t has no snapshot {last} any more: begin anew"):
        list_snapshots(client.services, NS, "t", 2, last)
    with pytest.raises(NoSuchTableError):
        list_snapshots(client.services, NS, "other", 2, None)


def _assert_listed(client: Client) -> None:
    known = load_current_table(client.services, NS, "t").metadata.snapshots
    wanted = [ListedSnapshot(**snapshot.model_dump(include=set(ListedSnapshot.model_fields))) for snapshot in known]
    for limit in (1, 2, len(known), len(known) + 1):
        assert [each for page in _read_pages(client, limit) for each in page] == wanted[::-1]


def _read_pages(client: Client, limit: int) -> Iterator[tuple[ListedSnapshot, ...]]:
    """Yield the pages of the table's snapshots, as a reader asks for them."""
    before = None
    while True:
        page = list_snapshots(client.services, NS, "t", limit, before)
        yield page.snapshots
        before = page.next_before
        if before is None:
            return
