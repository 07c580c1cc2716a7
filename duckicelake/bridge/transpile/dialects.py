"""PURE. The two dialects between which views are carried over: how each is read, and how it is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Final, NoReturn

from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.spark import SparkParser

Kind = Enum("Kind", "INTEGER SHORT DECIMAL DOUBLE FLOAT TEXT BOOLEAN DATE TIMESTAMP ZONED BINARY")
"""What an expression's type may be; SHORT is a decimal that a double holds exactly, DECIMAL a longer one."""

_TYPED: Final = ("CAST", "TRY_CAST", "EXTRACT")


class NotCarriedOver(Exception):  # noqa: N818, named for what happened, as errors.py does
    """A query isn't known to mean the same in the other dialect; the message names the construct."""


class DuckDBNames(DuckDB):
    """DuckDB's SQL with functions as they are written: sqlglot's own idea of what they mean isn't asked."""

    class Parser(DuckDBParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {key: DuckDBParser.FUNCTION_PARSERS[key] for key in _TYPED}


class SparkNames(Spark):
    """Spark's SQL with functions as they are written."""

    class Parser(SparkParser):
        STRICT_CAST = True  # as with ANSI SQL, Spark's default since version 4
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {key: SparkParser.FUNCTION_PARSERS[key] for key in _TYPED}


@dataclass(frozen=True, slots=True)
class Side:
    """A dialect to read from or to write to.

    `kinds` are regular expressions of what typeof() says.
    `types` are the names of the types that both sides have, by DuckDB's name for them.
    """

    name: str
    parser: type[Dialect]
    quote: str
    raising: str
    finding: str
    kinds: Mapping[Kind, str]
    types: Mapping[str, str]

    def quoted(self, name: str) -> str:
        """An identifier."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def text(self, value: str) -> str:
        """A string literal; there is no backslash in it."""
        return "'" + value.replace("'", "''" if self is DUCKDB else "\\'") + "'"

    def found(self, text: str, pattern: str) -> str:
        """A condition: the text has a part that matches the regular expression."""
        return self.finding.format(text, self.text(pattern))

    def error(self, message: str) -> str:
        """An expression that fails with the message."""
        return f"{self.raising}({self.text(message)})"


_SHORT, _LONGER = "[(]([0-9]|1[0-5]),[0-9]+[)]", "[(]1[6-8],[0-9]+[)]"
"""Two decimals of up to 18 digits are added, multiplied and compared without losing a digit of the 38 that fit."""

DUCKDB: Final = Side(
    name="DuckDB",
    parser=DuckDBNames,
    quote='"',
    raising="error",
    finding="regexp_matches({}, {})",
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
SPARK: Final = Side(
    name="Spark",
    parser=SparkNames,
    quote="`",
    raising="raise_error",
    finding="{} RLIKE {}",
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


def refuse(construct: str) -> NoReturn:
    """Raise NotCarriedOver for a construct."""
    raise NotCarriedOver(construct)
