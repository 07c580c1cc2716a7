"""PURE. Decide tests of fields by the partition values of files (table spec, "Scan Planning")."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from duckicelake.bridge.data_files import parse_partition_value
from duckicelake.bridge.scan.bounds import MAX_COMPARED_FILES, MAX_FEW_SHARE, FileMasks
from duckicelake.bridge.scan.filters import FieldTest
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.partition import PartitionField, PartitionSpec, Transform
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.transforms import apply_transform, compute_bucket
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import to_minimal_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = DeferredModule("numpy")


Decision: TypeAlias = tuple[bool, bool]
"""Whether a row of a partition may pass a test, and whether all of them surely do."""
Judge: TypeAlias = Callable[[Any], Decision]
_ORDERED: Final = frozenset({"lt", "lt-eq", "gt", "gt-eq"})
_GREATER: Final = frozenset({"gt", "gt-eq"})
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_WIDE: Final = Context(prec=100)
_WORD_BITS: Final = (32, 64)
_CALENDAR: Final = frozenset({"year", "month", "day", "hour"})


@dataclass(frozen=True)
class PartitionArrays:
    """The values of one partition field in files of its spec: `values[codes[i]]` is that of file i.

    Values are as constants of filters are (see FieldTest), None for null. place: the field's in its spec.
    """

    field: PartitionField
    place: int
    source: PrimitiveType
    values: tuple[Any, ...]
    codes: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        return 3 * self.codes.nbytes + 64 * len(self.values)

    @cached_property
    def _order(self) -> tuple[NDArray[np.int32], list[int]]:
        """The places of files in the order of their codes, and where those of each code begin, and end at last."""
        order = np.argsort(self.codes, kind="stable").astype(np.int32)
        return order, np.searchsorted(self.codes[order], np.arange(len(self.values) + 1)).tolist()

    def find_candidates(self, test: FieldTest) -> NDArray[np.intp] | None:
        """Find the places of files of which a row may pass a test of the source; None if that is most of them.

        Few files are compared, of many those of a value are looked up.
        """
        matching = self._find_codes(test)
        if matching is None:
            return None
        if len(self.codes) <= MAX_COMPARED_FILES:
            is_match = np.zeros(len(self.values), np.bool_)
            is_match[matching] = True
            return np.flatnonzero(is_match[self.codes])
        order, starts = self._order
        found = [order[starts[code] : starts[code + 1]] for code in matching]
        if sum(map(len, found)) > MAX_FEW_SHARE * len(self.codes):
            return None
        return np.sort(np.concatenate([np.zeros(0, np.intp), *found]))

    @cached_property
    def _codes_by_value(self) -> dict[Any, int]:
        return {value: code for code, value in enumerate(self.values)}

    def _find_codes(self, test: FieldTest) -> list[int] | None:
        """Find the values that rows which pass a test may have; None where they don't say.

        Equality looks values up, which spares a plan 1 µs for each partition of the table.
        """
        is_equality = (
            test.operator in ("eq", "in") and test.transform is None and self.field.transform.name == "identity"
        )
        if is_equality and self.source.traits.family != "float":
            known = self._codes_by_value
            return [known[value] for value in set(test.values) if value in known]
        judge = _find_judge(self.field.transform, self.source, test)
        return None if judge is None else [code for code, value in enumerate(self.values) if judge(value)[0]]

    def decide(self, test: FieldTest) -> FileMasks | None:
        """Find the files whose rows may, or must, pass a test; None where partition values don't say."""
        judge = _find_judge(self.field.transform, self.source, test)
        if judge is None:
            return None
        found = np.array([judge(value) for value in self.values], np.bool_).reshape(-1, 2)
        return FileMasks(found[self.codes, 0], found[self.codes, 1])

    def take(self, places: NDArray[np.intp]) -> PartitionArrays:
        """Return the values of the files at these places, and no others."""
        used, codes = np.unique(self.codes[places], return_inverse=True)
        return replace(self, values=tuple(self.values[code] for code in used.tolist()), codes=codes.astype(np.int32))

    def read(self, coded: CodedValues) -> PartitionArrays:
        """Return the values of the same field in other files."""
        result = self.field.transform.result_type(self.source)
        return replace(self, values=tuple(_read_value(result, json) for json in coded.values), codes=coded.codes)


