"""The socket that a server listens on, bound before anything is printed so that its port is known."""

import errno
import socket

from duckicelake.errors import StartupError

_BACKLOG = 2048
_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 picks a free one. Raises StartupError saying what to do."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise StartupError(_explain(error, host, port)) from error
    # Connections inherit it. asyncio sets it on sockets of its own only, and without it every answer waits 40 ms for
    # the client's delayed acknowledgement of the headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


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
