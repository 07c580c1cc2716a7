"""PURE. The order of a batch's rows in its files."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from duckicelake.iceberg.sort import SortField, SortOrder
from duckicelake.iceberg.transforms import transformed
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.rows.batch import Batch


def sorted_rows(batch: Batch, order: SortOrder) -> pa.Array:
    """The rows' places in the table's order, as far as that is one of top-level columns and no buckets."""
    keys = []
    columns = {}
    for name, (field, column) in enumerate(_columns(batch, order)):
        columns[str(name)] = column
        keys.append(
            (str(name), f"{field.direction}ending", "at_start" if field.null_order == "nulls-first" else "at_end")
        )
    if not keys:
        return pa.array(range(batch.num_rows))
    return pc.sort_indices(pa.table(columns), sort_keys=keys)


def _columns(batch: Batch, order: SortOrder) -> Iterator[tuple[SortField, pa.Array]]:
    places = {column.field_id: index for index, column in enumerate(batch.layout.stored)}
    for field in order.fields:
        if field.source_id not in places:
            return
        place = places[field.source_id]
        kind = batch.layout.stored[place].type
        if not isinstance(kind, PrimitiveType) or field.transform.name == "bucket" or not field.transform.accepts(kind):
            return
        if field.transform.name == "identity":
            yield field, batch.table.column(place)
        else:
            values = (
                None if each is None else transformed(field.transform, kind, each) for each in batch.column(place)
            )
            yield field, pa.array(values)