class CodedValues(NamedTuple):
    """Partition values of one field, as JSON: `values[codes[i]]` is that of file i."""

    values: list[Any]
    codes: NDArray[np.int32]

    def cut(self, files: slice) -> CodedValues:
        """Return the values of some of the files, and no others."""
        codes = self.codes[files]
        used = np.flatnonzero(np.bincount(codes, minlength=len(self.values)))
        if len(used) == len(self.values):
            return CodedValues(self.values, codes)
        numbers = np.zeros(len(self.values), np.int32)
        numbers[used] = np.arange(len(used), dtype=np.int32)
        return CodedValues([self.values[code] for code in used.tolist()], numbers[codes])


def join_coded(parts: Sequence[CodedValues]) -> CodedValues:
    """Join the values of one field in several manifests."""
    codes_by_value: dict[Any, int] = {}
    numbers = [[codes_by_value.setdefault(value, len(codes_by_value)) for value in part.values] for part in parts]
    codes = [np.array(of_part, np.int32)[part.codes] for of_part, part in zip(numbers, parts, strict=True)]
    return CodedValues(list(codes_by_value), np.concatenate(codes))


def code_partitions(partitions: Sequence[Sequence[Any]], fields: int) -> list[CodedValues]:
    """Number the partition values of files, which are JSON single values: one for each field of their spec."""
    coded = []
    for place in range(fields):
        codes_by_value: dict[Any, int] = {}
        codes = [codes_by_value.setdefault(partition[place], len(codes_by_value)) for partition in partitions]
        coded.append(CodedValues(list(codes_by_value), np.array(codes, np.int32)))
    return coded


def build_partition_columns(
    spec: PartitionSpec, schema: Schema, coded: Sequence[CodedValues]
) -> tuple[PartitionArrays, ...]:
    """Read the partition values of a manifest's files, one for each field of its spec.

    A field whose source has left the schema, or whose transform isn't known, says nothing: it is left out.
    """
    leaves = schema.leaves()
    columns = []
    for place, (field, found) in enumerate(zip(spec.fields, coded, strict=True)):
        source = leaves.get(field.source_id)
        if source is None or not field.transform.accepts(source) or field.transform.name == "void":
            continue
        columns.append(PartitionArrays(field, place, source, (), found.codes).read(found))
    return tuple(columns)


def _read_value(type_: PrimitiveType, json: Any) -> Any:
    value = parse_partition_value(type_, json)
    if isinstance(value, bool):
        return int(value)
    return value.bytes if type_.traits.family == "uuid" and value is not None else value


def _find_judge(transform: Transform, source: PrimitiveType, test: FieldTest) -> Judge | None:
    """Return what decides the test for a partition value; None if values say nothing of it."""
    if test.transform is not None:
        return _judge_made(transform, source, test) if test.transform == transform else None
    if transform.name == "identity" or test.operator in ("is-null", "not-null"):
        return _judge_value(test)
    if test.operator in ("is-nan", "not-nan"):
        return None
    if transform.name == "bucket":
        judge = _judge_bucket(transform.width or 1, source, test)
    elif source.traits.family in ("string", "bytes"):
        judge = _judge_beginning(transform.width or 1, test)
    else:
        judge = _judge_step(transform, source, test)
    if judge is None:
        return None
    return lambda value: _judge_special(test, "null") if value is None else judge(value)


def _judge_made(transform: Transform, source: PrimitiveType, test: FieldTest) -> Judge | None:
    """Decide a test of what the partition's transform makes of a field."""
    judge = _judge_value(test)
    if judge is None or transform.name not in (*_CALENDAR, "truncate"):
        return judge

    def decide(value: Any) -> Decision:
        steps = _list_steps(transform, source, value) if isinstance(value, int) else [value]
        found = [judge(step) for step in steps]
        return any(may for may, _ in found), all(must for _, must in found)

    return decide


