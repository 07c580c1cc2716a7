"""Read rows of some files of a table as DuckDB sees them, and write them into new files, in a process of its own."""

import base64
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final

from duckicelake.bridge.values.types import quote_identifier
from duckicelake.errors import InvalidRequestError, QueryMemoryError, UnavailableError
from duckicelake.lake.model import LOCAL_ROW_ID
from duckicelake.maintenance.layout import RowOrder
from duckicelake.query.processes import QueryLimits, QueryProcess
from duckicelake.query.queries import GRACE_SECONDS
from duckicelake.rewrites.file_options import LAST_UPDATED, ROW_ID, write_columns, write_file_options
from duckicelake.rewrites.partitions import KEY_PREFIX, PresentPartitions
from duckicelake.rewrites.row_order import write_order
from duckicelake.rewrites.selection import MemberFile, RewriteGroup
from duckicelake.rewrites.source import (
    RewrittenTable,
    SketchedColumn,
    as_tuple,
    quote,
    quote_all,
    write_path_filter,
    write_rows,
)

_SPILLED: Final = "failed to offload"
"""In DuckDB's error where its temporary files take more than `max_temp_directory_size`."""
_STAGED: Final = "staged_rows"
_DIRECT_SHARE: Final = 0.125
"""Of DuckDB's memory. Rows of larger files are sorted from a temporary table, which spills: a sort that reads files
leaves no memory for their row groups. 350 MB of rows in 87 MB of files took over 256 MB so, and 128 MB from the table.
"""


class ProcessFailedError(InvalidRequestError):
    """DuckDB can't carry out a statement of a task."""


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file, as DuckDB's COPY says. stats: by column. keys: texts of what divides the files, by name."""

    path: Path
    rows: int
    stats: Mapping[str, Mapping[str, str]]
    keys: Mapping[str, str | None]


