"""What whoever imports a Delta table should know of it: files that some readers can't take for what they are."""

import re
from collections.abc import Iterator
from typing import Final

import duckdb

from duckicelake.catalog.delta.reading import History
from duckicelake.catalog.services import Services
from duckicelake.delta.actions import AddFile
from duckicelake.storage.local_copies import local_copies

_TIMESTAMPS: Final = re.compile(r'"(?:type|elementType|keyType|valueType)"\s*:\s*"timestamp"')
_COLLECTIONS: Final = re.compile(r'"type"\s*:\s*"(?:array|map)"')
_OLD: Final = "SELECT count(*) FROM parquet_schema($file) WHERE type = 'INT96'"


def notes(services: Services, history: History) -> tuple[str, ...]:
    """A sentence for each; one file of the newest version is looked into, the smallest of those that came last."""
    return tuple(_notes(services, history))


def _notes(services: Services, history: History) -> Iterator[str]:
    definitions = [each.metadata for each in history.commits if each.metadata is not None]
    newest = definitions[-1] if definitions else history.start.metadata
    if newest.column_mapping != "none" and _COLLECTIONS.search(newest.schema_string):
        yield (
            "it has lists or maps and mapped columns: Iceberg's Java library (Spark, Trino, Flink) fails at those, "
            "PyIceberg and DuckDB read them"
        )
    if _TIMESTAMPS.search(newest.schema_string) and _has_old_timestamps(services, history):
        yield (
            "its timestamps are in Parquet's old form INT96, which DuckDB takes for local time: "
            "SET TimeZone = 'UTC' in DuckDB where it reads the table"
        )


def _has_old_timestamps(services: Services, history: History) -> bool:
    file = _recent(history)
    if file is None:
        return False
    location = history.files.located(file.path)
    with local_copies(services.store, [location]) as paths, duckdb.connect() as connection:
        ((count,),) = connection.execute(_OLD, {"file": str(paths[location])}).fetchall()
    return bool(count)


def _recent(history: History) -> AddFile | None:
    for adds in (*(each.adds for each in reversed(history.commits)), tuple(history.start.files.values())):
        there = [add for add in adds if add.path not in history.files.missing]
        if there:
            return min(there, key=lambda add: add.size)
    return None