def _judge_value(test: FieldTest) -> Judge | None:
    """Decide by the value that all rows have. UUIDs aren't ordered: Java compares them as signed numbers."""
    if test.operator in _ORDERED and test.type.traits.family == "uuid":
        return None
    holds = _COMPARISONS[test.operator]
    readings = [test.values]
    if test.type.name == "float":  # which readers compare in single or in double precision
        readings.append(tuple(float(np.float32(value)) for value in test.values))
    given: list[Any] = [values[0] if _takes_one(test) else frozenset(values) for values in readings]

    def judge(value: Any) -> Decision:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return _judge_special(test, "null" if value is None else "nan")
        found = [holds(value, constants) for constants in given]
        return any(found), all(found)

    return judge


def _takes_one(test: FieldTest) -> bool:
    return test.operator in _ORDERED or test.operator.endswith("starts-with")


def _judge_special(test: FieldTest, special: str) -> Decision:
    """Decide for null or NaN. By some readers, what says "not" is true of both, and NaN is the greatest number."""
    asked = test.operator.rpartition("-")[2]
    if asked in ("null", "nan"):
        found = (asked == special) == test.operator.startswith("is-")
        return found, found and not (asked == "nan" and special == "null")
    return test.operator.startswith("not-") or (special == "nan" and test.operator in _GREATER), False


def _is_never(_: Any, __: Any) -> bool:
    return False


def _is_always(_: Any, __: Any) -> bool:
    return True


_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "is-null": _is_never,
    "not-null": _is_always,
    "is-nan": _is_never,
    "not-nan": _is_always,
    "eq": lambda value, given: value in given,
    "in": lambda value, given: value in given,
    "not-eq": lambda value, given: value not in given,
    "not-in": lambda value, given: value not in given,
    "lt": lambda value, given: _order(value) < _order(given),
    "lt-eq": lambda value, given: _order(value) <= _order(given),
    "gt": lambda value, given: _order(value) > _order(given),
    "gt-eq": lambda value, given: _order(value) >= _order(given),
    "starts-with": lambda value, given: value.startswith(given),
    "not-starts-with": lambda value, given: not value.startswith(given),
}
"""Tests of values that are neither null nor NaN; equality and sets are given a set, others a constant."""


def _order(value: Any) -> Any:
    """Return what orders as the value: all readers order texts by code points, as the bytes of UTF-8 are ordered."""
    return value.encode(errors="surrogatepass") if isinstance(value, str) else value


def _judge_bucket(width: int, source: PrimitiveType, test: FieldTest) -> Judge | None:
    if test.operator not in ("eq", "in"):
        return None
    hashed = (_encode_hashed(source, value) for value in test.values)
    buckets = frozenset(compute_bucket(value, width) for value in hashed if value is not None)
    return lambda value: (value in buckets, False)


def _encode_hashed(source: PrimitiveType, value: Any) -> Any:
    """Return what is hashed of a constant; None for one that no column of the type holds."""
    if isinstance(value, Decimal):
        least, most = _span(source, value)
        return to_minimal_bytes(least) if least == most else None
    return None if isinstance(value, int) and not _LEAST <= value <= _MOST else value


def _judge_beginning(width: int, test: FieldTest) -> Judge | None:
    """Decide by how texts or bytes begin: the partition's value is all of one that is shorter than the width."""
    if not test.values:
        return None
    cut = [value[:width] for value in test.values]
    first, starts = test.values[0], frozenset(cut)
    is_whole = len(first) <= width

    def judge(value: Any) -> Decision:
        match test.operator:
            case "eq" | "in":
                return value in starts, False
            case "not-eq" | "not-in":
                return True, value not in starts
            case "starts-with":
                return (value.startswith(first), value.startswith(first)) if is_whole else (value == cut[0], False)
            case "not-starts-with":
                return (
                    (not value.startswith(first), not value.startswith(first)) if is_whole else (True, value != cut[0])
                )
        found, limit = _order(value), _order(cut[0])
        if test.operator in ("lt", "lt-eq"):
            is_tight = test.operator == "lt" and is_whole
            return (found < limit if is_tight else found <= limit), found < limit
        return found >= limit, found > limit

    return judge


