"""/ and /ui/…: pages for people, the same for everybody; what they show, their scripts ask for with a token."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from duckicelake.errors import NotFound
from duckicelake.server.pages import assets

router = APIRouter(include_in_schema=False)

_METHODS = ["GET", "HEAD"]
IfNoneMatch = Annotated[str | None, Header()]


@router.api_route("/", methods=_METHODS)
async def get_index(if_none_match: IfNoneMatch = None) -> Response:
    """Answer whoever opens the server's address with what there is to see."""
    return assets()["index.html"].answer(if_none_match)


@router.api_route("/ui/lineage", methods=_METHODS)
async def get_lineage_page(if_none_match: IfNoneMatch = None) -> Response:
    """Answer with the page that draws lineage."""
    return assets()["lineage.html"].answer(if_none_match)


@router.api_route("/ui/assets/{asset}", methods=_METHODS)
async def get_asset(asset: str, if_none_match: IfNoneMatch = None) -> Response:
    """Answer with what a page consists of."""
    found = assets().get(asset)
    if found is None:
        raise NotFound(f"No page of this server has a file '{asset}'")
    return found.answer(if_none_match)
