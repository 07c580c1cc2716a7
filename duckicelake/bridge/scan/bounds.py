"""PURE. What the metrics of many files say of one column, as arrays, and which files a test may or must hold for.

A bound is a key: a whole number of 64 bits that orders as the values do. Of texts and bytes it is made of the seven
bytes behind what all bounds of the column begin with, and of how many there are: only values with more may have one
key though they differ. Of files whose keys are a constant's, whole bounds are compared.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from duckicelake.bridge.scan.filters import FieldTest
from duckicelake.bridge.scan.texts import (
    MAX_TAKEN_FILES,
    TextBounds,
    build_exact_test,
    join_text_bounds,
)
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.types import PrimitiveType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = DeferredModule("numpy")


Flags: TypeAlias = "NDArray[np.bool_]"
Keys: TypeAlias = "NDArray[np.int64]"

HAS_LOW: Final = 1
HAS_HIGH: Final = 2
MAY_BE_NULL: Final = 4
IS_NULL: Final = 8
MAY_BE_NAN: Final = 16
IS_NAN: Final = 32
LEAST, MOST = -(1 << 63), (1 << 63) - 1
KEY_BYTES: Final = 7
"""So that no key of these bytes is the least or the greatest one, which stand for what lies beyond the prefix."""
LENGTH_BITS: Final = 4
"""The last bits of a text's key: how many bytes it has behind the prefix, or one more than the key has of them."""
_LENGTH: Final = (1 << LENGTH_BITS) - 1
TEXT_FAMILIES: Final = ("string", "bytes")
_WIDE: Final = Context(prec=100)
_MAX_KEPT_KEYS: Final = 8
MAX_FEW_SHARE: Final = 0.25
"""Of the files of a block: fewer are decided by themselves, apart from the others."""
MAX_COMPARED_FILES: Final = 20_000
"""Of so many files all are compared, which takes 15 µs; among more the candidates are looked up."""
_INDEX_BYTES: Final = 20
"""Of a file in the index of its column's bounds."""
_ORDERED: Final = "ordered"
"""Under which a test keeps the bytes of its constants in order, beside the keys by prefix."""
_FLOAT_SIGN: Final = (1 << 63) - 1


class SetKeys(NamedTuple):
    """Keys of constants in their order: between which each one is, and those that stand for one value."""

    least: Keys
    most: Keys
    same: Keys

    @classmethod
    def build(cls, spans: Sequence[tuple[int, int]]) -> SetKeys:
        least = np.array([span[0] for span in spans], np.int64)
        most = np.array([span[1] for span in spans], np.int64)
        return cls(least, np.maximum.accumulate(most) if len(most) else most, least[least == most])

    def find_same(self, keys: Keys) -> Flags:
        """Return which of the keys stand for one of the values; for many values ten times as fast as `np.isin`."""
        if not len(self.same):
            return np.zeros(len(keys), np.bool_)
        found: Flags = self.same[np.minimum(np.searchsorted(self.same, keys), len(self.same) - 1)] == keys
        return found


class FileMasks(NamedTuple):
    """Of each of many files: whether a row may pass a test, and whether all rows surely do."""

    may: Flags
    must: Flags


class KeyRange(NamedTuple):
    """The keys from one to another, both included."""

    least: int
    most: int


class _KeyIndex(NamedTuple):
    """The bounds of files by which those around a key are found.

    lows: the lows in order. highs: the greatest high of the files up to here. order: the places of these files.
    """

    lows: Keys
    highs: Keys
    order: NDArray[np.int32]

    def find(self, wanted: KeyRange) -> tuple[int, int]:
        """Find which part of the order has all files that have keys of the range, and few others."""
        return int(self.highs.searchsorted(wanted.least)), int(self.lows.searchsorted(wanted.most, "right"))


