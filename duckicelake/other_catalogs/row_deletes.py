"""Which rows of a data file are deleted: by position, by deletion vectors and by equality (spec, "Scan Planning")."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType

from duckicelake.iceberg.manifest.entry import DataFile, FileContent, PartitionValue
from duckicelake.iceberg.puffin import read_deletion_vector
from duckicelake.other_catalogs.stored_rows import list_leaves, open_rows

_Partition = tuple[int, tuple[PartitionValue, ...]]


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A live data or delete file of the source. sequence_number: of its data; 0 in version 1."""

    file: DataFile
    spec_id: int
    sequence_number: int

    @property
    def partition(self) -> _Partition:
        return self.spec_id, self.file.partition


@dataclass(slots=True)
class DeleteFiles:
    """The live delete files of a table, by what they delete from."""

    vectors: dict[str, ForeignFile] = field(default_factory=dict)
    positions: dict[_Partition, list[ForeignFile]] = field(default_factory=lambda: defaultdict(list))
    equality: dict[_Partition | None, list[ForeignFile]] = field(default_factory=lambda: defaultdict(list))
    """None: those of unpartitioned specs, which delete everywhere."""

    def find_positional(self, data: ForeignFile) -> Sequence[ForeignFile]:
        """Return the delete files that name positions of a data file; a deletion vector replaces all others."""
        vector = self.vectors.get(data.file.file_path)
        if vector is not None:
            return [vector]
        return [
            one
            for one in self.positions.get(data.partition, ())
            if one.sequence_number >= data.sequence_number
            and one.file.referenced_data_file in {None, data.file.file_path}
        ]

    def find_equality(self, data: ForeignFile) -> Sequence[ForeignFile]:
        """Return the equality deletes that are newer than a data file and meet its partition."""
        near = [*self.equality.get(None, ()), *(self.equality.get(data.partition, ()) if data.file.partition else ())]
        return [one for one in near if one.sequence_number > data.sequence_number]


def group_deletes(files: Iterable[ForeignFile]) -> DeleteFiles:
    """Group the delete files among files by what they delete from."""
    found = DeleteFiles()
    for one in files:
        if one.file.content is FileContent.EQUALITY_DELETES:
            found.equality[one.partition if one.file.partition else None].append(one)
        elif one.file.content is FileContent.POSITION_DELETES and one.file.file_format == "PUFFIN":
            found.vectors[str(one.file.referenced_data_file)] = one
        elif one.file.content is FileContent.POSITION_DELETES:
            found.positions[one.partition].append(one)
    return found


def read_positions(io: FileIO, deletes: Iterable[ForeignFile], path: str) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return the deleted positions of a data file, sorted."""
    found: set[int] = set()
    for one in deletes:
        if one.file.file_format == "PUFFIN":
            with io.new_input(one.file.file_path).open() as stream:
                data = stream.read()
            offset, length = one.file.content_offset or 0, one.file.content_size_in_bytes or 0
            found |= read_deletion_vector(data, path, offset, length)
            continue
        with open_rows(io, one.file.file_path, one.file.file_format, None) as rows:
            for batch in rows.batches:
                found.update(batch["pos"].filter(pc.equal(batch["file_path"], path)).to_pylist())
    return np.array(sorted(found), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class EqualityDelete:
    """Rows of an equality delete file: a row that has their values in these columns is deleted."""

    ids: tuple[int, ...]
    rows: pa.Table


def read_equality_delete(io: FileIO, one: ForeignFile, schemas: Sequence[Schema]) -> EqualityDelete:
    """Read a delete file. schemas: of the table, the current one first; columns may have been dropped since."""
    ids = tuple(one.file.equality_ids or ())
    with open_rows(io, one.file.file_path, one.file.file_format, None) as rows:
        kind = rows.schema.as_struct()
        tables = [
            _pick(list_leaves(batch.to_struct_array(), kind), ids, schemas, batch.num_rows) for batch in rows.batches
        ]
    return EqualityDelete(ids, pa.concat_tables(tables) if tables else pa.table({}))


def find_kept(
    columns: dict[int, pa.Array], count: int, deletes: Iterable[EqualityDelete], schemas: Sequence[Schema]
) -> pa.Array | None:
    """Return the indices of rows that no delete meets, or None for all. columns: the batch's leaves by field id.

    As in Java, null equals null, NaN equals NaN, and -0.0 isn't 0.0.
    """
    kept: pa.Array | None = None
    for delete in deletes:
        if not delete.rows.num_rows:
            continue
        with duckdb.connect() as connection:
            place = pa.array(range(count), pa.int64())
            connection.register("held", _pick(columns, delete.ids, schemas, count).append_column("place", place))
            connection.register("deleted", delete.rows)
            same = " AND ".join(f"deleted.c{one} IS NOT DISTINCT FROM held.c{one}" for one in delete.ids)
            left = connection.execute(
                f"SELECT place FROM held WHERE NOT EXISTS (FROM deleted WHERE {same}) ORDER BY place"
            ).to_arrow_table()
        found = left["place"].combine_chunks()
        kept = found if kept is None else kept.filter(pc.is_in(kept, found))
    return kept


def _pick(columns: dict[int, pa.Array], ids: Sequence[int], schemas: Sequence[Schema], count: int) -> pa.Table:
    """Return columns in the types that they have now, floats as their bits."""
    picked = {}
    for one in ids:
        kind = schema_to_pyarrow(_find_type(one, schemas))
        column = columns.get(one)
        values = pa.nulls(count, kind) if column is None else column.cast(kind)
        picked[f"c{one}"] = values.view(f"int{kind.bit_width}") if pa.types.is_floating(kind) else values
    return pa.table(picked)


def _find_type(field_id: int, schemas: Sequence[Schema]) -> PrimitiveType:
    found = next(schema for schema in schemas if field_id in schema.field_ids)
    kind = found.find_type(field_id)
    assert isinstance(kind, PrimitiveType)
    return kind
