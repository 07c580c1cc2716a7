"""What is answered about tables: their metadata, where it is, and what the client gets to reach the files with."""

from collections.abc import Hashable
from typing import Final

import orjson

from duckicelake.catalog.access.delegation import Delegated, Wish
from duckicelake.catalog.access.principal import Principal
from duckicelake.catalog.loads.cache import CachedTable, LoadedTable, Materialized, Told
from duckicelake.catalog.services import Services
from duckicelake.iceberg.metadata import TableMetadata

ALL: Final = "all"
REFS: Final = "refs"
"""The representations: with all snapshots, or only those that refs name."""


def named(table: Materialized) -> tuple[bytes, ...]:
    """The pieces of the answer to a commit."""
    return (b'{"metadata-location":', orjson.dumps(table.location), b',"metadata":', table.body, b"}")


def loaded(table: Materialized, metadata: bytes, representation: str, given: Delegated) -> LoadedTable:
    """The answer to a load; metadata: that representation of it."""
    more = orjson.dumps({"config": given.config, **given.members})
    location = orjson.dumps(table.location)
    tag = etag(table, representation)
    pieces = (b'{"metadata-location":', location, b',"metadata":', metadata, b",", more[1:])
    return LoadedTable(pieces, f"{tag}-{given.tag}" if given.tag else tag)


def etag(table: Materialized, representation: str) -> str:
    """Unique for each representation and equal on all workers.

    A table that is registered again begins at version 0, and a failover may give a version's number to another: the
    name of its file says what is in it.
    """
    name = table.location.rpartition("/")[2].removesuffix(".metadata.json")
    return f"{table.row.table_uuid}-{table.row.table_id}-{name}-{representation}"


def metadata_of(services: Services, table: CachedTable, representation: str) -> bytes:
    """The table's metadata in JSON, in this representation."""
    if representation == ALL:
        return table.materialized.body
    kept = table.answers.bodies.get(representation)
    if kept is None:
        kept = _with_refs_only(table.materialized.metadata)
        services.cache.keep_body(table, representation, kept)
    return kept


def asking_of(
    services: Services, principal: Principal, address: str, wish: Wish, named_as: tuple[str, str], representation: str
) -> Hashable:
    """Who asks so is told the same about the same version of a table; named_as: its schema and name."""
    if not wish or services.access.gives_nothing:
        return representation
    return representation, principal, address, wish, named_as


def keep_told(
    services: Services, table: CachedTable, asking: Hashable, answer: LoadedTable, given: Delegated
) -> LoadedTable:
    """The answer, which whoever asks so again may get again."""
    told = Told(answer, given.until_ms, table.seen if given.may_change else None)
    services.cache.keep_told(table, asking, told)
    return answer


def _with_refs_only(metadata: TableMetadata) -> bytes:
    named_snapshots = {ref.snapshot_id for ref in metadata.refs.values()}
    return metadata.encoded(s for s in metadata.snapshots if s.snapshot_id in named_snapshots)
