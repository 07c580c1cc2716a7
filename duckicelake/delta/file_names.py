"""What a Parquet file calls its fields, by their field ids."""

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from duckicelake.errors import DamagedTable

NamesInFile = Mapping[tuple[int | None, str], int | None]
"""The fields of structs: by the id of what they are in (None: the file) and their name, their ids."""
_ID: Final = b"PARQUET:field_id"
_RESERVED: Final = 2147483447
"""Ids above are of row lineage and the like, no columns."""


def names_in(location: str, file: Path | bytes) -> NamesInFile:
    """The names in a file, given as its path or all of it; DamagedTable if it isn't Parquet."""
    try:
        schema = pq.read_schema(io.BytesIO(file) if isinstance(file, bytes) else file)
    except (pa.ArrowException, OSError) as error:
        raise DamagedTable(f"{location}, a data file of its, can't be read as Parquet: {error}") from error
    return {(parent, name): field_id for parent, name, field_id in _fields(None, list(schema))}


def _fields(parent: int | None, fields: list[pa.Field]) -> Iterator[tuple[int | None, str, int | None]]:
    for field in fields:
        field_id = _id(field)
        if field_id is None or field_id <= _RESERVED:
            yield parent, field.name, field_id
            yield from _inside(field)


def _inside(field: pa.Field) -> Iterator[tuple[int | None, str, int | None]]:
    """The fields of the structs in a field, those in lists and maps, too."""
    kind = field.type
    if pa.types.is_struct(kind):
        yield from _fields(_id(field), [kind.field(index) for index in range(kind.num_fields)])
    elif pa.types.is_map(kind):
        yield from _inside(kind.key_field)
        yield from _inside(kind.item_field)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _inside(kind.value_field)


def _id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(_ID)
    return None if text is None else int(text)
