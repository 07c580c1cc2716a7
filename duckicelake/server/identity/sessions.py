"""What tells one program's requests from another's: its login, its machine and what it calls itself.

Clients that log in get a token for each of their sessions. Who doesn't is told by the connection besides, so that two
programs of one kind on one machine are never taken for one; behind a proxy nothing tells them apart. A program may
settle all this by a name in the header X-Application-Id.
"""

from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from random import Random
from typing import Final

from starlette.types import Scope

from duckicelake.catalog.access.principal import ANYBODY, Principal
from duckicelake.server.context import address_of

_LETTERS: Final = 16
_REMEMBERED: Final = 4096
_LONGEST: Final = 1024
"""Letters of a header that tell programs apart."""
_FORWARDED: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for"})
_numbers = Random()  # noqa: S311 - tells requests apart, and needn't be hard to guess


@dataclass(frozen=True, slots=True)
class Session:
    """A program. is_stranger: nobody has logged in, or said a name; is_hidden: and who is connected isn't who asks."""

    program: str
    is_stranger: bool = False
    is_hidden: bool = False

    def on(self, port: int) -> str:
        """What it is called in requests from this port of its machine, 0 if nobody knows which."""
        if not self.is_stranger:
            return self.program
        is_known = port != 0 and not self.is_hidden
        return f"{self.program}:{port if is_known else f'?{_numbers.getrandbits(64):x}'}"


def session_of(scope: Scope, principal: Principal) -> Session:
    """Whose request it is."""
    token = agent = name = b""
    is_forwarded = False
    for header, value in scope["headers"]:
        if header == b"authorization":
            token = value
        elif header == b"user-agent":
            agent = value[:_LONGEST]
        elif header == b"x-application-id":
            name = value[:_LONGEST]
        elif header in _FORWARDED:
            is_forwarded = True
    if principal is not ANYBODY:
        return Session(_digest(token, address_of(scope), agent, name))
    program = _digest(b"", address_of(scope), agent, name)
    return Session(program, is_stranger=not name, is_hidden=is_forwarded)


def port_of(scope: Scope) -> int:
    """From which the request comes; 0: a proxy doesn't say."""
    client = scope.get("client")
    return int(client[1]) if client else 0


@lru_cache(_REMEMBERED)
def _digest(*said: bytes | str) -> str:
    digest = sha256()
    for each in said:
        encoded = each if isinstance(each, bytes) else each.encode()
        digest.update(b"%d:%b" % (len(encoded), encoded))
    return digest.hexdigest()[:_LETTERS]
