"""Read and extend the ASGI scope of a request: path, headers, address, caller, session, slot, shutdown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network
from random import Random
from typing import Any, Final, NamedTuple

from starlette.datastructures import QueryParams
from starlette.types import Scope

from duckicelake.catalog.context.caller import ANY_PRINCIPAL, SERVER_CALLER, SESSION, Caller, Principal
from duckicelake.catalog.delegation import NO_ACCESS_REQUEST, AccessRequest
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, decode_name, decode_namespace, format_full_name

REQUEST_ID_KEY: Final = "duckicelake.request-id"
PRINCIPAL_KEY: Final = "duckicelake.principal"
CALLER_KEY: Final = "duckicelake.caller"
NEED_KEY: Final = "duckicelake.need"
PATH_NAMES_KEY: Final = "duckicelake.path-names"
TABLE_CHECK_KEY: Final = "duckicelake.table-check"
"""Keys of the ASGI scope, by which middleware hands on what it knows of a request. The last two hold a `PathNames` and
a `TableCheck`.
"""
WAREHOUSE_KEY: Final = "duckicelake.warehouse"
CONTEXT_KEY: Final = "duckicelake.context"
"""Keys of the name and the context of the warehouse that a request is for; the first warehouse's has neither."""
LEARN_KEY: Final = "duckicelake.learn"
"""Key by which the HTTP protocol hands on the function that keeps a handler for the bytes of the request."""
PREFIX: Final = "/v1"
REFERENCED_BY: Final = "referenced-by"
"""The query parameter by which a client names the views through which it loads."""
EXEMPT_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""A busy server is alive, and who watches it must see so."""
PUBLIC_BODY_PATHS: Final = frozenset({f"{PREFIX}/oauth/tokens", f"{PREFIX}/oauth/logins"})
"""Paths whose bodies are read before it is known who sends them."""
LEAVE_SLOT_KEY: Final = "duckicelake.leave-slot"
_END_KEY: Final = "duckicelake.end"
_IS_ENDING_KEY: Final = "duckicelake.is-ending"
_DIGEST_CHARS: Final = 16
_LRU_ENTRIES: Final = 4096
_MAX_HEADER_BYTES: Final = 1024
"""Bytes of a header that distinguish programs."""
_FORWARD_HEADERS: Final = frozenset({b"forwarded", b"via", b"x-forwarded-for"})
MAX_CLIENT_CHARS: Final = 256
"""Letters of one header that are kept."""
_CLIENT_HEADERS: Final[Mapping[bytes, str]] = {
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
_DELEGATION_LRU_ENTRIES: Final = 64
_DELEGATION_NAMES: Final = {"vended-credentials": AccessRequest.KEYS, "remote-signing": AccessRequest.SIGNATURES}
_random = Random()  # noqa: S311 - distinguishes requests, needs no secrecy


def keep_raw_path(scope: Scope) -> None:
    """Replace the decoded path by the path as it was sent."""
    raw = scope.get("raw_path")
    if raw is not None:
        scope["path"] = raw.decode("latin-1")


class PathNames(NamedTuple):
    """Decoded names, as of a URL's path. name: of the table or view; empty if there is none."""

    namespace: Namespace
    name: str

    @property
    def resource(self) -> str:
        """The full name of the table or view, or of the namespace."""
        return format_full_name(self.namespace, self.name or None)


def find_path_names(scope: Scope) -> PathNames | None:
    """Decode the names of the path, once per request; None if the path has no namespace.

    Raises:
        InvalidRequestError: The path has a namespace that can't be decoded.

    """
    names: PathNames | None = scope.get(PATH_NAMES_KEY)
    texts = scope["path_params"]
    if names is None and "namespace" in texts:
        name = decode_name(texts.get("table") or texts.get("view") or "")
        names = scope[PATH_NAMES_KEY] = PathNames(decode_namespace(texts["namespace"]), name)
    return names


def parse_parent(parent: str | None) -> Namespace | None:
    """Parse the query parameter `parent`; None if it is empty or missing."""
    # PyIceberg percent-encodes levels before the query is encoded, Java sends them plain: decode once more, but `+`.
    return decode_namespace(parent.replace("+", "%2B")) if parent else None


def parse_view_chain(text: str) -> tuple[PathNames, ...]:
    """Parse the query parameter `referenced-by` (REST specification): views, the outermost first.

    Empty for a text that can't be read: a load that says nothing of views is answered the same.
    """
    try:  # Java percent-encodes names before the query is encoded, as PyIceberg does levels of `parent`
        chains = [decode_namespace(view) for view in text.replace("+", "%2B").split(",")]
    except InvalidRequestError:
        return ()
    return tuple(PathNames(levels[:-1], levels[-1]) for levels in chains if len(levels) > 1)


def _find_view_chain(scope: Scope) -> tuple[PathNames, ...]:
    query = scope["query_string"]
    if REFERENCED_BY.encode() not in query:
        return ()
    return parse_view_chain(QueryParams(query).get(REFERENCED_BY, ""))


def find_address(scope: Scope) -> str:
    """Return the client's address; empty if it is unknown."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def find_request_id(scope: Scope) -> str:
    return str(scope.get(REQUEST_ID_KEY, ""))


def note_principal(scope: Scope, principal: Principal) -> None:
    """Leave the principal's name for the request log."""
    scope[PRINCIPAL_KEY] = principal.name


def note_caller(scope: Scope, principal: Principal, operation: str) -> Caller:
    """Leave the caller of this request for the endpoint, the request log and the audit log.

    Raises:
        InvalidRequestError: The path has a namespace that can't be decoded.

    """
    scope[PRINCIPAL_KEY] = principal.name
    client = {**read_client(scope), SESSION: find_session(scope, principal).on(find_port(scope))}
    names = find_path_names(scope)
    resource = "" if names is None else names.resource
    views = _find_view_chain(scope)
    caller = Caller(principal, find_address(scope), find_request_id(scope), operation, resource, client, views)
    scope[CALLER_KEY] = caller
    return caller


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


def read_client(scope: Scope) -> Mapping[str, str]:
    """Read what a client sends about itself, by the names in `_CLIENT_HEADERS`."""
    said = {}
    for name, value in scope["headers"]:
        kept = _CLIENT_HEADERS.get(name)
        if kept is not None and (text := _clean_text(value[: 4 * MAX_CLIENT_CHARS])):
            said[kept] = text
    return said


@lru_cache(_LRU_ENTRIES)
def _clean_text(value: bytes) -> str:
    """Remove control characters, and cut at MAX_CLIENT_CHARS."""
    letters = value.decode(errors="replace")
    return "".join(letter for letter in letters if letter.isprintable())[:MAX_CLIENT_CHARS].strip()


@lru_cache(_DELEGATION_LRU_ENTRIES)
def parse_access_request(values: tuple[str, ...]) -> AccessRequest:
    """Parse the header; unknown ways of access are ignored."""
    wish = NO_ACCESS_REQUEST
    for value in values:
        for name in value.split(","):
            wish |= _DELEGATION_NAMES.get(name.strip().lower(), NO_ACCESS_REQUEST)
    return wish
