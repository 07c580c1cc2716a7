"""Position delete files become fewer, and deletion vectors once the table has a format version that has these."""

from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.snapshots import read_clock
from duckicelake.rewrites.metadata_files import rewrite_deletes
from duckicelake.upkeep.planner import find_due
from tests.rewrites.test_histories import Control, Duck, assert_sound, control, duck, task
from tests.support.client import (
    NS,
    Client,
    data_files,
    delete,
    duckdb_rows,
    pyiceberg_rows,
    remove,
    set_properties,
)
from tests.support.seams import fresh

__all__ = ["control", "duck"]


def delete_five_times(client: Client) -> None:
    """Make a table of two files, and five delete files of which each is about both."""
    client.create()
    client.append(*((i, "n") for i in range(20)))
    client.append(*((i, "m") for i in range(20, 40)))
    for position in range(5):
        metadata = client.metadata()
        first, second = data_files(metadata)
        client.commit(delete(metadata, (first, position), (second, position)))


def test_position_deletes_are_merged(services: Services, client: Client, duck: Duck, control: Control) -> None:
    delete_five_times(client)
    rows = duckdb_rows(duck)
    outcome = rewrite_deletes(services, task("rewrite-deletes"), control)
    assert outcome.result == "done"
    answer = Client(fresh(services)).load()
    summary = answer["metadata"]["snapshots"][-1]["summary"]
    assert (summary["removed-position-delete-files"], summary["added-position-delete-files"]) == ("5", "1")
    assert duckdb_rows(duck) == pyiceberg_rows(answer) == rows
    assert rewrite_deletes(services, task("rewrite-deletes"), control).result == "unchanged"
    assert_sound(services)


def test_deletes_of_files_that_have_left_leave_too(
    services: Services, client: Client, duck: Duck, control: Control
) -> None:
    client.create()
    client.append(*((i, "n") for i in range(20)))
    client.append(*((i, "m") for i in range(20, 40)))
    for position in range(2):
        metadata = client.metadata()
        client.commit(delete(metadata, (data_files(metadata)[0], position)))
    metadata = client.metadata()
    client.commit(remove(metadata, data_files(metadata)[0]))
    rows = duckdb_rows(duck)
    outcome = rewrite_deletes(services, task("rewrite-deletes"), control)
    assert (outcome.result, outcome.counts["removed delete files"]) == ("done", 2)
    answer = Client(fresh(services)).load()
    summary = answer["metadata"]["snapshots"][-1]["summary"]
    assert summary["removed-position-delete-files"] == "2"
    assert "total-delete-files" not in summary  # as its parents state none
    assert duckdb_rows(duck) == pyiceberg_rows(answer) == rows
    assert rewrite_deletes(services, task("rewrite-deletes"), control).result == "unchanged"
    assert_sound(services)


def test_deletes_from_before_an_upgrade_become_vectors(
    services: Services, client: Client, duck: Duck, control: Control
) -> None:
    delete_five_times(client)
    client.commit({"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]})
    client.commit(set_properties(**{"maintenance.delete-files.min-excess": "3"}))
    rows = duckdb_rows(duck)
    assert list_due(services) == ["5 delete files for 2 data files with deletes"]
    assert rewrite_deletes(services, task("rewrite-deletes"), control).result == "done"
    answer = Client(fresh(services)).load()
    summary = answer["metadata"]["snapshots"][-1]["summary"]
    assert (summary["removed-position-delete-files"], summary["added-dvs"]) == ("5", "2")
    assert duckdb_rows(duck) == pyiceberg_rows(answer) == rows
    assert list_due(services) == []
    assert rewrite_deletes(services, task("rewrite-deletes"), control).result == "unchanged"
    assert_sound(services)


def test_single_deletes_from_before_an_upgrade_become_vectors(
    services: Services, client: Client, duck: Duck, control: Control
) -> None:
    """Each data file has one delete file of its own, so that there is nothing to merge."""
    client.create()
    for number in range(4):
        client.append(*((i, "n") for i in range(number * 10, number * 10 + 10)))
    for number in range(3):
        metadata = client.metadata()
        client.commit(delete(metadata, (data_files(metadata)[number], number)))
    client.commit(set_properties(**{"maintenance.delete-files.min-excess": "3"}))
    assert list_due(services) == []
    assert rewrite_deletes(services, task("rewrite-deletes"), control).result == "unchanged"
    client.commit({"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]})
    rows = duckdb_rows(duck)
    assert list_due(services) == ["3 delete files from before the table had deletion vectors"]
    outcome = rewrite_deletes(services, task("rewrite-deletes"), control)
    assert (outcome.result, outcome.counts["data files with deletes"]) == ("done", 3)
    answer = Client(fresh(services)).load()
    summary = answer["metadata"]["snapshots"][-1]["summary"]
    assert (summary["removed-position-delete-files"], summary["added-dvs"]) == ("3", "3")
    assert duckdb_rows(duck) == pyiceberg_rows(answer) == rows
    assert list_due(services) == []
    assert rewrite_deletes(services, task("rewrite-deletes"), control).result == "unchanged"
    assert_sound(services)


def list_due(services: Services) -> list[str]:
    with services.database.reading() as cursor:
        now_ms = read_clock(cursor)
    return [item.task.why for item in find_due(services, now_ms, NS, "t", ("rewrite-deletes",))]