@dataclass(slots=True)
class RewriteProcess:
    """The process. secrets: keys for the table's folders. is_open: whether it has said that it opened the lake.

    has_wide_rows: it writes row groups of fewer rows, to hold less of them. has_failed: a statement failed, as at a
    damaged file, of which DuckDB would remember bytes once it is restored.
    """

    process: QueryProcess
    limits: QueryLimits
    has_wide_rows: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    is_open: bool = False
    has_failed: bool = False
    turn: Lock = field(default_factory=Lock, repr=False)
    """Held while the process rests, or does what is not to be interrupted by a rest."""

    def read_copy(self, copy: Mapping[str, Any]) -> None:
        """Read the table by another copy of its catalog from now on. Raises UnavailableError if it can't be made."""
        try:
            with self.turn:  # it has a transaction in Postgres for this long
                self._ask(b"V", copy)
        except ProcessFailedError as error:
            raise UnavailableError(f"DuckDB can't copy the table's catalog: {error}") from error

    def write_group(
        self,
        table: RewrittenTable,
        group: RewriteGroup,
        order: RowOrder | None,
        partitions: PresentPartitions | None = None,
    ) -> list[NewFile]:
        """Write the rows of a group into files. Raises InvalidRequestError for an order that the table doesn't have.

        partitions: by which the files are divided; None: they stay in the partition of the group.
        """
        before, key = write_order(table, group, order)
        rows, after = self._select(table, group), list[str]()
        if key and group.size > _DIRECT_SHARE * self.limits.memory_bytes:
            before, after = [*before, f"CREATE OR REPLACE TEMP TABLE {_STAGED} AS {rows}"], [f"DROP TABLE {_STAGED}"]
            rows = f"FROM {_STAGED} t"
        query = f"{rows}{f' ORDER BY {key}' if key else ''}"
        if partitions is not None:
            query = f"SELECT *, {_write_keys(partitions)} FROM ({query})"
        wanted = {
            "before": before,
            "after": after,
            "query": query,
            "divided_by": [f"{KEY_PREFIX}{at}" for at in range(len(partitions.keys))] if partitions else [],
            "format": write_file_options(table.metadata, table.codec, has_wide_rows=self.has_wide_rows),
            "file_bytes": group.target_size,
            "name": secrets.token_hex(8),
        }
        return [NewFile(Path(file), rows, stats, keys or {}) for file, rows, _, stats, keys in self._ask(b"W", wanted)]

    def count_partitions(self, table: RewrittenTable, group: RewriteGroup, partitions: PresentPartitions) -> int:
        """Count the partitions that the rows of a group belong to."""
        keys = f"SELECT DISTINCT {_write_keys(partitions)} FROM {write_rows(table, group)}"
        ((count,),) = self._ask(b"F", {"query": f"SELECT count(*) FROM ({keys})", "parameters": {}})
        return int(count)

    def count_distinct(self, table: RewrittenTable, columns: Sequence[SketchedColumn]) -> list[tuple[int, bytes]]:
        """Count the distinct values of each column; return the number and the encoded sketch."""
        query = f"SELECT {', '.join(column.expression for column in columns)} FROM {table.source}"
        found = self._ask(b"S", {"query": query})
        return [(distinct, base64.b64decode(sketch)) for distinct, sketch in found]

    @property
    def can_answer(self) -> bool:
        """Whether it lives, and does nothing."""
        return self.process.is_alive and not self.process.is_answering

    def find_footer_error(self, files: Sequence[MemberFile]) -> str | None:
        """Read the footers of some files and no others; return DuckDB's reason if it can't, else None."""
        return self._find_error(f"SELECT count(*) FROM parquet_schema({quote_all(file.path for file in files)})")

    def find_file_error(self, file: MemberFile) -> str | None:
        """Read all values of a file by itself; return DuckDB's reason if it can't, else None."""
        return self._find_error(f"SELECT max(hash(t)) FROM read_parquet({quote(file.path)}) t")

    def find_read_error(self, table: RewrittenTable, files: Sequence[MemberFile]) -> str | None:
        """Read all values of some files; return DuckDB's reason if it can't, else None.

        DuckDB opens other files of the table, too: their footers must be readable.
        """
        names = ", ".join(f"t.{quote_identifier(column.name)}" for column in table.metadata.schema().fields)
        paths = as_tuple(quote_all(file.path for file in files))
        return self._find_error(f"SELECT max(hash({names})) FROM {table.source} WHERE t.filename IN {paths}")

    def _find_error(self, query: str) -> str | None:
        try:
            self._ask(b"F", {"query": query, "parameters": {}})
        except (ProcessFailedError, UnavailableError) as error:
            return str(error)
        return None

    def find_files_without_filters(self, files: Sequence[MemberFile], columns: Mapping[int, str]) -> set[str]:
        """Find the paths of the files in which values of one of the columns have no Bloom filter, by their footers.

        columns: names by id. A file has a column by its id, under the name of then; by this name if it has no ids.
        """
        listed = quote_all(file.path for file in files)
        query = (
            "WITH column_ AS (SELECT file_name, name, field_id, bool_or(field_id IS NOT NULL) OVER (PARTITION BY "
            f"file_name) AS has_ids FROM parquet_schema({listed})), wanted AS (SELECT file_name, name FROM column_ "
            f"WHERE CASE WHEN has_ids THEN field_id IN ({', '.join(map(str, columns))}) "
            f"ELSE name IN {as_tuple(quote_all(columns.values()))} END) "
            f"SELECT DISTINCT m.file_name FROM parquet_metadata({listed}) m JOIN wanted w "
            "ON w.file_name = m.file_name AND w.name = m.path_in_schema WHERE m.bloom_filter_offset IS NULL "
            "AND coalesce(m.stats_null_count, 0) < m.num_values"
        )
        paths = {_strip_scheme(file.path): file.path for file in files}
        return {paths[_strip_scheme(path)] for (path,) in self._ask(b"F", {"query": query, "parameters": {}})}

    def find_row_ids(self, table: RewrittenTable, file: MemberFile, positions: Sequence[int]) -> list[int]:
        """Find the row ids of rows of a file by their positions, as of the table's snapshot."""
        query = (
            f"SELECT {_write_row_id(str(file.first_row_id))} FROM {table.source} WHERE filename = {quote(file.path)} "
            "AND file_row_number IN (SELECT unnest($positions::BIGINT[]))"
        )
        return [row_id for (row_id,) in self._ask(b"F", {"query": query, "parameters": {"positions": list(positions)}})]

    def find_positions(self, files: Sequence[Path], row_ids: Sequence[int]) -> dict[str, frozenset[int]]:
        """Find rows of written files by their ids: positions by file."""
        query = (
            "SELECT filename, list(file_row_number) FROM "
            f"read_parquet({quote_all(map(str, files))}, filename := true, file_row_number := true) "
            f"WHERE {ROW_ID} IN (SELECT unnest($row_ids::BIGINT[])) GROUP BY filename"
        )
        found = self._ask(b"F", {"query": query, "parameters": {"row_ids": list(row_ids)}})
        return {file: frozenset(positions) for file, positions in found}

    def _select(self, table: RewrittenTable, group: RewriteGroup) -> str:
        columns = [*write_columns(table.metadata), f"{_write_row_id('f.first_row_id')} AS {ROW_ID}"]
        known = frozenset[str]()
        if table.keeps_updates:
            known = frozenset(self._ask(b"G", {"files": [file.path for file in group.files]}))
            columns.append(
                "CASE WHEN f.has_own THEN coalesce(t.snapshot_id, f.sequence_number) ELSE f.sequence_number END "
                f"AS {LAST_UPDATED}"
            )
        numbers = ", ".join(
            f"({quote(file.path)}, {file.first_row_id}, {file.row.sequence_number}, {str(file.path in known).lower()})"
            for file in group.files
        )
        listed = f"FROM (VALUES {numbers}) v(filename, first_row_id, sequence_number, has_own)"
        rows = f"SELECT {', '.join(columns)} FROM {table.source} JOIN ({listed}) f ON t.filename = f.filename"
        return f"{rows} WHERE {write_path_filter(group)}"

    def _ask(self, kind: bytes, order: Mapping[str, Any]) -> Any:
        if not self.is_open:
            self.process.finish_open()
            self.is_open = True
        message = {**order, "secrets": self.secrets}
        try:
            _, body = self.process.ask(kind, json.dumps(message).encode(), self.limits.seconds + GRACE_SECONDS)
        except QueryMemoryError as error:
            raise self._explain_bounds(error) from error
        except InvalidRequestError as error:
            self.has_failed = True
            raise ProcessFailedError(str(error)) from error
        return json.loads(bytes(body))

    def _explain_bounds(self, error: QueryMemoryError) -> QueryMemoryError:
        """Name the setting of memory, or of disk where what is spilled takes too much."""
        text = f"DuckDB takes more than the {self.limits.memory_bytes} bytes of memory that a task gives it: raise "
        text += "DUCKICELAKE_UPKEEP_MEMORY_BYTES, of which it has half"
        if is_short_of_disk(error):
            text = f"DuckDB spills more than the {self.limits.disk_bytes} bytes of disk that a task gives it: raise "
            text += "DUCKICELAKE_UPKEEP_DISK_BYTES, or DUCKICELAKE_UPKEEP_MEMORY_BYTES"
        return QueryMemoryError(f"{text}, and run the task again. {error}")


def is_short_of_disk(error: QueryMemoryError) -> bool:
    """Return whether the disk for what is spilled was too small, and not the memory."""
    return _SPILLED in str(error)


def _write_row_id(first_row_id: str) -> str:
    """Write the row id that Iceberg's clients see: several rows of DuckDB's may have one of its transactions."""
    return f"CASE WHEN t.rowid < {LOCAL_ROW_ID} THEN t.rowid ELSE {first_row_id} + t.file_row_number END"


def _write_keys(partitions: PresentPartitions) -> str:
    return ", ".join(f"{expression} AS {KEY_PREFIX}{at}" for at, expression in enumerate(partitions.expressions))


def _strip_scheme(path: str) -> str:
    """Return a path as DuckDB names the file, without `file:` or `file://`."""
    return f"/{path.removeprefix('file:').lstrip('/')}" if path.startswith("file:") else path
