"""PURE. The SQL dialects, and the checks at run time where the meaning depends on types."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, NoReturn

from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.dialects.trino import Trino
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.spark import SparkParser
from sqlglot.parsers.trino import TrinoParser

Kind = Enum("Kind", "INTEGER SHORT DECIMAL DOUBLE FLOAT TEXT BOOLEAN DATE TIMESTAMP ZONED BINARY")
"""Kinds of types. SHORT is a decimal that a double holds exactly, DECIMAL a longer one."""
_TYPED: Final = ("CAST", "TRY_CAST", "EXTRACT")
_SHORT, _LONGER = "[(]([0-9]|1[0-5]),[0-9]+[)]", "[(]1[6-8],[0-9]+[)]"
"""Two decimals of up to 18 digits are added, multiplied and compared without losing a digit of the 38 that fit."""
Kinds = frozenset[Kind]
INTEGERS: Final = frozenset({Kind.INTEGER})
DECIMALS: Final = frozenset({Kind.SHORT, Kind.DECIMAL})
EXACT: Final = INTEGERS | DECIMALS
TEXT: Final = frozenset({Kind.TEXT})
DATES: Final = frozenset({Kind.DATE})
TIMES: Final = frozenset({Kind.DATE, Kind.TIMESTAMP})
SCALARS: Final = frozenset(Kind)
DIVISIBLE: Final = frozenset({Kind.INTEGER, Kind.SHORT, Kind.DOUBLE})
NUMBERS: Final = (EXACT, DIVISIBLE)
FAMILIES: Final = (
    *NUMBERS,
    TEXT,
    TIMES,
    *(frozenset({kind}) for kind in (Kind.FLOAT, Kind.BOOLEAN, Kind.ZONED, Kind.BINARY)),
)
"""Kinds that both engines compare, and turn into one another, in the same way.

FLOAT and anything else isn't one: DuckDB turns both into FLOAT, Spark into DOUBLE.
"""
ADDED: Final = (DECIMALS, DIVISIBLE)
"""Kinds whose sums, differences and products are the same; in Spark a BIGINT counts 20 of the 38 digits that fit."""
SIDES: Final = {
    **dict.fromkeys(("int", "long"), INTEGERS),
    "decimal": EXACT,
    "double": INTEGERS | {Kind.DOUBLE},
    "float": frozenset({Kind.FLOAT}),
    "string": TEXT,
    "boolean": frozenset({Kind.BOOLEAN}),
    "date": DATES,
    "timestamp": TIMES,
    "timestamptz": frozenset({Kind.ZONED}),
    "binary": frozenset({Kind.BINARY}),
}
"""Kinds of a set operation's sides, by Iceberg's type of its result."""


class NotTranslatableError(Exception):
    """A query isn't known to mean the same in the other dialect; the message names the construct."""


class UnreadableQueryError(NotTranslatableError):
    """A text isn't SQL of the dialect."""


