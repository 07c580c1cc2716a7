"""Which names of datasets are names of the lake's own tables and views: what may be told of those isn't anybody's."""

from collections.abc import Iterable
from typing import Final

from duckicelake.lake.lineage.told import LakeTable, Name
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.postgres.queries import queries

_SQL: Final = queries("lineage_owners")


def known(cursor: Transaction, names: Iterable[Name]) -> dict[Name, LakeTable]:
    """As far as the catalog has recorded it."""
    rows = cursor.execute(_SQL.known, {"keys": [name.key for name in names]}).fetchall()
    return {Name(namespace, name): LakeTable(*table) for namespace, name, *table in rows}


def live(cursor: Transaction, dotted: Iterable[str]) -> dict[LakeTable, str | None]:
    """Tables and views of these names that there are; with the location of those that Iceberg clients know."""
    rows = cursor.execute(_SQL.live, {"names": list(dotted)}).fetchall()
    return {LakeTable(schema_name, name): location for schema_name, name, location in rows}
