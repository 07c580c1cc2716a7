"""PURE. Build SQL that brings values into a column's type, and finds those that don't fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from duckicelake.file_import.column_types import quote_name, quote_text, to_duckdb_type

_EXTRA_DIGITS: Final = 12
_MAX_PRECISION: Final = 38
_INTEGER: Final = "regexp_full_match({0}, '[+-]?[0-9]+')"
_DOUBLE: Final = (
    "(NOT regexp_matches({0}, '^[+-]?0[0-9]|^[+-]?[0-9]{{16,}}$|[a-df-zA-DF-Z_]') "
    "AND TRY_CAST({0} AS DOUBLE) IS NOT NULL)"
)
_TIMESTAMP: Final = (
    "(regexp_full_match({0}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[T ][0-9:.]+') "
    "AND TRY_CAST({0} AS TIMESTAMP) IS NOT NULL)"
)
TEXT_TESTS: Final[tuple[tuple[IcebergType, str], ...]] = (
    (BooleanType(), "(lower({0}) IN ('true', 'false'))"),
    (
        LongType(),
        "(regexp_full_match({0}, '-?(?:0|[1-9][0-9]*)') AND TRY_CAST({0} AS BIGINT) IS NOT NULL)",
    ),
    (DoubleType(), _DOUBLE),
    (DateType(), "(regexp_full_match({0}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}') AND TRY_CAST({0} AS DATE) IS NOT NULL)"),
    (
        TimestampType(),
        _TIMESTAMP,
    ),
)
"""Types that text may have, in the order in which they are tried, and whether a text is one. All else stays text."""


class Fit(NamedTuple):
    """A value in a column's type. bad: whether there is a value that doesn't fit; empty if there can't be."""

    value: str
    bad: str = ""


def fit_text(text: str, type_: IcebergType) -> Fit:
    """Convert a text, as a CSV field. What isn't text has NULL for a blank field."""
    if isinstance(type_, StringType):
        return Fit(text)
    if isinstance(type_, BinaryType | FixedType):
        return Fit(f"encode({text})")
    if isinstance(type_, StructType | ListType | MapType):
        fitted = fit_json(f"TRY_CAST({text} AS JSON)", type_)
        return Fit(fitted.value, f"(({text} IS NOT NULL AND TRY_CAST({text} AS JSON) IS NULL) OR {fitted.bad})")
    trimmed = f"nullif(trim({text}), '')"
    value = _cast_text(trimmed, type_)
    return Fit(value, f"({trimmed} IS NOT NULL AND {value} IS NULL)")


def _cast_text(text: str, type_: IcebergType) -> str:
    wanted = to_duckdb_type(type_)
    cast = f"TRY_CAST({text} AS {wanted})"
    if isinstance(type_, IntegerType | LongType):  # DuckDB rounds 1.5
        return f"CASE WHEN {_INTEGER.format(text)} THEN {cast} END"
    if isinstance(type_, DecimalType):  # DuckDB rounds what has more digits
        scale = min(_MAX_PRECISION, type_.scale + _EXTRA_DIGITS)
        return f"CASE WHEN TRY_CAST({text} AS DECIMAL({_MAX_PRECISION}, {scale})) = {cast} THEN {cast} END"
    if isinstance(type_, DateType):  # DuckDB drops the time
        return f"CASE WHEN NOT contains({text}, ':') THEN {cast} END"
    return cast


def fit_json(value: str, type_: IcebergType) -> Fit:
    """Convert a JSON value."""
    is_there = f"{value} IS NOT NULL AND json_type({value}) <> 'NULL'"
    if isinstance(type_, StructType):
        fits = {one.name: fit_json(_get_member(value, one.name), one.field_type) for one in type_.fields}
        built = ", ".join(f"{quote_name(name)} := {fit.value}" for name, fit in fits.items())
        inner = " OR ".join(fit.bad for fit in fits.values() if fit.bad) or "false"
        is_object = f"json_type({value}) = 'OBJECT'"
        return Fit(
            f"CASE WHEN {is_object} THEN struct_pack({built}) END",
            f"coalesce({is_there} AND (NOT {is_object} OR {inner}), false)",
        )
    if isinstance(type_, ListType):
        element = f"e{value.count('lambda')}"
        fit = fit_json(element, type_.element_type)
        is_array = f"json_type({value}) = 'ARRAY'"
        items = f"CAST({value} AS JSON[])"
        inner = f"list_bool_or(list_transform({items}, lambda {element}: {fit.bad}))" if fit.bad else "false"
        return Fit(
            f"CASE WHEN {is_array} THEN list_transform({items}, lambda {element}: {fit.value}) END",
            f"coalesce({is_there} AND (NOT {is_array} OR {inner}), false)",
        )
    if isinstance(type_, MapType):
        cast = f"TRY(json_transform_strict({value}, {quote_text(chr(34) + to_duckdb_type(type_) + chr(34))}))"
        return Fit(cast, f"coalesce({is_there} AND {cast} IS NULL, false)")
    return fit_text(f"({value} ->> '$')", type_)


def build_pointer(name: str) -> str:
    """Build the JSON pointer of a field of an object."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _get_member(value: str, name: str) -> str:
    return f"json_extract({value}, {quote_text(build_pointer(name))})"


def fit_native(value: str, come: str, type_: IcebergType, to_iceberg: Callable[[], IcebergType]) -> Fit:
    """Convert a value of a file with types. come: its type in DuckDB; to_iceberg: and in Iceberg."""
    wanted = to_duckdb_type(type_)
    if come == wanted:
        return Fit(value)
    if come == "VARCHAR":
        return fit_text(value, type_)
    cast = f"TRY_CAST({value} AS {wanted})"
    if isinstance(type_, StringType) or (not come.endswith("_NS") and _is_wider(to_iceberg(), type_)):
        return Fit(cast)
    # what a cast back doesn't return was rounded or cut
    return Fit(cast, f"({value} IS NOT NULL AND TRY_CAST({cast} AS {come}) IS DISTINCT FROM {value})")


def _is_wider(come: IcebergType, type_: IcebergType) -> bool:
    """Return whether each value of a type is one of the other."""
    return (
        come == type_
        or (isinstance(come, IntegerType) and isinstance(type_, LongType | DoubleType))
        or (isinstance(come, FloatType) and isinstance(type_, DoubleType))
    )
