"""What Java's recorded results don't show: refusals, no-ops, and where this server is stricter on purpose."""

from collections.abc import Callable
from typing import Any

import pytest

from duckicelake.errors import CommitFailedError, InvalidRequestError
from duckicelake.iceberg.metadata import TableMetadata

Json = Any
MakeTable = Callable[..., TableMetadata]
Commit = Callable[..., TableMetadata]
Update = Callable[..., Json]

OTHER_UUID = "00000000-0000-4000-8000-000000000000"
CREATED = 1_700_000_000_000
NOW = CREATED + 60_000


def column(field_id: int, name: str, kind: Json = "int") -> Json:
    return {"id": field_id, "name": name, "required": False, "type": kind}


def schema_update(*fields: Json) -> Json:
    return {"action": "add-schema", "schema": {"type": "struct", "fields": list(fields)}}


def spec_update(*fields: Json) -> Json:
    return {"action": "add-spec", "spec": {"fields": list(fields)}}


def spec_field(source: int, name: str, transform: str, field_id: int | None = None) -> Json:
    return {"source-id": source, "name": name, "transform": transform, "field-id": field_id}


@pytest.mark.parametrize(
    "updates",
    [
        [],
        [{"action": "set-properties", "updates": {}}],
        [{"action": "set-location", "location": "file:///lake/t"}],
        [{"action": "upgrade-format-version", "format-version": 2}],
        [{"action": "assign-uuid", "uuid": "9C12D441-03FE-4693-9A96-A0705DDF69C1"}],
        [{"action": "remove-snapshots", "snapshot-ids": [5]}],
        [{"action": "remove-snapshot-ref", "ref-name": "nothing"}],
        [{"action": "remove-schemas", "schema-ids": [5]}, {"action": "remove-partition-specs", "spec-ids": [5]}],
        [{"action": "set-current-schema", "schema-id": 0}, {"action": "set-default-spec", "spec-id": 0}],
        [spec_update(), {"action": "set-default-spec", "spec-id": -1}],
        [
            {"action": "set-properties", "updates": {"a": "b"}},
            {"action": "remove-properties", "removals": ["a"]},
        ],
    ],
)
def test_updates_that_change_nothing_give_the_base_itself(
    make_table: MakeTable, commit: Commit, updates: list[Json]
) -> None:
    base = make_table()
    assert commit(base, *updates) is base


def test_base_is_left_as_it_is(make_table: MakeTable, commit: Commit, add_snapshot: Update, set_ref: Update) -> None:
    base = make_table()
    before = base.to_json()
    commit(base, add_snapshot(1), set_ref(1), {"action": "set-properties", "updates": {"a": "b"}})
    assert base.to_json() == before


def test_last_update_moves_forward_with_the_clock_but_never_back(make_table: MakeTable, commit: Commit) -> None:
    update = {"action": "set-properties", "updates": {"a": "b"}}
    assert commit(make_table(), update).last_updated_ms == NOW
    assert commit(make_table(), update, now_ms=CREATED - 1).last_updated_ms == CREATED


def test_main_moved_to_a_known_snapshot_is_logged_with_the_present_time(
    make_table: MakeTable, commit: Commit, add_snapshot: Update, set_ref: Update
) -> None:
    table = commit(make_table(), add_snapshot(1), set_ref(1))
    table = commit(table, add_snapshot(2, parent_snapshot_id=1), set_ref(2))
    table = commit(table, set_ref(1), now_ms=NOW + 1)
    moments = [(each.snapshot_id, each.timestamp_ms) for each in table.snapshot_log]
    assert moments == [(1, CREATED + 1), (2, CREATED + 2), (1, NOW + 1)]
    assert table.current_snapshot() == table.snapshot(1)


def test_snapshot_log_never_goes_back_in_time(
    make_table: MakeTable, commit: Commit, add_snapshot: Update, set_ref: Update
) -> None:
    table = commit(make_table(), add_snapshot(1), set_ref(1))
    table = commit(table, add_snapshot(2, timestamp_ms=CREATED - 5), set_ref(2))
    assert [each.timestamp_ms for each in table.snapshot_log] == [CREATED + 1, CREATED + 1]