@dataclass(frozen=True)
class BoundArrays:
    """The bounds of a column in each of the files of a manifest, or of several whose keys are alike.

    lows, highs: the least and the greatest key where they are unknown. states: flags by the constants above. prefix:
    what all bounds begin with, of texts and bytes. is_exact: whether equal keys are equal values; of texts, those of
    keys that aren't cut are in any case. texts: the bounds of which some keys are cut.
    """

    type: PrimitiveType
    lows: Keys
    highs: Keys
    states: NDArray[np.ubyte]
    prefix: bytes
    is_exact: bool
    texts: TextBounds | None = None

    @property
    def nbytes(self) -> int:
        texts = 0 if self.texts is None else self.texts.nbytes
        return (17 + _INDEX_BYTES) * len(self.states) + len(self.prefix) + texts

    def pack(self) -> bytes:
        """Pack the bounds; `unpack_bounds` reads them."""
        head = bytes([self.is_exact]) + len(self.states).to_bytes(4, "big")
        texts = b"" if self.texts is None else self.texts.ends.tobytes() + self.texts.data
        prefix = len(self.prefix).to_bytes(4, "big") + self.prefix
        return b"".join((head, self.lows.tobytes(), self.highs.tobytes(), self.states.tobytes(), prefix, texts))

    @cached_property
    def _span(self) -> KeyRange:
        """The keys between which the bounds of all files are."""
        return KeyRange(int(self.lows.min()), int(self.highs.max())) if len(self.states) else KeyRange(MOST, LEAST)

    @cached_property
    def _may_have_nan(self) -> bool:
        return bool((self.states & MAY_BE_NAN).any())

    @property
    def kind(self) -> tuple[bytes, bool]:
        """What is the same of bounds whose keys are alike."""
        return self.prefix, self.is_exact

    def take(self, places: NDArray[np.intp] | slice) -> BoundArrays:
        """Return the bounds of the files at these places."""
        lows, highs, states = self.lows[places], self.highs[places], self.states[places]
        texts = None if self.texts is None else self.texts.take(places)
        return BoundArrays(self.type, lows, highs, states, self.prefix, self.is_exact, texts)

    @cached_property
    def _index(self) -> _KeyIndex:
        order = np.argsort(self.lows)
        return _KeyIndex(self.lows[order], np.maximum.accumulate(self.highs[order]), order.astype(np.int32))

    def find_candidates(self, test: FieldTest) -> NDArray[np.intp] | None:
        """Find places of files, among them all of which a row may pass the test; None if that may be any."""
        wanted = self._find_range(test)
        if wanted is None:
            return None
        if self._span.least > wanted.most or self._span.most < wanted.least:
            return np.zeros(0, np.intp)
        first, last = (0, len(self.states)) if len(self.states) <= MAX_COMPARED_FILES else self._index.find(wanted)
        if last - first > MAX_FEW_SHARE * len(self.states):
            return np.flatnonzero((self.lows <= wanted.most) & (self.highs >= wanted.least))
        return np.sort(self._index.order[first:last]).astype(np.intp)

    def _find_range(self, test: FieldTest) -> KeyRange | None:
        """Return the keys of which a file must have some, for a row to pass; None for a test that has no such."""
        match test.operator:
            case "eq" | "in":
                keys = self._find_set_keys(test)
                return KeyRange(int(keys.least[0]), int(keys.most[-1])) if len(keys.least) else KeyRange(MOST, LEAST)
            case "lt" | "lt-eq":
                return KeyRange(LEAST, self._key(test.values[0])[1])
            case "gt" | "gt-eq" if not self._may_have_nan:
                return KeyRange(self._key(test.values[0])[0], MOST)
            case "starts-with":
                return self._find_prefix_range(_to_bytes(test.values[0]))
        return None

    def decide(self, test: FieldTest, max_texts: int = MAX_TAKEN_FILES) -> FileMasks:
        """Find the files of which rows may pass a test of the column itself, and those of which all must.

        max_texts: of how many files texts are compared at most.
        """
        null, all_null = self._has(MAY_BE_NULL), self._has(IS_NULL)
        nan, all_nan = self._has(MAY_BE_NAN), self._has(IS_NAN)
        match test.operator:
            case "is-null":
                return FileMasks(null, all_null)
            case "not-null":
                return FileMasks(~all_null, ~null)
            case "is-nan":
                return FileMasks(nan & ~all_null, all_nan & ~null)
            case "not-nan":
                return FileMasks(~all_nan | null, ~nan & ~null)
        if test.operator.startswith("not-"):
            found = self._compare_wholly(test.operator.removeprefix("not-"), test, max_texts)
            clean = ~null & ~nan
            return FileMasks(~(found.must & clean), ~found.may & clean & self._has(HAS_LOW | HAS_HIGH))
        found = self._compare_wholly(test.operator, test, max_texts)
        may = (found.may & ~all_nan) | nan if test.operator in ("gt", "gt-eq") else found.may & ~all_nan
        return FileMasks(may & ~all_null, found.must & ~null & ~nan)

    def _has(self, flags: int) -> Flags:
        has: Flags = (self.states & flags) == flags
        return has

    def _has_text(self) -> bool:
        return self.type.traits.family in TEXT_FAMILIES

    def _compare_wholly(self, operator: str, test: FieldTest, max_texts: int) -> FileMasks:
        """Compare keys, then the texts of those files that only equal keys keep."""
        found = self._compare(operator, test)
        if self.texts is None:
            return found
        ties = found.may & self._has(HAS_LOW | HAS_HIGH) & self._find_ties(operator, test)
        places = np.flatnonzero(ties).tolist()
        if not places or len(places) > max_texts:
            return found
        holds = build_exact_test(operator, _order_constants(test))
        may, prefix = found.may.copy(), self.prefix
        may[places] = [holds(prefix + low, prefix + high) for low, high in map(self.texts.get, places)]
        return FileMasks(may, found.must)

    def _find_ties(self, operator: str, test: FieldTest) -> Flags:
        """Find the files of which a bound has the key of a constant."""
        if operator in ("eq", "in"):
            keys = self._find_set_keys(test)
            return np.isin(self.lows, keys.most) | np.isin(self.highs, keys.least)
        is_prefix = operator == "starts-with"
        least, most = self._find_prefix_range(_to_bytes(test.values[0])) if is_prefix else self._key(test.values[0])
        ties: Flags = (self.lows == most) | (self.highs == least)
        return ties

    def _compare(self, operator: str, test: FieldTest) -> FileMasks:
        """Compare what the files have besides null and NaN."""
        low, high = self._has(HAS_LOW), self._has(HAS_HIGH)
        if operator in ("eq", "in"):
            return self._compare_set(test, low, high)
        if operator == "starts-with":
            return self._compare_prefix(test.values[0], low, high)
        least, most = self._key(test.values[0])
        close = self.is_exact or (self._has_text() and bool(_is_whole(most)))
        match operator:
            case "lt":
                return FileMasks(~low | (self.lows < most if close else self.lows <= most), high & (self.highs < least))
            case "lt-eq":
                must = self.highs <= least if close else self.highs < least
                return FileMasks(~low | (self.lows <= most), high & must)
            case "gt":
                return FileMasks(
                    ~high | (self.highs > least if close else self.highs >= least), low & (self.lows > most)
                )
        must = self.lows >= most if close else self.lows > most
        return FileMasks(~high | (self.highs >= least), low & must)

    def _compare_set(self, test: FieldTest, low: Flags, high: Flags) -> FileMasks:
        keys = self._find_set_keys(test)
        first = np.searchsorted(keys.most, self.lows)
        found = first < len(keys.most)
        may = found.copy()
        may[found] = keys.least[first[found]] <= self.highs[found]
        if not self.is_exact and not self._has_text():
            return FileMasks(may, np.zeros(len(may), np.bool_))
        must = low & high & (self.lows == self.highs) & keys.find_same(self.lows)
        return FileMasks(may, must if self.is_exact else must & _is_whole(self.lows))

    def _find_set_keys(self, test: FieldTest) -> SetKeys:
        keys = test.keys.get(self.prefix)
        if keys is None:
            if len(test.keys) > _MAX_KEPT_KEYS:
                test.keys.clear()
            keys = test.keys[self.prefix] = self._build_set_keys(test)
        found: SetKeys = keys
        return found

    def _build_set_keys(self, test: FieldTest) -> SetKeys:
        """Build the keys of constants, in order; those of texts beyond the prefix have two together."""
        if not self._has_text():
            return SetKeys.build(sorted(map(self._key, test.values)))
        data, size = _order_constants(test), len(self.prefix)
        first = bisect_left(data, self.prefix)
        last = bisect_right(data, self.prefix, key=lambda value: value[:size])
        spans = [self._key_span(value, value) for value in data[first:last]]
        below = [(LEAST, LEAST)] if first else []
        return SetKeys.build([*below, *spans, *([(MOST, MOST)] if last < len(data) else [])])

    def _compare_prefix(self, value: Any, low: Flags, high: Flags) -> FileMasks:
        data = _to_bytes(value)
        span = self._find_prefix_range(data)
        may = (self.lows <= span.most) & (self.highs >= span.least)
        fits = len(data) <= len(self.prefix) + KEY_BYTES
        must = low & high & (self.lows >= span.least) & (self.highs <= span.most)
        return FileMasks(may, must & fits)

    def _find_prefix_range(self, data: bytes) -> KeyRange:
        return KeyRange(*self._key_span(data, data + b"\xff" * (len(self.prefix) + KEY_BYTES)))

    def _key(self, value: Any) -> tuple[int, int]:
        """Return the keys between which the constant's is."""
        if isinstance(value, str | bytes):
            data = _to_bytes(value)
            return self._key_span(data, data)
        if isinstance(value, float):
            return _span_float(self.type, value)
        if isinstance(value, Decimal):
            scaled = value.scaleb(self.type.scale or 0, _WIDE)
            return clip(int(scaled.to_integral_value(ROUND_FLOOR))), clip(int(scaled.to_integral_value(ROUND_CEILING)))
        return _span_whole(value)

    def _key_span(self, least: bytes, most: bytes) -> tuple[int, int]:
        return cut_key(least, self.prefix), cut_key(most, self.prefix)


