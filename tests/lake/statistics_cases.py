"""A table with a column of each type, written by DuckDB and by an Iceberg client that tells as much as it likes.

Everything that happens is chosen by a seed. Values are SQL texts, picked for what statistics may get wrong.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import duckdb

from duckicelake.bridge.values.lake_values import parse_stats_text
from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.types import NestedField, PrimitiveType, list_children
from duckicelake.iceberg.values import to_bytes
from tests.support.client import Draft, Json, data_files, local, set_ref
from tests.support.contents import without
from tests.support.lakes import Lake

SMILE, LAST, LAST_OF_PLANE = "\U0001f600", chr(0x10FFFF), chr(0xFFFF)
Values = tuple[str, ...]
TEXTS: Values = (
    "''",
    "'m'",
    "'exactly 16 chars'",
    "'exactly 16 chars.'",
    "'exactly 16 chars and many more'",
    "'zzzzzzzzzzzzzzzé!'",
    f"'fifteen letters{SMILE}{SMILE} and then'",
    f"'{LAST * 17}'",
    f"'{SMILE}'",
    f"'{LAST_OF_PLANE * 20}'",
)
FLOATS: Values = ("'nan'", "'inf'", "'-inf'", "-0.0", "0.0", "0.1", "16777216")
WIDE: Values = ("-9999999999999999999999999999.9999999999", "0", "0.0000000001", "12345678901234567890")
DAYS: Values = ("'0044-03-15 (BC)'", "'1969-12-31'", "'1970-01-01'", "'9999-12-31'", "'10000-01-01'")
MOMENTS: Values = (
    "'0044-03-15 (BC) 01:00:00'",
    "'1969-12-31 23:59:59.999999'",
    "'2024-02-29 10:00:00.5'",
    "'9999-12-31 00:00:00'",
)
KEYS: Values = tuple(f"'{first}0000000-0000-0000-0000-00000000000{last}'" for first, last in ("00", "7f", "80", "ff"))
BYTES: Values = ("''", r"'\x00'", "'ab'", r"'\xAB'", "'exactly 16 bytes and more'", "'" + r"\xFF" * 17 + "'")
PAIRS: Values = ("{'a': 1, 'b': 'x'}", "{'a': NULL, 'b': 'exactly 16 chars plus'}", "{'a': -5, 'b': NULL}")
COLUMNS: dict[str, tuple[str, Values]] = {
    "truth": ("BOOLEAN", ("true", "false")),
    "small": ("TINYINT", ("-128", "0", "127")),
    "number": ("INTEGER", ("-2147483648", "-1", "0", "9", "10", "2147483647")),
    "big": ("BIGINT", ("-9223372036854775808", "0", "99", "100", "9223372036854775807")),
    "real": ("FLOAT", FLOATS),
    "precise": ("DOUBLE", (*FLOATS, "1e300", "-5e-324")),
    "price": ("DECIMAL(9, 3)", ("-999999.999", "-0.001", "0", "10.000", "9.5")),
    "wide": ("DECIMAL(38, 10)", WIDE),
    "day": ("DATE", DAYS),
    "clock": ("TIME", ("'00:00:00'", "'01:02:03.000004'", "'23:59:59.999999'")),
    "moment": ("TIMESTAMP", MOMENTS),
    "instant": ("TIMESTAMPTZ", tuple(f"{text[:-1]}+00'" for text in MOMENTS)),
    "text": ("VARCHAR", TEXTS),
    "untold": ("VARCHAR", TEXTS),
    "key": ("UUID", KEYS),
    "bytes": ("BLOB", BYTES),
    "pair": ("STRUCT(a INTEGER, b VARCHAR)", PAIRS),
    "list": ("INTEGER[]", ("[]", "[1, NULL]", "[-7, 3]")),
}
"""SQL type and values by column; clients never tell anything of `untold`, as of columns beyond the first hundred."""
ENDLESS = {"day": "'infinity'", "moment": "'-infinity'", "instant": "'infinity'"}
"""Values that DuckDB has and Iceberg lacks."""
TRUNCATED = 16
METRICS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
NEVER_REPORTED = {"untold", "list.element"}


@dataclass(slots=True)
class Writers:
    """Both writers of table `t`. Every act writes, at random, rows whose statistics are hard to tell.

    A frank client tells of every file all that it can, so that table-wide statistics live on.
    """

    lake: Lake
    random: random.Random
    frank: bool
    columns: dict[str, tuple[str, Values]] = field(default_factory=lambda: dict(COLUMNS))
    log: list[str] = field(default_factory=list)
    memory: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)

    def create(self, format_version: int) -> None:
        columns = ", ".join(f'"{name}" {type_}' for name, (type_, _) in self.columns.items())
        self.lake.run(f"CREATE TABLE t ({columns})")
        self.lake.upgrade(format_version)

    def act(self) -> None:
        acts: list[Callable[[], object]] = [
            self.insert, self.insert, self.insert, self.update, self.delete, self.add_column, self.add_files,
            self.maintain, self.append, self.append, self.append, self.rewrite, self.remove, self.roll_back,
        ]  # fmt: skip
        chosen = self.random.choice(acts)
        self.log.append(chosen.__name__)
        chosen()

    # What DuckDB does.

    def insert(self) -> None:
        """A few rows are inlined, many are a file."""
        self.lake.run(f"INSERT INTO t BY NAME {self._rows(self.random.choice([1, 3, 14]), endless=True)}")

    def update(self) -> None:
        name, (type_, values) = self.random.choice(list(self.columns.items()))
        value = self.random.choice([*values, "NULL"])
        self.lake.run(f'UPDATE t SET "{name}" = CAST({value} AS {type_}) WHERE {self._some()}')

    def delete(self) -> None:
        self.lake.run(f"DELETE FROM t WHERE {self._some()}")

    def add_column(self) -> None:
        name = f"more{len(self.columns)}"
        type_, values = COLUMNS[self.random.choice(["number", "text", "price", "day", "truth"])]
        default = self.random.choice(["NULL", *values])
        self.lake.run(f"ALTER TABLE t ADD COLUMN {name} {type_} DEFAULT {default}")
        self.columns[name] = (type_, values)

    def add_files(self) -> None:
        """Let DuckDB add a file without field ids."""
        path = f"{self.lake.metadata().location}/data/{uuid4()}.parquet"
        local(path).parent.mkdir(parents=True, exist_ok=True)
        self.memory.execute(f"COPY ({self._rows(4)}) TO '{local(path)}' (FORMAT parquet)")
        self.lake.run(f"CALL ducklake_add_data_files('lake', 't', '{local(path)}')")

    def maintain(self) -> None:
        self.lake.run(
            self.random.choice(
                [
                    "CALL ducklake_flush_inlined_data('lake')",
                    "CALL ducklake_merge_adjacent_files('lake')",
                    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.01)",
                ]
            )
        )

    # What the Iceberg client does.

    def append(self) -> None:
        draft = self._draft("append")
        rows = self._rows(self.random.choice([1, 5]))
        self._commit(draft.body([draft.manifest([self._file(draft, rows)]), *draft.parent_manifests]))

    def rewrite(self) -> None:
        """All files become one, of which the client tells something else."""
        draft = self._draft("replace")
        self._commit(draft.body([draft.manifest([self._file(draft, self.all_rows())])]))

    def remove(self) -> None:
        """One data file leaves, with all its rows."""
        draft = self._draft("delete")
        if files := data_files(draft.metadata):
            leaving = self.random.choice(files)
            self._commit(draft.body(without(draft, lambda file: file.file_path == leaving)))

    def roll_back(self) -> None:
        if snapshots := self.lake.metadata().snapshots:
            self.lake.commit(set_ref("main", self.random.choice(snapshots).snapshot_id))

    # How it is done.

    def all_rows(self) -> str:
        """The query, for `memory`, of all that DuckDB reads from the table without a question."""
        self.memory.register("everything", self.lake.duck.sql("FROM lake.t").to_arrow_table())
        return f"SELECT {self._casts()} FROM everything"

    def _casts(self) -> str:
        return ", ".join(f'"{name}"::{type_} AS "{name}"' for name, (type_, _) in self.columns.items())

    def _rows(self, count: int, *, endless: bool = False) -> str:
        """A query of so many rows, of few different values."""
        palettes = [(type_, self._palette(name, endless=endless)) for name, (type_, _) in self.columns.items()]
        rows = [
            ", ".join(f"CAST({self.random.choice(values)} AS {type_})" for type_, values in palettes)
            for _ in range(count)
        ]
        names = ", ".join(f'"{name}"' for name in self.columns)
        return f"FROM (VALUES {', '.join(f'({row})' for row in rows)}) AS v({names})"

    def _palette(self, name: str, *, endless: bool) -> list[str]:
        values = [*self.columns[name][1], "NULL"]
        if endless and name in ENDLESS and self.random.random() < 0.2:
            values.append(ENDLESS[name])
        return self.random.sample(values, self.random.randint(1, min(3, len(values))))

    def _some(self) -> str:
        """A condition that few or many rows meet."""
        return f"hash(rowid, {self.random.random()}) % {self.random.choice([2, 4, 8])} = 0"

    def _draft(self, operation: str) -> Draft:
        metadata = self.lake.metadata()
        return Draft(metadata.to_json(), operation, format_version=metadata.format_version)

    def _commit(self, body: Json) -> None:
        self.lake.commit(*body["updates"])

    def _file(self, draft: Draft, query: str) -> DataFile:
        """A data file of the query's rows, with what the client tells of it."""
        path = f"{draft.metadata['location']}/data/{uuid4()}.parquet"
        local(path).parent.mkdir(parents=True, exist_ok=True)
        metadata = self.lake.metadata()
        self.memory.execute(f"COPY ({query}) TO '{local(path)}' (FORMAT parquet, FIELD_IDS {_field_ids(metadata)})")
        metrics = self._metrics(metadata, f"'{local(path)}'")
        ((count,),) = self.memory.sql(f"SELECT count(*) FROM '{local(path)}'").fetchall()
        return DataFile(
            content=FileContent.DATA,
            file_path=path,
            file_format="PARQUET",
            partition=(),
            record_count=count,
            file_size_in_bytes=local(path).stat().st_size,
            **metrics,
        )

    def _metrics(self, metadata: TableMetadata, file: str) -> dict[str, dict[int, Any]]:
        """Counts and bounds of leaf columns, truncated as Spark does; some files and columns go without."""
        report = 1.0 if self.frank else self.random.choice([1.0, 0.7, 0.0])
        with_bounds, with_nans = self.frank or self.random.random() < 0.8, self.random.random() < 0.5
        metrics: dict[str, dict[int, Any]] = {name: {} for name in METRICS}
        for field_id, type_ in metadata.schema().leaves().items():
            name = metadata.schema().full_names()[field_id]
            if name in NEVER_REPORTED or self.random.random() >= report:
                continue
            values, nulls, nans, low, high = measured(self.memory, name, type_, file)
            metrics["value_counts"][field_id] = values
            metrics["null_value_counts"][field_id] = nulls
            if with_nans and type_.name in {"float", "double"}:
                metrics["nan_value_counts"][field_id] = nans
            if with_bounds and low is not None:
                metrics["lower_bounds"][field_id] = low
            if with_bounds and high is not None:
                metrics["upper_bounds"][field_id] = high
        return metrics