def test_retention_of_main_changed_is_no_entry_in_the_snapshot_log(
    make_table: MakeTable, commit: Commit, add_snapshot: Update, set_ref: Update
) -> None:
    table = commit(make_table(), add_snapshot(1), set_ref(1))
    kept = commit(table, set_ref(1, min_snapshots_to_keep=3))
    assert kept.refs["main"].min_snapshots_to_keep == 3
    assert kept.snapshot_log == table.snapshot_log


def test_snapshot_without_a_schema_id_gets_the_current_one(
    make_table: MakeTable, commit: Commit, add_snapshot: Update
) -> None:
    table = commit(make_table(), add_snapshot(1, schema_id=None))
    assert [each.schema_id for each in table.snapshots] == [0]


def test_orphan_snapshot_with_an_older_sequence_number_does_not_turn_the_table_back(
    make_table: MakeTable, commit: Commit, add_snapshot: Update
) -> None:
    table = commit(make_table(), add_snapshot(9), add_snapshot(4))
    assert table.last_sequence_number == 9


def test_row_ids_in_a_gap_that_a_client_left_are_never_given_out(
    make_table: MakeTable, commit: Commit, add_snapshot: Update
) -> None:
    assert commit(make_table(3), add_snapshot(1, first_row_id=10, added_rows=5)).next_row_id == 15


@pytest.mark.parametrize(
    ("version", "changes", "said"),
    [
        (2, {"sequence_number": 7, "parent_snapshot_id": 7}, "sequence number 7 older than last sequence number 7"),
        (3, {"first_row_id": 9, "added_rows": 1}, "first-row-id is behind table next-row-id: 9 < 10"),
    ],
)
def test_snapshot_behind_the_table_fails_the_commit(
    make_table: MakeTable, commit: Commit, add_snapshot: Update, version: int, changes: Json, said: str
) -> None:
    lineage = {"first_row_id": 0, "added_rows": 10} if version == 3 else {}
    table = commit(make_table(version), add_snapshot(7, **lineage))
    with pytest.raises(CommitFailedError, match=said):
        commit(table, add_snapshot(**{"snapshot_id": 8} | changes))


@pytest.mark.parametrize(
    ("version", "changes", "said"),
    [
        (2, {"snapshot_id": 7}, "Snapshot already exists for: 7"),
        (2, {"snapshot_id": -1}, "snapshot-id -1"),
        (2, {"schema_id": 4}, "unknown schema-id 4"),
        (2, {"manifest_list": None}, "no manifest-list"),
        (2, {"manifest_list": None, "manifests": ["a.avro"]}, "no manifest-list"),
        (3, {"added_rows": 1}, "first-row-id is null"),
        (3, {"first_row_id": 0}, "added-rows is null"),
        (3, {"first_row_id": 0, "added_rows": -1}, "added-rows is -1"),
    ],
)
def test_snapshot_that_breaks_a_rule_is_refused(
    make_table: MakeTable, commit: Commit, add_snapshot: Update, version: int, changes: Json, said: str
) -> None:
    table = commit(make_table(2), add_snapshot(7))
    table = table if version == 2 else commit(table, {"action": "upgrade-format-version", "format-version": 3})
    with pytest.raises(InvalidRequestError, match=said):
        commit(table, add_snapshot(**{"snapshot_id": 8} | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"snapshot_id": 9}, "Cannot set main to unknown snapshot: 9"),
        ({"type": "tag"}, "main must be a branch"),
        ({"ref-name": "v1"}, "Cannot update branch: v1 is a tag"),
        ({"ref-name": "dev", "type": "tag"}, "Cannot update tag: dev is a branch"),
        ({"ref-name": "v2", "type": "tag", "min_snapshots_to_keep": 1}, "tags do not support"),
        ({"ref-name": "v2", "type": "tag", "max_snapshot_age_ms": 1}, "tags do not support"),
        ({"min_snapshots_to_keep": 0}, "greater than 0"),
        ({"max_ref_age_ms": -1}, "greater than 0"),
        ({"ref-name": ""}, "ref-name is empty"),
    ],
)
def test_ref_that_breaks_a_rule_is_refused(
    make_table: MakeTable, commit: Commit, add_snapshot: Update, set_ref: Update, changes: Json, said: str
) -> None:
    table = commit(make_table(), add_snapshot(1), set_ref(1, "v1", type="tag"), set_ref(1, "dev"))
    with pytest.raises(InvalidRequestError, match=said):
        commit(table, set_ref(1) | {key.replace("_", "-"): value for key, value in changes.items()})


