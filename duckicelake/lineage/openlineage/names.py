"""PURE. OpenLineage's names of the lake's tables and views, and the producer of its events."""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from duckicelake import __version__

_SAME: Final = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "wasbs", "gcs": "gs"}
_KEYED: Final = frozenset({"s3", "gs", "abfss", "wasbs"})
"""Schemes whose names are keys, without a leading slash."""
_WITH_CONTAINERS: Final = frozenset({"abfss", "wasbs"})
"""Schemes in which the part before `@` isn't a user."""
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):(?=/)", re.IGNORECASE)
PRODUCER: Final = f"urn:duckicelake:{__version__}"
"""The `producer` of events and `_producer` of facets."""


class DatasetName(NamedTuple):
    """A dataset's namespace and name."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NamedLake:
    """The lake's identity in names of datasets, jobs and runs. uri: the catalog's, for engines."""

    id: UUID
    uri: str

    def name_dataset(self, resource: str) -> DatasetName:
        """Name a table or view by its full name in the catalog."""
        return DatasetName(self.uri, resource)


def name_location(location: str) -> DatasetName:
    """Name a location. User, query and fragment of a URL are left out: they may be secrets."""
    matched = _SCHEME.match(location)
    scheme = matched[1].lower() if matched else "file"
    if scheme == "file":
        path = location[matched.end() :] if matched else location
        return DatasetName("file", "/" + path.strip("/"))
    scheme, url = _SAME.get(scheme, scheme), urlsplit(location)
    path = url.path.strip("/")
    name = path or "/" if scheme in _KEYED else f"/{path}"
    return DatasetName(f"{scheme}://{url.netloc if scheme in _WITH_CONTAINERS else _format_host(url.netloc)}", name)


def hide_credentials(uri: str) -> str:
    """Strip a catalog's URI for events: no user, query, fragment and final slash."""
    url = urlsplit(uri)
    return f"{url.scheme}://{_format_host(url.netloc)}{url.path.rstrip('/')}"


def _format_host(netloc: str) -> str:
    return netloc.rpartition("@")[2]


def build_schema_url(lake: NamedLake, facet: str) -> str:
    """Build the URL of the JSON schema of a facet of this package, such as `duckicelake_commit`."""
    return f"{lake.uri}/lineage/v1/facets/{facet}.json"