def _span_whole(value: int) -> tuple[int, int]:
    return clip(value), clip(value)


def clip(value: int) -> int:
    return min(max(value, LEAST), MOST)


def _span_float(type_: PrimitiveType, value: float) -> tuple[int, int]:
    """Return the keys of a constant, and of what a reader of floats in single precision makes of it."""
    near = float(np.float32(value)) if type_.name == "float" else value
    return sort_float(min(value, near)), sort_float(max(value, near))


def sort_float(value: float) -> int:
    """Return a key that orders as floats; 0.0 and -0.0 have one."""
    bits: int = struct.unpack("<q", struct.pack("<d", value + 0.0))[0]
    return bits ^ _FLOAT_SIGN if bits < 0 else bits


def _order_constants(test: FieldTest) -> list[bytes]:
    """Return the bytes of a test's texts, in order."""
    known: list[bytes] | None = test.keys.get(_ORDERED)
    if known is None:
        known = test.keys[_ORDERED] = sorted(map(_to_bytes, test.values))
    return known


def _to_bytes(value: str | bytes) -> bytes:
    return value.encode(errors="surrogatepass") if isinstance(value, str) else value


def _is_whole(keys: Any) -> Any:
    """Return whether a key of a text, or which of many, has all of its bytes."""
    return (keys & _LENGTH) <= KEY_BYTES