@pytest.mark.parametrize(
    ("updates", "said"),
    [
        ([{"action": "assign-uuid", "uuid": OTHER_UUID}], "Cannot reassign uuid"),
        ([{"action": "upgrade-format-version", "format-version": 1}], "Cannot downgrade v2 table to v1"),
        ([{"action": "upgrade-format-version", "format-version": 4}], "unsupported format version: v4"),
        ([{"action": "set-current-schema", "schema-id": -1}], "no schema has been added"),
        ([{"action": "set-default-spec", "spec-id": -1}], "no partition spec has been added"),
        ([{"action": "set-default-sort-order", "sort-order-id": -1}], "no sort order has been added"),
        ([{"action": "set-current-schema", "schema-id": 7}], "unknown schema: 7"),
        ([{"action": "set-default-spec", "spec-id": 7}], "unknown partition spec: 7"),
        ([{"action": "set-default-sort-order", "sort-order-id": 7}], "unknown sort order: 7"),
        ([{"action": "remove-schemas", "schema-ids": [0]}], "Cannot remove the current schema"),
        ([{"action": "remove-partition-specs", "spec-ids": [0]}], "Cannot remove the default partition spec"),
        ([schema_update(column(1, "v", "variant"))], "variant is not supported until v3"),
        ([schema_update(column(1, "v"), column(2, "V"))], "differ only by case"),
        ([spec_update(spec_field(99, "x", "identity"))], "doesn't exist"),
        ([spec_update(spec_field(1, "x", "zorder"))], "unknown transform 'zorder'"),
        ([spec_update(spec_field(1, "x", "bucket[4]", 1000))], "field id 1000 of 'x' belongs to 'at_day'"),
        ([spec_update(spec_field(1, "x", "identity", 1005), spec_field(3, "y", "identity", 1005))], "the same id"),
        ([{"action": "set-location", "location": ""}], "the location is empty"),
        ([{"action": "set-properties", "updates": {"current-schema": "{}"}}], "current-schema are reserved"),
        ([{"action": "set-properties", "updates": {"format-version": "two"}}], "expected 1, 2 or 3"),
        (
            [{"action": "add-encryption-key", "encryption-key": {"key-id": "k", "key-metadata": "eA=="}}],
            "need format version 3",
        ),
    ],
)
def test_update_that_breaks_a_rule_is_refused(
    make_table: MakeTable, commit: Commit, updates: list[Json], said: str
) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        commit(make_table(2, partitioned=True), *updates)


def test_schema_that_drops_the_source_of_the_default_spec_is_refused(make_table: MakeTable, commit: Commit) -> None:
    with pytest.raises(InvalidRequestError, match="'at_day': source field 2 doesn't exist"):
        commit(
            make_table(2, partitioned=True),
            schema_update(column(1, "id", "long")),
            {"action": "set-current-schema", "schema-id": -1},
        )


def test_column_must_not_get_the_name_of_a_partition_field(make_table: MakeTable, commit: Commit) -> None:
    base = make_table(2, partitioned=True)
    columns = [field.to_json() for field in base.schema().fields]
    added = schema_update(*columns, column(4, "at_day", "date"))
    with pytest.raises(InvalidRequestError, match="at_day is a partition field made of column at"):
        commit(base, added, {"action": "set-current-schema", "schema-id": -1})


def test_partition_field_without_an_id_gets_that_of_an_equal_field_or_the_next(
    make_table: MakeTable, commit: Commit
) -> None:
    table = commit(
        make_table(2, partitioned=True),
        spec_update(spec_field(1, "b", "bucket[4]"), spec_field(2, "day_of", "day"), spec_field(3, "n", "identity")),
    )
    assert [each.field_id for each in table.spec(1).fields] == [1001, 1000, 1002]
    assert table.last_partition_id == 1002


