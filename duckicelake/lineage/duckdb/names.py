"""What a name means to a DuckDB connection, and which dataset that is."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb
from openlineage.client.facet_v2 import schema_dataset

from duckicelake.lineage.duckdb.lakes import Lakes, Place
from duckicelake.lineage.facets import as_json
from duckicelake.lineage.masking import tells_values
from duckicelake.lineage.naming import DatasetName, located
from duckicelake.lineage.sql.model import Dataset

Parts = tuple[str, ...]
_FRESH: Final = 1.0
"""Seconds for which a name is taken to mean what it did: a burst of statements doesn't ask for each."""
_SHARE: Final = 20
"""Times as long as it took to ask for a name, until it is asked for again: a view of remote files takes its time."""
_ENTRY: Final = re.compile(r'((?:"(?:[^"]|"")*"|[^,"])+)(?:,|$)')
_NAME: Final = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')


@dataclass(frozen=True, slots=True)
class Known:
    """A dataset with the facets that say what it is; `lake` is the attached DuckLake that it's in."""

    dataset: Dataset
    facets: Mapping[str, Any] = field(default_factory=dict)
    lake: str | None = None


class Names:
    """Looks names up as the connection would, without a word of its own if there is nothing of the name.

    Tables of an in-memory database are called after the program: they are the same in its next run.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, program: str, catalog_uri: str | None) -> None:
        self._connection, self._program = connection, program
        self._lakes = Lakes(connection, catalog_uri)
        self._path: list[tuple[str, str]] | None = None
        self._types: dict[str, tuple[str, str | None]] | None = None
        self._found: dict[Parts, tuple[float, Known]] = {}
        self.has_temporary = False

    def forget(self) -> None:
        """Ask again from now on: something was created, dropped, altered, attached or used."""
        self._path = self._types = None
        self._found.clear()
        self._lakes.forget()

    def find(self, parts: Parts) -> Known | None:
        """The dataset of a name, None if it is none or one that isn't known to be the same elsewhere."""
        until, known = self._found.get(parts, (0.0, None))
        begun = time.monotonic()
        if known is not None and begun < until:
            return known
        known = next((found for each in self._candidates(parts) if (found := self._bound(*each))), None)
        if known is not None:
            now = time.monotonic()
            self._found[parts] = now + max(_FRESH, _SHARE * (now - begun)), known
        return known

    def last_snapshot(self, lake: str) -> int | None:
        """The DuckLake snapshot that this program committed last."""
        return self._lakes.last_snapshot(lake)

    def _candidates(self, parts: Parts) -> list[tuple[str, str, str]]:
        if len(parts) == 3:
            return [(parts[0], parts[1], parts[2])]
        if len(parts) == 2:
            inside = [(catalog, parts[0], parts[1]) for catalog, _ in self._search_path()]
            whole = [(parts[0], "main", parts[1])] if parts[0] in self._databases() else []
            return [*whole, *dict.fromkeys(inside)]
        if len(parts) != 1:
            return []
        temporary = [("temp", "main", parts[0])] if self.has_temporary else []
        return [*temporary, *((*each, parts[0]) for each in self._search_path())]

    def _bound(self, catalog: str, schema: str, name: str) -> Known | None:
        try:
            relation = self._connection.sql(f"FROM {quoted(catalog)}.{quoted(schema)}.{quoted(name)}")
            columns, types = tuple(relation.columns), [str(each) for each in relation.types]
        except duckdb.Error:
            return None
        place = self._place(catalog, schema, name)
        if place is None:
            return None
        facets = dict(place.facets)
        if not place.is_ours:
            facets["schema"] = schema_facet(columns, types)
        lake = catalog if self._databases().get(catalog, ("", None))[0] == "ducklake" else None
        return Known(Dataset(*place.name, columns), facets, lake)

    def _place(self, catalog: str, schema: str, name: str) -> Place | None:
        kind, path = self._databases().get(catalog, ("", None))
        if kind in {"ducklake", "iceberg"}:
            return self._lakes.place(kind, catalog, schema, name)
        if kind != "duckdb":
            return None
        if path is None:
            return Place(DatasetName("duckdb://memory", f"{self._program}.{catalog}.{schema}.{name}"))
        return Place(DatasetName(f"duckdb://{located(path).name}", f"{schema}.{name}"))

    def _databases(self) -> dict[str, tuple[str, str | None]]:
        if self._types is None:
            rows = self._connection.cursor().execute("SELECT database_name, type, path FROM duckdb_databases()")
            self._types = {name: (kind, path) for name, kind, path in rows.fetchall()}
        return self._types

    def _search_path(self) -> list[tuple[str, str]]:
        if self._path is None:
            query = "SELECT current_setting('search_path'), current_catalog(), current_schema()"
            ((setting, catalog, schema),) = self._connection.sql(query).fetchall()
            self._path = search_path(setting, catalog) or [(catalog, schema)]
        return self._path


def search_path(setting: str, catalog: str) -> list[tuple[str, str]]:
    """The (catalog, schema) pairs of DuckDB's setting; a schema without a catalog is in the current one."""
    pairs: list[tuple[str, str]] = []
    for entry in _ENTRY.findall(setting):
        names: Sequence[str] = [a.replace('""', '"') if a else b for a, b in _NAME.findall(entry.strip())]
        if names and names[-1]:
            pairs.append((names[0], names[1]) if len(names) > 1 else (catalog, names[0]))
    return pairs


def quoted(name: str) -> str:
    """An identifier of DuckDB's."""
    return '"' + name.replace('"', '""') + '"'


def schema_facet(columns: Sequence[str], types: Sequence[str]) -> dict[str, Any]:
    """OpenLineage's schema facet, with DuckDB's names of types; without columns whose names may hold values."""
    told = [each for each in zip(columns, types, strict=True) if not tells_values(each[0])]
    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in told]
    return as_json(schema_dataset.SchemaDatasetFacet(fields=fields))
