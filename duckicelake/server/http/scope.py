"""Read and extend the ASGI scope of a request: address, caller, session, slot, shutdown."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network
from random import Random
from typing import Any, Final

from starlette.types import Scope

from duckicelake.catalog.context.caller import ANY_PRINCIPAL, SERVER_CALLER, Caller, Principal

REQUEST_ID_KEY: Final = "duckicelake.request-id"
PRINCIPAL_KEY: Final = "duckicelake.principal"
CALLER_KEY: Final = "duckicelake.caller"
NEED_KEY: Final = "duckicelake.need"
PATH_NAMES_KEY: Final = "duckicelake.path-names"
TABLE_CHECK_KEY: Final = "duckicelake.table-check"
"""Keys of the ASGI scope, by which middleware hands on what it knows of a request. The last two hold a `PathNames` and
a `TableCheck`.
"""
LEAVE_SLOT_KEY: Final = "duckicelake.leave-slot"
_END_KEY: Final = "duckicelake.end"
_IS_ENDING_KEY: Final = "duckicelake.is-ending"
_DIGEST_CHARS: Final = 16
_LRU_ENTRIES: Final = 4096
_MAX_HEADER_BYTES: Final = 1024
"""Bytes of a header that distinguish programs."""
_FORWARD_HEADERS: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for"})
_random = Random()  # noqa: S311 - distinguishes requests, needs no secrecy


def find_address(scope: Scope) -> str:
    """Return the client's address; empty if it is unknown."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def find_request_id(scope: Scope) -> str:
    return str(scope.get(REQUEST_ID_KEY, ""))


def note_principal(scope: Scope, principal: Principal) -> None:
    """Leave the principal's name for the request log."""
    scope[PRINCIPAL_KEY] = principal.name


def find_caller(scope: Scope) -> Caller:
    """Return the caller that the guard has authenticated."""
    caller: Caller = scope.get(CALLER_KEY, SERVER_CALLER)
    return caller


def leave_slot(scope: Scope) -> None:
    """Give up the slot of this request, which from now on only waits."""
    leave = scope.pop(LEAVE_SLOT_KEY, None)
    if leave is not None:
        leave()


def find_network(address: str) -> str:
    """Return the address, or for IPv6 its network of 64 bits, in which one machine may take any address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return address
    return str(parsed.ipv4_mapped or ip_network((parsed.packed, 64), strict=False))


def end_on_shutdown(scope: Scope, end: Callable[[], object]) -> None:
    """Call `end` when the server shuts down; at once if it is shutting down."""
    state = scope.setdefault("state", {})
    state[_END_KEY] = end
    if _IS_ENDING_KEY in state:
        end()


def end_response(state: dict[str, Any]) -> None:
    """End the response to the request with this state, or the one that follows; called by the server."""
    state[_IS_ENDING_KEY] = True
    if _END_KEY in state:
        state[_END_KEY]()


@dataclass(frozen=True, slots=True)
class ClientSession:
    """A client program.

    Attributes:
        is_stranger: It has neither logged in nor sent X-Application-Id.
        is_hidden: A proxy has forwarded the request, so the port is not the program's.

    """

    program: str
    is_stranger: bool = False
    is_hidden: bool = False

    def on(self, port: int) -> str:
        """Name the session of requests from this port of the client; 0 is an unknown port."""
        if not self.is_stranger:
            return self.program
        is_known = port != 0 and not self.is_hidden
        return f"{self.program}:{port if is_known else f'?{_random.getrandbits(64):x}'}"


def find_session(scope: Scope, principal: Principal) -> ClientSession:
    """Find the program that sent the request."""
    token = agent = name = b""
    is_forwarded = False
    for header, value in scope["headers"]:
        if header == b"authorization":
            token = value
        elif header == b"user-agent":
            agent = value[:_MAX_HEADER_BYTES]
        elif header == b"x-application-id":
            name = value[:_MAX_HEADER_BYTES]
        elif header in _FORWARD_HEADERS:
            is_forwarded = True
    if principal is not ANY_PRINCIPAL:
        return ClientSession(_hash_parts(token, find_address(scope), agent, name))
    program = _hash_parts(b"", find_address(scope), agent, name)
    return ClientSession(program, is_stranger=not name, is_hidden=is_forwarded)


def find_port(scope: Scope) -> int:
    """Return the client's port; 0 if a proxy hides it."""
    client = scope.get("client")
    return int(client[1]) if client else 0


@lru_cache(_LRU_ENTRIES)
def _hash_parts(*parts: bytes | str) -> str:
    digest = sha256()
    for part in parts:
        encoded = part if isinstance(part, bytes) else part.encode()
        digest.update(b"%d:%b" % (len(encoded), encoded))
    return digest.hexdigest()[:_DIGEST_CHARS]
