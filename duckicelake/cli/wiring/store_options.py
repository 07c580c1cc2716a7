"""Settings of each kind of store, from the server's settings."""

from dataclasses import replace
from pathlib import Path

from duckicelake.catalog.context.services import read_clock_ms
from duckicelake.errors import InvalidSettingsError
from duckicelake.settings.model import Settings
from duckicelake.storage.azure import AzureOptions, EntraApplication
from duckicelake.storage.connections import ConnectionLimits
from duckicelake.storage.gcs import GcsOptions, ServiceAccountKey
from duckicelake.storage.registry import StoreOptions
from duckicelake.storage.s3 import S3Options
from duckicelake.storage.s3_buckets import ServerSideEncryption


def build_store_options(settings: Settings, proxy: str | None = None) -> StoreOptions:
    """Build the settings of all stores. Raises InvalidSettingsError. proxy: URL of the one for all requests."""
    options = StoreOptions(build_s3_options(settings), _build_gcs(settings), _build_azure(settings), read_clock_ms)
    if proxy is None:
        return options
    return replace(
        options,
        s3=replace(options.s3, proxy=proxy),
        gcs=replace(options.gcs, proxy=proxy),
        azure=replace(options.azure, proxy=proxy),
    )


def build_s3_options(settings: Settings) -> S3Options:
    secret, token = settings.s3_secret_access_key, settings.s3_session_token
    return S3Options(
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        path_style=settings.s3_path_style,
        access_key_id=settings.s3_access_key_id,
        secret_access_key=secret.get_secret_value() if secret else None,
        session_token=token.get_secret_value() if token else None,
        profile=settings.s3_profile,
        connect_timeout=settings.s3_connect_timeout,
        read_timeout=settings.s3_read_timeout,
        max_attempts=settings.s3_max_attempts,
        max_connections=settings.s3_max_connections,
        encryption=build_encryption(settings),
        is_payer=settings.s3_requester_pays,
    )


def build_encryption(settings: Settings) -> ServerSideEncryption | None:
    """Build how S3 encrypts what is written; None: as the bucket says."""
    kind = settings.s3_sse
    return None if kind is None else ServerSideEncryption(kind, settings.s3_kms_key, settings.s3_bucket_key)


def _build_gcs(settings: Settings) -> GcsOptions:
    file = settings.gcs_key_file
    return GcsOptions(
        endpoint=settings.gcs_endpoint,
        sts_endpoint=settings.gcs_sts_endpoint,
        key=None if file is None else ServiceAccountKey.parse(_read_key(file)),
        limits=_build_limits(settings),
        max_attempts=settings.s3_max_attempts,
    )


def _build_azure(settings: Settings) -> AzureOptions:
    key, secret = settings.azure_account_key, settings.azure_client_secret
    application = None
    if settings.azure_tenant_id is not None and settings.azure_client_id is not None:
        proof = None if secret is None else secret.get_secret_value()
        application = EntraApplication(
            settings.azure_tenant_id, settings.azure_client_id, proof, settings.azure_token_file
        )
    return AzureOptions(
        endpoint=settings.azure_endpoint and settings.azure_endpoint.rstrip("/"),
        account_key=None if key is None else key.get_secret_value(),
        application=application,
        sts_endpoint=settings.azure_sts_endpoint,
        limits=_build_limits(settings),
        max_attempts=settings.s3_max_attempts,
    )


def _build_limits(settings: Settings) -> ConnectionLimits:
    return ConnectionLimits(settings.s3_connect_timeout, settings.s3_read_timeout, settings.s3_max_connections)


def _read_key(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError) as error:
        raise InvalidSettingsError(f"DUCKICELAKE_GCS_KEY_FILE {path} can't be read: {error}") from error
