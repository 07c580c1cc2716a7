"""PURE. One text for each value, the same from Spark and from DuckDB, and checksums of those, as SQL.

Numbers are exact: of floats and doubles the text is their bits, so 0.0 and -0.0 differ, and all NaN are one. Decimals
are their unscaled integers, timestamps microseconds. Texts of nested values are made of the MD5s of their parts' texts,
so that no two values share one; entries of maps are sorted. NULL has no text.
"""

from collections.abc import Sequence
from typing import Protocol

from duckicelake.pipeline.column_types import BINARY_TYPE, Decimal, List, Map, Plain, Struct, Type

_DIGEST_DIGITS = 15
"""Hexadecimal digits of a hash as a number: 60 bits, of which a sum in two halves overflows at 2^33 rows."""


class ComparisonDialect(Protocol):
    """Build an engine's SQL. `value` is an SQL expression."""

    def identifier(self, name: str) -> str: ...

    def single(self, type_: Plain | Decimal, value: str) -> str:
        """Build the text of a single value."""

    def show_value(self, type_: Type, value: str) -> str:
        """Build a readable text of a value."""

    def map_values(self, values: str, name: str, body: str) -> str:
        """Map the values of a list by `body`, in which a value is called `name`."""

    def join_texts(self, texts: str) -> str:
        """Concatenate the texts of a list."""

    def sort_texts(self, texts: str) -> str:
        """Sort a list of texts by their bytes."""

    def field(self, value: str, name: str) -> str: ...

    def number(self, digest: str) -> str:
        """Return the first `_DIGEST_DIGITS` digits of an MD5 as a BIGINT."""


def build_text(dialect: ComparisonDialect, type_: Type, value: str, depth: int = 0) -> str:
    """Return the text of a value."""
    match type_:
        case Plain() | Decimal():
            return dialect.single(type_, value)
        case List(element):
            element_name = f"e{depth}"
            return dialect.join_texts(
                dialect.map_values(value, element_name, _digest_part(dialect, element, element_name, depth))
            )
        case Map(key, item):
            element_name = f"e{depth}"
            pair = _join_parts(
                dialect,
                [(dialect.field(element_name, "key"), key), (dialect.field(element_name, "value"), item)],
                depth,
            )
            return dialect.join_texts(
                dialect.sort_texts(dialect.map_values(f"map_entries({value})", element_name, pair))
            )
        case Struct(fields):
            parts = _join_parts(dialect, [(dialect.field(value, name), field) for name, field in fields], depth)
            return f"CASE WHEN {value} IS NOT NULL THEN {parts} END"
    raise TypeError(f"{type_} has no text")


def _join_parts(dialect: ComparisonDialect, values: Sequence[tuple[str, Type]], depth: int) -> str:
    return f"concat({', '.join(_digest_part(dialect, type_, value, depth) for value, type_ in values)})"


def _digest_part(dialect: ComparisonDialect, type_: Type, value: str, depth: int) -> str:
    """Return what stands for a value inside of another: its MD5, or a letter that none has."""
    return f"coalesce(md5({build_text(dialect, type_, value, depth + 1)}), 'n')"


def build_digest_query(
    dialect: ComparisonDialect, relation: str, columns: Sequence[tuple[str, Type]], *more: str
) -> str:
    """Return a query: for each row the MD5 of each column's text, `m0 m1 …`, and other expressions."""
    hashed = [
        f"md5({build_text(dialect, type_, dialect.identifier(name))}) AS m{index}"
        for index, (name, type_) in enumerate(columns)
    ]
    return f"SELECT {', '.join((*hashed, *more))} FROM {relation}"


def digest_row(indexes: Sequence[int]) -> str:
    """Return the MD5 of several columns together, over `digests`."""
    parts = (f"coalesce(m{index}, 'n')" for index in indexes)
    return f"md5(concat({', '.join(parts)}))"


def build_checksum_query(dialect: ComparisonDialect, relation: str, columns: Sequence[tuple[str, Type]]) -> str:
    """Return a query for one row: how many rows, their checksum's halves.

    Then of each column how many values, and theirs.

    A checksum is the sum of all hashes: whatever the order, and with duplicates counted.
    """
    row = (
        f"SELECT *, {digest_row(range(len(columns)))} AS whole FROM ({build_digest_query(dialect, relation, columns)})"
    )
    names = ("whole", *(f"m{index}" for index in range(len(columns))))
    numbers = ", ".join(f"{dialect.number(name)} AS {name}" for name in names)
    sums = ", ".join(f"count({name}), {split_halves(name)}" for name in names)
    return f"SELECT {sums} FROM (SELECT {numbers} FROM ({row}))"


