"""What files a filter keeps: all that have a row that passes it, and whole ones only where every row does."""

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckicelake.bridge.scan import bounds as scan_bounds
from duckicelake.bridge.scan import partitions as scan_partitions
from duckicelake.bridge.scan import texts as scan_texts
from duckicelake.bridge.scan.bounds import unpack_bounds
from duckicelake.bridge.scan.column_metrics import build_column_bounds
from duckicelake.bridge.scan.filters import ScanFilter, bind_scan_filter
from duckicelake.bridge.scan.manifests import (
    BoundedBlock,
    FileBlock,
    ManifestFiles,
    build_block,
    build_bound_block,
    divide_bounds,
    find_all_matches,
    find_matches,
    join_blocks,
    join_bound_blocks,
    unpack_files,
)
from duckicelake.bridge.scan.partitions import code_partitions
from duckicelake.iceberg.expressions import parse_predicate
from duckicelake.iceberg.partition import PartitionField, PartitionSpec, Transform
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.transforms import apply_transform, compute_bucket
from duckicelake.iceberg.types import NestedField, PrimitiveType
from duckicelake.iceberg.values import from_unscaled, to_bytes, to_json, to_minimal_bytes, to_unscaled
from tests.support.examples import count_examples

Row = Any
LETTERS = "ab\0z\uffff\ue000\U0001f600"
INTEGERS = st.one_of(st.integers(-3, 3), st.integers(-(2**31), 2**31 - 1), st.sampled_from([-(2**31), 2**31 - 2]))
LONGS = st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 2]))
DAYS = st.one_of(st.integers(-3, 3), st.integers(-719_162, 2_932_896))
HOURS = st.integers(-50, 50).map(lambda hour: hour * 1_800_000_000)
MICROS = st.one_of(st.integers(-3, 3), HOURS, st.integers(-(10**15), 10**15))
NANOS = st.one_of(st.integers(-3, 3), HOURS.map(lambda hour: hour * 1000), st.integers(-(10**18), 10**18))
SINGLES = st.one_of(st.sampled_from([0.0, -0.0, math.inf, -math.inf]), st.floats(width=32, allow_nan=False))
DOUBLES = st.one_of(st.sampled_from([0.0, -0.0, 0.1, math.inf, -math.inf]), st.floats(allow_nan=False))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int": INTEGERS,
    "long": LONGS,
    "float": SINGLES,
    "double": DOUBLES,
    "decimal(9,2)": st.integers(-(10**9) + 9, 10**9 - 9).map(lambda number: from_unscaled(number, 2)),
    "decimal(9,9)": st.integers(-5, 5).map(lambda number: from_unscaled(number, 9)),
    "decimal(38,0)": st.integers(-(10**38) + 9, 10**38 - 9).map(lambda number: from_unscaled(number, 0)),
    "decimal(38,3)": st.integers(-(10**38) + 9, 10**38 - 9).map(lambda number: from_unscaled(number, 3)),
    "date": DAYS,
    "time": st.integers(0, 86_399_999_999),
    "timestamp": MICROS,
    "timestamptz": MICROS,
    "timestamp_ns": NANOS,
    "timestamptz_ns": NANOS,
    "string": st.text(LETTERS, max_size=14),
    "binary": st.binary(max_size=14),
    "fixed[3]": st.binary(min_size=3, max_size=3),
    "uuid": st.sampled_from([UUID(int=0), UUID(int=1), UUID(int=1 << 127), UUID(int=(1 << 128) - 1)]),
}
TRANSFORMS = ("identity", "bucket[4]", "truncate[2]", "truncate[3]", "year", "month", "day", "hour")
PROMOTED = {"long": "int", "double": "float", "timestamp": "date", "timestamp_ns": "date"}
"""The types that files of a type may have been written with."""
DAY_UNITS = {"timestamp": 86_400_000_000, "timestamp_ns": 86_400_000_000_000}
NEGATIONS = {
    "lt": "gt-eq",
    "lt-eq": "gt",
    "gt": "lt-eq",
    "gt-eq": "lt",
    "eq": "not-eq",
    "in": "not-in",
    "is-null": "not-null",
    "is-nan": "not-nan",
    "starts-with": "not-starts-with",
}
NEGATIONS |= {negative: test for test, negative in NEGATIONS.items() if negative.startswith("not-")}
MIRRORED = {"lt": "gt", "lt-eq": "gt-eq", "gt": "lt", "gt-eq": "lt-eq", "eq": "eq", "not-eq": "not-eq"}
ORDERED = ("lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq")


