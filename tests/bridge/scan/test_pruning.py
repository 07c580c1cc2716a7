"""What files a filter keeps: all that have a row that passes it, and whole ones only where every row does."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from duckicelake.bridge.scan.bounds import build_column_bounds
from duckicelake.bridge.scan.filters import bind_scan_filter
from duckicelake.bridge.scan.manifests import ScanManifest, find_matches, may_match_manifest
from duckicelake.bridge.scan.partitions import build_partition_columns
from duckicelake.iceberg.expressions import parse_predicate
from duckicelake.iceberg.partition import PartitionField, PartitionSpec, Transform
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.transforms import apply_transform, compute_bucket
from duckicelake.iceberg.types import NestedField, PrimitiveType
from duckicelake.iceberg.values import from_json, from_unscaled, to_bytes, to_json, to_minimal_bytes, to_unscaled

Row = Any
LETTERS = "ab\0z\uffff\ue000\U0001f600"
INTEGERS = st.one_of(st.integers(-3, 3), st.integers(-(2**31), 2**31 - 1))
LONGS = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
DAYS = st.one_of(st.integers(-3, 3), st.integers(-719_162, 2_932_896))
MICROS = st.one_of(
    st.integers(-3, 3), st.integers(-5, 5).map(lambda hour: hour * 3_600_000_000), st.integers(-(10**15), 10**15)
)
SINGLES = st.one_of(st.sampled_from([0.0, -0.0, math.inf, -math.inf]), st.floats(width=32, allow_nan=False))
DOUBLES = st.one_of(st.sampled_from([0.0, -0.0, 0.1, math.inf, -math.inf]), st.floats(allow_nan=False))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INTEGERS,
    "long": LONGS,
    "float": SINGLES,
    "double": DOUBLES,
    "decimal(9,2)": st.integers(-(10**9) + 9, 10**9 - 9).map(lambda number: from_unscaled(number, 2)),
    "decimal(38,3)": st.integers(-(10**38) + 9, 10**38 - 9).map(lambda number: from_unscaled(number, 3)),
    "date": DAYS,
    "timestamp": MICROS,
    "timestamptz": MICROS,
    "string": st.text(LETTERS, max_size=14),
    "binary": st.binary(max_size=14),
}
TRANSFORMS = ("identity", "bucket[4]", "truncate[2]", "year", "month", "day", "hour")
ORDERED = ("lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq")


@dataclass(frozen=True)
class Case:
    """Files of rows of one column, and a predicate of it."""

    type: PrimitiveType
    transform: Transform | None
    files: list[list[Row]]
    has_bounds: list[bool]
    predicate: Any


@st.composite
def cases(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(sorted(VALUES)))
    kind = PrimitiveType.parse(name)
    values = VALUES[name]
    known = draw(st.lists(values, min_size=1, max_size=4))
    picked = st.one_of(st.sampled_from(known), values)
    rows = st.one_of(picked, st.none(), *([st.just(math.nan)] if kind.traits.family == "float" else []))
    files = draw(st.lists(st.lists(rows, min_size=1, max_size=4), min_size=1, max_size=5))
    accepted = [text for text in TRANSFORMS if Transform.parse(text).accepts(kind)]
    transform = draw(st.one_of(st.none(), st.sampled_from(accepted).map(Transform.parse)))
    if transform is not None:
        files = [
            [row for row in file if same(partition_of(transform, kind, row), partition_of(transform, kind, file[0]))]
            for file in files
        ]
    constants = picked.filter(lambda value: not (isinstance(value, float) and not math.isfinite(value)))
    has_bounds = draw(st.lists(st.booleans(), min_size=len(files), max_size=len(files)))
    return Case(
        kind, transform, files, has_bounds, draw(predicates(kind, constants.map(lambda value: to_json(kind, value))))
    )


def predicates(kind: PrimitiveType, constants: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def build(operator: str, *members: tuple[str, Any]) -> dict[str, Any]:
        return {"type": operator, "term": "c", **dict(members)}

    tests = [
        st.builds(lambda op, value: build(op, ("value", value)), st.sampled_from(ORDERED), constants),
        st.builds(
            lambda op, values: build(op, ("values", values)),
            st.sampled_from(("in", "not-in")),
            st.lists(constants, max_size=3),
        ),
        st.sampled_from(("is-null", "not-null")).map(build),
    ]
    if kind.traits.family == "float":
        tests.append(st.sampled_from(("is-nan", "not-nan")).map(build))
    if kind.traits.family in ("string", "bytes"):
        prefixes = constants.flatmap(lambda text: st.integers(0, len(text) // 2).map(lambda size: text[: 2 * size]))
        tests.append(
            st.builds(
                lambda op, value: build(op, ("value", value)),
                st.sampled_from(("starts-with", "not-starts-with")),
                prefixes,
            )
        )
    return st.recursive(
        st.one_of(*tests),
        lambda inner: st.one_of(
            inner.map(lambda child: {"type": "not", "child": child}),
            st.builds(
                lambda kind, left, right: {"type": kind, "left": left, "right": right},
                st.sampled_from(("and", "or")),
                inner,
                inner,
            ),
        ),
        max_leaves=4,
    )


def same(one: Any, other: Any) -> bool:
    return bool(one == other) and str(one) == str(other)  # NaN isn't alone in its partition, -0.0 is not 0.0


def partition_of(transform: Transform, kind: PrimitiveType, row: Row) -> Any:
    if row is None:
        return None
    if isinstance(row, float) and math.isnan(row):
        return "NaN"
    if transform.name == "bucket":
        unscaled = to_minimal_bytes(to_unscaled(row, 38, kind.scale or 0)) if isinstance(row, Decimal) else row
        return compute_bucket(unscaled, transform.width or 1)
    return apply_transform(transform, kind, row)


def metrics_of(kind: PrimitiveType, rows: Sequence[Row], *, has_bounds: bool) -> dict[str, Any]:
    nan = [row for row in rows if isinstance(row, float) and math.isnan(row)]
    present = [row for row in rows if row is not None and row not in nan]
    metrics: dict[str, Any] = {
        "value_counts": {"1": len(rows)},
        "null_value_counts": {"1": sum(row is None for row in rows)},
    }
    if kind.traits.family == "float":
        metrics["nan_value_counts"] = {"1": len(nan)}
    if has_bounds and present:
        ordered = sorted(present, key=order)
        metrics["lower_bounds"] = {"1": to_bytes(kind, ordered[0]).hex()}
        metrics["upper_bounds"] = {"1": to_bytes(kind, ordered[-1]).hex()}
    return metrics


def order(row: Row) -> Any:
    return row.encode() if isinstance(row, str) else row


def passes(kind: PrimitiveType, predicate: Any, row: Row) -> bool:
    """Evaluate by Iceberg's expressions spec, whose logic has two values."""
    match predicate["type"]:
        case "not":
            return not passes(kind, predicate["child"], row)
        case "and":
            return passes(kind, predicate["left"], row) and passes(kind, predicate["right"], row)
        case "or":
            return passes(kind, predicate["left"], row) or passes(kind, predicate["right"], row)
        case "is-null" | "not-null" as test:
            return (row is None) == (test == "is-null")
    is_nan = isinstance(row, float) and math.isnan(row)
    operator = predicate["type"]
    if operator in ("is-nan", "not-nan"):
        return is_nan == (operator == "is-nan")
    if operator.startswith("not-"):
        return not passes(kind, predicate | {"type": operator.removeprefix("not-")}, row)
    if row is None or is_nan:
        return False
    values = [from_json(kind, json) for json in predicate.get("values", [predicate.get("value")])]
    match operator:
        case "eq" | "in":
            return row in values
        case "starts-with":
            return bool(row.startswith(values[0]))
        case "lt":
            return bool(order(row) < order(values[0]))
        case "lt-eq":
            return bool(order(row) <= order(values[0]))
        case "gt":
            return bool(order(row) > order(values[0]))
    return bool(order(row) >= order(values[0]))


