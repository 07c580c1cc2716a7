"""The socket that a server listens on, bound before anything is printed so that its port is known."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from duckicelake.errors import StartupError

_BACKLOG = 2048
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket at that address, where nobody is heard before `listen`; port 0 picks a free one.

    Raises StartupError saying what to do.
    """
    with _explained(host, port):
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        bound = socket.socket(family)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind((host, port))
        except OSError:
            bound.close()
            raise
    # Connections inherit it. asyncio sets it on sockets of its own only, and without it every answer waits 40 ms for
    # the client's delayed acknowledgement of the headers.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bound


def listen(bound: socket.socket) -> None:
    """Let clients connect; raises as `bind` does if somebody else at the address was sooner."""
    with _explained(*bound.getsockname()[:2]):
        bound.listen(_BACKLOG)


@contextmanager
def _explained(host: str, port: int) -> Iterator[None]:
    """Have StartupError raised that says what to do."""
    try:
        yield
    except OSError as error:
        raise StartupError(_explain(error, host, port)) from error


def uri_of(listener: socket.socket, *, is_tls: bool = False) -> str:
    """The URI that clients on this machine use."""
    host, port = listener.getsockname()[:2]
    return uri(host, port, is_tls=is_tls)


def uri(host: str, port: int, *, is_tls: bool = False) -> str:
    """The URI of a server on this machine; the wildcard address becomes loopback."""
    reachable = _ANY.get(host, host)
    authority = f"[{reachable}]" if ":" in reachable else reachable
    return f"{'https' if is_tls else 'http'}://{authority}:{port}"


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another with --port, or let --port 0 find a free one"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges that this user lacks; choose one above 1023 with --port"
    return f"can't listen on {host}:{port}: {error.strerror or error}; choose an address of this machine with --host"