def test_partition_fields_of_version_1_are_numbered_from_1000_in_each_spec(
    make_table: MakeTable, commit: Commit
) -> None:
    table = commit(make_table(1, partitioned=True), spec_update(spec_field(1, "b", "bucket[4]")))
    assert [each.field_id for each in table.spec(1).fields] == [1000]
    with pytest.raises(InvalidRequestError, match="sequential IDs"):
        commit(table, spec_update(spec_field(1, "b", "bucket[8]", 1001)))


def test_last_added_is_the_equal_one_that_was_reused(make_table: MakeTable, commit: Commit) -> None:
    base = make_table()
    old = [each.to_json() for each in base.schema().fields]
    added = schema_update(*old, column(4, "n"))
    table = commit(base, added, {"action": "set-current-schema", "schema-id": -1})
    back = commit(table, schema_update(*old), {"action": "set-current-schema", "schema-id": -1})
    assert (table.current_schema_id, back.current_schema_id) == (1, 0)
    assert len(back.schemas) == 2


def test_format_version_set_as_a_property_is_an_upgrade(make_table: MakeTable, commit: Commit) -> None:
    table = commit(make_table(), {"action": "set-properties", "updates": {"format-version": "3", "a": "b"}})
    assert (table.format_version, table.next_row_id) == (3, 0)
    assert table.properties == make_table().properties | {"a": "b"}


def test_snapshot_added_before_a_partition_spec_is_refused(commit: Commit, add_snapshot: Update) -> None:
    with pytest.raises(InvalidRequestError, match="before a partition spec is added"):
        commit(
            None,
            schema_update(column(1, "a")),
            {"action": "set-current-schema", "schema-id": -1},
            add_snapshot(1),
        )


@pytest.mark.parametrize("missing", ["assign-uuid", "set-location", "set-current-schema"])
def test_create_without_what_every_table_has_is_refused(commit: Commit, missing: str) -> None:
    updates = [
        {"action": "assign-uuid", "uuid": OTHER_UUID},
        schema_update(column(1, "a")),
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "set-location", "location": "file:///lake/t"},
    ]
    assert commit(None, *updates).format_version == 2
    with pytest.raises(InvalidRequestError, match=missing):
        commit(None, *[each for each in updates if each["action"] != missing])


def test_create_without_spec_and_order_is_unpartitioned_and_unsorted(commit: Commit) -> None:
    table = commit(
        None,
        {"action": "assign-uuid", "uuid": OTHER_UUID},
        schema_update(column(1, "a")),
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "set-location", "location": "file:///lake/t"},
    )
    assert (table.spec().fields, table.last_partition_id, table.sort_order().order_id) == ((), 999, 0)


def test_create_may_set_the_current_schema_last_as_duckdb_does(commit: Commit) -> None:
    updates: list[Update] = [
        {"action": "assign-uuid", "uuid": OTHER_UUID},
        schema_update(column(1, "a")),
        {"action": "add-spec", "spec": {"fields": [{"source-id": 1, "transform": "identity", "name": "a"}]}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "set-location", "location": "file:///lake/t"},
        {"action": "set-current-schema", "schema-id": 0},
    ]
    table = commit(None, *updates)
    assert (table.current_schema_id, table.spec().fields[0].source_id) == (0, 1)
    with pytest.raises(InvalidRequestError, match="add-schema comes first"):
        commit(None, *[each for each in updates if each["action"] != "add-schema"])


def test_commit_to_a_table_of_many_snapshots_touches_none_of_them(
    make_table: MakeTable, commit: Commit, add_snapshot: Update, set_ref: Update
) -> None:
    base = commit(make_table(), *(add_snapshot(each) for each in range(1, 3001)), set_ref(3000))
    table = commit(base, add_snapshot(3001, parent_snapshot_id=3000), set_ref(3001))
    assert all(old is new for old, new in zip(base.snapshots, table.snapshots, strict=False))
    assert table.snapshot(3001) is table.current_snapshot()
    assert table.snapshot(5) is base.snapshot(5)