def measured(
    memory: duckdb.DuckDBPyConnection, name: str, type_: PrimitiveType, file: str
) -> tuple[int, int, int, bytes | None, bytes | None]:
    """(values, nulls, NaNs, lower bound, upper bound) of a column; a bound is None where none can be told."""
    column = quoted(name)
    is_nan = f"isnan({column})" if type_.name in {"float", "double"} else "false"
    text = f"hex({column})" if type_.name == "binary" else column
    bounds = (f"{extreme}({text}) FILTER (NOT {is_nan})::VARCHAR" for extreme in ("min", "max"))
    query = f"SELECT count(*), count(*) - count({column}), count(*) FILTER ({is_nan}), {', '.join(bounds)} FROM {file}"
    ((values, nulls, nans, low, high),) = memory.sql(query).fetchall()
    return values, nulls, nans, _bound(type_, low, is_upper=False), _bound(type_, high, is_upper=True)


def _bound(type_: PrimitiveType, text: str | None, *, is_upper: bool) -> bytes | None:
    if text is None:
        return None
    if text.endswith("infinity"):
        bits = 31 if type_.name == "date" else 63
        return to_bytes(type_, 1 - 2**bits if text.startswith("-") else 2**bits - 1)
    value = parse_stats_text(type_, text)
    if isinstance(value, str | bytes):
        value = _truncated_up(value) if is_upper else value[:TRUNCATED]
    return None if value is None else to_bytes(type_, value)


def _truncated_up(value: str | bytes) -> str | bytes | None:
    """A value of at most 16 characters or bytes that isn't less, if there is one."""
    if len(value) <= TRUNCATED:
        return value
    units = list(value[:TRUNCATED]) if isinstance(value, bytes) else list(map(ord, value[:TRUNCATED]))
    last = 0xFF if isinstance(value, bytes) else 0x10FFFF
    while units and units[-1] == last:
        units.pop()
    if not units:
        return None
    units[-1] = 0xE000 if units[-1] == 0xD7FF else units[-1] + 1
    return bytes(units) if isinstance(value, bytes) else "".join(map(chr, units))


def quoted(name: str) -> str:
    return ".".join(f'"{part}"' for part in name.split("."))


def _field_ids(metadata: TableMetadata) -> str:
    """The option of COPY that gives columns their field ids."""

    def ids(fields: Iterable[NestedField]) -> str:
        return ", ".join(f'"{each.name}": {one(each)}' for each in fields)

    def one(each: NestedField) -> str:
        inside = list_children(each.type)
        return f"{{__duckdb_field_id: {each.id}, {ids(inside)}}}" if inside else str(each.id)

    return f"{{{ids(metadata.schema().fields)}}}"
