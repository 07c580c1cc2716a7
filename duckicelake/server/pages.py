"""What browsers are shown: the files of `server/ui`, read once. They hold no data; scripts ask the API for that."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fastapi import Response

from duckicelake.server.caching import as_entity_tag, is_unchanged

FOLDER: Final = Path(__file__).parent / "ui"
_MEDIA_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
# Scripts, styles and answers come from this server alone; nothing inline runs, and text never becomes markup.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent."""

    body: bytes
    media_type: str
    etag: str

    def answer(self, if_none_match: str | None) -> Response:
        """The file, or 304 where the browser's copy is the current one: it is asked for each time, and sent once."""
        headers = {"ETag": as_entity_tag(self.etag), "Cache-Control": "no-cache", "Content-Security-Policy": _POLICY}
        if is_unchanged(if_none_match, self.etag):
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers=headers, media_type=self.media_type)


@cache
def assets() -> Mapping[str, Asset]:
    """By name of the file."""
    files = (path for path in FOLDER.iterdir() if path.suffix in _MEDIA_TYPES)
    return MappingProxyType({path.name: _asset(path) for path in files})


def _asset(path: Path) -> Asset:
    body = path.read_bytes()
    return Asset(body, _MEDIA_TYPES[path.suffix], sha256(body).hexdigest()[:32])
