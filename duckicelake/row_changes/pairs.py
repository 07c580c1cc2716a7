"""PURE. Write the SQL that pairs the rows which a snapshot took away with those that it brought.

A join finds the other row of a key that is alone on its side, as most are; where the key is the row id, counting is
enough. Windows number the rows whose key or values are not, and take four times as long: DuckLake lists a row that one
transaction wrote and deleted on both sides, beside the one that it took the place of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from duckicelake.lake.model import LOCAL_ROW_ID

Pairing = Literal["row-id", "values", "key"]
"""How an update is recognised: by the row id; by that, where rows with the same values are the same row; by a key."""
_TYPE: Final = (
    "CASE WHEN is_pair THEN CASE side WHEN 0 THEN 'UPDATE_BEFORE' ELSE 'UPDATE_AFTER' END "
    "WHEN side = 0 THEN 'DELETE' ELSE 'INSERT' END AS t"
)
_PLACE: Final = "g * 4 + CASE WHEN is_pair THEN 0 ELSE 2 + side END AS place"
"""The `g` of a pair is the row id of its row before: a row id may be in two pairs, but there in one alone."""


@dataclass(frozen=True, slots=True)
class PairedColumns:
    """Columns of two sides, which both have `r`, the row id, besides.

    Attributes:
        shown: those of an answer.
        compared: those in which a row that is the same on both sides has the same values.
        key: columns of a key; none for the row id.
        ordered: columns by which rows with one row id have an order.

    """

    shown: Sequence[str]
    compared: Sequence[str]
    pairing: Pairing
    key: Sequence[str]
    ordered: Sequence[str]

    def write(self, before: str, after: str) -> str:
        """Write a query of the changes between two queries: `t`, `place`, `tie`, `r`, and the columns of an answer.

        Rows that both sides have are left out. By place and tie, no two rows have the same place in the order, unless
        they are alike, and the two of an update come one after the other.
        """
        parts = {
            "sides AS MATERIALIZED": f"{self._write_side(0, before)} UNION ALL {self._write_side(1, after)}",
            **self._write_changed(),
            "keys AS MATERIALIZED": (
                "SELECT k, count(*) = 1 AS is_alone, count(*) = 2 AND min(side) < max(side) AS is_pair "
                "FROM changed GROUP BY k"
            ),
            "crowded AS": "SELECT k FROM keys WHERE NOT (is_alone OR is_pair)",
            "joined AS": self._mark_pairs() if self.pairing == "values" else self._join(),
            "paired AS": self._pair(self._cancel("changed SEMI JOIN crowded USING (k)")),
        }
        names = ", ".join(("tie", "r", *self.shown))
        return (
            f"WITH {', '.join(f'{name} ({sql})' for name, sql in parts.items())} "
            f"SELECT {_TYPE}, {_PLACE}, {names} FROM joined UNION ALL SELECT {_TYPE}, {_PLACE}, {names} FROM paired"
        )

    def _write_side(self, side: int, rows: str) -> str:
        """Write the rows of a side, with hashes by which joins find rows that windows must look at."""
        key = f"hash({', '.join(self.key)})" if self.key else "r"
        values = ", ".join(self.compared)
        hashes = f"{key} AS k, hash({values}) AS h" if self.pairing == "values" else f"{key} AS k"
        return f"SELECT {side} AS side, r, {values}, {hashes} FROM ({rows})"

    def _write_changed(self) -> dict[str, str]:
        """Write the rows without those that are another row of the other side, which only values can show.

        Most are alone with their hash on each side, as those of a file that was written anew: a join compares them.
        """
        if self.pairing != "values":
            return {"changed AS NOT MATERIALIZED": "FROM sides"}
        sides = [f"SELECT h, {', '.join(self.compared)} FROM sides WHERE side = {side}" for side in (0, 1)]
        crowded = self._cancel("sides SEMI JOIN (FROM common WHERE NOT is_alone) USING (h)")
        return {
            "common AS MATERIALIZED": (
                "SELECT h, count(*) = 2 AS is_alone FROM sides GROUP BY h HAVING min(side) < max(side)"
            ),
            "unlike AS MATERIALIZED": (
                f"SELECT b.h FROM (SELECT h FROM common WHERE is_alone) c JOIN ({sides[0]}) b ON b.h = c.h "
                f"JOIN ({sides[1]}) a ON a.h = c.h WHERE {self._differ()}"
            ),
            "changed AS MATERIALIZED": (
                f"FROM sides ANTI JOIN common USING (h) UNION ALL {crowded} "
                "UNION ALL FROM sides SEMI JOIN unlike USING (h)"
            ),
        }

    def _cancel(self, rows: str) -> str:
        """Write rows without those that both sides have."""
        same = ("r", *self.compared) if self.pairing == "row-id" else self.compared
        return f"SELECT * EXCLUDE (n, pairs) FROM (SELECT *, {_number_rows(same)} FROM {rows}) WHERE n > pairs"

    def _pair(self, rows: str) -> str:
        """Write rows with the others of their key, by windows."""
        key = self.key or ("r",)
        group = f"CASE WHEN n > pairs THEN r ELSE min(r) FILTER (side = 0) OVER (PARTITION BY {', '.join(key)}, n) END"
        numbered = f"SELECT *, {_number_rows(key, self.ordered)} FROM ({rows})"
        hashed = f"CASE WHEN n > pairs THEN {write_digest(self.ordered)} ELSE {write_digest([*key, 'n'])} END"
        return f"SELECT *, n <= pairs AS is_pair, {group} AS g, {_write_tie(hashed)} AS tie FROM ({numbered})"

    def _mark_pairs(self) -> str:
        """Write the rows whose row ids are alone on their sides. No two of them have the same values any more."""
        names = ", ".join(("side", "r", *self.shown))
        keys = "(FROM keys WHERE is_alone OR is_pair)"
        return f"SELECT r AS g, is_pair, side AS tie, {names} FROM changed JOIN {keys} USING (k)"

    def _join(self) -> str:
        """Write the rows whose keys are alone on their sides, by a join that leaves out those with the same values."""
        rows = "(FROM changed ANTI JOIN crowded USING (k))"
        key = " AND ".join(("b.k = a.k", *(f"b.{name} IS NOT DISTINCT FROM a.{name}" for name in self.key)))
        sides = (
            f"{{side: {at}, {', '.join(f'{name}: {side}.{name}' for name in ('r', *self.shown))}}}"
            for at, side in enumerate("ba")
        )
        joined = (
            "SELECT coalesce(b.r, a.r) AS g, b.r IS NOT NULL AND a.r IS NOT NULL AS is_pair, "
            f"unnest([{', '.join(sides)}]) AS one FROM (FROM {rows} WHERE side = 0) AS b "
            f"FULL JOIN (FROM {rows} WHERE side = 1) AS a ON {key} "
            f"WHERE b.r IS NULL OR a.r IS NULL OR {self._differ()}"
        )
        members = ", ".join(f"one.{name}" for name in ("side", "r", *self.shown))
        tie = "one.side AS tie"
        if self.key:
            hashed = write_digest([f"one.{name}" for name in self.key])
            tie = f"CASE WHEN g < {LOCAL_ROW_ID} THEN one.side ELSE {_write_tie(hashed, 'one.side')} END AS tie"
        return f"SELECT g, is_pair, {tie}, {members} FROM ({joined}) WHERE one.r IS NOT NULL"

    def _differ(self) -> str:
        return " OR ".join(f"b.{name} IS DISTINCT FROM a.{name}" for name in self.compared)


def write_digest(columns: Sequence[str]) -> str:
    """Write a number by which few rows have an order. DuckDB's `hash` is the same for too many short rows."""
    return f"md5_number_lower(CAST(row({', '.join(columns)}) AS VARCHAR))"


def _write_tie(hashed: str, side: str = "side") -> str:
    """Write the order of rows at one place, from what both rows of a pair have, and no other row there."""
    return f"CAST({hashed} >> 2 AS BIGINT) * 2 + {side}"


def _number_rows(by: Sequence[str], ordered: Sequence[str] = ()) -> str:
    """Number the rows of each side that have the same values, and count how many of both sides are pairs.

    ordered: columns by which those of one row id have an order.
    """
    names = ", ".join(by)
    counts = (f"count(*) FILTER (side = {side}) OVER (PARTITION BY {names})" for side in (0, 1))
    order = f"r, {write_digest(ordered)}" if ordered else "r"
    return f"row_number() OVER (PARTITION BY {names}, side ORDER BY {order}) AS n, least({', '.join(counts)}) AS pairs"
