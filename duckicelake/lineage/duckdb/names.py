"""Resolve names in DuckDB to datasets; tables of attached lakes have the catalog's names."""

import posixpath
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
from openlineage.client.facet_v2 import dataset_type_dataset, schema_dataset, symlinks_dataset

from duckicelake.lineage.openlineage.facets import encode_facet
from duckicelake.lineage.openlineage.names import DatasetName, hide_credentials, name_location
from duckicelake.lineage.sql.dialects import may_show_values
from duckicelake.lineage.sql.model import SqlDataset
from duckicelake.storage.policy import LocationPolicy

_PLACE: Final = """
SELECT t.table_uuid, t.path, t.path_is_relative, s.path, s.path_is_relative{ours}
FROM {metadata}.ducklake_table t JOIN {metadata}.ducklake_schema s ON s.schema_id = t.schema_id{joined}
WHERE t.table_name = ? AND s.schema_name = ? AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL AND {at_top}
"""
_AT_TOP: Final = "(to_json(s) ->> 'parent_schema_id') IS NULL"
"""The condition for a schema at the top, to which a name of two parts leads; DuckLake 1.0 lacks the column."""
_OURS: Final = "/ducklake"
"""The end of a DATA_PATH that this catalog gave a lake, whose tables have locations from their first event on."""
Parts = tuple[str, ...]
_FRESH: Final = 1.0
"""Seconds for which a resolved name is cached: a burst of statements resolves it once."""
_SHARE: Final = 20
"""Cache time of a name as a multiple of its resolution time: a view of remote files is slow."""
_ENTRY: Final = re.compile(r'((?:"(?:[^"]|"")*"|[^,"])+)(?:,|$)')
_NAME: Final = re.compile(r'"((?:[^"]|"")*)"|([^."]+)')


@dataclass(frozen=True, slots=True)
class DuckPlace:
    """A dataset's name and facets. is_ours: this catalog sends events of it, too, with its schema."""

    name: DatasetName
    facets: Mapping[str, Any] = field(default_factory=dict)
    is_ours: bool = False