def split_halves(number: str) -> str:
    return f"sum({number} >> 30), sum({number} & 1073741823)"


def join_halves(high: int | None, low: int | None) -> int:
    """Return the number of 64 bits that the two halves are."""
    return (((high or 0) << 30) + (low or 0)) & 0xFFFF_FFFF_FFFF_FFFF


class SparkSQL:
    """Spark's, with ANSI mode on and UTC as time zone."""

    def identifier(self, name: str) -> str:
        return f"`{name.replace('`', '``')}`"

    def single(self, type_: Plain | Decimal, value: str) -> str:
        if isinstance(type_, Decimal):
            return f"CAST(CAST(replace(CAST({value} AS STRING), '.', '') AS DECIMAL(38, 0)) AS STRING)"
        match type_.name:
            case "float":
                return _read_bits(value, "Float", "floatToIntBits")
            case "double":
                return _read_bits(value, "Double", "doubleToLongBits")
            case "text":
                return value
            case "binary":
                return f"hex({value})"
            case "date":
                return f"CAST(unix_date({value}) AS STRING)"
            case "timestamp" | "timestamptz":
                return f"CAST(unix_micros(CAST({value} AS TIMESTAMP)) AS STRING)"
            case _:
                return f"CAST({value} AS STRING)"

    def show_value(self, type_: Type, value: str) -> str:
        return f"hex({value})" if type_ == BINARY_TYPE else f"CAST({value} AS STRING)"

    def map_values(self, values: str, name: str, body: str) -> str:
        return f"transform({values}, {name} -> {body})"

    def join_texts(self, texts: str) -> str:
        return f"array_join({texts}, '')"

    def sort_texts(self, texts: str) -> str:
        return f"array_sort({texts})"

    def field(self, value: str, name: str) -> str:
        return f"{value}.{self.identifier(name)}"

    def number(self, digest: str) -> str:
        return f"CAST(conv(substring({digest}, 1, {_DIGEST_DIGITS}), 16, 10) AS BIGINT)"


def _read_bits(value: str, kind: str, method: str) -> str:
    """Read the bits of a double by Java, which makes all NaN one; Spark's SQL has no function for it."""
    return f"CASE WHEN {value} IS NOT NULL THEN java_method('java.lang.{kind}', '{method}', {value}) END"


class DuckSQL:
    """DuckDB's. Infinite dates and times are the last and first ones, as in files."""

    def identifier(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def single(self, type_: Plain | Decimal, value: str) -> str:
        if isinstance(type_, Decimal):
            return f"CAST(CAST(replace(CAST({value} AS VARCHAR), '.', '') AS HUGEINT) AS VARCHAR)"
        match type_.name:
            case "float":
                return f"CASE WHEN isnan({value}) THEN '2143289344' ELSE {value}::BIT::INTEGER::VARCHAR END"
            case "double":
                return f"CASE WHEN isnan({value}) THEN '9221120237041090560' ELSE {value}::BIT::BIGINT::VARCHAR END"
            case "binary":
                return f"hex({value})"
            case "date":
                return f"CAST({value} - DATE '1970-01-01' AS VARCHAR)"
            case "time":
                return f"CAST(epoch_us({value}) AS VARCHAR)"
            case "timestamp" | "timestamptz":
                ends = f"if({value} > '1970-01-01', 9223372036854775807, -9223372036854775807)"
                return f"CAST(CASE WHEN isinf({value}) THEN {ends} ELSE epoch_us({value}) END AS VARCHAR)"
            case _:
                return f"CAST({value} AS VARCHAR)"

    def show_value(self, type_: Type, value: str) -> str:
        return f"hex({value})" if type_ == BINARY_TYPE else f"CAST({value} AS VARCHAR)"

    def map_values(self, values: str, name: str, body: str) -> str:
        return f"list_transform({values}, lambda {name}: {body})"

    def join_texts(self, texts: str) -> str:
        return f"array_to_string({texts}, '')"

    def sort_texts(self, texts: str) -> str:
        return f"list_sort({texts})"

    def field(self, value: str, name: str) -> str:
        literal = name.replace("'", "''")
        return f"struct_extract({value}, '{literal}')"

    def number(self, digest: str) -> str:
        return f"CAST('0x' || {digest}[:{_DIGEST_DIGITS}] AS BIGINT)"
