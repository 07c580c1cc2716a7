"""PURE. Who says what is in our events, and in what words of our own."""

from importlib.metadata import version
from typing import Final

from duckicelake.lineage.naming import Lake

PRODUCER: Final = f"urn:duckicelake:{version('duckicelake')}"
"""The `producer` of events and `_producer` of facets."""


def schema_url(lake: Lake, facet: str) -> str:
    """Where the catalog serves the JSON schema of a facet that is ours, such as `duckicelake_commit`."""
    return f"{lake.uri}/lineage/v1/facets/{facet}.json"
