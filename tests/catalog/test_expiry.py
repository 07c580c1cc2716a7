"""Expiry by the server, while others commit."""

import duckdb
import pytest

from duckicelake.catalog.expiry import expire_snapshots
from tests.support.client import NS, Client, duckdb_rows, pyiceberg_rows, set_ref
from tests.support.seams import superseded

ALL = 1 << 60


@pytest.mark.parametrize(("ref", "kind", "stays"), [("keep", "tag", (0, 2)), ("main", "branch", (0,))])
def test_what_is_named_meanwhile_stays(
    client: Client, ducklake: duckdb.DuckDBPyConnection, ref: str, kind: str, stays: tuple[int, ...]
) -> None:
    client.create()
    for number in range(3):
        client.append((number, "x"))
    before = [each["snapshot-id"] for each in client.metadata()["snapshots"]]
    oldest = before[0]
    name = {"requirements": [], "updates": [set_ref(ref, oldest, kind)]}
    expire_snapshots(superseded(client.services, lambda: client.commit(name)), NS, "t", ALL)
    answer = client.load()
    assert answer["metadata"]["refs"][ref]["snapshot-id"] == oldest
    assert [each["snapshot-id"] for each in answer["metadata"]["snapshots"]] == [before[place] for place in stays]
    assert pyiceberg_rows(answer, oldest) == [(0, "x")]
    assert pyiceberg_rows(answer) == duckdb_rows(ducklake)
