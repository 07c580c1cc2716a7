"""Authentication of callers, from the settings."""

import time

from pydantic import SecretStr

from duckicelake.errors import InvalidSettingsError
from duckicelake.server.auth.authentication import Authentication
from duckicelake.server.auth.oauth_clients import OAuthClients, check_secrets, parse_clients
from duckicelake.server.auth.oidc import OidcProvider, OidcVerifier, parse_scope_mapping
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
    return not has_logins(settings) and not is_loopback(settings.host)


def has_logins(settings: Settings) -> bool:
    """Return whether clients must log in."""
    return settings.oauth_clients is not None or settings.oidc_issuer is not None


def check_openness(settings: Settings) -> None:
    """Raise InvalidSettingsError if every web page could change the lake through its readers' browsers."""
    if "*" in settings.cors_origins and not has_logins(settings):
        raise InvalidSettingsError(
            "DUCKICELAKE_CORS_ORIGINS is *, and clients need no login: any web page could change everything. "
            "Name the origins, or set DUCKICELAKE_OAUTH_CLIENTS or DUCKICELAKE_OIDC_ISSUER"
        )


def list_warnings(settings: Settings) -> tuple[str, ...]:
    """List the warnings of each start about access without logins."""
    if has_logins(settings):
        return ()
    any_host = ANY_HOST in settings.allowed_hosts
    return (OPEN_SERVER_WARNING,) * is_open_to_all(settings) + (ANY_HOST_WARNING,) * any_host


def add_keys(settings: Settings) -> Settings:
    """Add random keys for tokens if none are configured, for one server and all its workers."""
    if not has_logins(settings) or settings.oauth_keys is not None:
        return settings
    return settings.model_copy(update={"oauth_keys": SecretStr(make_random_keys())})


def build_authentication(settings: Settings) -> Authentication | None:
    """Build the authentication, None without logins. Raises InvalidSettingsError, which shows no secret."""
    if not has_logins(settings):
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
    )


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
    )
    return OidcVerifier(provider)
