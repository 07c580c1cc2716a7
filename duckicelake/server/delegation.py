"""The header X-Iceberg-Access-Delegation of the REST specification: how a client wants to get at a table's files."""

from functools import lru_cache
from typing import Annotated, Final

from fastapi import Depends, Header

from duckicelake.catalog.access.delegation import NO_WISH, Wish

_REMEMBERED: Final = 64
_WISHES: Final = {"vended-credentials": Wish.KEYS, "remote-signing": Wish.SIGNATURES}


@lru_cache(_REMEMBERED)
def parse_wish(values: tuple[str, ...]) -> Wish:
    """What the header asks for; ways that we have never heard of are nobody's fault."""
    wish = NO_WISH
    for value in values:
        for name in value.split(","):
            wish |= _WISHES.get(name.strip().lower(), NO_WISH)
    return wish


async def _wish(
    x_iceberg_access_delegation: Annotated[
        list[str] | None,
        Header(description="comma-separated: vended-credentials, remote-signing; the first that the server has"),
    ] = None,
) -> Wish:
    return parse_wish(tuple(x_iceberg_access_delegation or ()))


AccessWish = Annotated[Wish, Depends(_wish)]
