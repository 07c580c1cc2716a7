"""Reports: columns are kept and constants never, whatever an engine writes."""

from typing import Any

import pytest

from duckicelake.iceberg.expressions import MAX_DEPTH, MAX_PREDICATES
from duckicelake.iceberg.reports import MAX_COLUMNS, MAX_REPORTED_NAME_CHARS, MetricsReport


def report(**members: Any) -> MetricsReport:
    return MetricsReport.model_validate({"report-type": "scan-report", **members})


FILTERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "none": (None, ()),
    "true": (True, ()),
    "true as a predicate": ({"type": "true"}, ()),
    "comparison": ({"type": "gt", "term": "x", "value": "secret"}, ("x",)),
    "set": ({"type": "in", "term": "x", "values": ["secret", "y"]}, ("x",)),
    "unary": ({"type": "not-null", "term": "x"}, ("x",)),
    "unary of a child": ({"type": "is-null", "child": "x"}, ("x",)),
    "transform": (
        {"type": "eq", "term": {"type": "transform", "transform": "bucket[4]", "term": "x"}, "value": 1},
        ("x",),
    ),
    "not": ({"type": "not", "child": {"type": "eq", "term": "x", "value": "secret"}}, ("x",)),
    "and, or": (
        {
            "type": "and",
            "left": {
                "type": "or",
                "left": {"type": "eq", "term": "x", "value": 1},
                "right": {"type": "is-nan", "term": "y"},
            },
            "right": {"type": "starts-with", "term": "x", "value": "secret"},
        },
        ("x", "y"),
    ),
    "references": (
        {"type": "eq", "left": {"type": "reference", "name": "x"}, "right": {"type": "literal", "value": "secret"}},
        ("x",),
    ),
    "a constant on the left": ({"type": "eq", "left": "secret", "right": {"type": "reference", "term": "x"}}, ("x",)),
    "never heard of": ({"type": "moon", "phase": "full", "term": "x"}, ("x",)),
    "a text": ("secret", ()),
    "a list": (["secret"], ()),
}


@pytest.mark.parametrize(("filter_json", "columns"), FILTERS.values(), ids=FILTERS.keys())
def test_a_filter_says_its_columns_and_no_constant(filter_json: Any, columns: tuple[str, ...]) -> None:
    assert report(filter=filter_json).filtered == columns


def test_columns_that_no_table_has_are_left_out() -> None:
    ids, names = [1, 2147483646, 2147483645, 3, 3], ["id", "_file", "_pos", "x", "x"]
    assert report(**{"projected-field-ids": ids, "projected-field-names": names}).projected == ("id", "x")
    assert report(**{"projected-field-names": names[:2]}).projected == ("id", "_file")


def test_names_are_few_and_short() -> None:
    names = ["", "n" * (MAX_REPORTED_NAME_CHARS + 1), *(f"c{number}" for number in range(2 * MAX_COLUMNS))]
    assert report(**{"projected-field-names": names}).projected == tuple(names[2 : MAX_COLUMNS + 2])


def test_metadata_are_its_texts() -> None:
    assert report(metadata={"app-id": "x", "count": 1, "deep": {}}).metadata == {"app-id": "x"}


def nested(depth: int) -> Any:
    made: Any = {"type": "is-null", "term": "x"}
    for _ in range(depth):
        made = {"type": "not", "child": made}
    return made


def wide(count: int) -> Any:
    parts: list[Any] = [{"type": "is-null", "term": "x"}] * count
    while len(parts) > 1:
        pairs = [{"type": "or", "left": a, "right": b} for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def test_large_filters_are_taken() -> None:
    assert report(filter=nested(MAX_DEPTH - 2)).filtered == ("x",)
    assert report(filter=wide(MAX_PREDICATES)).filtered == ("x",)


WRONG: dict[str, dict[str, Any]] = {
    "no type": {"report-type": None},
    "a type that is no text": {"report-type": 5},
    "a snapshot id that is no number": {"snapshot-id": "17"},
    "a snapshot id that is too large": {"snapshot-id": 2**63},
    "names that are no list": {"projected-field-names": "id"},
    "names that are no texts": {"projected-field-names": [1]},
    "ids that are no numbers": {"projected-field-ids": ["1"]},
    "metadata that are no object": {"metadata": ["app-id"]},
    "a filter that is too deep": {"filter": nested(2 * MAX_DEPTH)},
    "a filter that is too wide": {"filter": wide(2 * MAX_PREDICATES)},
}


@pytest.mark.parametrize("members", WRONG.values(), ids=WRONG.keys())
def test_what_has_another_shape_is_refused(members: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="MetricsReport"):
        report(**members)
