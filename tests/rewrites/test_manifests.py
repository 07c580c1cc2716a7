"""Small manifests become few, with the same files by the same numbers, in the order of partitions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from duckicelake.bridge.manifest_lists import (
    ListedManifest,
    ManifestPacking,
    find_small_manifests,
    pack_files,
    parse_packing,
)
from duckicelake.catalog.commit.workspace import Workspace
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.page import PageRequest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.maintenance import table_statistics
from duckicelake.catalog.table.load import load_current_table
from duckicelake.rewrites.metadata_files import pack_manifests
from tests.bridge.test_manifest_lists import new_file
from tests.rewrites.test_histories import Control, Duck, assert_sound, control, duck, history, task
from tests.support.client import Client, Draft, assert_whole, duckdb_rows, live, pyiceberg_rows, set_properties
from tests.support.seams import fresh

__all__ = ["control", "duck"]
UNPACKED = {"commit.manifest-merge.enabled": "false"}


def list_entries(client: Client) -> list[list[tuple[str, int | None]]]:
    """List the live files of each manifest, with their sequence numbers."""
    lines = Draft(client.metadata()).parent_manifests
    return [sorted((entry.data_file.file_path, entry.sequence_number) for entry in live(line)) for line in lines]


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_manifests_become_few_and_rows_and_numbers_stay(
    services: Services, client: Client, duck: Duck, control: Control, version: str
) -> None:
    client.create(properties={"format-version": version, **UNPACKED})
    for number in range(3):
        duck.execute(f"INSERT INTO lake.ns.t SELECT {10 * number} + range, 'n' FROM range(5)")
        client.load()
    duck.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (name)")
    for number in range(3, 6):
        duck.execute(f"INSERT INTO lake.ns.t SELECT {10 * number} + range, 'n' || range FROM range(3)")
        client.load()
    if version != "1":
        for number in range(2):
            duck.execute(f"DELETE FROM lake.ns.t WHERE id = {10 * number}")
            client.load()
    before, rows, entries = history(duck), duckdb_rows(duck), list_entries(client)
    outcome = pack_manifests(services, task("pack-manifests"), control)
    assert (outcome.result, outcome.counts["rewritten manifests"]) == ("done", len(entries))
    packed = list_entries(Client(fresh(services)))
    assert len(packed) == (2 if version == "1" else 3)
    assert sorted(chain(*packed)) == sorted(chain(*entries))
    answer = Client(fresh(services)).load()
    summary = answer["metadata"]["snapshots"][-1]["summary"]
    counts = [summary[f"manifests-{what}"] for what in ("created", "replaced", "kept")]
    assert (summary["operation"], counts) == ("replace", [str(len(packed)), str(len(entries)), "0"])
    assert_whole(answer)
    assert duckdb_rows(duck) == pyiceberg_rows(answer) == rows
    after = history(duck)
    assert {key: after[key] for key in before} == before
    assert pack_manifests(services, task("pack-manifests"), control).result == "unchanged"
    assert_sound(services)


class BusyControl(Control):
    """The control of a task beside which another client appends once, after the manifests were listed."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.other = client
        self.is_done = False

    def report(self, counts: Mapping[str, int]) -> None:
        super().report(counts)
        if not self.is_done:
            self.is_done = True
            self.other.append((9, "meanwhile"))


def test_what_others_commit_meanwhile_is_kept(services: Services, client: Client) -> None:
    client.create(properties=UNPACKED)
    for number in range(3):
        client.append((number, "n"))
    outcome = pack_manifests(services, task("pack-manifests"), BusyControl(Client(fresh(services))))
    assert (outcome.result, outcome.counts["rewritten manifests"]) == ("done", 4)
    found = Client(fresh(services))
    assert pyiceberg_rows(found.load()) == [(0, "n"), (1, "n"), (2, "n"), (9, "meanwhile")]
    assert len(list_entries(found)) == 1


def make_manifest(number: int, file_ids: Sequence[int], **changes: Any) -> ListedManifest:
    live = dict.fromkeys(file_ids, number)
    return replace(ListedManifest(number, 0, 0, len(live), 2, live, length=100 * len(live)), **changes)


@pytest.mark.parametrize(
    ("share", "small"),
    [(None, 4), (100.0, 4), (2.1, 4), (1.4, 0), (1.2, 0)],
    ids=["no target", "all fit into one", "two fit into one", "one and a half fit into one", "each is full"],
)
def test_only_manifests_of_which_fewer_can_be_made_count_as_small(
    services: Services, client: Client, control: Control, share: float | None, small: int
) -> None:
    client.create(properties=UNPACKED)
    for number in range(4):
        client.append((number, "n"))
    client.load()
    table = load_current_table(services, ("ns",), "t")
    longest = max(one.length or 0 for one in list_manifests(services, table))
    assert longest > 0
    if share is not None:
        client.commit(set_properties(**{"commit.manifest.target-size-bytes": f" {int(share * longest)} "}))
    table = load_current_table(services, ("ns",), "t")
    groups = find_small_manifests(list_manifests(services, table), parse_packing(table.metadata.properties))
    (found,) = table_statistics(services, PageRequest(), ("ns",), "t").items
    assert (found.manifests, found.small_manifests, sum(map(len, groups))) == (4, small, small)
    outcome = pack_manifests(services, task("pack-manifests"), control)
    assert outcome.result == ("done" if small else "unchanged")


def list_manifests(services: Services, table: TableVersion) -> list[ListedManifest]:
    current = table.state.current()
    assert current is not None
    return [*Workspace(services, table.row.table_id, table.known).list_manifests(current.manifest_ids)]


def test_files_are_in_the_order_of_their_partitions() -> None:
    places: Sequence[Any] = [["b", 1], [None, 2], ["a", None], ["a", 7], ["b", 0], ["a", 7]]
    files = {number: new_file(number, 1)._replace(partition=place) for number, place in enumerate(places)}
    group = [make_manifest(number, [number]) for number in files]
    packing = ManifestPacking(target_bytes=200)
    assert find_small_manifests(group, packing) == [group]
    assert [list(packed.live) for packed in pack_files(group, files, packing)] == [[1, 2], [3, 5], [4, 0]]


def test_manifests_stay_of_which_no_fewer_can_be_made() -> None:
    small = [make_manifest(number, range(10 * number, 10 * number + 10)) for number in range(4)]
    found = find_small_manifests(
        [
            *small,
            make_manifest(4, range(1000, 2000)),
            make_manifest(5, [50], is_laid_out=True),
            make_manifest(6, [60], spec_id=1),
            make_manifest(7, [70], content=1),
        ],
        ManifestPacking(),
    )
    assert found == [small]
    assert find_small_manifests(small, ManifestPacking(target_bytes=1000)) == [], "each has as many as may be"
