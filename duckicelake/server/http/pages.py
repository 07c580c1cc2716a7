"""Files of web pages, as browsers get them: with an ETag, compressed, and with what their scripts may do."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final

from fastapi import Response

from duckicelake.server.http.compression import MIN_COMPRESSED_BYTES, choose_coding, compress
from duckicelake.server.http.headers import is_unchanged, quote_entity_tag

_MEDIA_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
# Scripts, styles and answers come from this server alone; nothing inline runs, and text never becomes markup.
_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
ROOT_MARK: Final = b"{root}"
"""In a page, where the way from it to the server's own address belongs."""
ASKED_EACH_TIME: Final = "no-cache"


@dataclass(frozen=True)
class PageAsset:
    """One file as it is sent."""

    body: bytes
    media_type: str
    cache_control: str

    @cached_property
    def etag(self) -> str:
        """The hash of the file."""
        return sha256(self.body).hexdigest()[:32]

    @cached_property
    def _packed(self) -> dict[str, bytes]:
        """The file by content coding: it is compressed once."""
        return {}

    def answer(self, if_none_match: str | None, accept_encoding: str | None = None) -> Response:
        """Answer with the file, or 304 if the browser's copy is current."""
        headers = {
            "ETag": quote_entity_tag(self.etag),
            "Cache-Control": self.cache_control,
            "Content-Security-Policy": _CONTENT_POLICY,
            "Referrer-Policy": "same-origin",
            "Vary": "Accept-Encoding",
        }
        if is_unchanged(if_none_match, self.etag):
            return Response(status_code=304, headers=headers)
        body = self.body
        coding = choose_coding(accept_encoding) if accept_encoding and len(body) >= MIN_COMPRESSED_BYTES else None
        if coding is not None:
            body, headers["Content-Encoding"] = self._pack(coding), coding
        return Response(body, headers=headers, media_type=self.media_type)

    def _pack(self, coding: str) -> bytes:
        if coding not in self._packed:
            self._packed[coding] = compress(self.body, coding)
        return self._packed[coding]


@cache
def load_not_found_page(depth: int) -> PageAsset:
    """Load the page for an address that leads nowhere, `depth` folders below the server's."""
    body = (Path(str(files("duckicelake.server"))) / "ui" / "not-found.html").read_bytes()
    return build_page_asset(body.replace(ROOT_MARK, b"../" * depth or b"./"), ".html")


def build_page_asset(body: bytes, suffix: str, cache_control: str = ASKED_EACH_TIME) -> PageAsset:
    """Build the asset of a file whose name ends so."""
    return PageAsset(body, _MEDIA_TYPES[suffix], cache_control)


def read_assets(folder: Path, cache_control: str = ASKED_EACH_TIME) -> Mapping[str, PageAsset]:
    """Read the files of web pages in a folder, by name."""
    paths = (path for path in folder.iterdir() if path.suffix in _MEDIA_TYPES)
    return MappingProxyType(
        {path.name: build_page_asset(path.read_bytes(), path.suffix, cache_control) for path in paths}
    )
