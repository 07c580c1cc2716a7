"""PURE. The contract of metrics: which of a file's bounds a manifest may promise (docs/metrics.md, design §6.9).

Iceberg's clients take what isn't counted for none, and skip or delete whole files by what they conclude.
"""

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import IcebergType, ListType, MapType, PrimitiveType, children

CONTRACT: Final = 1
"""The number of this contract, which manifests' facts hold. Raise it when the contract gets stricter."""
Bounds: TypeAlias = tuple[str | None, str | None]
"""Lower and upper bound of a column as stored, in hex."""
Rule: TypeAlias = Callable[[str | None, str | None, int | None], Bounds]
"""From a column's bounds and its count of NaN to those bounds that hold for all clients."""
_NONE: Final[Mapping[str, Any]] = {}
_BOUNDS: Final = ("lower_bounds", "upper_bounds")
_NO_BOUNDS: Final = (None, None)
_FLOAT_DIGITS: Final = 8
_LOWEST_ZERO: Final = {8: "00000080", 16: "0000000000000080"}
_HIGHEST_ZERO: Final = {8: "00000000", 16: "0000000000000000"}
_ZEROS: Final = frozenset((*_LOWEST_ZERO.values(), *_HIGHEST_ZERO.values()))
_EXPONENT_FULL: Final = frozenset(("7f", "ff"))
"""How NaN, the infinities and few numbers end: to look at all floats closer takes three times as long."""


def counted(content: int, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metrics with `column_sizes`, be they empty, and bounds only beside counts of nulls.

    Position deletes keep their bounds: their columns hold no nulls.
    """
    if "column_sizes" not in metrics:
        metrics = {"column_sizes": _NONE, **metrics}
    nulls = metrics.get("null_value_counts") or _NONE
    if content == FileContent.POSITION_DELETES:
        return metrics
    uncounted = [name for name in _BOUNDS if not (metrics.get(name) or _NONE).keys() <= nulls.keys()]
    kept = {name: {key: bound for key, bound in metrics[name].items() if key in nulls} for name in uncounted}
    return {**metrics, **kept} if kept else metrics


class MetricsContract:
    """Decides which bounds are published of files of a table with these schemas, the current one last."""

    def __init__(self, schemas: Iterable[Schema]) -> None:
        rules: dict[str, Rule] = {}
        for schema in schemas:
            for field in schema.fields:
                rules |= _rules(field.id, field.type, repeated=False)
        self._rules = tuple(rules.items())

    def published(self, content: int, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
        """The metrics as a manifest has them: `metrics` itself where nothing has to change."""
        metrics = counted(content, metrics)
        if content == FileContent.POSITION_DELETES or not self._rules:
            return metrics
        lows, highs = (metrics.get(name) or _NONE for name in _BOUNDS)
        changes = self._changes(lows, highs, metrics.get("nan_value_counts") or _NONE)
        if not changes:
            return metrics
        kept = (
            {key: bound for key in bounds if (bound := changes[key][at] if key in changes else bounds[key]) is not None}
            for at, bounds in enumerate((lows, highs))
        )
        return {**metrics, **dict(zip(_BOUNDS, kept, strict=True))}

    def _changes(self, lows: Mapping[str, str], highs: Mapping[str, str], nans: Mapping[str, int]) -> dict[str, Bounds]:
        """The bounds of columns that can't stay as they are; most files have none."""
        changes: dict[str, Bounds] = {}
        for key, rule in self._rules:
            low, high = lows.get(key), highs.get(key)
            if low is None and high is None:
                continue
            bounds = rule(low, high, nans.get(key))
            if bounds != (low, high):
                changes[key] = bounds
        return changes


def _rules(field_id: int, kind: IcebergType, *, repeated: bool) -> dict[str, Rule]:
    """The rules of the leaves of a field, by id as metrics have it. repeated: the field is in a list or map."""
    if not isinstance(kind, PrimitiveType):
        inside = repeated or isinstance(kind, ListType | MapType)
        found: dict[str, Rule] = {}
        for child in children(kind):
            found |= _rules(child.id, child.type, repeated=inside)
        return found
    rule = _unbounded if repeated else _RULES.get(kind.name)
    return {} if rule is None else {str(field_id): rule}


def _unbounded(_low: str | None, _high: str | None, _nans: int | None) -> Bounds:
    """No bounds.

    Of list elements, map keys and map values no client evaluates any, and writers count nulls of empty lists in
    different ways. UUIDs Java orders as two signed longs, all others as unsigned bytes, so that Java skips files by
    what lies between; and Spark can't show bounds of UUIDs in `files` and `entries`.
    """
    return _NO_BOUNDS


def _of_floats(low: str | None, high: str | None, nans: int | None) -> Bounds:
    """Bounds only where NaN are counted, and no upper one beside NaN, which is the greatest value of Spark and DuckDB.

    A zero is both zeros: writers don't say which one they saw, and Java orders -0.0 before 0.0.
    """
    if nans is None or nans < 0:
        return _NO_BOUNDS
    return _zero_as(_LOWEST_ZERO, low), _zero_as(_HIGHEST_ZERO, high) if nans == 0 else None


def _zero_as(zeros: Mapping[int, str], bound: str | None) -> str | None:
    """The bound, one of the zeros if it is either; None if it is NaN or no float."""
    if bound is None or len(bound) not in zeros:
        return None
    if bound in _ZEROS:
        return zeros[len(bound)]
    return bound if bound[-2:] not in _EXPONENT_FULL or not _is_nan(bound) else None


def _is_nan(bound: str) -> bool:
    (value,) = struct.unpack("<f" if len(bound) == _FLOAT_DIGITS else "<d", bytes.fromhex(bound))
    return math.isnan(value)


_RULES: Final[Mapping[str, Rule]] = {"float": _of_floats, "double": _of_floats, "uuid": _unbounded}
