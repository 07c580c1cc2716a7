"""Bound what a query's process reaches: the lake's folders, and of those in buckets only the ones of its tables.

DuckDB opens files in the allowed directories alone. For S3, the process gets temporary keys of STS, which read the
folders of the tables that a query names, and are gone after it; for Google Cloud Storage, a token that is as narrow.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from duckicelake.catalog.authz.table_folders import find_reach, find_table_folders
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.caller import SERVER_CALLER
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.delegation import MAX_GRANTED_SECONDS
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import UnsupportedError
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.lake.ducklake.database import quote_literal
from duckicelake.storage.gcs import GcsStore
from duckicelake.storage.gcs_vendor import GcsVendor
from duckicelake.storage.policy import StoreFolder, canonicalize, parse_folder
from duckicelake.storage.registry import find_bucket_store
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.sts_vendor import S3Keys, StsVendor
from duckicelake.storage.vendor import FolderKeys, StoreKeys

SCHEMES: Final = ("s3", "s3a", "s3n")
"""Spellings of S3's locations, which DuckDB compares as texts."""
_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {"s3": SCHEMES, "gs": ("gs", "gcs")}
_QUERIED_SCHEMES: Final = frozenset({"file", *_SPELLINGS})


def list_directories(services: Services) -> tuple[str, ...]:
    """List the folders of the lake as DuckDB compares them, each with a slash at its end.

    Raises UnsupportedError for a lake in other buckets than those of S3 and of Google.
    """
    folders = [canonicalize(location) for location in services.policy.places]
    elsewhere = next((folder for folder in folders if folder.partition("://")[0] not in _QUERIED_SCHEMES), None)
    if elsewhere is not None:
        raise UnsupportedError(
            "queries",
            f"Queries read folders, S3 and Google Cloud Storage, and files of this lake are in {elsewhere}",
        )
    return tuple(f"{spelling}/" for folder in folders for spelling in _spell(folder))


def build_bucket_settings(services: Services) -> dict[str, Any]:
    """Build DuckDB's settings for buckets: names of files are literal, and may not lead to another server.

    DuckDB would take `?s3_endpoint=…` at the end of a file's name, and send the keys there. For files in S3 that no key
    is for, it would ask Amazon.
    """
    locations = services.policy.places
    settings: dict[str, Any] = {"s3_url_compatibility_mode": True}
    google = find_bucket_store(services.store, locations, GcsStore)
    if google is not None:
        settings |= _build_connection_settings(google.options.proxy, google.options.certificates)
    amazon = find_bucket_store(services.store, locations, S3Store)
    if amazon is not None:
        places = map(parse_folder, locations)
        bucket = next(place.bucket for place in places if place is not None and place.scheme == "s3")
        address = _split_address(amazon.find_address(bucket)[0], bucket)
        settings |= {f"s3_{name.lower()}": text for name, text in address.items()}
        settings |= _build_connection_settings(amazon.options.proxy, amazon.options.certificates())
    return settings


def _build_connection_settings(proxy_url: str | None, certificates: str | None) -> Mapping[str, str]:
    proxy = None if proxy_url is None else urlsplit(proxy_url)
    passing = {} if proxy is None else {"": f"{proxy.hostname}:{proxy.port}", "_username": proxy.username}
    return {
        **{f"http_proxy{name}": str(text) for name, text in passing.items() if text is not None},
        **({} if proxy is None or proxy.password is None else {"http_proxy_password": proxy.password}),
        **({} if certificates is None or not Path(certificates).is_file() else {"ca_cert_file": certificates}),
    }


def is_in_buckets(services: Services) -> bool:
    """Return whether the lake may have files in S3 or in Google Cloud Storage."""
    return any(canonicalize(location).partition("://")[0] in _SPELLINGS for location in services.policy.places)


def find_vendor(services: Services) -> StsVendor | GcsVendor:
    """Find who makes keys for some folders. Raises UnsupportedError if there are only keys for all of them."""
    access = services.access
    for vendor in (access.vendor, None if access.signer is None else access.signer.vendor):
        if isinstance(vendor, (StsVendor, GcsVendor)):
            return vendor
    raise UnsupportedError(
        "queries",
        "Queries read S3 with keys of STS for their own tables, and this server has none: set "
        "DUCKICELAKE_S3_STS_ENDPOINT or DUCKICELAKE_S3_ROLE_ARN, and DUCKICELAKE_S3_VENDING to sts or remote-signing",
    )