class DuckDBNamesParser(DuckDBParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {key: DuckDBParser.FUNCTION_PARSERS[key] for key in _TYPED}


class DuckDBNames(DuckDB):
    """DuckDB's SQL. sqlglot leaves functions as they are written."""

    Parser = DuckDBNamesParser


class SparkNamesParser(SparkParser):
    STRICT_CAST = True  # as with ANSI SQL, Spark's default since version 4
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {key: SparkParser.FUNCTION_PARSERS[key] for key in _TYPED}


class SparkNames(Spark):
    """Spark's SQL. sqlglot leaves functions as they are written."""

    Parser = SparkNamesParser


class TrinoNamesParser(TrinoParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {key: TrinoParser.FUNCTION_PARSERS[key] for key in _TYPED}


class TrinoNames(Trino):
    """Trino's SQL. sqlglot leaves functions as they are written."""

    Parser = TrinoNamesParser


@dataclass(frozen=True, slots=True)
class DialectSide:
    """A dialect to read from or to write to.

    kinds: regular expressions for results of typeof(). types: names of the types that all sides have, by DuckDB's
    name. nan: the condition that an expression is NaN, whatever its type.
    """

    name: str
    parser: type[Dialect]
    quote: str
    raising: str
    finding: str
    nan: str
    kinds: Mapping[Kind, str]
    types: Mapping[str, str]

    def quote_name(self, name: str) -> str:
        """Quote an identifier."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def text(self, value: str) -> str:
        """Quote a string literal. The value contains no backslash."""
        return "'" + value.replace("'", "\\'" if self is SPARK else "''") + "'"

    def match_pattern(self, text: str, pattern: str) -> str:
        """Build the condition that a part of the text matches the regular expression."""
        return self.finding.format(text, self.text(pattern))

    def error(self, message: str) -> str:
        """Build an expression that fails with the message."""
        return f"{self.raising}({self.text(message)})"


DUCKDB: Final = DialectSide(
    name="DuckDB",
    parser=DuckDBNames,
    quote='"',
    raising="error",
    finding="regexp_matches({}, {})",
    nan="typeof({0}) IN ('DOUBLE', 'FLOAT') AND CAST({0} AS VARCHAR) = 'nan'",
    kinds={
        Kind.INTEGER: "TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT",
        Kind.SHORT: f"DECIMAL{_SHORT}",
        Kind.DECIMAL: f"DECIMAL{_LONGER}",
        Kind.DOUBLE: "DOUBLE",
        Kind.FLOAT: "FLOAT",
        Kind.TEXT: "VARCHAR",
        Kind.BOOLEAN: "BOOLEAN",
        Kind.DATE: "DATE",
        Kind.TIMESTAMP: "TIMESTAMP",
        Kind.ZONED: "TIMESTAMP WITH TIME ZONE",
        Kind.BINARY: "BLOB",
    },
    types={
        name: name for name in ("SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP")
    },
)

SPARK: Final = DialectSide(
    name="Spark",
    parser=SparkNames,
    quote="`",
    raising="raise_error",
    finding="{} RLIKE {}",
    nan="typeof({0}) IN ('double', 'float') AND CAST({0} AS STRING) = 'NaN'",
    kinds={
        Kind.INTEGER: "tinyint|smallint|int|bigint",
        Kind.SHORT: f"decimal{_SHORT}",
        Kind.DECIMAL: f"decimal{_LONGER}",
        Kind.DOUBLE: "double",
        Kind.FLOAT: "float",
        Kind.TEXT: "string",
        Kind.BOOLEAN: "boolean",
        Kind.DATE: "date",
        Kind.TIMESTAMP: "timestamp_ntz",
        Kind.ZONED: "timestamp",
        Kind.BINARY: "binary",
    },
    types={name: name for name in ("SMALLINT", "BIGINT", "DOUBLE", "BOOLEAN", "DATE")}
    | {"INTEGER": "INT", "VARCHAR": "STRING", "TIMESTAMP": "TIMESTAMP_NTZ"},
)

TRINO: Final = DialectSide(
    name="Trino",
    parser=TrinoNames,
    quote='"',
    raising="fail",
    finding="regexp_like({}, {})",
    nan="typeof({0}) IN ('double', 'real') AND CAST({0} AS VARCHAR) = 'NaN'",
    kinds={
        Kind.INTEGER: "tinyint|smallint|integer|bigint",
        Kind.SHORT: f"decimal{_SHORT}",
        Kind.DECIMAL: f"decimal{_LONGER}",
        Kind.DOUBLE: "double",
        Kind.FLOAT: "real",
        Kind.TEXT: "varchar([(][0-9]+[)])?",
        Kind.BOOLEAN: "boolean",
        Kind.DATE: "date",
        Kind.TIMESTAMP: "timestamp[(]6[)]",
        Kind.ZONED: "timestamp[(]6[)] with time zone",
        Kind.BINARY: "varbinary",
    },
    types={name: name for name in ("SMALLINT", "INTEGER", "BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN", "DATE")}
    | {"TIMESTAMP": "TIMESTAMP(6)"},
)


def refuse_construct(construct: str) -> NoReturn:
    """Raise NotTranslatableError for a construct."""
    raise NotTranslatableError(construct)


@dataclass(frozen=True, slots=True)
class TypedSql:
    """An expression in the target dialect, with its guards. bare: the same without guards, of the same type.

    kinds: what it can be read as; several for a text that may be a date; None if unknown; empty for NULL, which is of
    any kind.
    """

    text: str
    bare: str
    kinds: Kinds | None = None


def make_plain(text: str, *kinds: Kind) -> TypedSql:
    """Make an expression without guards."""
    return TypedSql(text, text, frozenset(kinds) or None)


def guard_operands(
    side: DialectSide, operands: Sequence[TypedSql], families: Collection[Kinds], result: TypedSql, what: str
) -> TypedSql:
    """Build an expression that fails at run time unless all operands are of one of the families.

    Kinds that are known aren't checked again.
    """
    possible = [
        family for family in families if all(not operand.kinds or operand.kinds & family for operand in operands)
    ]
    if not possible:
        refuse_construct(f"{what} of unlike types")
    asked = list(dict.fromkeys(operand.bare for operand in operands if operand.kinds is None))
    if not asked:
        return result
    if len(asked) == 1:
        possible = [frozenset().union(*possible)]
    types = ", ".join(f"typeof({operand})" for operand in asked)
    subject = types if len(asked) == 1 else f"concat_ws('/', {types})"
    patterns = "|".join(_build_pattern(side, family, len(asked)) for family in possible)
    condition = side.match_pattern(subject, f"^({patterns})$")
    error = side.error(f"This view means something else in {side.name}: {what} of these types is not carried over")
    return TypedSql(f"CASE WHEN {condition} THEN {result.text} ELSE {error} END", result.bare, result.kinds)


def _build_pattern(side: DialectSide, family: Kinds, times: int) -> str:
    one = "|".join(side.kinds[kind] for kind in Kind if kind in family)
    return one if times == 1 else f"(({one})/?)+"
