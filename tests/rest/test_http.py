"""Servers that don't answer, and what is said of it."""

import urllib.request

import pytest

from duckicelake.errors import CatalogUnreachableError
from duckicelake.rest.http import send_request


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_proxy_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setattr(urllib.request, "_opener", None)  # it knows the proxies that there were when it was made
    monkeypatch.setenv(f"{scheme}_proxy", "http://me:secret@127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(
        CatalogUnreachableError, match=rf"^{scheme}://lake\.test:8181 doesn't answer by the proxy 127\.0\.0\.1:1 \("
    ):
        send_request("GET", f"{scheme}://lake.test:8181/v1/config")


def test_server_that_does_not_answer_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "_opener", None)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(CatalogUnreachableError, match=r"^http://127\.0\.0\.1:1 doesn't answer \("):
        send_request("GET", "http://127.0.0.1:1/v1/config")
