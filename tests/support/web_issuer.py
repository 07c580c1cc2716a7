"""Serve an OpenID Connect provider for browsers: real keys, codes bound by PKCE, rotation of refresh tokens."""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

from tests.server.auth.test_oidc import AUDIENCE, Issuer
from tests.support.logins import NOW, Clock

CLIENT_ID = "console"
USER_SCOPE = "people"
"""The scope in the tokens of whoever logs in."""


@dataclass
class WebIssuer(Issuer):
    """A provider with a page to log in.

    Attributes:
        redirect_uris: where the client's codes may be sent.
        lives: seconds that a token is valid. gives_refresh: whether its tokens can be renewed.
        refusal: the error that the login page sends back in the place of a code.
        client_secret: of the client; None: it is public. takes_basic: it must be in the header.
        changed: claims of the tokens that differ. extra: parameters of the redirect back that differ.

    """

    clock: Clock = field(default_factory=Clock)
    redirect_uris: set[str] = field(default_factory=set)
    lives: int = 3600
    gives_refresh: bool = False
    refusal: str | None = None
    client_secret: str | None = None
    takes_basic: bool = False
    changed: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refresh_tokens: set[str] = field(default_factory=set)
    forms: list[dict[str, str]] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, Any]:
        status, body = super().answer(path)
        if path == "/.well-known/openid-configuration" and status == 200:
            names = {"authorization": "authorize", "token": "token", "end_session": "end"}
            body |= {f"{name}_endpoint": f"{self.uri}/{path}" for name, path in names.items()}
            body["authorization_response_iss_parameter_supported"] = True
            body["token_endpoint_auth_methods_supported"] = [f"client_secret_{'basic' if self.takes_basic else 'post'}"]
        return status, body

    def log_in(self, asked: dict[str, str]) -> str:
        """Return where the browser is sent from the login page."""
        assert asked["redirect_uri"] in self.redirect_uris, asked
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT_ID)
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        outcome = {"error": self.refusal} if self.refusal else {"code": code}
        back = {"state": asked["state"], "iss": self.uri, **outcome, **self.extra}
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def answer_form(self, form: dict[str, str], authorization: str | None = None) -> tuple[int, Any]:
        self.forms.append(form)
        if self.client_secret is not None:
            basic = base64.b64encode(f"{CLIENT_ID}:{quote(self.client_secret, safe='')}".encode()).decode()
            in_header, in_form = authorization == f"Basic {basic}", form.get("client_secret") == self.client_secret
            if (in_header, in_form) != (self.takes_basic, not self.takes_basic):
                return 401, {"error": "invalid_client", "error_description": "The client's secret is another"}
        nonce = None
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.refresh_tokens:
                return 400, {"error": "invalid_grant", "error_description": "The refresh token was used before"}
            self.refresh_tokens.remove(form["refresh_token"])
        else:
            asked = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if asked is None or asked["code_challenge"] != challenge or asked["redirect_uri"] != form["redirect_uri"]:
                return 400, {"error": "invalid_grant", "error_description": "The code is not of this login"}
            nonce = asked["nonce"]
        return 200, self._give(nonce)

    def _give(self, nonce: str | None) -> dict[str, Any]:
        times = {"iat": self.clock(), "exp": self.clock() + self.lives}
        claims: dict[str, Any] = {**times, "scope": USER_SCOPE, "jti": secrets.token_hex(8)}
        given: dict[str, Any] = {
            "access_token": self.token(**(claims | self.changed)),
            "id_token": self.token(**({**times, "aud": CLIENT_ID, "nonce": nonce} | self.changed)),
            "expires_in": self.lives,
        }
        if self.gives_refresh:
            given["refresh_token"] = secrets.token_urlsafe(16)
            self.refresh_tokens.add(given["refresh_token"])
        return given


@contextmanager
def issue_to_browsers(clock: Clock) -> Iterator[WebIssuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            asked = dict(parse_qsl(url.query))
            if url.path == "/authorize":
                self._redirect(issuer.log_in(asked))
            elif url.path == "/end":
                issuer.asked.append(self.path)
                self._redirect(asked["post_logout_redirect_uri"])
            else:
                self._send(*issuer.answer(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {key: values[0] for key, values in parse_qs(body).items()}
            self._send(*issuer.answer_form(form, self.headers["Authorization"]))

        def _redirect(self, url: str) -> None:
            self.send_response(302)
            self.send_header("Location", url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def _send(self, status: int, body: Any) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = WebIssuer(f"http://127.0.0.1:{server.server_port}", clock=clock)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield issuer
        server.shutdown()
        thread.join()


__all__ = ["AUDIENCE", "CLIENT_ID", "NOW", "USER_SCOPE", "WebIssuer", "issue_to_browsers"]
