"""PURE. The functions that can be translated, from and to which dialect."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from duckicelake.sql_dialects.dialects import (
    DATES,
    DECIMALS,
    DUCKDB,
    INTEGERS,
    SCALARS,
    SPARK,
    TEXT,
    TIMES,
    TRINO,
    DialectSide,
    Kind,
    Kinds,
)

SAME: Final = "of one family"
"""Marks arguments that must all be of one family."""
POSITION, COUNT, PATTERN = "a whole number from 1 on", "a whole number from 0 on", "a text with something in it"
"""Arguments that must be literals."""
Argument = Kinds | str | None
"""The kinds that an argument may have; None: any."""
MANY: Final = 1000
CASES_DIFFER: Final = (
    "[\u00df\u0130\u0149\u019b\u01f0\u0264\u0390\u03a3\u03b0\u0587\u1c89\u1c8a\u1e96-\u1e9a\u1f50-\u1fff"
    "\ua7cb-\ua7dc\ufb00-\ufb17\U00010d50-\U00010d85]"
)
"""Characters whose upper or lower case isn't one character, hangs on its neighbours, or is too new for one engine."""
_SPACES: Final = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""Characters that DuckDB's trim removes; Spark's removes only the first one."""
_PARTS_OF_DATES: Final = {"year": "YEAR", "quarter": "QUARTER", "month": "MONTH", "day": "DAY", "week": "WEEK"}
_PARTS_OF_TIMES: Final = {"hour": "HOUR", "minute": "MINUTE"}
_ONLY_TIMESTAMPS: Final = frozenset({Kind.TIMESTAMP})
_DAY: Final = "CAST({0} AS DATE)"
_TRUNCATED: Final = {"day": _DAY} | {
    name: f"trunc({_DAY}, '{name.upper()}')" for name in ("year", "quarter", "month", "week")
}
_AVERAGE: Final = (
    "CASE WHEN typeof(min({bare}){over}) IN ('double', 'float') THEN avg({0}){over} "
    "ELSE CAST(sum(CAST({0} AS DECIMAL(38, 0))){over} AS DOUBLE) / nullif(count({0}){over}, 0) END"
)
"""DuckDB adds integers as integers, Spark as doubles."""
_AVERAGED: Final = INTEGERS | {Kind.DOUBLE, Kind.FLOAT}
UNIT_AT: Final = {
    DUCKDB.name: {"date_part": 0, "date_trunc": 0, "date_diff": 0, "datediff": 0},
    SPARK.name: {"trunc": 1},
    TRINO.name: {"date_trunc": 0, "date_diff": 0},
}
"""Functions with a unit, by its place; the unit becomes part of the name in the table."""
REST: Final = {
    "concat": {DUCKDB.name: " || {}", SPARK.name: ", coalesce({}, '')", TRINO.name: ", coalesce({}, '')"},
}
"""SQL of further arguments by dialect, if it isn't `, {}`."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function: kinds of its arguments, SQL with `{0}` for the first one, and the result's kind if known.

    more: how many arguments of the kinds `rest` may follow; `{rest}` is their SQL, each with a comma before it.
    `{bare}`: the first argument without guards. `{over}`: the FILTER and OVER clauses of an aggregate. cased: fails for
    texts with characters whose case the engines disagree about. ordered: needs a window with an order.
    compared: compares its arguments with one another.
    """

    arguments: tuple[Argument, ...]
    sql: str
    gives: Kind | None = None
    rest: Argument = None
    more: int = 0
    cased: bool = False
    aggregate: bool = False
    ordered: bool = False
    compared: bool = False


_SUBSTRING = Function((TEXT, POSITION), "substring({0}, {1}{rest})", Kind.TEXT, rest=COUNT, more=1)

_INSTR = Function((TEXT, PATTERN), "instr({0}, {1})", Kind.INTEGER)

_OR_ELSE = Function((SAME, SAME), "coalesce({0}, {1})")

_ORDERED = Function((None,), "", ordered=True)

_SHARED: Final[Mapping[str, Function]] = {
    "abs": Function((None,), "abs({0})"),
    "coalesce": Function((SAME,), "coalesce({0}{rest})", rest=SAME, more=MANY),
    "contains": Function((TEXT, TEXT), "contains({0}, {1})", Kind.BOOLEAN),
    "count": Function((None,), "count({0}){over}", Kind.INTEGER, aggregate=True),
    "count_star": Function((), "count(*){over}", Kind.INTEGER, aggregate=True),
    "dense_rank": Function((), "dense_rank(){over}", Kind.INTEGER, ordered=True),
    "first_value": replace(_ORDERED, sql="first_value({0}){over}"),
    "greatest": Function((SAME, SAME), "greatest({0}, {1}{rest})", rest=SAME, more=MANY),
    "instr": _INSTR,
    "lag": replace(_ORDERED, sql="lag({0}{rest}){over}", rest=COUNT, more=1),
    "last_value": replace(_ORDERED, sql="last_value({0}){over}"),
    "lead": replace(_ORDERED, sql="lead({0}{rest}){over}", rest=COUNT, more=1),
    "least": Function((SAME, SAME), "least({0}, {1}{rest})", rest=SAME, more=MANY),
    "left": Function((TEXT, COUNT), "left({0}, {1})", Kind.TEXT),
    "length": Function((TEXT,), "length({0})", Kind.INTEGER),
    "lower": Function((TEXT,), "lower({0})", Kind.TEXT, cased=True),
    "max": Function((SCALARS,), "max({0}){over}", aggregate=True, compared=True),
    "min": Function((SCALARS,), "min({0}){over}", aggregate=True, compared=True),
    "nullif": Function((SAME, SAME), "nullif({0}, {1})"),
    "rank": Function((), "rank(){over}", Kind.INTEGER, ordered=True),
    "replace": Function((TEXT, TEXT, TEXT), "replace({0}, {1}, {2})", Kind.TEXT),
    "right": Function((TEXT, COUNT), "right({0}, {1})", Kind.TEXT),
    "round": Function((DECIMALS, COUNT), "round({0}, {1})"),
    "row_number": Function((), "row_number(){over}", Kind.INTEGER, ordered=True),
    "substr": _SUBSTRING,
    "substring": _SUBSTRING,
    "sum": Function((None,), "sum({0}){over}", aggregate=True),
    "upper": Function((TEXT,), "upper({0})", Kind.TEXT, cased=True),
}


def _make_part(kinds: Kinds, sql: str) -> Function:
    return Function((kinds,), sql, Kind.INTEGER)


_SPARK_PARTS: Final = (
    {name: _make_part(TIMES, f"extract({part} FROM {{0}})") for name, part in _PARTS_OF_DATES.items()}
    | {name: _make_part(_ONLY_TIMESTAMPS, f"extract({part} FROM {{0}})") for name, part in _PARTS_OF_TIMES.items()}
    | {
        "doy": _make_part(TIMES, "extract(DOY FROM {0})"),
        "dow": _make_part(TIMES, "(extract(DAYOFWEEK FROM {0}) - 1)"),
        "isodow": _make_part(TIMES, "extract(DAYOFWEEK_ISO FROM {0})"),
    }
)
"""DuckDB's date parts in Spark's SQL. Spark's first day of the week is 1, DuckDB's is 0."""

_DUCKDB_PARTS: Final = (
    {name: _make_part(TIMES, f"date_part('{name}', {{0}})") for name in (*_PARTS_OF_DATES, "doy")}
    | {name: _make_part(_ONLY_TIMESTAMPS, f"date_part('{name}', {{0}})") for name in _PARTS_OF_TIMES}
    | {
        "dow": _make_part(TIMES, "(date_part('dow', {0}) + 1)"),
        "dayofweek": _make_part(TIMES, "(date_part('dow', {0}) + 1)"),
        "dayofweek_iso": _make_part(TIMES, "date_part('isodow', {0})"),
    }
)

TO_SPARK: Final[Mapping[str, Function]] = {
    **_SHARED,
    "avg": Function((_AVERAGED,), _AVERAGE, Kind.DOUBLE, aggregate=True),
    "concat": Function((TEXT,), "concat(coalesce({0}, ''){rest})", Kind.TEXT, rest=TEXT, more=MANY),
    **{f"date_part {name}": part for name, part in _SPARK_PARTS.items()},
    **{name: _SPARK_PARTS[name] for name in (*_PARTS_OF_DATES, *_PARTS_OF_TIMES, "isodow")},
    "dayofmonth": _SPARK_PARTS["day"],
    "dayofweek": _SPARK_PARTS["dow"],
    "dayofyear": _SPARK_PARTS["doy"],
    "weekofyear": _SPARK_PARTS["week"],
    "date_diff day": Function((DATES, DATES), "datediff({1}, {0})", Kind.INTEGER),
    "datediff day": Function((DATES, DATES), "datediff({1}, {0})", Kind.INTEGER),
    **{
        f"date_trunc {name}": Function((TIMES,), f"CAST({sql} AS TIMESTAMP_NTZ)", Kind.TIMESTAMP)
        for name, sql in _TRUNCATED.items()
    },
    "ends_with": Function((TEXT, TEXT), "endswith({0}, {1})", Kind.BOOLEAN),
    "len": _SHARED["length"],
    "ltrim": Function((TEXT,), f"trim(LEADING '{_SPACES}' FROM {{0}})", Kind.TEXT),
    "position": _INSTR,
    "rtrim": Function((TEXT,), f"trim(TRAILING '{_SPACES}' FROM {{0}})", Kind.TEXT),
    "starts_with": Function((TEXT, TEXT), "startswith({0}, {1})", Kind.BOOLEAN),
    "strpos": _INSTR,
    "trim": Function((TEXT,), f"trim(BOTH '{_SPACES}' FROM {{0}})", Kind.TEXT),
}

TO_DUCKDB: Final[Mapping[str, Function]] = {
    **_SHARED,
    "avg": Function((_AVERAGED,), "avg(CAST({0} AS DOUBLE)){over}", Kind.DOUBLE, aggregate=True),
    "char_length": _SHARED["length"],
    "concat": Function((TEXT,), "({0}{rest})", Kind.TEXT, rest=TEXT, more=MANY),
    **{f"extract {name}": part for name, part in _DUCKDB_PARTS.items()},
    **{name: _DUCKDB_PARTS[name] for name in (*_PARTS_OF_DATES, *_PARTS_OF_TIMES, "dayofweek") if name != "week"},
    "dayofmonth": _DUCKDB_PARTS["day"],
    "dayofyear": _DUCKDB_PARTS["doy"],
    "weekofyear": _DUCKDB_PARTS["week"],
    "datediff": Function((DATES, DATES), "date_diff('day', {1}, {0})", Kind.INTEGER),
    "endswith": Function((TEXT, TEXT), "ends_with({0}, {1})", Kind.BOOLEAN),
    "ltrim": Function((TEXT,), "ltrim({0}, ' ')", Kind.TEXT),
    "ifnull": _OR_ELSE,
    "nvl": _OR_ELSE,
    "rtrim": Function((TEXT,), "rtrim({0}, ' ')", Kind.TEXT),
    "startswith": Function((TEXT, TEXT), "starts_with({0}, {1})", Kind.BOOLEAN),
    "trim": Function((TEXT,), "trim({0}, ' ')", Kind.TEXT),
    **{
        f"trunc {name}": Function((TIMES,), f"CAST(date_trunc('{unit}', {{0}}) AS DATE)", Kind.DATE)
        for unit, names in {
            "year": ("year", "yyyy", "yy"),
            "quarter": ("quarter",),
            "month": ("month", "mon", "mm"),
            "week": ("week",),
        }.items()
        for name in names
    },
}

_TRINO_PARTS: Final = (
    {name: _make_part(TIMES, f"extract({part} FROM {{0}})") for name, part in _PARTS_OF_DATES.items()}
    | {name: _make_part(_ONLY_TIMESTAMPS, f"extract({part} FROM {{0}})") for name, part in _PARTS_OF_TIMES.items()}
    | {
        "doy": _make_part(TIMES, "extract(DAY_OF_YEAR FROM {0})"),
        "dow": _make_part(TIMES, "(extract(DAY_OF_WEEK FROM {0}) % 7)"),
        "isodow": _make_part(TIMES, "extract(DAY_OF_WEEK FROM {0})"),
    }
)
"""DuckDB's date parts in Trino's SQL, whose last day of the week, Sunday, is 7."""
_FIRST_OF_TWO: Final = "{name}(coalesce({{0}}, {{1}}), coalesce({{1}}, {{0}}))"
_STRPOS: Final = Function((TEXT, PATTERN), "strpos({0}, {1})", Kind.INTEGER)
_ENDS: Final = "(length({1}) <= length({0}) AND substr({0}, CAST(length({0}) - length({1}) + 1 AS BIGINT)) = {1})"

TO_TRINO: Final[Mapping[str, Function]] = {
    **{name: function for name, function in _SHARED.items() if name != "coalesce"},
    "avg": Function((_AVERAGED,), _AVERAGE.replace("'float'", "'real'"), Kind.DOUBLE, aggregate=True),
    "coalesce": replace(_SHARED["coalesce"], arguments=(SAME, SAME), sql="coalesce({0}, {1}{rest})"),
    "concat": Function(
        (TEXT, TEXT), "concat(coalesce({0}, ''), coalesce({1}, ''){rest})", Kind.TEXT, rest=TEXT, more=MANY
    ),
    "contains": Function((TEXT, TEXT), "(strpos({0}, {1}) > 0)", Kind.BOOLEAN),
    **{f"date_part {name}": part for name, part in _TRINO_PARTS.items()},
    **{name: _TRINO_PARTS[name] for name in (*_PARTS_OF_DATES, *_PARTS_OF_TIMES, "isodow")},
    "dayofmonth": _TRINO_PARTS["day"],
    "dayofweek": _TRINO_PARTS["dow"],
    "dayofyear": _TRINO_PARTS["doy"],
    "weekofyear": _TRINO_PARTS["week"],
    "date_diff day": Function((DATES, DATES), "date_diff('day', {0}, {1})", Kind.INTEGER),
    "datediff day": Function((DATES, DATES), "date_diff('day', {0}, {1})", Kind.INTEGER),
    **{
        f"date_trunc {name}": Function((TIMES,), f"CAST(date_trunc('{name}', {{0}}) AS TIMESTAMP(6))", Kind.TIMESTAMP)
        for name in _TRUNCATED
    },
    "ends_with": Function((TEXT, TEXT), _ENDS, Kind.BOOLEAN),
    "greatest": Function((SAME, SAME), _FIRST_OF_TWO.format(name="greatest")),
    "instr": _STRPOS,
    "least": Function((SAME, SAME), _FIRST_OF_TWO.format(name="least")),
    "left": Function((TEXT, COUNT), "substr({0}, 1, {1})", Kind.TEXT),
    "len": _SHARED["length"],
    "ltrim": Function((TEXT,), f"trim(LEADING '{_SPACES}' FROM {{0}})", Kind.TEXT),
    "position": _STRPOS,
    "replace": Function((TEXT, PATTERN, TEXT), "replace({0}, {1}, {2})", Kind.TEXT),
    "right": Function((TEXT, COUNT), "substr({0}, greatest(length({0}) - {1} + 1, 1))", Kind.TEXT),
    "rtrim": Function((TEXT,), f"trim(TRAILING '{_SPACES}' FROM {{0}})", Kind.TEXT),
    "starts_with": Function((TEXT, TEXT), "starts_with({0}, {1})", Kind.BOOLEAN),
    "strpos": _STRPOS,
    "trim": Function((TEXT,), f"trim(BOTH '{_SPACES}' FROM {{0}})", Kind.TEXT),
}
"""DuckDB's functions in Trino's SQL. Trino's greatest() of a NULL is NULL, and its replace() finds an empty text."""