def cut_key(data: bytes, prefix: bytes) -> int:
    """Return the key of a value among those that begin with the prefix: its next bytes, and how many it has."""
    size = len(prefix)
    if data[:size] != prefix:
        return LEAST if data < prefix else MOST
    tail = data[size : size + KEY_BYTES].ljust(KEY_BYTES, b"\0")
    return int.from_bytes(tail, "big") << LENGTH_BITS | min(len(data) - size, KEY_BYTES + 1)


def unpack_bounds(type_: PrimitiveType, data: bytes) -> BoundArrays:
    """Unpack the bounds of a column of this type."""
    is_exact, count = bool(data[0]), int.from_bytes(data[1:5], "big")
    lows = np.frombuffer(data, np.int64, count, 5)
    highs = np.frombuffer(data, np.int64, count, 5 + 8 * count)
    states = np.frombuffer(data, np.ubyte, count, 5 + 16 * count)
    lows = lows if (states & HAS_LOW).all() else np.where(states & HAS_LOW, lows, LEAST)
    highs = highs if (states & HAS_HIGH).all() else np.where(states & HAS_HIGH, highs, MOST)
    start = 9 + 17 * count
    end = start + int.from_bytes(data[start - 4 : start], "big")
    texts = None
    if end < len(data):
        ends = np.frombuffer(data, np.int32, 2 * count + 1, end)
        texts = TextBounds(data[end + ends.nbytes :], ends)
    return BoundArrays(type_, lows, highs, states, data[start:end], is_exact, texts)


def join_bounds(parts: Sequence[BoundArrays]) -> BoundArrays:
    """Join the bounds of one column in several manifests, of which prefix and exactness are alike."""
    lows, highs, states = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("lows", "highs", "states")
    )
    texts = [part.texts for part in parts if part.texts is not None]
    joined = join_text_bounds(texts) if len(texts) == len(parts) else None
    return replace(parts[0], lows=lows, highs=highs, states=states, texts=joined)
