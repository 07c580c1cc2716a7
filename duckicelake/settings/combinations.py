"""Check settings that belong together; `forms` checks each by itself."""

from typing import TYPE_CHECKING

from duckicelake.settings.forms import POSTGRES_SCHEMES, PREFIX, WEB_URL_PATTERN, check_network

if TYPE_CHECKING:
    from duckicelake.settings.model import Settings


def check_combinations(settings: "Settings") -> None:
    """Raise ValueError for the first settings that contradict each other, or lack others."""
    for check in _CHECKS:
        check(settings)


def _check_database(settings: "Settings") -> None:
    if settings.database_url is None:
        return
    if settings.warehouse is None:
        message = (
            "database_url is set but warehouse is not: the files of that lake need a folder. "
            f"Set {PREFIX}WAREHOUSE, for example to file:///data/warehouse, or unset database_url "
            "to use the embedded Postgres"
        )
        raise ValueError(message)
    scheme, separator, _ = settings.database_url.partition("://")
    if separator and scheme not in POSTGRES_SCHEMES:
        message = f"database_url must be a Postgres URL, postgresql://user@host:5432/name, not {scheme}://…"
        raise ValueError(message)


def _check_logins(settings: "Settings") -> None:
    if settings.require_auth and not settings.has_logins:
        message = (
            "require_auth is set, but no client can log in: "
            f"set {PREFIX}OAUTH_CLIENTS, or {PREFIX}OIDC_ISSUER and {PREFIX}OIDC_AUDIENCE, "
            f"or {PREFIX}BOOTSTRAP_ADMIN"
        )
        raise ValueError(message)
    if (settings.oidc_issuer is None) != (settings.oidc_audience is None):
        message = "oidc_issuer and oidc_audience belong together: set both or neither"
        raise ValueError(message)
    if settings.oidc_issuer and settings.oidc_jwks_url is None and not WEB_URL_PATTERN.fullmatch(settings.oidc_issuer):
        message = (
            f"oidc_issuer {settings.oidc_issuer!r} is no URL, so its keys can't be discovered: set oidc_jwks_url, too"
        )
        raise ValueError(message)
    if settings.oidc_issuer is None and (settings.oidc_jwks_url is not None or settings.oidc_scopes is not None):
        message = "oidc_jwks_url and oidc_scopes need an oidc_issuer, which isn't set"
        raise ValueError(message)


def _check_s3_keys(settings: "Settings") -> None:
    if (settings.s3_access_key_id is None) != (settings.s3_secret_access_key is None):
        message = "s3_access_key_id and s3_secret_access_key belong together: set both or neither"
        raise ValueError(message)
    if settings.s3_session_token is not None and settings.s3_access_key_id is None:
        message = "s3_session_token is set without s3_access_key_id, whose token it is"
        raise ValueError(message)
    if settings.s3_profile is not None and settings.s3_access_key_id is not None:
        message = "s3_profile and s3_access_key_id both name a key: set one of them"
        raise ValueError(message)


def _check_encryption(settings: "Settings") -> None:
    if settings.s3_sse == "s3" and settings.s3_kms_key is not None:
        message = "s3_sse is s3, whose keys are the store's own: unset s3_kms_key, or set s3_sse to kms"
        raise ValueError(message)
    if settings.s3_bucket_key is not None and settings.s3_sse != "kms":
        message = "s3_bucket_key is for s3_sse=kms: set that, or unset s3_bucket_key"
        raise ValueError(message)


def _check_azure_keys(settings: "Settings") -> None:
    application = (settings.azure_tenant_id, settings.azure_client_id)
    proofs = [proof for proof in (settings.azure_client_secret, settings.azure_token_file) if proof is not None]
    if None in application and (application != (None, None) or proofs):
        message = "azure_tenant_id and azure_client_id belong together, and name whose azure_client_secret it is"
        raise ValueError(message)
    if None not in application and len(proofs) != 1:
        message = "azure_client_id needs either azure_client_secret or azure_token_file"
        raise ValueError(message)
    if None not in application and settings.azure_account_key is not None:
        message = "azure_account_key and azure_client_id both give the server rights: set one of them"
        raise ValueError(message)


def _check_tls(settings: "Settings") -> None:
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        message = "tls_certificate and tls_key belong together: set both or neither"
        raise ValueError(message)
    for proxy in settings.trusted_proxies:
        check_network(proxy)
    if settings.require_https and not (settings.trusted_proxies or settings.tls_certificate):
        message = "require_https refuses every request: set trusted_proxies to where TLS ends, or tls_certificate"
        raise ValueError(message)


def _check_vending(settings: "Settings") -> None:
    static = (settings.s3_static_access_key_id, settings.s3_static_secret_access_key)
    if settings.s3_vending == "static" and None in static:
        message = "s3_vending is static: set s3_static_access_key_id and s3_static_secret_access_key for clients"
        raise ValueError(message)
    if settings.s3_vending != "static" and static != (None, None):
        message = "s3_static_access_key_id is for s3_vending=static: set that, if every client may have this key"
        raise ValueError(message)
    if settings.s3_vending == "static" and settings.s3_static_access_key_id == settings.s3_access_key_id:
        message = "s3_static_access_key_id is the server's own key: make another one for clients, with fewer rights"
        raise ValueError(message)
    if settings.s3_vending == "sts" and not (settings.s3_role_arn or settings.s3_endpoint or settings.s3_sts_endpoint):
        message = "s3_vending is sts, and Amazon's STS needs a role: set s3_role_arn"
        raise ValueError(message)


_CHECKS = (
    *(_check_database, _check_logins, _check_s3_keys, _check_encryption),
    *(_check_azure_keys, _check_tls, _check_vending),
)