_DUCKDB_PARTS_OF_TRINO: Final = {
    **{name: _DUCKDB_PARTS[name] for name in (*_PARTS_OF_DATES, *_PARTS_OF_TIMES, "doy")},
    **dict.fromkeys(("dow", "day_of_week"), _DUCKDB_PARTS["dayofweek_iso"]),
    "day_of_month": _DUCKDB_PARTS["day"],
    "day_of_year": _DUCKDB_PARTS["doy"],
}
_BOTH_KNOWN: Final = "CASE WHEN {{0}} IS NULL OR {{1}} IS NULL THEN NULL ELSE {name}({{0}}, {{1}}) END"

FROM_TRINO: Final[Mapping[str, Function]] = {
    **{name: function for name, function in _SHARED.items() if name not in {"contains", "instr", "left", "right"}},
    "avg": Function((INTEGERS | {Kind.DOUBLE},), "avg(CAST({0} AS DOUBLE)){over}", Kind.DOUBLE, aggregate=True),
    "concat": Function((TEXT,), "({0}{rest})", Kind.TEXT, rest=TEXT, more=MANY),
    **{f"extract {name}": part for name, part in _DUCKDB_PARTS_OF_TRINO.items()},
    **_DUCKDB_PARTS_OF_TRINO,
    "week_of_year": _DUCKDB_PARTS["week"],
    "date_diff day": Function((DATES, DATES), "date_diff('day', {0}, {1})", Kind.INTEGER),
    **{
        f"date_trunc {name}": Function(
            (_ONLY_TIMESTAMPS,), f"CAST(date_trunc('{name}', {{0}}) AS TIMESTAMP)", Kind.TIMESTAMP
        )
        for name in _TRUNCATED
    },
    "greatest": Function((SAME, SAME), _BOTH_KNOWN.format(name="greatest")),
    "least": Function((SAME, SAME), _BOTH_KNOWN.format(name="least")),
    "replace": Function((TEXT, PATTERN, TEXT), "replace({0}, {1}, {2})", Kind.TEXT),
    "starts_with": Function((TEXT, TEXT), "starts_with({0}, {1})", Kind.BOOLEAN),
    "strpos": Function((TEXT, PATTERN), "strpos({0}, {1})", Kind.INTEGER),
}

_FUNCTIONS: Final = {
    (DUCKDB.name, SPARK.name): TO_SPARK,
    (SPARK.name, DUCKDB.name): TO_DUCKDB,
    (DUCKDB.name, TRINO.name): TO_TRINO,
    (TRINO.name, DUCKDB.name): FROM_TRINO,
}


def find_functions(source: DialectSide, target: DialectSide) -> Mapping[str, Function]:
    """Return the functions of a dialect that another one has."""
    return _FUNCTIONS[source.name, target.name]
