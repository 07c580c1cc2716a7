"""Manifest lists stay short and name every file once, whatever a table goes through (design D4)."""

import itertools
import random
from dataclasses import replace

import pytest

from duckicelake.bridge.manifest_lists import (
    DEFAULT_MIN_COUNT,
    MAX_MANIFEST_FILES,
    ListedManifest,
    ListOwner,
    ManifestPacking,
    build_next_list,
    find_manifests_to_load,
    parse_packing,
)
from duckicelake.lake.state import FileRow


def new_file(file_id: int, sequence_number: int, content: int = 0, spec_id: int = 0) -> FileRow:
    return FileRow(
        file_id=file_id, content=content, path=f"f{file_id}", file_format="PARQUET", spec_id=spec_id, partition=[],
        record_count=1, file_size_in_bytes=1, metrics={}, added_snapshot_id=sequence_number,
        sequence_number=sequence_number, file_sequence_number=sequence_number,
    )  # fmt: skip


class Table:
    """A table's newest manifest list, kept as the catalog keeps it: manifests come loaded only where they must."""

    def __init__(self):
        self.ids = itertools.count(1)
        self.sequence = 0
        self.listed = ()
        self.manifests = {}
        self.written = 0

    def commit(self, added=(), removed=frozenset()):
        self.sequence += 1
        needed = find_manifests_to_load(self.listed, 2)
        parent = [
            m if m.manifest_id in needed or removed & m.live.keys() else replace(m, live=None) for m in self.listed
        ]
        owner = ListOwner(self.sequence, self.sequence, 0, 2)
        result = build_next_list(parent, added, removed, owner, self.ids)
        known = {m.manifest_id: m for m in self.listed}
        self.listed = tuple(m if m.live is not None else known[m.manifest_id] for m in result.listed)
        self.manifests |= {m.manifest_id: m for m in result.new}
        self.written += sum(len(m.added) + len(m.existing) for m in result.new)
        return result

    def live(self):
        return sorted(file for m in self.listed for file in m.live)


def test_thousand_appends_keep_the_list_logarithmic_and_the_work_near_linear():
    table = Table()
    lengths = []
    for number in range(1000):
        table.commit([new_file(number, number + 1)])
        lengths.append(len(table.listed))

    assert table.live() == list(range(1000))
    assert max(lengths) <= 3 * (DEFAULT_MIN_COUNT + 1) + 1
    assert table.written <= 1000 * 5


def test_manifest_that_is_not_loaded_keeps_none_of_the_others_from_being_packed():
    listed, ids = Table().commit([new_file(0, 0)]).listed, itertools.count(1)
    listed = tuple(replace(manifest, live=None) for manifest in listed)
    lengths = []
    for number in range(1, 300):
        listed = build_next_list(
            listed, [new_file(number, number)], frozenset(), ListOwner(number, number, 0, 2), ids
        ).listed
        lengths.append(len(listed))

    assert max(lengths) <= 3 * (DEFAULT_MIN_COUNT + 1) + 1
    assert sorted(file for m in listed if m.live for file in m.live) == list(range(1, 300))


def test_removed_files_leave_a_deleted_entry_in_a_manifest_of_the_snapshot_that_removed_them():
    table = Table()
    table.commit([new_file(1, 1), new_file(2, 1)])
    table.commit([new_file(3, 2)])

    result = table.commit(removed={1})

    (rewritten,) = result.new
    assert (rewritten.deleted, rewritten.existing, rewritten.added) == ((1,), (2,), ())
    assert (rewritten.added_snapshot_id, rewritten.sequence_number, rewritten.min_sequence_number) == (3, 3, 1)
    assert len(result.listed) == 2


def test_manifest_without_live_files_is_listed_once_for_its_deletes_and_then_vanishes():
    table = Table()
    table.commit([new_file(1, 1)])
    emptied = table.commit(removed={1})
    assert [manifest.deleted for manifest in emptied.new] == [(1,)]
    assert [manifest.live_count for manifest in emptied.listed] == [0]

    assert [m.live_count for m in table.commit([new_file(2, 3)]).listed] == [1]


def test_contents_and_specs_never_share_a_manifest():
    table = Table()
    files = [new_file(i, 1, content, spec) for i, (content, spec) in enumerate(itertools.product((0, 1, 2), (0, 1)))]
    table.commit(files)

    assert sorted((m.content, m.spec_id, m.live_count) for m in table.listed) == [
        (0, 0, 1),
        (0, 1, 1),
        (1, 0, 2),
        (1, 1, 2),
    ]


