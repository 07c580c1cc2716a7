"""What a request says of the program that sends it, and of the run that this is part of: kept with what it changes."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from starlette.types import Scope

LONGEST: Final = 256
"""Letters of one header that are kept."""
_KEPT: Final[Mapping[bytes, str]] = {
    b"user-agent": "user-agent",
    b"x-engine": "engine",
    b"x-application-id": "application",
    b"x-openlineage-parent-runid": "parent-run-id",
    b"x-openlineage-parent-jobname": "parent-job-name",
    b"x-openlineage-parent-jobnamespace": "parent-job-namespace",
    b"x-openlineage-root-runid": "root-run-id",
    b"x-openlineage-root-jobname": "root-job-name",
    b"x-openlineage-root-jobnamespace": "root-job-namespace",
}
_REMEMBERED: Final = 4096


def client_of(scope: Scope) -> Mapping[str, str]:
    """What the headers say, by the names under which it is kept; only what is said is there."""
    said = {}
    for name, value in scope["headers"]:
        kept = _KEPT.get(name)
        if kept is not None and (text := _text(value[: 4 * LONGEST])):
            said[kept] = text
    return said


@lru_cache(_REMEMBERED)
def _text(value: bytes) -> str:
    """Without anything that steers a terminal, and not so long that it fills tables."""
    letters = value.decode(errors="replace")
    return "".join(letter for letter in letters if letter.isprintable())[:LONGEST].strip()
