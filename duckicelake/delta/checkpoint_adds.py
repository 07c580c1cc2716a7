"""PURE. The `add` column of a Parquet checkpoint as values, by columns: its rows never become dictionaries."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from duckicelake.delta.actions import NOTHING, AddFile, DeletionVector
from duckicelake.delta.parsed_stats import PARSED, stats_text
from duckicelake.delta.parsing import partition_values_of, vector_of
from duckicelake.delta.paths import decoded

ADD_FIELDS: Final = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "dataChange",
    "stats",
    PARSED,
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
    "tags",
)
"""What is read of a checkpoint's adds."""

_REQUIRED: Final = ("path", "size", "modificationTime")


def adds_of(column: pa.StructArray) -> Iterable[AddFile]:
    """The files of a column without nulls; ValueError names the field that one of them lacks."""
    fields = dict(zip(column.type.names, column.flatten(), strict=True))
    for name in _REQUIRED:
        if fields[name].null_count:
            raise ValueError(f"an add has no {name}")
    count = len(column)
    return map(
        AddFile,
        map(decoded, fields["path"].to_pylist()),
        map(partition_values_of, _maps(fields.get("partitionValues"), count)),
        fields["size"].to_pylist(),
        fields["modificationTime"].to_pylist(),
        [False] * count,
        _stats(fields, count),
        _vectors(fields.get("deletionVector"), count),
        _values(fields.get("baseRowId"), count),
        _values(fields.get("defaultRowCommitVersion"), count),
        _maps(fields.get("tags"), count),
    )


def _stats(fields: Mapping[str, pa.Array], count: int) -> list[str | None]:
    """The log's texts, and for files without one what columns say, where there are any."""
    texts, parsed = _values(fields.get("stats"), count), fields.get(PARSED)
    if parsed is None or None not in texts:
        return texts
    pairs = zip(texts, parsed.to_pylist(), strict=True)
    return [stats_text(row) if text is None and row is not None else text for text, row in pairs]


def _values(column: pa.Array | None, count: int) -> list[Any]:
    return [None] * count if column is None or column.null_count == count else column.to_pylist()


def _vectors(column: pa.Array | None, count: int) -> list[DeletionVector | None]:
    return [None if row is None else vector_of(row) for row in _values(column, count)]


def _maps(column: pa.Array | None, count: int) -> list[Mapping[str, str | None]]:
    """Each map as a dictionary, a null one empty."""
    if column is None or column.null_count == count:
        return [NOTHING] * count
    offsets = column.offsets.to_pylist()
    if offsets[0] == offsets[-1]:
        return [NOTHING] * count
    keys, items = column.keys.to_pylist(), column.items.to_pylist()
    base = 0 if len(keys) == offsets[-1] else offsets[0]
    return [
        dict(zip(keys[start - base : end - base], items[start - base : end - base], strict=True))
        for start, end in pairwise(offsets)
    ]
