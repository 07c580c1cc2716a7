"""Ids for new rows of the side tables."""

from collections.abc import Iterator

from duckicelake.catalog.services import Services


def file_ids(services: Services) -> Iterator[int]:
    """Ids for `duckicelake_file`, without end."""
    return services.ids.files.endless(services.database)


def manifest_ids(services: Services) -> Iterator[int]:
    """Ids for `duckicelake_manifest`, without end."""
    return services.ids.manifests.endless(services.database)
