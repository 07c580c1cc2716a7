"""Row lineage of a table of format version 3, derived from its files as the specification says ("Row Lineage")."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import StaticTable
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

Json = Any
ROW_ID, LAST_UPDATED = 2147483540, 2147483539


def lineage(table: StaticTable) -> list[tuple[int, int]]:
    """(row id, last updated sequence number) of every row; `fastavro` reads what PyIceberg leaves out."""
    snapshot = table.current_snapshot()
    if snapshot is None:
        return []
    lines = list(records(snapshot.manifest_list))
    files = [(line, entry) for line in lines for entry in records(line["manifest_path"]) if entry["status"] != 2]
    deleted = _deleted([entry["data_file"] for _, entry in files if entry["data_file"]["content"]])
    return sorted(
        row
        for line, entry in files
        if not entry["data_file"]["content"]
        for row in _rows(line, entry, deleted[entry["data_file"]["file_path"]])
    )


def records(location: str) -> Iterator[Json]:
    with open(location.removeprefix("file:"), "rb") as file:  # noqa: PTH123
        yield from fastavro.reader(file)


def _deleted(vectors: list[Json]) -> dict[str, set[int]]:
    """Positions by data file, which has one vector."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for vector in vectors:
        assert vector["file_format"] == "PUFFIN"
        path = vector["referenced_data_file"]
        assert path not in found, f"{path} has two vectors"
        found[path] = _positions(vector, path)
    return found


def _positions(vector: Json, path: str) -> set[int]:
    with open(vector["file_path"].removeprefix("file:"), "rb") as file:  # noqa: PTH123
        puffin = PuffinFile(file.read())
    blob = next(blob for blob in puffin.footer.blobs if blob.offset == vector["content_offset"])
    assert blob.length == vector["content_size_in_bytes"]
    (positions,) = (v for v in deletion_vectors_from_puffin_file(puffin) if v.referenced_data_file == path)
    found = set(positions.to_vector().to_pylist())
    assert len(found) == vector["record_count"] == int(blob.properties["cardinality"])
    return found


def _rows(line: Json, entry: Json, deleted: set[int]) -> Iterator[tuple[int, int]]:
    file = entry["data_file"]
    assert line["first_row_id"] is not None, "Java ignores the row ids of a manifest without one"
    rows = pq.read_table(file["file_path"].removeprefix("file:"))
    ids, numbers = _column(rows, ROW_ID), _column(rows, LAST_UPDATED)
    assert len(rows) == file["record_count"]
    for position in set(range(len(rows))) - deleted:
        row_id, number = ids[position], numbers[position]
        yield (
            file["first_row_id"] + position if row_id is None else row_id,
            entry["sequence_number"] if number is None else number,
        )


def _column(rows: pa.Table, field_id: int) -> list[int | None]:
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if (field.metadata or {}).get(b"PARQUET:field_id") == str(field_id).encode():
            return list(column.to_pylist())
    return [None] * len(rows)
