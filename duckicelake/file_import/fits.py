"""PURE. Build SQL that brings values into a column's type, and finds those that don't fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

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


def fit_good_text(text: str, type_: IcebergType) -> Fit:
    """Convert a text that is of one of the types of `TEXT_TESTS`, or stays text."""
    return Fit(text if isinstance(type_, StringType) else f"CAST(nullif(trim({text}), '') AS {to_duckdb_type(type_)})")


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


def fit_json(value: str, type_: IcebergType, form: Any = None, depth: int = 0) -> Fit:
    """Convert a JSON value. A value that the type can't keep is bad.

    form: DuckDB's structure of all such values, if it is known; it names the keys of objects. depth: of lambdas.
    """
    if isinstance(type_, StructType):
        return _fit_object(value, type_, form, depth)
    if isinstance(type_, ListType):
        inner = form[0] if isinstance(form, list) and form else None
        element = f"e{depth}"
        fit = fit_json(element, type_.element_type, inner, depth + 1)
        is_array = f"json_type({value}) = 'ARRAY'"
        items = f"CAST({value} AS JSON[])"
        is_bad = f"list_bool_or(list_transform({items}, lambda {element}: {fit.bad}))" if fit.bad else "false"
        return Fit(
            f"CASE WHEN {is_array} THEN list_transform({items}, lambda {element}: {fit.value}) END",
            _find_bad(value, f"NOT {is_array} OR {is_bad}"),
        )
    if isinstance(type_, MapType):
        return _fit_map(value, type_, depth)
    return fit_text(f"({value} ->> '$')", type_)


def _find_bad(value: str, condition: str) -> str:
    """Build the test of a JSON value that isn't null."""
    return f"coalesce({value} IS NOT NULL AND json_type({value}) <> 'NULL' AND ({condition}), false)"


def _fit_object(value: str, type_: StructType, form: Any, depth: int) -> Fit:
    is_object = f"json_type({value}) = 'OBJECT'"
    if isinstance(form, dict):
        fits = {field.name: fit_member(value, form, field.name, field.field_type, depth) for field in type_.fields}
        return Fit(
            f"CASE WHEN {is_object} THEN {_pack(fits)} END",
            _find_bad(value, f"NOT {is_object} OR {_combine_bad(fits)}"),
        )
    # lambdas bind the value, which stands in many places, and its members by the struct's names
    bound, named = f"e{depth}", f"n{depth}"
    members = ((field, get_member(named, [field.name])) for field in type_.fields)
    fits = {field.name: fit_json(member, field.field_type, None, depth + 1) for field, member in members}
    renamed = _name_keys(bound, type_)
    packed, is_bad = (
        f"list_transform([{renamed}], lambda {named}: {inner})[1]" for inner in (_pack(fits), _combine_bad(fits))
    )
    is_bad = f"list_transform([{value}], lambda {bound}: {_find_odd_keys(bound, type_)} OR {is_bad})[1]"
    return Fit(
        f"CASE WHEN {is_object} THEN list_transform([{value}], lambda {bound}: {packed})[1] END",
        _find_bad(value, f"NOT {is_object} OR {is_bad}"),
    )


def _pack(fits: Mapping[str, Fit]) -> str:
    return f"struct_pack({', '.join(f'{quote_name(name)} := {fit.value}' for name, fit in fits.items())})"


def _combine_bad(fits: Mapping[str, Fit]) -> str:
    return " OR ".join(fit.bad for fit in fits.values() if fit.bad) or "false"


def fit_member(value: str, form: Mapping[str, Any], name: str, type_: IcebergType, depth: int = 0) -> Fit:
    """Convert the member of a JSON object whose key is a name, regardless of case. More than one such key is bad."""
    keys = find_keys(form, name)
    if not keys:
        return Fit(f"CAST(NULL AS {to_duckdb_type(type_)})")
    fit = fit_json(get_member(value, keys), type_, form[keys[0]] if len(keys) == 1 else None, depth)
    repeated = repeats_key(value, keys)
    return Fit(fit.value, " OR ".join(f"({one})" for one in (repeated, fit.bad) if one))