class Constant(NamedTuple):
    """A value, and one of the ways in which clients write it."""

    value: Any
    json: Any


@dataclass(frozen=True)
class Part:
    """A predicate as both forms have it. transform: what is made of the column first."""

    operator: str
    constants: tuple[Constant, ...] = ()
    parts: tuple["Part", ...] = ()
    transform: Transform | None = None


@dataclass(frozen=True)
class File:
    """Rows of one column, the type they were written with, and their metrics and partition as the catalog has them."""

    rows: list[Row]
    type: PrimitiveType
    metrics: dict[str, Any]
    partition: list[Any]


@dataclass(frozen=True)
class Case:
    """Files of rows of one column, and a predicate of it as clients send it."""

    type: PrimitiveType
    transform: Transform | None
    files: list[File]
    predicate: Part
    json: Any
    is_case_sensitive: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(sorted(VALUES)))
    kind = PrimitiveType.parse(name)
    values = VALUES[name]
    known = draw(st.lists(values, min_size=1, max_size=4))
    picked = st.one_of(st.sampled_from(known), values)
    accepted = [text for text in TRANSFORMS if Transform.parse(text).accepts(kind)]
    transform = draw(st.one_of(st.none(), st.sampled_from(accepted).map(Transform.parse)))
    files = draw(st.lists(make_file(kind, transform, picked), min_size=1, max_size=5))
    constants = picked.filter(lambda value: not (isinstance(value, float) and not math.isfinite(value)))
    predicate = draw(make_predicate(kind, transform, constants))
    name, is_case_sensitive = draw(st.sampled_from([("c", True), ("C", False), ("was_c", True), ("Was_C", False)]))
    json = draw(write_new(predicate, name) if draw(st.booleans()) else st.just(write_old(predicate, name)))
    return Case(kind, transform, files, predicate, json, is_case_sensitive)


@st.composite
def make_file(draw: st.DrawFn, kind: PrimitiveType, transform: Transform | None, values: Any) -> File:
    nan = [st.just(math.nan)] if kind.traits.family == "float" else []
    rows = draw(st.lists(st.one_of(values, values, st.none(), *nan), min_size=1, max_size=4))
    may_be_old = kind.name in PROMOTED and not (PROMOTED[kind.name] == "date" and transform)
    written = PrimitiveType.parse(PROMOTED[kind.name]) if may_be_old and draw(st.booleans()) else kind
    if written != kind:
        rows = [demote(kind, row) for row in rows]
    if transform is not None:
        rows = [
            row
            for row in rows
            if same(partition_of(transform, written, row), partition_of(transform, written, rows[0]))
        ]
    partition = [] if transform is None else [json_of(transform, written, rows[0], is_old=draw(st.booleans()))]
    return File(rows, written, draw(make_metrics(written, kind, rows)), partition)


def demote(kind: PrimitiveType, row: Row) -> Row:
    """Return a value near a row's that the older type has, as the newer type has it."""
    if row is None or kind.name == "long":
        return row if row is None or -(2**31) <= row < 2**31 else row % 1000
    if kind.name == "double":
        return (
            struct.unpack("f", struct.pack("f", row))[0]
            if abs(row) < 1e38
            else row * 0.0
            if math.isfinite(row)
            else row
        )
    return row - row % DAY_UNITS[kind.name]


