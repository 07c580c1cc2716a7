"""PURE. Paths in a log: percent-encoded, relative to the table's folder or absolute URIs (protocol, "Add File")."""

import re
from posixpath import relpath
from typing import Final
from urllib.parse import quote, unquote

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PLACE: Final = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?)?)/(.*)", re.DOTALL)
"""A location: its store, and the path in it."""
_KEPT: Final = "/=:@!$&'()*+,;~"
"""Characters that stay unescaped in a path; not `%`: an escaped name of a folder is escaped again."""


def decode_path(path: str) -> str:
    """Decode a path of the log.

    Bytes that aren't UTF-8 become surrogates, as in names of local files.
    """
    return unquote(path, errors="surrogateescape") if "%" in path else path


def encode_path(path: str) -> str:
    """Encode a path for a log; `decode_path` reverses it."""
    return quote(path, safe=_KEPT, errors="surrogateescape")


def is_absolute(path: str) -> bool:
    """Return whether a decoded path is absolute.

    A relative path may contain colons, as in `t=10:30/part.parquet`; a scheme has a slash after its colon.
    """
    match = _SCHEME.match(path)
    return path.startswith("/") or (match is not None and path.startswith("/", match.end()))


def resolve_location(root: str, path: str) -> str:
    """Resolve a decoded path in a table whose folder is `root`.

    `..` leads out of the folder, as in any URI.
    """
    if is_absolute(path):
        return path
    place = f"{root.rstrip('/')}/{path}"
    return _remove_dots(place) if ".." in path.split("/") else place


def _remove_dots(place: str) -> str:
    """Remove `..` from a location, never above its bucket or root."""
    match = _PLACE.fullmatch(place)
    if match is None:
        return place
    segments: list[str] = []
    for segment in match[2].split("/"):
        if segment == "..":
            del segments[-1:]
        else:
            segments.append(segment)
    return f"{match[1]}/{'/'.join(segments)}"


def locate_sidecar(root: str, path: str) -> str:
    """Locate a V2 checkpoint's sidecar by its name or URI.

    It is always in the log's own folder for them.
    """
    return f"{root.rstrip('/')}/_delta_log/_sidecars/{decode_path(path).rpartition('/')[2]}"


def relativize(root: str, location: str) -> str:
    """Make a location relative to the table's folder; both are canonical.

    The path has `..` if the file lies elsewhere on the same store.

    Delta's Spark reader and delta-rs read `..` and absolute URIs. DuckDB reads `..` in folders only.
    """
    start, store = _split_location(root)
    path, other = _split_location(location)
    return relpath(path, start) if store == other else location


def _split_location(location: str) -> tuple[str, str]:
    """Split a location into path, and scheme and bucket."""
    assert is_absolute(location)
    scheme, _, rest = location.partition("://")
    bucket, _, path = rest.partition("/")
    return f"/{path}", f"{scheme}://{bucket}"
