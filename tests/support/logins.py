"""A server with authentication on, whose clock stands until a test moves it."""

import io
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

import httpx
from fastapi import FastAPI

from duckicelake.catalog.authz.directory import PrincipalDirectory
from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.postgres.database import Database
from duckicelake.server.app import create_app
from duckicelake.server.auth.authentication import Authentication
from duckicelake.server.auth.oauth_clients import OAuthClient, OAuthClients
from duckicelake.server.auth.oidc import OidcVerifier
from duckicelake.server.auth.throttle import LoginThrottle
from duckicelake.server.auth.tokens import TokenKey, Tokens
from duckicelake.server.telemetry.logs import make_logger
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import list_effective_settings
from duckicelake.storage.policy import LocationPolicy
from duckicelake.storage.registry import open_store

NOW = 1_800_000_000.0
KEYS = (TokenKey("new", "n" * 32), TokenKey("old", "o" * 32))
SECRET = "correct horse, battery: staple|100%"


@dataclass
class Clock:
    now: float = NOW

    def __call__(self) -> float:
        return self.now


@dataclass
class Server:
    """An app, and what a test looks at or moves."""

    clock: Clock = field(default_factory=Clock)
    log: io.StringIO = field(default_factory=io.StringIO)

    def authentication(
        self,
        *clients: OAuthClient,
        keys: tuple[TokenKey, ...] = KEYS,
        provider: OidcVerifier | None = None,
        database: Database | None = None,
    ) -> Authentication:
        """How callers log in. database: which has the registered principals; None: there are none."""
        directory = None if database is None else PrincipalDirectory(database)
        return Authentication(OAuthClients(clients), Tokens(keys, self.clock), self.clock, 3600, provider, directory)

    def app(
        self,
        services: Services,
        authentication: Authentication | None,
        *,
        metrics_public: bool = False,
        settings: Settings | None = None,
    ) -> FastAPI:
        app = create_app(
            services,
            log=make_logger(self.log, "json"),
            authentication=authentication,
            metrics_public=metrics_public,
            settings=() if settings is None else list_effective_settings(settings),
        )
        object.__setattr__(app.state.context, "throttle", LoginThrottle(self.clock))
        return app


@contextmanager
def no_lake() -> Iterator[Services]:
    """Services for routes that ask neither Postgres nor the store."""
    with closing(open_lake_database("postgresql://127.0.0.1:1/nothing", 1)) as database:
        yield Services(database, open_store("/nowhere"), LocationPolicy("/nowhere", ()), "client", lambda: 0)


def login(http: httpx.Client, client_id: str, secret: str = SECRET, **form: str) -> httpx.Response:
    fields = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret, "scope": "catalog"}
    return http.post("/v1/oauth/tokens", data=fields | form)


def token(http: httpx.Client, client_id: str, secret: str = SECRET, **form: str) -> str:
    answer = login(http, client_id, secret, **form)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["access_token"])


def bearing(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}
