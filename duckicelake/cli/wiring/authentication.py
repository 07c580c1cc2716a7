"""Authentication of callers, from the settings."""

import os
import time
from datetime import timedelta
from pathlib import Path

from pydantic import SecretStr

from duckicelake.catalog.authz.directory import PrincipalDirectory
from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.own_secrets import SecretLifetimes
from duckicelake.catalog.principals import has_registered_logins, make_first_admin
from duckicelake.errors import CommitStateUnknownError, InvalidSettingsError
from duckicelake.postgres.database import Database
from duckicelake.rest.outbound import OutboundGuard
from duckicelake.server.auth.authentication import Authentication
from duckicelake.server.auth.oauth_clients import OAuthClients, check_secrets, parse_clients
from duckicelake.server.auth.oidc import OidcProvider, OidcVerifier, parse_scope_mapping, parse_web_clients
from duckicelake.server.auth.tokens import Tokens, make_random_keys, parse_keys
from duckicelake.server.middleware.cross_site import ANY_HOST, is_loopback
from duckicelake.settings.model import Settings

OPEN_SERVER_WARNING = (
    "everyone who reaches this address may read, change and drop everything: set DUCKICELAKE_OAUTH_CLIENTS or "
    "DUCKICELAKE_OIDC_ISSUER, or listen on 127.0.0.1 only"
)
"""The warning for a server without logins that other machines can reach."""
ANY_HOST_WARNING = (
    "DUCKICELAKE_ALLOWED_HOSTS is *: a web page can reach this server by a name of its own, and then read, change and "
    "drop everything; name the hosts instead"
)


def is_open_to_all(settings: Settings) -> bool:
    """Return whether other machines can reach a server without logins."""
    return not settings.has_logins and not is_loopback(settings.host)


def check_openness(settings: Settings) -> None:
    """Raise InvalidSettingsError if every web page could change the lake through its readers' browsers."""
    if "*" in settings.cors_origins and not settings.has_logins:
        raise InvalidSettingsError(
            "DUCKICELAKE_CORS_ORIGINS is *, and clients need no login: any web page could change everything. "
            "Name the origins, or set DUCKICELAKE_OAUTH_CLIENTS or DUCKICELAKE_OIDC_ISSUER"
        )


def list_warnings(settings: Settings) -> tuple[str, ...]:
    """List the warnings of each start about access without logins."""
    if settings.has_logins:
        return ()
    any_host = ANY_HOST in settings.allowed_hosts
    return (OPEN_SERVER_WARNING,) * is_open_to_all(settings) + (ANY_HOST_WARNING,) * any_host


def add_keys(settings: Settings) -> Settings:
    """Add random keys for tokens if none are configured, for one server and all its workers."""
    if not settings.has_logins or settings.oauth_keys is not None:
        return settings
    return settings.model_copy(update={"oauth_keys": SecretStr(make_random_keys())})


def settle_logins(settings: Settings, services: Services) -> Settings:
    """Make the first admin if the settings ask for one; add to the settings whether clients must log in.

    They must where the database has secrets or issuers: a server is never open by a setting that was forgotten.
    Raises InvalidSettingsError if the settings don't fit that.
    """
    if settings.bootstrap_admin is not None and settings.oauth_clients is None and settings.oidc_issuer is None:
        bootstrap(services.database, settings.bootstrap_admin)
    if not settings.has_logins and has_registered_logins(services.database):
        settings = settings.model_copy(update={"database_logins": True})
    settings = add_keys(settings)
    check_openness(settings)
    return settings


def build_authentication(settings: Settings, database: Database | None = None) -> Authentication | None:
    """Build the authentication, None without logins. Raises InvalidSettingsError, which shows no secret.

    database: of the first warehouse, which has the registered principals.
    """
    if not settings.has_logins:
        return None
    assert settings.oauth_keys is not None, "add_keys comes first"
    clients = () if settings.oauth_clients is None else parse_clients(settings.oauth_clients.get_secret_value())
    check_secrets(clients)
    return Authentication(
        clients=OAuthClients(clients),
        tokens=Tokens(parse_keys(settings.oauth_keys.get_secret_value()), time.time),
        clock=time.time,
        token_seconds=settings.oauth_token_seconds,
        provider=_build_verifier(settings),
        directory=None if database is None else PrincipalDirectory(database),
        guard=OutboundGuard.parse(settings.allowed_addresses),
        web_clients=parse_web_clients(settings.oidc_web_clients or ""),
        secret_keys=None if settings.secret_keys is None else SecretKeys.parse(settings.secret_keys.get_secret_value()),
        own_tokens=SecretLifetimes(
            timedelta(seconds=settings.own_token_seconds), timedelta(seconds=settings.own_token_max_seconds)
        ),
    )


def is_settings_client(settings: Settings, name: str) -> bool:
    """Return whether a client of the settings has a name."""
    text = settings.oauth_clients
    return text is not None and any(client.client_id == name for client in parse_clients(text.get_secret_value()))


def bootstrap(database: Database, path: Path) -> bool:
    """Make the first admin, with its credential in a new file; return whether. See `make_first_admin`."""
    written: list[Path] = []

    def write(credential: str) -> None:
        write_secret_file(path, credential)
        written.append(path)

    try:
        return make_first_admin(database, write)
    except CommitStateUnknownError:
        raise  # the secret may be valid
    except BaseException:
        for file in written:
            file.unlink(missing_ok=True)
        raise


def write_secret_file(path: Path, text: str) -> None:
    """Write a secret into a new file that its owner alone may read. Raises InvalidSettingsError if it can't be made."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        problem = f"the file {path} for the secret of the first admin can't be made: {error.strerror}"
        raise InvalidSettingsError(f"{problem}; name a new file, in a folder that is there") from error
    with os.fdopen(file, "w") as opened:
        opened.write(f"{text}\n")
        opened.flush()
        os.fsync(opened.fileno())


def _build_verifier(settings: Settings) -> OidcVerifier | None:
    if settings.oidc_issuer is None or settings.oidc_audience is None:
        return None
    provider = OidcProvider(
        issuer=settings.oidc_issuer,
        audience=settings.oidc_audience,
        clock=time.time,
        jwks_url=settings.oidc_jwks_url,
        scope_claim=settings.oidc_scope_claim,
        name_claim=settings.oidc_name_claim,
        scopes=parse_scope_mapping(settings.oidc_scopes or ""),
        leeway=settings.oidc_leeway,
        group_claim=settings.oidc_group_claim,
    )
    return OidcVerifier(provider)
