"""What warehouses have in place of the settings: stores by their storage profiles, and other databases."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pydantic import SecretStr

from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.storage_profiles import (
    ProfileKeys,
    ProfileRules,
    StorageProfile,
    StorageProfileSpec,
    reveal_keys,
)
from duckicelake.catalog.warehouse_databases import WarehouseDatabases
from duckicelake.catalog.warehouses import ProfileStorage
from duckicelake.cli.wiring.storage_access import build_storage_access, check_signing
from duckicelake.cli.wiring.store_options import build_store_options
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.format import build_session_settings
from duckicelake.postgres.database import Database
from duckicelake.postgres.pipeline import TraceBlock
from duckicelake.postgres.shared_pools import SharedPools
from duckicelake.rest.outbound import OutboundGuard, parse_outbound
from duckicelake.rest.outbound_proxy import find_proxy
from duckicelake.settings.model import Settings
from duckicelake.storage.gcs import GOOGLE_TOKEN_URL, ServiceAccountKey
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.registry import find_bucket_store, open_store
from duckicelake.storage.s3 import S3Store

OTHER_POOL_CONNECTIONS: Final = 4
"""Most connections of a worker to another database, for requests of all warehouses there."""
OTHER_POOL_SECONDS: Final = 5.0
OTHER_POOL_WAITING: Final = 12
"""Most threads that wait for one of these: a database that doesn't answer leaves threads to other warehouses."""


def build_profile_rules(settings: Settings) -> ProfileRules:
    """Build what storage profiles may say. Raises InvalidSettingsError for keys that are none."""
    keys = settings.secret_keys
    return ProfileRules(
        None if keys is None else SecretKeys.parse(keys.get_secret_value()),
        settings.ambient_profiles,
        partial(OutboundGuard.parse(settings.allowed_addresses).check_url, what="endpoint"),
    )


def build_warehouse_databases(settings: Settings, traced: TraceBlock | None = None) -> WarehouseDatabases:
    """Build how databases of warehouses are reached. Raises InvalidSettingsError for keys that are none.

    traced: makes a context for each SQL statement.
    """
    guard, keys = OutboundGuard.parse(settings.allowed_addresses), settings.secret_keys

    def resolve(host: str, port: int) -> list[str]:
        return [str(address[0]) for _, address in guard.resolve(host, port)]

    def build(url: str, lose: Callable[[], None]) -> Database:
        connections = min(OTHER_POOL_CONNECTIONS, settings.pool_size or OTHER_POOL_CONNECTIONS)
        seconds = settings.statement_seconds, min(settings.pool_seconds, OTHER_POOL_SECONDS)
        waiting = OTHER_POOL_WAITING
        return open_lake_database(
            url, connections, *seconds, traced, lose, build_session_settings(), lost=lose, max_waiting=waiting
        )

    secret_keys = None if keys is None else SecretKeys.parse(keys.get_secret_value())
    return WarehouseDatabases(secret_keys, resolve, SharedPools(build))


def apply_profile(settings: Settings, rules: ProfileRules, profile: StorageProfile) -> Settings:
    """Return the settings with the store of a profile in place of their own. Raises UnavailableError."""
    scheme = canonicalize(profile.spec.root).partition("://")[0]
    return settings.model_copy(update=_LISTERS[scheme](profile.spec, reveal_keys(rules, profile)))


def _list_s3(spec: StorageProfileSpec, keys: ProfileKeys | None) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "s3_endpoint": spec.endpoint and spec.endpoint.rstrip("/"),
        "s3_public_endpoint": spec.public_endpoint and spec.public_endpoint.rstrip("/"),
        "s3_sts_endpoint": spec.sts_endpoint and spec.sts_endpoint.rstrip("/"),
        "s3_region": spec.region,
        "s3_path_style": spec.path_style,
        "s3_vending": spec.vending,
        "s3_role_arn": spec.role_arn,
        "s3_external_id": spec.external_id,
        "s3_sse": spec.sse,
        "s3_kms_key": spec.kms_key,
        "s3_bucket_key": spec.bucket_key,
        "s3_requester_pays": spec.requester_pays,
        "s3_static_access_key_id": None,
        "s3_static_secret_access_key": None,
    }
    if keys is not None:
        changes |= {
            "s3_access_key_id": keys.access_key_id,
            "s3_secret_access_key": SecretStr(keys.secret_access_key),
            "s3_session_token": None,
            "s3_profile": None,
        }
    return changes


def _list_gcs(spec: StorageProfileSpec, keys: ProfileKeys | None) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "gcs_endpoint": spec.endpoint and spec.endpoint.rstrip("/"),
        "gcs_public_endpoint": spec.public_endpoint and spec.public_endpoint.rstrip("/"),
        "gcs_sts_endpoint": spec.sts_endpoint and spec.sts_endpoint.rstrip("/"),
        "gcs_vending": spec.vending,
    }
    return changes if keys is None else {**changes, "gcs_key_file": None}


def _list_azure(spec: StorageProfileSpec, keys: ProfileKeys | None) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "azure_endpoint": spec.endpoint,
        "azure_public_endpoint": spec.public_endpoint,
        "azure_sts_endpoint": spec.sts_endpoint and spec.sts_endpoint.rstrip("/"),
        "azure_vending": spec.vending,
    }
    if keys is None:
        return changes
    tenant, slash, client = keys.access_key_id.partition("/")
    secret = SecretStr(keys.secret_access_key)
    return {
        **changes,
        "azure_account_key": None if slash else secret,
        "azure_tenant_id": tenant if slash else None,
        "azure_client_id": client if slash else None,
        "azure_client_secret": secret if slash else None,
        "azure_token_file": None,
    }


_LISTERS: Final[Mapping[str, Callable[[StorageProfileSpec, ProfileKeys | None], dict[str, Any]]]] = {
    "s3": _list_s3,
    "gs": _list_gcs,
    "abfss": _list_azure,
}
"""What lists the settings that a profile of a scheme replaces."""


def open_profile(settings: Settings, rules: ProfileRules, location: str, profile: StorageProfile) -> ProfileStorage:
    """Open the store of a warehouse by its profile. Raises InvalidSettingsError, UnavailableError."""
    own = apply_profile(settings, rules, profile)
    guard = OutboundGuard.parse(settings.allowed_addresses)
    is_trusted = all(_is_trusted(guard, url) for url in (profile.spec.endpoint, profile.spec.sts_endpoint))
    options = build_store_options(own, None if is_trusted else find_proxy(guard).url)
    options = replace(options, s3=replace(options.s3, has_own_endpoints=True))
    keys = reveal_keys(rules, profile)
    if keys is not None and canonicalize(profile.spec.root).startswith("gs://"):
        key = ServiceAccountKey.parse(keys.secret_access_key)
        options = replace(options, gcs=replace(options.gcs, key=replace(key, token_uri=GOOGLE_TOKEN_URL)))
    store = open_store(location, options=options)
    try:
        access = build_storage_access(own, (location,), options)
        check_signing(access, find_bucket_store(store, (location,), S3Store))
    except BaseException:
        store.close()
        raise
    return ProfileStorage(store, access)


def _is_trusted(guard: OutboundGuard, url: str | None) -> bool:
    """Return whether an endpoint is Amazon's, or of a host that the settings list by name."""
    return url is None or guard.lists_host(str(parse_outbound(url).host))
