import http.server
import socket
import threading
import urllib.request

import pytest

from duckicelake.cli.serve.address import bind, build_uri, find_uri, listen
from duckicelake.errors import StartupError


def test_port_zero_finds_a_free_port_and_the_uri_names_it() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert find_uri(listener) == f"http://127.0.0.1:{port}"


def test_listener_takes_connections_at_its_uri() -> None:
    with bind("localhost", 0) as listener:
        listen(listener)
        server = http.server.HTTPServer(listener.getsockname()[:2], http.server.SimpleHTTPRequestHandler, False)
        server.socket.close()
        server.socket = listener
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with urllib.request.urlopen(find_uri(listener)) as answer:
            assert answer.status == 200
        thread.join()


def test_accepted_connections_send_without_delay() -> None:
    with bind("127.0.0.1", 0) as listener:
        listen(listener)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_busy_port_says_which_and_how_to_choose_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(StartupError, match=f"port {port} of 127.0.0.1 is in use.*--port"):
            bind("127.0.0.1", port)


def test_no_one_connects_before_it_listens_and_who_listens_first_has_the_port() -> None:
    with bind("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        with bind(*address) as other:
            listen(other)
            with pytest.raises(StartupError, match=f"port {address[1]} of 127.0.0.1 is in use"):
                listen(listener)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_address_of_another_machine_says_so(host: str) -> None:
    with pytest.raises(StartupError, match=f"can't listen on {host}.*--host"):
        bind(host, 0)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", "http://127.0.0.1:8181"),
        ("0.0.0.0", "http://127.0.0.1:8181"),
        ("::", "http://[::1]:8181"),
        ("lake.example", "http://lake.example:8181"),
    ],
)
def test_uri_is_one_that_clients_on_this_machine_can_use(host: str, expected: str) -> None:
    assert build_uri(host, 8181) == expected
