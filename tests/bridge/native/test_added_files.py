"""What the footer of an added file, DuckLake's map of it and the table's columns say together."""

import pytest

from duckicelake.bridge.native.added_files import DuckDBAddedFile, StoredField, drop_bounds
from duckicelake.errors import UnsupportedError
from duckicelake.lake.model import Column, ColumnStats, MappedName, NameMap, PartitionKey

COLUMNS = (
    Column(1, None, "a", "int64", nulls_allowed=True),
    Column(2, None, "l", "list", nulls_allowed=True),
    Column(3, 2, "element", "float64", nulls_allowed=True),
    Column(4, None, "k", "blob", nulls_allowed=True),
)
A = StoredField(None, 0, "a", None, "leaf", "INT64")
LIST = StoredField(None, 1, "l", None, "list", "")
MAP = (MappedName("a", 1), MappedName("l", 2), MappedName("list", 3, 1))


def element(stored: str = "DOUBLE", kind: str = "leaf", field_id: int | None = None) -> StoredField:
    return StoredField(1, 0, "list", field_id, kind, stored)  # type: ignore[arg-type]  # a kind


@pytest.mark.parametrize(
    ("fields", "is_plain", "inexact"),
    [
        ((A, LIST, element()), True, set()),
        ((A, LIST, element("FLOAT")), True, {3}),
        ((A, LIST, element(field_id=3)), False, set()),
        ((A, LIST, element("BYTE_ARRAY")), False, {3}),
        ((A, LIST, element("unusual")), False, {3}),
        ((A, LIST, element(), A._replace(place=2, name="more")), False, set()),
        ((A, LIST, element(), A._replace(place=2, name="A")), False, {1, 2, 3}),
        ((A._replace(stored="INT32 UINT"), LIST, element()), False, {1}),
        ((A,), False, set()),
    ],
)
def test_files_are_plain_where_all_clients_read_them_alike(
    fields: tuple[StoredField, ...], is_plain: bool, inexact: set[int]
) -> None:
    found = DuckDBAddedFile(fields, NameMap(MAP), COLUMNS)
    assert (found.is_plain, found.inexact) == (is_plain, inexact)


def test_field_ids_must_be_the_tables_at_any_depth() -> None:
    numbered = (A._replace(field_id=1), LIST._replace(field_id=2), element(field_id=3))
    assert DuckDBAddedFile(numbered, NameMap(MAP), COLUMNS).is_plain
    assert not DuckDBAddedFile((*numbered[:2], element(field_id=4)), NameMap(MAP), COLUMNS).is_plain


def test_columns_that_are_gone_stay_in_the_file() -> None:
    assert DuckDBAddedFile((A, LIST, element()), NameMap(MAP), COLUMNS[1:]).is_plain


@pytest.mark.parametrize(
    ("fields", "names", "columns", "reason"),
    [
        ((A, LIST, element(kind="struct", stored="")), MAP, COLUMNS, None),
        ((A, LIST._replace(kind="leaf", stored="unusual")), MAP, COLUMNS, "unusual"),
        ((A,), MAP[:1], COLUMNS[1:], "none of the table's columns"),
        ((A,), (MappedName("k", 4, is_partition=True),), COLUMNS, "which value of k"),
    ],
)
def test_what_cannot_be_copied_is_refused(
    fields: tuple[StoredField, ...], names: tuple[MappedName, ...], columns: tuple[Column, ...], reason: str | None
) -> None:
    file = DuckDBAddedFile(fields, NameMap(names), columns)
    if reason is None:
        assert file.copy_columns("/f.parquet", {})
        return
    with pytest.raises(UnsupportedError, match=f"/f.parquet .*{reason}"):
        file.copy_columns("/f.parquet", {4: ColumnStats(4, min_value="00", max_value="00", value_count=1)})


def test_folders_say_nothing_of_columns_in_the_file() -> None:
    values: dict[PartitionKey, str | None] = {PartitionKey(1, "year"): "2024", PartitionKey(4, "identity"): "x"}
    file = DuckDBAddedFile((A,), NameMap((MAP[0], MappedName("k", 4, is_partition=True))), COLUMNS)
    assert file.trust_folder(values) == {PartitionKey(4, "identity"): "x"}


def test_bounds_beside_which_may_be_nan_place_no_file() -> None:
    rows = [ColumnStats(3, contains_nan=None), ColumnStats(3, contains_nan=False), ColumnStats(1)]
    assert list(DuckDBAddedFile((A,), NameMap(MAP), COLUMNS).without_nan(rows)) == rows[1:]


def test_metrics_lose_bounds_only() -> None:
    metrics = {"value_counts": {"1": 2, "3": 2}, "lower_bounds": {"1": "00", "3": "00"}, "upper_bounds": {"3": "01"}}
    assert drop_bounds(metrics, frozenset({3})) == {
        "value_counts": {"1": 2, "3": 2},
        "lower_bounds": {"1": "00"},
        "upper_bounds": {},
    }
