"""Tables of attached lakes as the catalog's own events name them: by where they lie, as the lake's metadata say."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
from openlineage.client.facet_v2 import dataset_type_dataset, symlinks_dataset

from duckicelake.lineage.facets import as_json
from duckicelake.lineage.naming import DatasetName, located, safe_uri
from duckicelake.storage.policy import LocationPolicy

_PLACE: Final = """
SELECT t.table_uuid, t.path, t.path_is_relative, s.path, s.path_is_relative{ours}
FROM {metadata}.ducklake_table t JOIN {metadata}.ducklake_schema s ON s.schema_id = t.schema_id{joined}
WHERE t.table_name = ? AND s.schema_name = ? AND t.end_snapshot IS NULL AND s.end_snapshot IS NULL
"""

_OURS: Final = "/ducklake"
"""How a DATA_PATH ends that our catalog gave a lake, and so gives places to its tables when it first tells of them."""


@dataclass(frozen=True, slots=True)
class Place:
    """A dataset's name and facets; `is_ours` if our catalog tells of it as well, and of its schema."""

    name: DatasetName
    facets: Mapping[str, Any] = field(default_factory=dict)
    is_ours: bool = False


class Lakes:
    """Reads metadata of attached lakes by a cursor beside the user's, whose transaction it leaves alone."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, catalog_uri: str | None) -> None:
        self._connection = connection
        self._uri = safe_uri(catalog_uri) if catalog_uri else None
        self._beside: duckdb.DuckDBPyConnection | None = None
        self._places: dict[tuple[str, str, str], Place | None] = {}
        self._folders: dict[str, str | None] = {}
        self._is_ours: dict[str, bool] = {}

    def forget(self) -> None:
        """Ask again from now on."""
        self._places.clear()
        self._folders.clear()

    def place(self, kind: str, lake: str, schema: str, name: str) -> Place | None:
        """Which dataset a table or view of an attached lake is."""
        if kind == "iceberg":
            return None if self._uri is None else Place(DatasetName(self._uri, f"{schema}.{name}"), is_ours=True)
        key = lake, schema, name
        if key not in self._places:
            found = self._found(*key)
            if found is None:
                return None
            self._places[key] = found
        return self._places[key]

    def last_snapshot(self, lake: str) -> int | None:
        """The snapshot that this program committed last, on any of its connections."""
        rows = self._rows(f"FROM ducklake_last_committed_snapshot({_text(lake)})")
        return rows[0][0] if rows else None

    def _found(self, lake: str, schema: str, name: str) -> Place | None:
        metadata = _quoted(f"__ducklake_metadata_{lake}")
        ours, rows = self._row(metadata, schema, name, lake)
        if not rows:
            return self._view(metadata, lake, schema, name)
        uuid, path, is_relative, folder, folder_is_relative, *location = rows[0]
        if location and location[0]:
            return Place(located(location[0]), self._symlinks(schema, name, "TABLE"), ours)
        root = self._folder(lake)
        if root is None:
            return None
        if ours and root.endswith(_OURS):
            policy = LocationPolicy(root.removesuffix(_OURS))
            given = policy.table_location(tuple(schema.split(".")), name, uuid)
            return Place(located(given), self._symlinks(schema, name, "TABLE"), ours)
        above = posixpath.join(root, folder) if folder_is_relative else folder
        place = posixpath.join(above, path) if is_relative else path
        return Place(located(place), self._symlinks(schema, name, "TABLE"), ours)

    def _row(self, metadata: str, schema: str, name: str, lake: str) -> tuple[bool, list[Any]]:
        """(whether it's our catalog's, what it says of the table)."""
        if self._is_ours.get(lake, True):
            joined = f" LEFT JOIN {metadata}.duckicelake_table i ON i.table_id = t.table_id"
            rows = self._rows(_PLACE.format(metadata=metadata, ours=", i.location", joined=joined), name, schema)
            if rows is not None:
                self._is_ours[lake] = True
                return True, rows
        self._is_ours[lake] = False
        return False, self._rows(_PLACE.format(metadata=metadata, ours="", joined=""), name, schema) or []

    def _view(self, metadata: str, lake: str, schema: str, name: str) -> Place | None:
        """A view lies nowhere: it has its name in the catalog, or one below the lake's folder."""
        query = f"""
        SELECT 1 FROM {metadata}.ducklake_view v JOIN {metadata}.ducklake_schema s ON s.schema_id = v.schema_id
        WHERE v.view_name = ? AND s.schema_name = ? AND v.end_snapshot IS NULL AND s.end_snapshot IS NULL
        """
        if not self._rows(query, name, schema):
            return None
        ours, folder = self._is_ours.get(lake, False), self._folder(lake)
        facets = {
            **self._symlinks(schema, name, "VIEW"),
            "datasetType": as_json(dataset_type_dataset.DatasetTypeDatasetFacet("VIEW")),
        }
        if self._uri is not None:
            return Place(DatasetName(self._uri, f"{schema}.{name}"), facets, ours)
        return None if folder is None else Place(located(f"{folder}/{schema}.{name}"), facets, ours)

    def _symlinks(self, schema: str, name: str, kind: str) -> Mapping[str, Any]:
        if self._uri is None:
            return {}
        identifier = symlinks_dataset.Identifier(self._uri, f"{schema}.{name}", kind)
        return {"symlinks": as_json(symlinks_dataset.SymlinksDatasetFacet([identifier]))}

    def _folder(self, lake: str) -> str | None:
        """The lake's DATA_PATH, without a slash at its end."""
        if lake not in self._folders:
            rows = self._rows(f"SELECT data_path FROM ducklake_settings({_text(lake)})")
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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