def find_keys(form: Iterable[str], name: str) -> list[str]:
    """Find the spellings of a name among the keys of objects."""
    return [key for key in form if key.lower() == name.lower()]


def get_member(value: str, keys: Sequence[str]) -> str:
    """Build SQL of the member of a JSON object that has one of the keys."""
    members = [f"json_extract({value}, {quote_text(build_pointer(key))})" for key in keys]
    return members[0] if len(members) == 1 else f"coalesce({', '.join(members)})"


def repeats_key(value: str, keys: Sequence[str]) -> str:
    """Build the test of whether a JSON object has more than one of the keys; empty if it can't."""
    if len(keys) < 2:
        return ""
    return f"len(list_intersect(json_keys({value}), {_list_texts(keys)})) > 1"


def _name_keys(value: str, type_: StructType) -> str:
    """Build SQL of an object whose keys aren't known, with the names of fields in place of keys of other case.

    Once for an object: a look for each of its fields takes twice the time.
    """
    names = _list_texts([field.name for field in type_.fields])
    name = f"coalesce(list_filter({names}, lambda n: lower(n) = lower(k))[1], k)"
    member = f"CAST(to_json({name}) AS VARCHAR) || ':' || CAST(json_extract({value}, {_point_at('k')}) AS VARCHAR)"
    members = f"list_transform(json_keys({value}), lambda k: {member})"
    renamed = f"CAST('{{' || array_to_string({members}, ',') || '}}' AS JSON)"
    return f"CASE WHEN {_has_known_keys(value, type_)} THEN {value} ELSE {renamed} END"


def _find_odd_keys(value: str, type_: StructType) -> str:
    """Build the test of keys that differ by case alone, or that have a value and no field."""
    keys = f"json_keys({value})"
    names = _list_texts([field.name.lower() for field in type_.fields])
    folded = f"list_distinct(list_transform({keys}, lambda k: lower(k)))"
    extra = f"NOT list_contains({names}, lower(k)) AND json_type(json_extract({value}, {_point_at('k')})) <> 'NULL'"
    return (
        f"(NOT {_has_known_keys(value, type_)} AND (len({folded}) < len(list_distinct({keys})) "
        f"OR coalesce(list_bool_or(list_transform({keys}, lambda k: {extra})), false)))"
    )


def _has_known_keys(value: str, type_: StructType) -> str:
    return f"list_has_all({_list_texts([field.name for field in type_.fields])}, json_keys({value}))"


def _fit_map(value: str, type_: MapType, depth: int) -> Fit:
    """Convert an object into a map. A key twice is bad."""
    key, bound = f"k{depth}", f"m{depth}"
    fitted_key = fit_text(key, type_.key_type)
    member = fit_json(f"json_extract({bound}, {_point_at(key)})", type_.value_type, None, depth + 1)
    is_object = f"json_type({value}) = 'OBJECT'"
    pair = f"{{'key': {fitted_key.value}, 'value': {member.value}}}"
    built = f"list_transform([{value}], lambda {bound}: list_transform(json_keys({bound}), lambda {key}: {pair}))[1]"
    made = f"TRY(CASE WHEN {is_object} THEN map_from_entries({built}) END)"
    is_bad = " OR ".join(one for one in (fitted_key.bad, member.bad) if one)
    checks = f"list_transform([{value}], lambda {bound}: list_transform(json_keys({bound}), lambda {key}: {is_bad}))[1]"
    inner = f" OR list_bool_or({checks})" if is_bad else ""
    return Fit(made, _find_bad(value, f"{made} IS NULL{inner}"))


def build_pointer(name: str) -> str:
    """Build the JSON pointer of a field of an object."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def _point_at(key: str) -> str:
    """Build SQL of the JSON pointer of a key."""
    return f"('/' || replace(replace({key}, '~', '~0'), '/', '~1'))"


def _list_texts(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quote_text, texts))}]"


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
