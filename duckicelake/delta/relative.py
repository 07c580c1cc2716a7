"""PURE. A file's path as a log names it."""

from posixpath import relpath

from duckicelake.delta.paths import is_absolute


def relative(root: str, location: str) -> str:
    """A file as seen from the table's folder, both canonical: over `..` where it lies elsewhere on the same store.

    Delta's Spark reader and delta-rs take `..` and absolute URIs, DuckDB `..` in folders, and neither in S3.
    """
    start, store = _split(root)
    path, other = _split(location)
    return relpath(path, start) if store == other else location


def _split(location: str) -> tuple[str, str]:
    """(path, scheme and bucket)."""
    assert is_absolute(location)
    scheme, _, rest = location.partition("://")
    bucket, _, path = rest.partition("/")
    return f"/{path}", f"{scheme}://{bucket}"