def test_removing_a_file_that_no_loaded_manifest_holds_is_never_silent():
    table = Table()
    table.commit([new_file(1, 1)])

    with pytest.raises(AssertionError, match="9"):
        table.commit(removed={9})


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_adds_and_removes_lists_exactly_the_live_files(seed):
    choose = random.Random(seed)
    table, live, next_id = Table(), {}, itertools.count(1)
    for _ in range(120):
        number = table.sequence + 1
        added = [
            new_file(next(next_id), number, choose.choice((0, 0, 1)), choose.choice((0, 1)))
            for _ in range(choose.randint(0, 4))
        ]
        removed = set(choose.sample(sorted(live), min(len(live), choose.choice((0, 0, 1, 3, 20)))))
        result = table.commit(added, removed)
        live = {key: file for key, file in live.items() if key not in removed} | {f.file_id: f for f in added}

        assert table.live() == sorted(live)
        assert sorted(f for m in result.new for f in m.deleted) == sorted(removed)
        assert sorted(f for m in result.new for f in m.added) == sorted(f.file_id for f in added)
        for listed in table.listed:
            manifest = table.manifests[listed.manifest_id]
            held = [live[file_id] for file_id in listed.live]
            assert {*manifest.added, *manifest.existing} == set(listed.live)
            assert listed.live == {file.file_id: file.sequence_number for file in held}
            assert {(min(f.content, 1), f.spec_id) for f in held} <= {(manifest.content, manifest.spec_id)}
            assert manifest.min_sequence_number == min(
                (f.sequence_number for f in held), default=manifest.sequence_number
            )
            assert listed.live or manifest.added_snapshot_id == number


@pytest.mark.parametrize(("target", "files"), [(None, [30]), (1000, [10, 10, 10]), (300, [3] * 10), (100_000, [30])])
def test_packed_manifests_have_the_size_that_the_table_wants(target, files):
    packing = parse_packing({} if target is None else {"commit.manifest.target-size-bytes": str(target)})
    ten = [
        ListedManifest(n, 0, 0, 3, 2, {3 * n + at: 1 for at in range(3)}, length=300, is_laid_out=False)
        for n in range(10)
    ]
    made = build_next_list(
        ten, [], frozenset(), ListOwner(1, 1, 0, 2, packing), itertools.count(DEFAULT_MIN_COUNT)
    ).listed
    assert [manifest.live_count for manifest in made] == files
    assert len(find_manifests_to_load(ten, 2, packing)) == (0 if target == 300 else 10)
    full = [replace(manifest, length=target) for manifest in made]
    assert find_manifests_to_load(full, 2, packing) == set() or len(files) < DEFAULT_MIN_COUNT


def test_manifests_that_a_client_laid_out_are_never_packed_and_stay_so_when_files_leave_them():
    ten = [ListedManifest(n, 0, 0, 2, 2, {2 * n: 1, 2 * n + 1: 1}, is_laid_out=True) for n in range(DEFAULT_MIN_COUNT)]
    assert find_manifests_to_load(ten, 2) == set()
    made = build_next_list(
        ten, [new_file(99, 2)], {0}, ListOwner(2, 2, 0, 2), itertools.count(DEFAULT_MIN_COUNT)
    ).listed
    assert [(manifest.live_count, manifest.is_laid_out) for manifest in made] == [
        (1, False), (1, True), *[(2, True)] * (DEFAULT_MIN_COUNT - 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, ManifestPacking()),
        ({"commit.manifest-merge.enabled": "FALSE"}, ManifestPacking(is_enabled=False)),
        ({"commit.manifest.min-count-to-merge": "1"}, ManifestPacking(min_count=2)),
        ({"commit.manifest.min-count-to-merge": "-3", "commit.manifest.target-size-bytes": "8 MB"}, ManifestPacking()),
        ({"commit.manifest.target-size-bytes": "0"}, ManifestPacking()),
    ],
)
def test_values_that_java_would_not_understand_count_as_not_set(properties, expected):
    assert parse_packing(properties) == expected


def test_manifests_of_so_many_files_that_another_copy_would_cost_too_much_stay_apart():
    def ten_of(files):
        return tuple(ListedManifest(number, 0, 0, files, 2) for number in range(DEFAULT_MIN_COUNT))

    assert find_manifests_to_load(ten_of(MAX_MANIFEST_FILES - 1), 2) == set(range(DEFAULT_MIN_COUNT))
    assert find_manifests_to_load(ten_of(MAX_MANIFEST_FILES), 2) == set()
    made = build_next_list(
        ten_of(MAX_MANIFEST_FILES),
        [new_file(1, 1)],
        frozenset(),
        ListOwner(1, 1, 0, 2),
        itertools.count(DEFAULT_MIN_COUNT),
    )
    assert [manifest.live_count for manifest in made.listed] == [1, *[MAX_MANIFEST_FILES] * DEFAULT_MIN_COUNT]
    assert [manifest.added for manifest in made.new] == [(1,)]