class AttachedLakes:
    """Reads metadata of attached lakes by a second cursor, outside of the user's transaction."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, catalog_uri: str | None) -> None:
        self._connection = connection
        self._uri = hide_credentials(catalog_uri) if catalog_uri else None
        self._beside: duckdb.DuckDBPyConnection | None = None
        self._places: dict[tuple[str, str, str], DuckPlace | None] = {}
        self._folders: dict[str, str | None] = {}
        self._is_ours: dict[str, bool] = {}

    def forget(self) -> None:
        """Clear the cache."""
        self._places.clear()
        self._folders.clear()

    def place(self, kind: str, lake: str, schema: str, name: str) -> DuckPlace | None:
        """Find the dataset of a table or view of an attached lake."""
        if kind == "iceberg":
            return None if self._uri is None else DuckPlace(DatasetName(self._uri, f"{schema}.{name}"), is_ours=True)
        key = lake, schema, name
        if key not in self._places:
            found = self._find_place(*key)
            if found is None:
                return None
            self._places[key] = found
        return self._places[key]

    def last_snapshot(self, lake: str) -> int | None:
        """Return the last snapshot that this program committed, on any connection."""
        rows = self._rows(f"FROM ducklake_last_committed_snapshot({_quote_text(lake)})")
        return rows[0][0] if rows else None

    def _find_place(self, lake: str, schema: str, name: str) -> DuckPlace | None:
        metadata = _quote(f"__ducklake_metadata_{lake}")
        ours, rows = self._row(metadata, schema, name, lake)
        if not rows:
            return self._view(metadata, lake, schema, name)
        uuid, path, is_relative, folder, folder_is_relative, *location = rows[0]
        if location and location[0]:
            return DuckPlace(name_location(location[0]), self._symlinks(schema, name, "TABLE"), ours)
        root = self._folder(lake)
        if root is None:
            return None
        if ours and root.endswith(_OURS):
            policy = LocationPolicy(root.removesuffix(_OURS))
            given = policy.table_location(tuple(schema.split(".")), name, uuid)
            return DuckPlace(name_location(given), self._symlinks(schema, name, "TABLE"), ours)
        above = posixpath.join(root, folder) if folder_is_relative else folder
        place = posixpath.join(above, path) if is_relative else path
        return DuckPlace(name_location(place), self._symlinks(schema, name, "TABLE"), ours)

    def _row(self, metadata: str, schema: str, name: str, lake: str) -> tuple[bool, list[Any]]:
        """Read whether this catalog serves the lake, and its row of the table."""
        if self._is_ours.get(lake, True):
            joined = f" LEFT JOIN {metadata}.duckicelake_table i ON i.table_id = t.table_id"
            rows = self._rows(
                _PLACE.format(metadata=metadata, ours=", i.location", joined=joined, at_top=_AT_TOP), name, schema
            )
            if rows is not None:
                self._is_ours[lake] = True
                return True, rows
        self._is_ours[lake] = False
        return False, self._rows(
            _PLACE.format(metadata=metadata, ours="", joined="", at_top=_AT_TOP), name, schema
        ) or []

    def _view(self, metadata: str, lake: str, schema: str, name: str) -> DuckPlace | None:
        """Find the place of a view, which has no files: its name in the catalog, or one below the lake's folder."""
        query = f"""
        SELECT 1 FROM {metadata}.ducklake_view v JOIN {metadata}.ducklake_schema s ON s.schema_id = v.schema_id
        WHERE v.view_name = ? AND s.schema_name = ? AND v.end_snapshot IS NULL AND s.end_snapshot IS NULL AND {_AT_TOP}
        """
        if not self._rows(query, name, schema):
            return None
        ours, folder = self._is_ours.get(lake, False), self._folder(lake)
        facets = {
            **self._symlinks(schema, name, "VIEW"),
            "datasetType": encode_facet(dataset_type_dataset.DatasetTypeDatasetFacet("VIEW")),
        }
        if self._uri is not None:
            return DuckPlace(DatasetName(self._uri, f"{schema}.{name}"), facets, ours)
        return None if folder is None else DuckPlace(name_location(f"{folder}/{schema}.{name}"), facets, ours)

    def _symlinks(self, schema: str, name: str, kind: str) -> Mapping[str, Any]:
        if self._uri is None:
            return {}
        identifier = symlinks_dataset.Identifier(self._uri, f"{schema}.{name}", kind)
        return {"symlinks": encode_facet(symlinks_dataset.SymlinksDatasetFacet([identifier]))}

    def _folder(self, lake: str) -> str | None:
        """Return the lake's DATA_PATH, without a slash at its end."""
        if lake not in self._folders:
            rows = self._rows(f"SELECT data_path FROM ducklake_settings({_quote_text(lake)})")
            folder = rows[0][0] if rows else None
            if folder is not None:
                folder = folder.rstrip("/") if "://" in folder else str(Path(folder).absolute())
            self._folders[lake] = folder
        return self._folders[lake]

    def _rows(self, query: str, *parameters: str) -> list[Any] | None:
        if self._beside is None:
            self._beside = self._connection.cursor()
        try:
            return self._beside.execute(query, parameters).fetchall()
        except duckdb.Error:
            return None


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quote_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class KnownName:
    """A dataset with its facets. lake: the attached DuckLake that contains it."""

    dataset: SqlDataset
    facets: Mapping[str, Any] = field(default_factory=dict)
    lake: str | None = None


