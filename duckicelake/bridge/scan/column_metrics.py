"""PURE. Read the bounds and counts of a column from the metrics of files."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from duckicelake.bridge.scan.bounds import (
    HAS_HIGH,
    HAS_LOW,
    IS_NAN,
    IS_NULL,
    KEY_BYTES,
    LEAST,
    MAY_BE_NAN,
    MAY_BE_NULL,
    MOST,
    TEXT_FAMILIES,
    BoundArrays,
    Keys,
    clip,
    cut_key,
    sort_float,
)
from duckicelake.bridge.scan.texts import build_text_bounds
from duckicelake.errors import InvalidRequestError
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.iceberg.values import from_bytes, to_unscaled

if TYPE_CHECKING:
    import numpy as np
else:
    np = DeferredModule("numpy")


def build_column_bounds(type_: PrimitiveType, field_id: int, metrics: Sequence[Mapping[str, Any]]) -> BoundArrays:
    """Read the bounds and counts of a field from the metrics of files, in their order.

    What isn't there, or can't be read, is unknown. UUIDs and types without order have no bounds.
    """
    name, count = str(field_id), len(metrics)
    states = np.fromiter((_read_state(type_, name, of_file) for of_file in metrics), np.ubyte, count)
    lows = [_read_bound(type_, of_file.get("lower_bounds"), name) for of_file in metrics]
    highs = [_read_bound(type_, of_file.get("upper_bounds"), name) for of_file in metrics]
    states |= np.fromiter((HAS_LOW if low is not None else 0 for low in lows), np.ubyte, count)
    states |= np.fromiter((HAS_HIGH if high is not None else 0 for high in highs), np.ubyte, count)
    prefix, is_exact, texts = b"", False, None
    make: Callable[[Any], int] = clip
    match type_.traits.family:
        case "string" | "bytes":
            prefix = _find_common_prefix([bound for bound in (*lows, *highs) if bound is not None])
            longest = len(prefix) + KEY_BYTES
            is_exact = all(bound is None or len(bound) <= longest for bound in (*lows, *highs))
            make = partial(cut_key, prefix=prefix)
            texts = None if is_exact else build_text_bounds(lows, highs, len(prefix))
        case "float":
            make = sort_float
        case "boolean" | "integer" | "date" | "time" | "timestamp" | "decimal":
            is_exact = all(bound is None or LEAST < bound < MOST for bound in (*lows, *highs))
    low_keys, high_keys = _make_keys(lows, make, LEAST), _make_keys(highs, make, MOST)
    return BoundArrays(type_, low_keys, high_keys, states, prefix, is_exact, texts)


def _find_common_prefix(bounds: Sequence[bytes]) -> bytes:
    """Return what all begin with: what the least and the greatest share."""
    if not bounds:
        return b""
    least, most = min(bounds), max(bounds)
    shared = next((place for place, pair in enumerate(zip(least, most, strict=False)) if pair[0] != pair[1]), None)
    return least if shared is None else least[:shared]


def _make_keys(bounds: Sequence[Any], make: Callable[[Any], int], unknown: int) -> Keys:
    return np.fromiter((unknown if bound is None else make(bound) for bound in bounds), np.int64, len(bounds))


def _read_state(type_: PrimitiveType, name: str, metrics: Mapping[str, Any]) -> int:
    values, nulls, nans = (
        metrics.get(kind, {}).get(name) for kind in ("value_counts", "null_value_counts", "nan_value_counts")
    )
    state = 0 if nulls == 0 else MAY_BE_NULL
    if values is not None and values == nulls:
        return state | (IS_NULL if values else 0)
    if type_.traits.family == "float":
        state |= 0 if nans == 0 else MAY_BE_NAN
        if nulls is not None and nans and values == nulls + nans:
            state |= IS_NAN
    return state


def _read_bound(type_: PrimitiveType, bounds: Mapping[str, str] | None, name: str) -> Any:
    """Return a bound as a number or bytes; None where it is unknown or doesn't order as values do."""
    text = None if bounds is None else bounds.get(name)
    if text is None or type_.traits.is_opaque or type_.traits.family == "uuid":
        return None
    try:
        data = bytes.fromhex(text)
        value = data if type_.traits.family in TEXT_FAMILIES else from_bytes(type_, data)
        if isinstance(value, Decimal):
            return to_unscaled(value, 100, type_.scale or 0)
    except (ValueError, InvalidRequestError):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value
