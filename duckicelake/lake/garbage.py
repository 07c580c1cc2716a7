"""What the catalog knows of files, asked the other way round: by files that may be nobody's."""

from collections.abc import Sequence

from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.queries import queries

_SQL = queries("garbage")


def unnamed(cursor: Transaction, names: Sequence[str]) -> set[str]:
    """Those of the file names that no row has, in any folder: links give a file other paths than its row says."""
    return {name for (name,) in cursor.execute(_SQL.unnamed, {"names": list(names)}).fetchall()}


def named_in_metadata(cursor: Transaction) -> frozenset[str]:
    """The names of files that only tables' and views' metadata names."""
    return frozenset(name for (name,) in cursor.execute(_SQL.named_in_metadata).fetchall())


def live_tables(cursor: Transaction) -> dict[str, int]:
    """The ids of the live tables that Iceberg clients have seen, by their canonical locations."""
    return dict(cursor.execute(_SQL.live_tables).fetchall())


def foreign_places(cursor: Transaction) -> frozenset[str]:
    """Canonical prefixes below which other catalogs may keep files that this one doesn't know."""
    return frozenset(place for (place,) in cursor.execute(_SQL.foreign_places).fetchall())


def unreleased(cursor: Transaction) -> list[int]:
    """The ids of live tables that have files of snapshots which have left their history."""
    return [table_id for (table_id,) in cursor.execute(_SQL.unreleased).fetchall()]