@st.composite
def make_metrics(draw: st.DrawFn, written: PrimitiveType, kind: PrimitiveType, rows: Sequence[Row]) -> dict[str, Any]:
    """Make what a writer says of rows: counts and bounds, some of which may be missing, and cut bounds."""
    nan = [row for row in rows if isinstance(row, float) and math.isnan(row)]
    present = [row for row in rows if row is not None and row not in nan]
    metrics: dict[str, Any] = {
        "value_counts": {"1": len(rows)},
        "null_value_counts": {"1": sum(row is None for row in rows)},
    }
    if kind.traits.family == "float":
        metrics["nan_value_counts"] = {"1": len(nan)}
    if present:
        lowest, *_, highest = sorted([*present, *present], key=order)
        units = DAY_UNITS[kind.name] if written.name == "date" != kind.name else 1
        low, high = (to_bytes(written, bound // units if units > 1 else bound) for bound in (lowest, highest))
        size = draw(st.integers(1, 14))
        if kind.name in ("string", "binary"):
            low, high = cut(low, size, kind), raise_end(high, size, kind)
        metrics["lower_bounds"] = {"1": low.hex()}
        if high is not None:
            metrics["upper_bounds"] = {"1": high.hex()}
    missing = draw(st.one_of(st.just([]), st.lists(st.sampled_from(sorted(metrics)), max_size=2)))
    return {name: found for name, found in metrics.items() if name not in missing}


def cut(bound: bytes, size: int, kind: PrimitiveType) -> bytes:
    return bound.decode()[:size].encode() if kind.name == "string" else bound[:size]


def raise_end(bound: bytes, size: int, kind: PrimitiveType) -> bytes | None:
    """Cut an upper bound and raise its last character; None where there is no such bound."""
    if cut(bound, size, kind) == bound:
        return bound
    if kind.name == "binary":
        kept = bound[:size].rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    text = bound.decode()[:size]
    return (text[:-1] + (chr(ord(text[-1]) + 1) if text[-1] != "\uffff" else "\U00010000")).encode()


@st.composite
def make_constant(draw: st.DrawFn, kind: PrimitiveType, values: Any) -> Constant:
    value = draw(values)
    family = kind.traits.family
    if family == "decimal":
        value = draw(st.one_of(st.just(value), st.decimals(-100, 100, places=draw(st.integers(0, 12)))))
        return Constant(value, str(value))
    forms: list[Any] = [to_json(kind, value)]
    match family:
        case "integer" | "date" | "time" | "timestamp":
            forms.append(value)
        case "float":
            forms.append(repr(value))
        case "bytes":
            forms.append(forms[0].upper())
    if family == "timestamp":
        local = forms[0].removesuffix("+00:00")
        forms += [local, f"{local}Z", f"{local}+00:00"]
        zone = PrimitiveType.parse("timestamp_ns" if kind.traits.digits == 9 else "timestamp")
        ahead = 3600 * 10**kind.traits.digits * 11 // 2
        forms += [f"{to_json(zone, value + ahead)}+05:30", f"{to_json(zone, value - ahead)}-05:30"]
    return Constant(value, draw(st.sampled_from(forms)))


def make_predicate(kind: PrimitiveType, transform: Transform | None, values: Any) -> st.SearchStrategy[Part]:
    constants = make_constant(kind, values)
    ordered = ("eq", "not-eq") if kind.name == "uuid" else ORDERED
    tests = [
        st.builds(lambda op, constant: Part(op, (constant,)), st.sampled_from(ordered), constants),
        st.builds(
            lambda op, found: Part(op, tuple(found)), st.sampled_from(("in", "not-in")), st.lists(constants, max_size=3)
        ),
        st.sampled_from(("is-null", "not-null")).map(Part),
    ]
    if kind.traits.family == "float":
        tests.append(st.sampled_from(("is-nan", "not-nan")).map(Part))
    if kind.traits.family in ("string", "bytes") and not kind.name.startswith("fixed"):
        sizes = st.integers(0, 14)
        prefixes = st.builds(lambda value, size: value[:size], values, sizes).map(
            lambda v: Constant(v, to_json(kind, v))
        )
        starts = st.sampled_from(("starts-with", "not-starts-with"))
        tests.append(st.builds(lambda op, constant: Part(op, (constant,)), starts, prefixes))
    if transform is not None and transform.name != "identity":
        result = transform.result_type(kind)
        made = values.map(lambda value: partition_of(transform, kind, value))
        made = made.map(lambda v: Constant(v, v if isinstance(v, int) else to_json(result, v)))  # of any size
        tests.append(st.builds(lambda op, found: Part(op, (found,), (), transform), st.sampled_from(ORDERED), made))
    return st.recursive(
        st.one_of(*tests),
        lambda inner: st.one_of(
            inner.map(lambda child: Part("not", parts=(child,))),
            st.builds(lambda op, *both: Part(op, parts=both), st.sampled_from(("and", "or")), inner, inner),
        ),
        max_leaves=4,
    )


def write_old(part: Part, name: str) -> Any:
    """Write a predicate in the deprecated form, which all released clients send."""
    if part.operator == "not":
        return {"type": "not", "child": write_old(part.parts[0], name)}
    if part.parts:
        left, right = (write_old(child, name) for child in part.parts)
        return {"type": part.operator, "left": left, "right": right}
    term: Any = name
    if part.transform is not None:
        term = {"type": "transform", "transform": str(part.transform), "term": name}
    found = {"type": part.operator, "term": term}
    if part.operator in ("in", "not-in"):
        return found | {"values": [constant.json for constant in part.constants]}
    return found | ({"value": part.constants[0].json} if part.constants else {})


@st.composite
def write_new(draw: st.DrawFn, part: Part, name: str) -> Any:
    """Write a predicate in the new form, with a constant on either side."""
    if part.operator == "not":
        return {"type": "not", "child": draw(write_new(part.parts[0], name))}
    if part.parts:
        left, right = (draw(write_new(child, name)) for child in part.parts)
        return {"type": part.operator, "left": left, "right": right}
    references = [{"type": "reference", "name": name}, {"type": "reference", "id": 1}]
    column: Any = draw(st.sampled_from(references))
    if part.transform is not None:
        function, _, width = str(part.transform).rstrip("]").partition("[")
        column = {"type": "apply", "function": function, "arguments": [*([int(width)] if width else []), column]}
    if part.operator in ("in", "not-in"):
        return {"type": part.operator, "child": column, "values": [constant.json for constant in part.constants]}
    if not part.constants:
        return {"type": part.operator, "child": column}
    constant = {"type": "literal", "value": part.constants[0].json}
    if part.operator in MIRRORED and draw(st.booleans()):
        return {"type": MIRRORED[part.operator], "left": constant, "right": column}
    return {"type": part.operator, "left": column, "right": constant}


def same(one: Any, other: Any) -> bool:
    return bool(one == other) and str(one) == str(other)  # NaN isn't alone in its partition, -0.0 is not 0.0


def partition_of(transform: Transform, kind: PrimitiveType, row: Row) -> Any:
    if row is None:
        return None
    if isinstance(row, float) and math.isnan(row):
        return "NaN"
    if transform.name == "bucket":
        unscaled = to_minimal_bytes(to_unscaled(row, 38, kind.scale or 0)) if isinstance(row, Decimal) else row
        return compute_bucket(unscaled.bytes if isinstance(unscaled, UUID) else unscaled, transform.width or 1)
    return apply_transform(transform, kind, row)


def json_of(transform: Transform, kind: PrimitiveType, row: Row, *, is_old: bool) -> Any:
    """Return a row's partition value as JSON. is_old: as writers had it that round times before 1970 towards it."""
    value = partition_of(transform, kind, row)
    if value == "NaN" or (isinstance(value, float) and not math.isfinite(value)):
        return "NaN" if value == "NaN" else str(value)
    if transform.name in ("year", "month", "day", "hour") and is_old and value is not None and value < 0:
        value += 1
    if transform.name == "truncate" and kind.traits.family == "integer" and value is not None:
        size = 32 if kind.name == "int" else 64
        value = (value + (1 << (size - 1))) % (1 << size) - (1 << (size - 1))
    return None if value is None else to_json(transform.result_type(kind), value)


def order(row: Row) -> Any:
    if isinstance(row, float):
        return math.isnan(row), row
    return row.encode() if isinstance(row, str) else row


def passes(kind: PrimitiveType, part: Part, row: Row, *, is_negated: bool = False) -> bool:
    """Evaluate as Iceberg's libraries do: "not" is pushed down to the tests, and no comparison is true of null or NaN.

    Those that say "not" are true of both.
    """
    if part.operator == "not":
        return passes(kind, part.parts[0], row, is_negated=not is_negated)
    if part.parts:
        found = [passes(kind, child, row, is_negated=is_negated) for child in part.parts]
        return all(found) if (part.operator == "and") != is_negated else any(found)
    operator = NEGATIONS[part.operator] if is_negated else part.operator
    is_nan = isinstance(row, float) and math.isnan(row)
    if operator in ("is-null", "not-null"):
        return (row is None) == (operator == "is-null")
    if operator in ("is-nan", "not-nan"):
        return is_nan == (operator == "is-nan")
    if row is None or is_nan:
        return operator.startswith("not-")
    return compare(kind, operator, row, part)


def passes_by_sql(kind: PrimitiveType, part: Part, row: Row) -> bool | None:
    """Evaluate as Spark and DuckDB do: of null nothing is known but that it is one, and NaN is the greatest number."""
    found = [passes_by_sql(kind, child, row) for child in part.parts]
    match part.operator:
        case "not":
            return None if found[0] is None else not found[0]
        case "and":
            return False if False in found else None if None in found else True
        case "or":
            return True if True in found else None if None in found else False
        case "is-null" | "not-null":
            return (row is None) == (part.operator == "is-null")
    if row is None:
        return None
    if part.operator in ("is-nan", "not-nan"):
        return math.isnan(row) == (part.operator == "is-nan")
    return compare(kind, part.operator, row, part)


def compare(kind: PrimitiveType, operator: str, row: Row, part: Part) -> bool:
    """Compare a row's value, which isn't null, with constants; NaN is greater than all of them."""
    if operator.startswith("not-"):
        return not compare(kind, operator.removeprefix("not-"), row, part)
    values = [constant.value for constant in part.constants]
    if part.transform is not None:
        row = partition_of(part.transform, kind, row)
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


def build_spec(case: Case) -> PartitionSpec:
    fields = (
        []
        if case.transform is None
        else [PartitionField(source_id=1, field_id=1000, name="p", transform=case.transform)]
    )
    return PartitionSpec(spec_id=0, fields=tuple(fields))


def build_manifest(case: Case, schema: Schema, manifest_id: int = 1) -> FileBlock:
    spec = build_spec(case)
    made = ManifestFiles(
        spec_id=0,
        file_ids=np.arange(len(case.files)),
        record_counts=np.array([len(file.rows) for file in case.files], np.int64),
        sizes=np.zeros(len(case.files), np.int64),
        partitions=code_partitions([file.partition for file in case.files], len(spec.fields)),
    )
    files = unpack_files(made.pack())
    return build_block(manifest_id, files, spec, schema)


def bind(case: Case) -> tuple[tuple[ScanFilter, ...], Schema]:
    schema, older = (
        Schema(fields=(NestedField(id=1, name=name, required=False, type=case.type),)) for name in ("c", "was_c")
    )
    predicate = parse_predicate(case.json, takes_transforms=True)
    return bind_scan_filter(predicate, [schema, older], is_case_sensitive=case.is_case_sensitive), schema


@settings(max_examples=count_examples(800), deadline=None)
@given(cases())
def test_no_file_with_a_row_that_passes_is_left_out_and_whole_files_pass_wholly(case: Case) -> None:
    filters, schema = bind(case)
    manifest = build_manifest(case, schema)
    made = build_column_bounds(case.type, 1, [file.metrics for file in case.files])
    bounds = {1: unpack_bounds(case.type, made.pack())}
    found = find_matches(BoundedBlock(manifest, bounds), filters)
    places = found.places.tolist()
    for place, file in enumerate(case.files):
        if any(
            passes(case.type, case.predicate, row) or passes_by_sql(case.type, case.predicate, row) for row in file.rows
        ):
            assert place in places
    for place, is_whole in zip(places, found.is_whole.tolist(), strict=True):
        if is_whole:
            for row in case.files[place].rows:
                assert passes(case.type, case.predicate, row)
                assert passes_by_sql(case.type, case.predicate, row)


@settings(max_examples=count_examples(400), deadline=None)
@given(cases(), st.data())
def test_files_of_joined_manifests_are_decided_as_those_of_each(case: Case, data: st.DataObject) -> None:
    filters, schema = bind(case)
    cuts = sorted(data.draw(st.lists(st.integers(1, len(case.files)), unique=True, max_size=3), label="cuts"))
    ends = [*(cut for cut in cuts if cut < len(case.files)), len(case.files)]
    parts = [replace(case, files=case.files[first:last]) for first, last in pairwise([0, *ends])]
    blocks = [build_manifest(part, schema, number) for number, part in enumerate(parts)]
    bounds = [build_column_bounds(case.type, 1, [file.metrics for file in part.files]) for part in parts]
    alone = [
        (number, int(place), bool(is_whole))
        for number, (block, column) in enumerate(zip(blocks, bounds, strict=True))
        for place, is_whole in zip(*astuple(find_matches(BoundedBlock(block, {1: column}), filters)), strict=True)
    ]
    joined = join_blocks(blocks, build_spec(case), schema)
    columns = [build_bound_block(of_part) for of_part in bounds]
    column = join_bound_blocks(columns)
    divided = divide_bounds(joined, {1: column})
    spec, half = build_spec(case), len(parts) // 2
    halves = [some for some in (slice(half), slice(half, None)) if joined.manifests[some]]
    joined_again = join_blocks([join_blocks(joined.manifests[some], spec, schema) for some in halves], spec, schema)
    columns_again = [list(map(build_bound_block, column.manifests))[some] for some in halves]
    divided_again = divide_bounds(joined_again, {1: join_bound_blocks(list(map(join_bound_blocks, columns_again)))})
    with pytest.MonkeyPatch.context() as patch:
        for module in (scan_bounds, scan_partitions):
            patch.setattr(module, "MAX_COMPARED_FILES", data.draw(st.sampled_from([0, 20_000]), label="compared"))
        for pieces in (divided, divided_again):
            found = []
            for piece, matches in zip(pieces, find_all_matches(pieces, filters), strict=True):
                is_whole = dict(zip(matches.places.tolist(), matches.is_whole.tolist(), strict=True))
                for number, places in piece.block.divide(matches.places):
                    start = piece.block.starts[piece.block.manifest_ids.index(number)]
                    found += [(number, place, is_whole[start + place]) for place in places.tolist()]
            assert found == alone


@settings(max_examples=count_examples(300), deadline=None)
@given(st.lists(st.lists(st.text(LETTERS, max_size=2), min_size=1, max_size=2), min_size=1, max_size=4), st.data())
def test_short_texts_beside_long_ones_are_decided_as_exactly_as_by_themselves(
    texts: list[list[str]], data: st.DataObject
) -> None:
    kind = PrimitiveType.parse("string")
    files = [File(rows, kind, data.draw(make_whole_metrics(rows)), []) for rows in texts]
    long = [File([text], kind, data.draw(make_whole_metrics([text])), []) for text in ("", "z" * 9, "z" * 21)]
    constants = st.one_of(st.sampled_from(texts).map(lambda rows: rows[0]), st.text(LETTERS, max_size=3))
    predicate = data.draw(make_predicate(kind, None, constants))
    alone, beside = (
        Case(kind, None, found, predicate, write_old(predicate, "c"), True) for found in (files, files + long)
    )
    assert find_files(alone) == [found for found in find_files(beside) if found[0] < len(files)]


BEGINNINGS = ("", "/data/raw/", "/data/raw/2026/", "/data/reports/2026/")


@settings(max_examples=count_examples(400), deadline=None)
@given(st.data())
def test_texts_that_begin_alike_are_decided_by_all_of_their_bounds(data: st.DataObject) -> None:
    kind = PrimitiveType.parse(data.draw(st.sampled_from(["string", "binary"])))
    letters = st.text(LETTERS, max_size=3)
    values = st.builds(lambda head, tail: head + tail, st.sampled_from(BEGINNINGS), letters)
    encoded = values if kind.name == "string" else values.map(order)
    texts = data.draw(st.lists(st.lists(encoded, min_size=1, max_size=2), min_size=1, max_size=6))
    files = [File(rows, kind, data.draw(make_whole_metrics(rows)), []) for rows in texts]
    predicate = data.draw(make_predicate(kind, None, encoded))
    case = Case(kind, None, files, predicate, write_old(predicate, "c"), True)
    found = find_files(case)
    limits = [(min(map(order, rows)), max(map(order, rows))) for rows in texts]
    may_have = build_bounds_test(predicate)
    if may_have is not None:
        assert [place for place, _ in found] == [place for place, limit in enumerate(limits) if may_have(*limit)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_texts, "MAX_BYTES", data.draw(st.integers(0, 12), label="bytes"))
        patch.setattr(scan_bounds, "MAX_COMPARED_FILES", 0)
        assert {place for place, _ in found} <= {place for place, _ in find_files(case)}


def build_bounds_test(part: Part) -> Callable[[bytes, bytes], bool] | None:
    """Return what whole bounds say of a file; None of tests that are decided by more than bounds."""
    values = [order(constant.value) for constant in part.constants]
    return {
        "eq": lambda low, high: low <= values[0] <= high,
        "in": lambda low, high: any(low <= value <= high for value in values),
        "lt": lambda low, _: low < values[0],
        "lt-eq": lambda low, _: low <= values[0],
        "gt": lambda _, high: high > values[0],
        "gt-eq": lambda _, high: high >= values[0],
        "starts-with": lambda low, high: low[: len(values[0])] <= values[0] <= high,
    }.get(part.operator)


def make_whole_metrics(rows: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Make metrics with bounds that aren't cut, and perhaps without a count of nulls."""
    low, high = min(map(order, rows)), max(map(order, rows))
    found = {"value_counts": {"1": len(rows)}, "lower_bounds": {"1": low.hex()}, "upper_bounds": {"1": high.hex()}}
    return st.sampled_from([found, found | {"null_value_counts": {"1": 0}}])


def find_files(case: Case) -> list[tuple[int, bool]]:
    """Return the places of the files that a case's filter keeps, each with whether all of its rows pass."""
    filters, schema = bind(case)
    bounds = {1: build_column_bounds(case.type, 1, [file.metrics for file in case.files])}
    found = find_matches(BoundedBlock(build_manifest(case, schema), bounds), filters)
    return list(zip(found.places.tolist(), found.is_whole.tolist(), strict=True))