def _judge_step(transform: Transform, source: PrimitiveType, test: FieldTest) -> Judge | None:
    """Decide by a transform that gives numbers in the order of its source's, such as a day or a rounded number."""
    if not test.values:
        return None
    spans = [_span(source, value) for value in test.values]
    least, most = spans[0]
    step = _build_step(transform, source)
    exact = frozenset(step(low) for low, high in spans if low == high)

    def judge(may: Callable[[int], bool], must: Callable[[int], bool]) -> Judge:
        def decide(value: Any) -> Decision:
            steps = _list_steps(transform, source, value)
            return any(map(may, steps)), all(map(must, steps))

        return decide

    match test.operator:
        case "lt":
            below, last = step(most - 1), step(most)
            return judge(lambda value: value <= below, lambda value: value < last)
        case "lt-eq":
            below, last = step(least), step(least + 1)
            return judge(lambda value: value <= below, lambda value: value < last)
        case "gt":
            above, last = step(least + 1), step(least)
            return judge(lambda value: value >= above, lambda value: value > last)
        case "gt-eq":
            above, last = step(most), step(most - 1)
            return judge(lambda value: value >= above, lambda value: value > last)
        case "eq" | "in":
            return judge(lambda value: value in exact, lambda _: False)
        case "not-eq" | "not-in":
            return judge(lambda _: True, lambda value: value not in exact)
    return None


def _build_step(transform: Transform, source: PrimitiveType) -> Callable[[int], int]:
    """Return the transform of whole numbers; of decimals, those of their last digits."""
    if source.traits.family in ("decimal", "integer"):
        width = transform.width or 1
        return lambda number: number - number % width
    return lambda number: int(apply_transform(transform, source, min(max(number, _LEAST), _MOST)))


def _list_steps(transform: Transform, source: PrimitiveType, value: Any) -> list[int]:
    """Return the steps that a partition's value may be.

    Java truncates a number near the least one of its type to one below it, which wraps around; old writers rounded
    times before 1970 towards it.
    """
    if transform.name in _CALENDAR:
        return [value, value - 1] if value <= 0 else [value]
    number = _span(source, value)[0]
    if source.traits.family != "integer":
        return [number]
    wrapped = (number - (1 << bits) for bits in _WORD_BITS)
    least = (-(1 << (bits - 1)) for bits in _WORD_BITS)
    width = transform.width or 1
    return [number, *(low for low, limit in zip(wrapped, least, strict=True) if limit - width < low < limit)]


def _span(source: PrimitiveType, value: Any) -> tuple[int, int]:
    """Return the whole numbers around a constant; both are the same where it is one."""
    if not isinstance(value, Decimal):
        return int(value), int(value)
    scaled = value.scaleb(source.scale or 0, _WIDE)
    return int(scaled.to_integral_value(ROUND_FLOOR)), int(scaled.to_integral_value(ROUND_CEILING))


def join_partitions(parts: Sequence[PartitionArrays]) -> PartitionArrays:
    """Join the values of one partition field in several manifests."""
    starts = np.cumsum([0, *(len(part.values) for part in parts[:-1])], dtype=np.int32)
    codes = np.concatenate([part.codes + start for part, start in zip(parts, starts, strict=True)])
    return replace(parts[0], values=tuple(value for part in parts for value in part.values), codes=codes)


def decide_all(columns: Collection[PartitionArrays], test: FieldTest) -> list[FileMasks]:
    """Return what the partition fields made of the test's field say of it."""
    found = (column.decide(test) for column in columns if column.field.source_id == test.field_id)
    return [verdict for verdict in found if verdict is not None]