class DuckNames:
    """Resolves names as the connection does.

    Names of tables in memory contain the program's name, so that its next run has the same.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, program: str, catalog_uri: str | None) -> None:
        self._connection, self._program = connection, program
        self._lakes = AttachedLakes(connection, catalog_uri)
        self._path: list[tuple[str, str]] | None = None
        self._types: dict[str, tuple[str, str | None]] | None = None
        self._find_place: dict[Parts, tuple[float, KnownName]] = {}
        self.has_temporary = False

    def forget(self) -> None:
        """Clear the cache, after a statement that may change the meaning of names."""
        self._path = self._types = None
        self._find_place.clear()
        self._lakes.forget()

    def find(self, parts: Parts) -> KnownName | None:
        """Find the dataset of a name; None if there is none, or it means another one elsewhere."""
        until, known = self._find_place.get(parts, (0.0, None))
        begun = time.monotonic()
        if known is not None and begun < until:
            return known
        known = next((found for candidate in self._candidates(parts) if (found := self._bound(*candidate))), None)
        if known is not None:
            now = time.monotonic()
            self._find_place[parts] = now + max(_FRESH, _SHARE * (now - begun)), known
        return known

    def last_snapshot(self, lake: str) -> int | None:
        """Return the last DuckLake snapshot that this program committed."""
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
        return [*temporary, *((*schema, parts[0]) for schema in self._search_path())]

    def _bound(self, catalog: str, schema: str, name: str) -> KnownName | None:
        try:
            relation = self._connection.sql(
                f"FROM {quote_identifier(catalog)}.{quote_identifier(schema)}.{quote_identifier(name)}"
            )
            columns, types = tuple(relation.columns), [str(type_) for type_ in relation.types]
        except duckdb.Error:
            return None
        place = self._place(catalog, schema, name)
        if place is None:
            return None
        facets = dict(place.facets)
        if not place.is_ours:
            facets["schema"] = build_schema_facet(columns, types)
        lake = catalog if self._databases().get(catalog, ("", None))[0] == "ducklake" else None
        return KnownName(SqlDataset(*place.name, columns), facets, lake)

    def _place(self, catalog: str, schema: str, name: str) -> DuckPlace | None:
        kind, path = self._databases().get(catalog, ("", None))
        if kind in {"ducklake", "iceberg"}:
            return self._lakes.place(kind, catalog, schema, name)
        if kind != "duckdb":
            return None
        if path is None:
            return DuckPlace(DatasetName("duckdb://memory", f"{self._program}.{catalog}.{schema}.{name}"))
        return DuckPlace(DatasetName(f"duckdb://{name_location(path).name}", f"{schema}.{name}"))

    def _databases(self) -> dict[str, tuple[str, str | None]]:
        if self._types is None:
            rows = self._connection.cursor().execute("SELECT database_name, type, path FROM duckdb_databases()")
            self._types = {name: (kind, path) for name, kind, path in rows.fetchall()}
        return self._types

    def _search_path(self) -> list[tuple[str, str]]:
        if self._path is None:
            query = "SELECT current_setting('search_path'), current_catalog(), current_schema()"
            ((setting, catalog, schema),) = self._connection.sql(query).fetchall()
            self._path = read_search_path(setting, catalog) or [(catalog, schema)]
        return self._path


def read_search_path(setting: str, catalog: str) -> list[tuple[str, str]]:
    """Parse DuckDB's search path to (catalog, schema) pairs; a schema without a catalog is in the current one."""
    pairs: list[tuple[str, str]] = []
    for entry in _ENTRY.findall(setting):
        names: Sequence[str] = [a.replace('""', '"') if a else b for a, b in _NAME.findall(entry.strip())]
        if names and names[-1]:
            pairs.append((names[0], names[1]) if len(names) > 1 else (catalog, names[0]))
    return pairs


def quote_identifier(name: str) -> str:
    """Quote an identifier for DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def build_schema_facet(columns: Sequence[str], types: Sequence[str]) -> dict[str, Any]:
    """Build OpenLineage's schema facet with DuckDB's types. Columns whose names may contain values are left out."""
    shown = [column for column in zip(columns, types, strict=True) if not may_show_values(column[0])]
    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in shown]
    return encode_facet(schema_dataset.SchemaDatasetFacet(fields=fields))
