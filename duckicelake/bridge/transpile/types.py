"""PURE. Where the meaning of SQL hangs on types, which its text doesn't say: the query asks typeof() when it is run.

Both engines know the answer when they plan and forget the question: no row is slowed, no filter is kept from the files.
What isn't of one of the kinds that mean the same in both fails with a message.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.bridge.transpile.dialects import Kind, Side, refuse

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
"""What the sides of a set operation may be, by the type that Iceberg has for its result."""


@dataclass(frozen=True, slots=True)
class Sql:
    """An expression in the dialect to write: with its guards, and `bare`, of the same type, without.

    `kinds` are those that it can be read as: several for a text that may be a date; None if nothing is known of it,
    empty for NULL, which is of any.
    """

    text: str
    bare: str
    kinds: Kinds | None = None


def plain(text: str, *kinds: Kind) -> Sql:
    """An expression without guards."""
    return Sql(text, text, frozenset(kinds) or None)


def guarded(side: Side, operands: Sequence[Sql], families: Collection[Kinds], result: Sql, what: str) -> Sql:
    """The result where all operands are of one of the families, else a failure; nothing is asked that is known."""
    possible = [family for family in families if all(not each.kinds or each.kinds & family for each in operands)]
    if not possible:
        refuse(f"{what} of unlike types")
    asked = list(dict.fromkeys(each.bare for each in operands if each.kinds is None))
    if not asked:
        return result
    if len(asked) == 1:
        possible = [frozenset().union(*possible)]
    types = ", ".join(f"typeof({each})" for each in asked)
    subject = types if len(asked) == 1 else f"concat_ws('/', {types})"
    condition = side.found(subject, f"^({'|'.join(_pattern(side, family, len(asked)) for family in possible)})$")
    error = side.error(f"This view means something else in {side.name}: {what} of these types is not carried over")
    return Sql(f"CASE WHEN {condition} THEN {result.text} ELSE {error} END", result.bare, result.kinds)


def _pattern(side: Side, family: Kinds, times: int) -> str:
    one = "|".join(side.kinds[kind] for kind in Kind if kind in family)
    return one if times == 1 else f"(({one})/?)+"
