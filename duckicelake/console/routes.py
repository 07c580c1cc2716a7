"""The pages of the console: one HTML file for all addresses, and the scripts and styles that scripts/ui/build makes."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import RedirectResponse

from duckicelake.errors import NotFoundError
from duckicelake.server.auth.permissions import Public
from duckicelake.server.hooks import FeatureRoutes
from duckicelake.server.http.pages import ROOT_MARK, PageAsset, build_page_asset, read_assets

ASSETS_FOLDER: Final = Path(str(files("duckicelake.console"))) / "assets"
_PAGE: Final = "index.html"
_FOREVER: Final = "public, max-age=31536000, immutable"
"""For files whose names have the hash of what they hold."""
_MAX_DEPTH: Final = 32
_METHODS: Final = ["GET", "HEAD"]
IfNoneMatch = Annotated[str | None, Header()]
router = APIRouter(include_in_schema=False)


@cache
def load_files() -> Mapping[str, PageAsset]:
    """Read the scripts and styles of the console, by name."""
    found = read_assets(ASSETS_FOLDER, _FOREVER)
    return MappingProxyType({name: asset for name, asset in found.items() if name != _PAGE})


@cache
def build_page(depth: int) -> PageAsset:
    """Build the page for an address that is `depth` folders below the server's, which itself may be anywhere."""
    body = (ASSETS_FOLDER / _PAGE).read_bytes().replace(ROOT_MARK, b"../" * depth)
    return build_page_asset(body, ".html")


@router.api_route("/", methods=_METHODS)
async def get_entrance() -> Response:
    """Redirect whoever opens the server's address to the console."""
    return RedirectResponse("ui")


@router.api_route("/ui/", methods=_METHODS)
async def get_folder() -> Response:
    """Redirect from the address with a slash behind it: the console's own has none."""
    return RedirectResponse("../ui")


@router.api_route("/ui", methods=_METHODS)
@router.api_route("/ui/login", methods=_METHODS)
@router.api_route("/ui/w/{path:path}", methods=_METHODS)
async def get_console(request: Request, if_none_match: IfNoneMatch = None) -> Response:
    """Answer with the page, whose script shows what the address names."""
    depth = request.scope["path"].count("/") - 1
    if depth > _MAX_DEPTH:
        raise NotFoundError("No page of this server has such an address")
    return build_page(depth).answer(if_none_match)


@router.api_route("/ui/console/{file}", methods=_METHODS)
def get_console_file(
    file: str, if_none_match: IfNoneMatch = None, accept_encoding: Annotated[str | None, Header()] = None
) -> Response:
    """Answer with a script or the styles."""
    found = load_files().get(file)
    if found is None:
        raise NotFoundError(f"The console has no file '{file}': load its page again if the server has a new version")
    return found.answer(if_none_match, accept_encoding)


_NEEDS: Final = {
    (method, path): Public()
    for method in _METHODS
    for path in ("/", "/ui/", "/ui", "/ui/login", "/ui/w/{path:path}", "/ui/console/{file}")
}
"""The pages hold no data: their scripts ask for it with the caller's token."""
ROUTES: Final = FeatureRoutes((router,), _NEEDS)
