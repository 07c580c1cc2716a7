"""What DuckDB must be told to get at files in S3."""

from duckicelake.cli import snippets
from duckicelake.settings import Settings
from duckicelake.storage.s3_region import DEFAULT_REGION


def duckdb_secret(settings: Settings, data_path: str) -> str:
    """The statement by which DuckDB gets to the files; empty if they are local."""
    endpoint, region = settings.s3_public_endpoint or settings.s3_endpoint, settings.s3_region or DEFAULT_REGION
    is_distant = data_path.startswith("s3")
    return snippets.duckdb_secret(data_path, endpoint, region, settings.s3_path_style) if is_distant else ""
