"""Keys and signatures for clients' access to stores, from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from duckicelake.catalog.context.storage_access import NO_ACCESS, StorageAccess
from duckicelake.errors import InvalidSettingsError
from duckicelake.settings.model import Settings
from duckicelake.storage.azure_vendor import AzureVendor
from duckicelake.storage.gcs_vendor import GcsVendor
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.probe import obeys_unsigned_headers
from duckicelake.storage.registry import StoreOptions
from duckicelake.storage.s3 import S3Options, S3Store
from duckicelake.storage.signer import ServerKeys, Signer, read_server_keys
from duckicelake.storage.sts_vendor import REQUESTER_PAYS, S3Keys, StaticVendor, StsRole, StsVendor, open_sts_client
from duckicelake.storage.vendor import SchemeVendor, Vendor

if TYPE_CHECKING:
    from duckicelake.storage.sts_vendor import Session


def build_storage_access(settings: Settings, locations: tuple[str, ...], options: StoreOptions) -> StorageAccess:
    """Build the access of clients. locations: the warehouse and the allowed ones. Raises InvalidSettingsError."""
    schemes = {canonicalize(location).partition("://")[0] for location in locations}
    parts = [_BUILDERS[scheme](settings, options) for scheme in sorted(schemes & set(_BUILDERS))]
    if len(parts) < 2:
        return parts[0] if parts else NO_ACCESS
    client = {name: value for part in parts for name, value in part.client.items()}
    vendors = {
        scheme: part.vendor
        for scheme, part in zip(sorted(schemes & set(_BUILDERS)), parts, strict=True)
        if part.vendor is not None
    }
    signer = next((part.signer for part in parts if part.signer is not None), None)
    return StorageAccess(client, SchemeVendor(vendors) if vendors else None, signer)


def _build_s3_access(settings: Settings, options: StoreOptions) -> StorageAccess:
    session = options.s3.session()
    region = options.s3.region_of(session)
    endpoint = settings.s3_public_endpoint or settings.s3_endpoint
    client = {"client.region": region, "s3.region": region}
    if endpoint is not None:
        client["s3.endpoint"] = f"{endpoint}/"  # ClickHouse finds no metadata without the slash
    if settings.s3_path_style:
        client["s3.path-style-access"] = "true"
    if options.s3.encryption is not None:
        client |= options.s3.encryption.list_client_properties()
    if options.s3.is_payer:
        client[REQUESTER_PAYS] = "true"
    vendor, signing = build_vendors(settings, options.s3, session, options.clock)
    signer = None if signing is None else _build_signer(signing, region, settings, options.s3)
    return StorageAccess(client, vendor, signer)


def _build_signer(vendor: Vendor, region: str, settings: Settings, options: S3Options) -> Signer:
    endpoint = settings.s3_public_endpoint or settings.s3_endpoint
    return Signer(vendor, region, endpoint, settings.s3_path_style, options.encryption, options.is_payer)


def check_signing(access: StorageAccess, store: S3Store | None) -> None:
    """Raise InvalidSettingsError if signatures by the server's key would allow more than the signed request."""
    if store is None or access.signer is None or not isinstance(access.signer.vendor, ServerKeys):
        return
    if obeys_unsigned_headers(store, access.signer.vendor):
        raise InvalidSettingsError(
            "this S3 server obeys unsigned headers, so clients could copy other tables by signatures of the server's "
            "own key. If it has STS, set DUCKICELAKE_S3_STS_ENDPOINT, and signatures will use keys for one "
            "table; else set DUCKICELAKE_S3_VENDING to none"
        )


def build_vendors(
    settings: Settings, options: S3Options, session: Session, clock: Callable[[], int]
) -> tuple[Vendor | None, Vendor | None]:
    """Build the vendor of clients' keys, and the vendor of keys for signing requests; None: no such vendor."""
    has_sts = settings.s3_role_arn is not None or settings.s3_sts_endpoint is not None
    match settings.s3_vending or ("sts" if has_sts or settings.s3_endpoint is not None else "none"):
        case "sts":
            vendor = build_sts_vendor(settings, options, session, clock)
            return vendor, vendor
        case "static":
            static = _build_static_vendor(settings, session)
            return static, static
        case "remote-signing":
            return None, build_sts_vendor(settings, options, session, clock) if has_sts else read_server_keys(session)
        case _:
            return None, None


def build_sts_vendor(settings: Settings, options: S3Options, session: Session, clock: Callable[[], int]) -> StsVendor:
    client = open_sts_client(session, options, settings.s3_sts_endpoint or settings.s3_endpoint)
    role = StsRole(settings.s3_role_arn, settings.s3_external_id, settings.s3_vending_seconds, settings.s3_kms_key)
    return StsVendor(client, role, clock)


def _build_static_vendor(settings: Settings, session: Session) -> StaticVendor:
    key, secret = settings.s3_static_access_key_id, settings.s3_static_secret_access_key
    assert key is not None
    assert secret is not None
    own = session.get_credentials()
    if own is not None and own.get_frozen_credentials().access_key == key:
        raise InvalidSettingsError("s3_static_access_key_id is the server's own key: make another key for clients")
    return StaticVendor(S3Keys(key, secret.get_secret_value()))


def _build_gcs_access(settings: Settings, options: StoreOptions) -> StorageAccess:
    endpoint = settings.gcs_public_endpoint or settings.gcs_endpoint
    client = {} if endpoint is None else {"gcs.service.host": endpoint}
    has_sts = settings.gcs_endpoint is None or settings.gcs_sts_endpoint is not None
    if settings.gcs_vending == "none" or (settings.gcs_vending is None and not has_sts):
        return StorageAccess(client)
    return StorageAccess(client, GcsVendor(options.gcs, options.clock))


def _build_azure_access(settings: Settings, options: StoreOptions) -> StorageAccess:
    endpoint = settings.azure_public_endpoint or settings.azure_endpoint
    client: dict[str, str] = {}
    if endpoint is not None:
        parts = urlsplit(endpoint)  # PyIceberg puts the account behind the authority itself
        for service in ("blob", "dfs"):
            client[f"adls.{service}-storage-authority"] = parts.netloc
            client[f"adls.{service}-storage-scheme"] = parts.scheme
    if settings.azure_vending == "none":
        return StorageAccess(client)
    scope = settings.azure_vending or "directory"
    return StorageAccess(client, AzureVendor(options.azure, scope, options.clock, settings.azure_public_endpoint))


_BUILDERS: Final[Mapping[str, Callable[[Settings, StoreOptions], StorageAccess]]] = {
    "s3": _build_s3_access,
    "gs": _build_gcs_access,
    "abfss": _build_azure_access,
}
"""What builds the access of clients to the files of a scheme."""
