"""Which types a field may become, and what a commit may not change of fields that rows were written with."""

import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.schema_evolution import can_promote
from duckicelake.iceberg.types import ListType, PrimitiveType
from tests.iceberg.conftest import Commit, Json, MakeTable

PROMOTIONS = {  # by (from, to): the first format version that has it
    ("int", "long"): 1,
    ("float", "double"): 1,
    ("decimal(9, 2)", "decimal(12, 2)"): 1,
    ("date", "timestamp"): 3,
    ("date", "timestamp_ns"): 3,
    ("unknown", "int"): 3,
    ("unknown", "variant"): 3,
}
TYPES = [
    "boolean", "int", "long", "float", "double", "decimal(9, 2)", "decimal(12, 2)", "decimal(12, 3)", "date", "time",
    "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "string", "binary", "fixed[4]", "uuid", "variant",
    "geometry", "geometry(EPSG:3857)", "unknown",
]  # fmt: skip


@pytest.mark.parametrize("version", [1, 2, 3])
def test_promotions_are_those_of_the_specification(version: int) -> None:
    for before in TYPES:
        for after in TYPES:
            expected = before == after or version >= PROMOTIONS.get((before, after), 3 if before == "unknown" else 4)
            assert can_promote(PrimitiveType.parse(before), PrimitiveType.parse(after), version) is expected


def test_nested_types_are_read_as_themselves_only_and_unknown_as_any() -> None:
    numbers = ListType(element_id=2, element=PrimitiveType.parse("int"), element_required=False)
    assert can_promote(numbers, numbers, 1)
    assert not can_promote(numbers, PrimitiveType.parse("int"), 3)
    assert not can_promote(PrimitiveType.parse("int"), numbers, 3)
    assert can_promote(PrimitiveType.parse("unknown"), numbers, 3)


def field(field_id: int, name: str, kind: Json, **more: Json) -> Json:
    return {"id": field_id, "name": name, "required": False, "type": kind} | more


def schema(*fields: Json) -> Json:
    return {"type": "struct", "fields": [field(1, "id", "long") | {"required": True}, *fields]}


def evolution(*fields: Json) -> list[Json]:
    return [{"action": "add-schema", "schema": schema(*fields)}, {"action": "set-current-schema", "schema-id": -1}]


DAY, INT = field(2, "day", "date"), field(4, "n", "int")
INSIDE = {"type": "struct", "fields": [field(6, "x", "int")]}


@pytest.fixture
def table(make_table: MakeTable, commit: Commit, add_snapshot, set_ref):
    """A version 3 table with rows and the columns `id`, `day`, `n` and `s.x`."""

    def make(*specs: Json):
        empty = commit(make_table(3), *evolution(DAY, INT, field(5, "s", INSIDE)), *specs)
        return commit(empty, add_snapshot(1, first_row_id=0, added_rows=5), set_ref(1))

    return make


def partitioned(transform: str) -> list[Json]:
    spec = {"fields": [{"source-id": 2, "name": "p", "transform": transform}]}
    return [{"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1}]


@pytest.mark.parametrize(("fields", "said"), [
    ([DAY, field(4, "n", "string")], "'n' from int to string"),
    ([DAY, field(4, "n", "double")], "'n' from int to double"),
    ([DAY, field(4, "n", INSIDE)], "'n' from int to struct"),
    ([DAY, INT, field(5, "s", "string")], "'s' from struct to string"),
    ([DAY, INT, field(5, "s", {"type": "struct", "fields": [field(6, "x", "string")]})], "'x' from int to string"),
    ([DAY, field(4, "n", "int", **{"initial-default": 7})], "initial default of 'n'"),
    ([DAY, INT, field(5, "s", {"type": "struct", "fields": []}, **{"initial-default": {}})], "initial default of 's'"),
])  # fmt: skip
def test_change_that_rows_of_before_do_not_follow_is_refused(
    table, commit: Commit, fields: list[Json], said: str
) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        commit(table(), *evolution(*fields))


def test_fields_of_structs_come_go_and_are_promoted(table, commit: Commit) -> None:
    inside = {"type": "struct", "fields": [field(7, "y", "string"), field(6, "renamed", "long")]}
    changed = commit(table(), *evolution(field(5, "s", inside), field(4, "n", "long", **{"write-default": 7})))
    assert changed.schema().full_names() == {1: "id", 5: "s", 7: "s.y", 6: "s.renamed", 4: "n"}


@pytest.mark.parametrize("transform", ["identity", "bucket[4]"])
@pytest.mark.parametrize("is_current", [True, False])
def test_promotion_that_changes_partition_values_is_refused(
    table, commit: Commit, transform: str, is_current: bool
) -> None:
    base = table(*partitioned(transform))
    if not is_current:
        base = commit(base, *partitioned("month"))
    with pytest.raises(InvalidRequestError, match=r"'day' from date to timestamp: .* partitioned by"):
        commit(base, *evolution(field(2, "day", "timestamp"), INT))


@pytest.mark.parametrize("transform", ["year", "month", "day"])
def test_promotion_that_keeps_partition_values_is_taken(table, commit: Commit, transform: str) -> None:
    changed = commit(table(*partitioned(transform)), *evolution(field(2, "day", "timestamp_ns"), INT))
    assert str(changed.schema().leaves()[2]) == "timestamp_ns"


def test_any_change_is_taken_where_no_row_stays(table, commit: Commit, add_snapshot, set_ref) -> None:
    changes = evolution(field(2, "day", "string"), field(4, "n", INSIDE))
    replaced = commit(table(), {"action": "remove-snapshot-ref", "ref-name": "main"}, *changes)
    assert replaced.current_snapshot_id is None
    rewritten = add_snapshot(2, first_row_id=5, added_rows=1)
    assert commit(table(), *changes, rewritten, set_ref(2)).current_snapshot_id == 2
    with pytest.raises(InvalidRequestError, match="'day' from date to string"):
        commit(table(), *changes, add_snapshot(2, first_row_id=5, added_rows=1, parent_snapshot_id=1), set_ref(2))


def test_rollback_may_take_the_schema_back_with_the_rows(table, commit: Commit, add_snapshot, set_ref) -> None:
    base = table()
    wider = commit(
        base,
        *evolution(DAY, field(4, "n", "long")),
        add_snapshot(2, first_row_id=5, added_rows=1, parent_snapshot_id=1),
        set_ref(2),
    )
    back = {"action": "set-current-schema", "schema-id": base.current_schema_id}

    assert commit(wider, set_ref(1), back).schema() == base.schema()
    with pytest.raises(InvalidRequestError, match="'n' from long to int"):
        commit(wider, back)
