"""PURE. Columns that come back with an older schema, perhaps of another type, and the table-wide statistics of them.

Files that main got while a column was away hold nulls of it; of a promoted type values may be too large for the old.
"""

from collections.abc import Iterable

from duckicelake.iceberg.evolution import promotes
from duckicelake.iceberg.metadata import TableMetadata


def returning(base: TableMetadata | None, target: TableMetadata, column_ids: Iterable[int]) -> set[int]:
    """Those of the columns whose values of before aren't told as values of the type that they have now."""
    if base is None or base.current_schema_id == target.current_schema_id:
        return set()
    before, after = base.schema().leaves(), target.schema().leaves()
    return {
        field_id
        for field_id in after.keys() & set(column_ids)
        if not (field_id in before and promotes(before[field_id], after[field_id], target.format_version))
    }
