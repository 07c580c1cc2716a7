"""Upsert: a row that is changed stays the same row, so what is written for it keeps the row id."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import Transaction, UpsertResult
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.upsert_util import create_match_filter, has_duplicate_rows

from duckicelake.pyiceberg_v3.lineage import ROW_ID, with_fields
from duckicelake.pyiceberg_v3.patching import Patch, patch
from duckicelake.pyiceberg_v3.records import V3

_PLACE: Final = "__place"
_existing: ContextVar[pa.Table | None] = ContextVar("existing", default=None)
"""During an upsert: the row ids of the table's rows, by the key that rows are joined by."""


@patch(Transaction, "upsert")
def _upsert(original: Callable[..., UpsertResult]) -> Any:
    """PyIceberg deletes the rows that an upsert changes, and appends them as new ones."""

    def upsert(
        self: Transaction,
        df: pa.Table,
        join_cols: list[str] | None = None,
        when_matched_update_all: bool = True,
        when_not_matched_insert_all: bool = True,
        case_sensitive: bool = True,
        branch: str | None = MAIN_BRANCH,
        **named: Any,
    ) -> UpsertResult:
        options = when_matched_update_all, when_not_matched_insert_all, case_sensitive, branch
        keys = identifier_columns(self) if join_cols is None else join_cols
        if self.table_metadata.format_version < V3 or not keys or not when_matched_update_all:
            return original(self, df, join_cols, *options, **named)
        token = _existing.set(matched_row_ids(self, df, keys, case_sensitive, branch))
        try:
            return original(self, df, join_cols, *options, **named)
        finally:
            _existing.reset(token)

    return upsert


def identifier_columns(transaction: Transaction) -> list[str]:
    schema = transaction.table_metadata.schema()
    names = (schema.find_column_name(field_id) for field_id in schema.identifier_field_ids)
    return [name for name in names if name is not None]


def matched_row_ids(
    transaction: Transaction, df: pa.Table, keys: list[str], case_sensitive: bool, branch: str | None
) -> pa.Table:
    """The keys of `df` that the table has, each with its row id; ValueError if several rows have one key."""
    rows = key_rows(transaction, df, keys, case_sensitive, branch)
    matched = rows.join(df.select(keys).cast(rows.select(keys).schema), keys, join_type="left semi")
    if has_duplicate_rows(matched, keys):
        raise ValueError("Target table has duplicate rows, aborting upsert")
    return matched


def key_rows(
    transaction: Transaction, df: pa.Table, keys: list[str], case_sensitive: bool, branch: str | None
) -> pa.Table:
    """Keys and row ids of all rows in the files that may have a key of `df`."""
    metadata = transaction.table_metadata
    scan = transaction._scan(create_match_filter(df, keys), case_sensitive)
    scan = scan.use_ref(branch) if branch in metadata.refs else scan
    schema = metadata.schema().select(*keys, case_sensitive=case_sensitive)
    reader = ArrowScan(metadata, scan.io, schema, AlwaysTrue(), case_sensitive)
    empty = schema_to_pyarrow(with_fields(schema, [*schema.fields, ROW_ID]), include_field_ids=False).empty_table()
    parts = [reader.to_table([task]) for task in scan.plan_files()]
    return pa.concat_tables([empty, *parts], promote_options="permissive").select([*keys, ROW_ID.name])


def with_kept_row_ids(df: pa.Table) -> pa.Table:
    """Rows that an upsert writes, with the ids of those that they replace, if they do; other rows as they are."""
    existing = _existing.get()
    if existing is None or ROW_ID.name in df.column_names:
        return df
    keys = [name for name in existing.column_names if name != ROW_ID.name]
    wanted = df.select(keys).cast(existing.select(keys).schema).append_column(_PLACE, pa.array(range(len(df))))
    row_ids = wanted.join(existing, keys, join_type="left outer").sort_by(_PLACE)[ROW_ID.name]
    return df if row_ids.null_count == len(df) else df.append_column(ROW_ID.name, row_ids)


PATCHES: tuple[Patch, ...] = (_upsert,)
