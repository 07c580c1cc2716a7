"""Mode `ducklake`: what a client proposes is translated everywhere in its request (design D3)."""

from duckicelake.bridge.commit.renumber import NextNumbers, renumber_request
from duckicelake.iceberg.rest import CommitTableRequest


def snapshot(number, parent):
    return {"action": "add-snapshot", "snapshot": {
        "snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": number, "timestamp-ms": 1,
        "manifest-list": "l", "summary": {"operation": "append"}, "schema-id": 0,
    }}  # fmt: skip


REQUEST = CommitTableRequest.model_validate({
    "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 777}],
    "updates": [
        snapshot(9001, 777), snapshot(9002, 9001),
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 9002},
        {"action": "set-snapshot-ref", "ref-name": "old", "type": "tag", "snapshot-id": 777},
        {"action": "remove-snapshots", "snapshot-ids": [777, 5]},
        {"action": "remove-statistics", "snapshot-id": 9001},
        {"action": "set-statistics", "statistics": {"snapshot-id": 9002, "statistics-path": "s",
                                                    "file-size-in-bytes": 1,
                                                    "file-footer-size-in-bytes": 1, "blob-metadata": []}},
    ],
})  # fmt: skip


def test_proposed_ids_and_aliases_are_translated_wherever_they_stand():
    done, given = renumber_request(REQUEST, None, {777: 3}, NextNumbers(40, True, 2))
    first, second, main, old, removed, statistics, file = done.updates

    assert given.proposed == {40: 9001, 41: 9002}
    assert done.requirements[0].snapshot_id == 3
    assert (first.snapshot.snapshot_id, first.snapshot.parent_snapshot_id, first.snapshot.sequence_number) == (
        40,
        3,
        40,
    )
    assert (second.snapshot.snapshot_id, second.snapshot.parent_snapshot_id, second.snapshot.sequence_number) == (
        41,
        40,
        41,
    )
    assert (main.snapshot_id, old.snapshot_id, removed.snapshot_ids) == (41, 3, (3, 5))
    assert (statistics.snapshot_id, file.statistics.snapshot_id) == (40, 41)


def test_sequence_numbers_never_fall_though_the_tables_own_ran_ahead(lake):
    lake.run("CREATE TABLE t (id BIGINT)", "INSERT INTO t VALUES (1)")
    base = lake.metadata().replace_fields(last_sequence_number=500)

    done, _ = renumber_request(REQUEST, base, {}, NextNumbers(40, True, 2))

    assert [update.snapshot.sequence_number for update in done.updates[:2]] == [501, 502]