def build_secrets(services: Services, tables: Iterable[tuple[Namespace, str]]) -> Mapping[str, str]:
    """Make keys that read the folders of tables and nothing else; return DuckDB's secrets by name.

    Raises UnsupportedError if the policy of no key can name all folders, UnavailableError if STS doesn't answer.
    """
    folders = sorted({folder.location for table in tables for folder in _find_folders(services, *table)})
    if not folders:
        return {}
    vendor = find_vendor(services)
    # Shorter tokens of Google's need a role of their own, and the process forgets these after the query.
    seconds = MAX_GRANTED_SECONDS if isinstance(vendor, StsVendor) else None
    vending = vendor.vend(services.caller.principal.name, [*map(StoreFolder, folders)], seconds)
    if vending.uncovered:
        raise UnsupportedError(
            "queries", f"The tables lie in {len(folders)} folders, more than keys of STS can name: ask for fewer tables"
        )
    secrets = (secret for keys in vending.vended for secret in _build_secrets_of(services, keys))
    return {f"query_{number}": secret for number, secret in enumerate(secrets)}


def load_queried_table(services: Services, namespace: Namespace, name: str) -> TableVersion:
    """Load a table for a query that shows no more of it than the caller may see. Raises NoSuchTableError."""
    return load_current_table(replace(services, caller=SERVER_CALLER), namespace, name)


def _spell(folder: str) -> Sequence[str]:
    """Return a canonical folder in the spellings of its files: a path, or each of S3's schemes."""
    scheme, _, path = folder.partition("://")
    return [path] if scheme == "file" else [f"{spelling}://{path}" for spelling in _SPELLINGS[scheme]]


def _find_folders(services: Services, namespace: Namespace, name: str) -> Sequence[StoreFolder]:
    table = load_queried_table(services, namespace, name)
    folders = find_table_folders(services, table)
    return find_reach(services, (namespace, name), folders, table.row.table_id).folders


def _build_secrets_of(services: Services, keys: FolderKeys) -> Iterator[str]:
    """Build a secret for each bucket: buckets may have addresses and regions of their own."""
    for bucket in sorted({folder.bucket for folder in keys.folders}):
        scopes = [
            f"{scheme}://{bucket}/{folder.key}"
            for folder in keys.folders
            if folder.bucket == bucket
            for scheme in _SPELLINGS[folder.scheme]
        ]
        texts = {**_build_options(services, keys.keys, bucket)}
        kind = texts.pop("TYPE")
        members = [f"{name} {quote_literal(text)}" for name, text in texts.items()]
        scope = ", ".join(map(quote_literal, scopes))
        yield f"(TYPE {kind}, PROVIDER config, {', '.join(members)}, SCOPE [{scope}])"


def _build_options(services: Services, keys: StoreKeys, bucket: str) -> Mapping[str, str]:
    """Return the options of DuckDB's CREATE SECRET, TYPE among them, for a bucket as the server reaches it."""
    if not isinstance(keys, S3Keys):
        google = find_bucket_store(services.store, services.policy.places, GcsStore)
        assert google is not None
        return keys.list_secret_options({"gcs.service.host": google.options.endpoint or ""})
    amazon = find_bucket_store(services.store, services.policy.places, S3Store)
    assert amazon is not None
    address, region = amazon.find_address(bucket)
    return {
        "TYPE": "s3",
        "KEY_ID": keys.access_key_id,
        "SECRET": keys.secret_access_key,
        "SESSION_TOKEN": keys.session_token or "",
        "REGION": region,
        "REQUESTER_PAYS": str(amazon.options.is_payer).lower(),
        **_split_address(address, bucket),
    }


def _split_address(address: str, bucket: str) -> Mapping[str, str]:
    """Split the URL of a bucket as DuckDB takes it: endpoint, style, and whether it is HTTPS."""
    parts = urlsplit(address)
    is_path = parts.path.rstrip("/").endswith(f"/{bucket}")
    endpoint = f"{parts.netloc}{parts.path.rstrip('/').removesuffix(f'/{bucket}')}"
    return {
        "ENDPOINT": endpoint if is_path else endpoint.removeprefix(f"{bucket}."),
        "URL_STYLE": "path" if is_path else "vhost",
        "USE_SSL": str(parts.scheme == "https").lower(),
    }
