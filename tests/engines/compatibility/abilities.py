"""What engines are tried at: a table that DuckDB made, an act of the engine's, and what DuckDB must read afterwards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import duckdb
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

Row = tuple[Any, ...]
BASE: Final = ((1, "n1"), (2, "n2"), (3, "n3"))
"""Rows of the table: a file of a hundred rows, and deletes of all but these."""
EVE: Final = (5, "Eve")


@dataclass(frozen=True, slots=True)
class Lake:
    """The lake as DuckDB and PyIceberg see it. In DuckDB its catalog is called `lake`."""

    duck: duckdb.DuckDBPyConnection
    catalog: Catalog

    def rows(self, table: str) -> list[Row]:
        return self.duck.sql(f"FROM lake.{table} ORDER BY ALL").fetchall()

    def columns(self, table: str) -> list[str]:
        return self.duck.sql(f"FROM lake.{table} LIMIT 0").columns

    def refs(self, table: str) -> set[str]:
        return set(self.catalog.load_table(table).refs())

    def make(self, table: str, version: int) -> None:
        """Make a table of a format version whose rows are BASE."""
        schema = Schema(
            NestedField(1, "id", LongType(), required=False), NestedField(2, "name", StringType(), required=False)
        )
        self.catalog.create_table(table, schema, properties={"format-version": str(version)})
        self.duck.execute(f"INSERT INTO lake.{table} SELECT range, 'n' || range FROM range(1, 101)")
        self.duck.execute(f"DELETE FROM lake.{table} WHERE id > 3")


def _make(lake: Lake, table: str) -> None:
    lake.make(table, 2)


def _make_version_3(lake: Lake, table: str) -> None:
    lake.make(table, 3)


def _make_nothing(_lake: Lake, _table: str) -> None:
    """Leave it to the engine to make the table."""


def _make_variants(lake: Lake, table: str) -> None:
    lake.duck.execute(f"CREATE TABLE lake.{table} (id BIGINT, v VARIANT)")
    lake.duck.execute(f"""INSERT INTO lake.{table} SELECT range, '{{"a": 7}}'::JSON::VARIANT FROM range(20)""")


def _hold(_lake: Lake, _table: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Ability:
    """One column of the tables in docs/engines.md.

    answer: rows that the act returns, None where it returns none. left: rows that DuckDB reads afterwards, None where
    that says nothing. check: what else must hold then.
    """

    title: str
    answer: tuple[Row, ...] | None = None
    left: tuple[Row, ...] | None = None
    make: Callable[[Lake, str], None] = _make
    check: Callable[[Lake, str], bool] = _hold


ABILITIES: Final[Mapping[str, Ability]] = {
    "create": Ability(
        "make",
        make=_make_nothing,
        check=lambda lake, table: lake.columns(table) == ["id", "name"] and lake.rows(table) in ([], [EVE]),
    ),
    "read": Ability("read", answer=BASE),
    "append": Ability("append", left=(*BASE, EVE)),
    "delete": Ability("delete", left=((1, "n1"), (3, "n3"))),
    "update": Ability("update", left=((1, "n1"), (2, "Bea"), (3, "n3"))),
    "merge": Ability("merge", left=((1, "n1"), (2, "Bea"), (3, "n3"), (6, "Fay"))),
    "overwrite": Ability("overwrite", left=((7, "Gus"),)),
    "time_travel": Ability("time travel", answer=BASE),
    "refs": Ability(
        "branches, tags", left=BASE, check=lambda lake, table: lake.refs(table) == {"main", "side", "first"}
    ),
    "views": Ability(
        "views", answer=((1,), (2,)), check=lambda lake, table: lake.catalog.view_exists(table.replace(".", ".v_"))
    ),
    "schema": Ability(
        "columns change",
        left=((1, "n1", None), (2, "n2", None), (3, "n3", None), (5, "Eve", 2)),
        check=lambda lake, table: lake.columns(table) == ["id", "called", "legs"],
    ),
    "partitions": Ability(
        "partitions change",
        left=(*BASE, EVE),
        check=lambda lake, table: (
            [str(field.transform) for field in lake.catalog.load_table(table).spec().fields]
            in (["bucket[4]"], ["identity"])
        ),
    ),
    "version_3": Ability(
        "make in version 3",
        left=(EVE,),
        make=_make_nothing,
        check=lambda lake, table: lake.catalog.load_table(table).format_version == 3,
    ),
    "vectors": Ability("deletion vectors", answer=BASE, make=_make_version_3),
    "row_ids": Ability("row ids", answer=((1, 0), (2, 1), (3, 2)), make=_make_version_3),
    "variant": Ability("variants", answer=((7,),), make=_make_variants),
}
PROVEN: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "login": ("login by OAuth2", ("read", "append")),
    "keys": ("keys from the catalog", ("read", "append")),
}
"""What others prove, as the lake asks for logins and the engine has no keys for its files: title, abilities."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "Rows": ("read", "append", "delete", "update", "merge", "overwrite", "time_travel"),
    "Tables, views and access": ("create", "schema", "partitions", "refs", "views", "login", "keys"),
    "Format version 3": ("version_3", "vectors", "row_ids", "variant"),
}
"""The tables in docs/engines.md, and their columns."""