def passes_by_sql(kind: PrimitiveType, predicate: Any, row: Row) -> bool | None:
    """Evaluate as SQL does: of null nothing is known, unless it is asked for."""
    match predicate["type"]:
        case "not":
            found = passes_by_sql(kind, predicate["child"], row)
            return None if found is None else not found
        case "and":
            found = [passes_by_sql(kind, predicate[side], row) for side in ("left", "right")]
            return False if False in found else None if None in found else True
        case "or":
            found = [passes_by_sql(kind, predicate[side], row) for side in ("left", "right")]
            return True if True in found else None if None in found else False
        case "is-null" | "not-null" as test:
            return (row is None) == (test == "is-null")
    return None if row is None else passes(kind, predicate, row)


@settings(max_examples=600, deadline=None)
@given(cases())
def test_no_file_with_a_row_that_passes_is_left_out_and_whole_files_pass_wholly(case: Case) -> None:
    schema = Schema(fields=(NestedField(id=1, name="c", required=False, type=case.type),))
    fields = (
        ()
        if case.transform is None
        else (PartitionField(source_id=1, field_id=1000, name="p", transform=case.transform),)
    )
    partitions = [[json_of(case, file[0])] if case.transform else [] for file in case.files]
    if any(value == ["NaN"] for value in partitions):
        return  # JSON has no NaN, and neither have partition values here
    manifest = ScanManifest(
        1,
        0,
        np.arange(len(case.files)),
        np.array([len(file) for file in case.files]),
        build_partition_columns(PartitionSpec(spec_id=0, fields=fields), schema, partitions),
    )
    metrics = [
        metrics_of(case.type, file, has_bounds=has) for file, has in zip(case.files, case.has_bounds, strict=True)
    ]
    bounds = {1: build_column_bounds(case.type, 1, metrics)}
    filters = bind_scan_filter(parse_predicate(case.predicate), [schema])
    found = find_matches(manifest, bounds, filters)
    places = found.places.tolist()
    for place, file in enumerate(case.files):
        if any(passes(case.type, case.predicate, row) or passes_by_sql(case.type, case.predicate, row) for row in file):
            assert place in places
            assert may_match_manifest(manifest, bounds, filters)
    for place, is_whole in zip(places, found.is_whole.tolist(), strict=True):
        if is_whole:
            for row in case.files[place]:
                assert passes(case.type, case.predicate, row)
                assert passes_by_sql(case.type, case.predicate, row)


def json_of(case: Case, row: Row) -> Any:
    assert case.transform is not None
    value = partition_of(case.transform, case.type, row)
    if value is None or value == "NaN" or (isinstance(value, float) and not math.isfinite(value)):
        return None if value is None else "NaN"
    return to_json(case.transform.result_type(case.type), value)
