"""Iceberg schemas as Delta's, and when files can disagree about names."""

from typing import Any

import pytest

from duckicelake.delta.export.definition import build_delta_schema
from duckicelake.delta.export.field_names import (
    collect_named_ids,
    find_physical_names,
    has_plain_names,
    read_logged_names,
)
from duckicelake.delta.log.paths import relativize
from duckicelake.delta.log.schema import format_schema
from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.schema import Schema

Json = dict[str, Any]


def schema(*fields: Json, schema_id: int = 0) -> Schema:
    return Schema.model_validate({"type": "struct", "schema-id": schema_id, "fields": list(fields)})


def field(field_id: int, name: str, kind: Any = "long", **more: Any) -> Json:
    return {"id": field_id, "name": name, "type": kind, "required": False, **more}


def struct(*fields: Json) -> Json:
    return {"type": "struct", "fields": list(fields)}


def test_fields_carry_their_ids_and_the_names_in_files() -> None:
    found = format_schema(
        build_delta_schema(schema(field(7, "a", doc="what"), field(8, "b", struct(field(9, "c")))), {9: "old"})
    )
    assert '"delta.columnMapping.id":7,"delta.columnMapping.physicalName":"a","comment":"what"' in found
    assert '"delta.columnMapping.id":9,"delta.columnMapping.physicalName":"old"' in found


@pytest.mark.parametrize(
    ("schemas", "are_plain"),
    [
        ([schema(field(1, "a")), schema(field(1, "a"), field(2, "b"), schema_id=1)], True),
        ([schema(field(1, "a")), schema(field(1, "b"), schema_id=1)], False),
        ([schema(field(1, "a")), schema(field(2, "a"), schema_id=1)], False),
        ([schema(field(1, "a", struct(field(2, "x"))), field(3, "x"))], True),
        ([schema(field(1, "a-b"))], False),
        ([schema(field(1, "é"))], False),
        ([schema(field(1, "a"), schema_id=1)], False),
    ],
)
def test_names_are_plain_unless_files_can_disagree(schemas: list[Schema], are_plain: bool) -> None:
    assert has_plain_names(schemas) is are_plain


def test_physical_names_are_those_in_the_files() -> None:
    now = schema(field(1, "new"), field(3, "b", struct(field(4, "x"))))
    files = [("f", {(None, "old"): 1, (None, "b"): 3, (3, "x"): 4}), ("g", {(None, "old"): 1})]
    assert find_physical_names(now, files) == {1: "old", 3: "b", 4: "x"}


def test_column_that_no_file_has_keeps_clear_of_names_that_mean_others() -> None:
    assert find_physical_names(schema(field(2, "a")), [("f", {(None, "a"): 1})]) == {2: "a-2"}


def test_names_that_a_log_reported_of_are_those_of_its_files() -> None:
    lists = {"type": "list", "element-id": 5, "element": struct(field(6, "x")), "element-required": False}
    now = schema(field(1, "new"), field(2, "s", struct(field(3, "y"))), field(4, "l", lists))
    report = read_logged_names(build_delta_schema(now, {1: "old"}), [now])
    assert report == {(None, "old"): 1, (None, "s"): 2, (2, "y"): 3, (None, "l"): 4, (5, "x"): 6}
    assert collect_named_ids(now) == set(report.values())


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([{(None, "a"): 1}, {(None, "b"): 1}], "g has a column 'b' that means what other files call 'a'"),
        ([{(None, "a"): 1}, {(None, "a"): 2}], "files mean different columns by that name"),
        ([{(None, "a"): None}], "f has a column a without a field id"),
    ],
)
def test_files_that_disagree_are_refused(files: list[dict[tuple[int | None, str], int | None]], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        find_physical_names(schema(field(1, "a")), zip("fg", files, strict=False))


def test_initial_default_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Column a reads as 7 in rows of before"):
        build_delta_schema(schema(field(1, "a", **{"initial-default": 7})), {})


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("file:///lake/data/ns/t/data/f.parquet", "data/f.parquet"),
        ("file:///lake/ducklake/ns/t/p=a%2Fb/f.parquet", "../../../ducklake/ns/t/p=a%2Fb/f.parquet"),
        ("s3://bucket/f.parquet", "s3://bucket/f.parquet"),
    ],
)
def test_paths_are_relative_on_the_same_store(location: str, path: str) -> None:
    assert relativize("file:///lake/data/ns/t", location) == path
