"""Bound what a query's process reaches: the lake's folders, and of those in S3 only the ones of the query's tables.

DuckDB opens files in the allowed directories alone. For S3, the process gets temporary keys of STS, which read the
folders of the tables that a query names, and are gone after it.
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
from duckicelake.storage.policy import StoreFolder, canonicalize, parse_folder
from duckicelake.storage.registry import find_bucket_store
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.sts_vendor import S3Keys, StsVendor
from duckicelake.storage.vendor import FolderKeys

SCHEMES: Final = ("s3", "s3a", "s3n")
"""Spellings of S3's locations, which DuckDB compares as texts."""
_QUERIED_SCHEMES: Final = frozenset({"file", "s3"})


def list_directories(services: Services) -> tuple[str, ...]:
    """List the folders of the lake as DuckDB compares them, each with a slash at its end.

    Raises UnsupportedError for a lake in other buckets than those of S3.
    """
    folders = [canonicalize(location) for location in _list_locations(services)]
    elsewhere = next((folder for folder in folders if folder.partition("://")[0] not in _QUERIED_SCHEMES), None)
    if elsewhere is not None:
        raise UnsupportedError(
            "queries", f"Queries read files in folders and in S3, and those of this lake are in {elsewhere}"
        )
    return tuple(f"{spelling}/" for folder in folders for spelling in _spell(folder))


def build_s3_settings(services: Services) -> dict[str, Any]:
    """Build DuckDB's settings for S3: names of files are literal, and may not lead to another server.

    DuckDB would take `?s3_endpoint=…` at the end of a file's name, and send the keys there. For files that no key is
    for, it would ask Amazon.
    """
    store = _find_store(services)
    certificates = store.options.certificates()
    bucket = next(folder.bucket for folder in map(parse_folder, _list_locations(services)) if folder is not None)
    address = _split_address(store.find_address(bucket)[0], bucket)
    proxy = None if store.options.proxy is None else urlsplit(store.options.proxy)
    passing = {} if proxy is None else {"": f"{proxy.hostname}:{proxy.port}", "_username": proxy.username}
    return {
        "s3_url_compatibility_mode": True,
        **{f"s3_{name.lower()}": text for name, text in address.items()},
        **{f"http_proxy{name}": text for name, text in passing.items()},
        **({} if proxy is None else {"http_proxy_password": proxy.password}),
        **({} if certificates is None or not Path(certificates).is_file() else {"ca_cert_file": certificates}),
    }


def is_in_s3(services: Services) -> bool:
    """Return whether the lake may have files in S3."""
    return any(canonicalize(location).startswith("s3://") for location in _list_locations(services))


def find_vendor(services: Services) -> StsVendor:
    """Find who makes keys for some folders. Raises UnsupportedError if there are only keys for all of them."""
    access = services.access
    for vendor in (access.vendor, None if access.signer is None else access.signer.vendor):
        if isinstance(vendor, StsVendor):
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
    asked = services.caller.principal.name, [*map(StoreFolder, folders)], MAX_GRANTED_SECONDS
    vending = find_vendor(services).vend(*asked) if folders else None
    if vending is None:
        return {}
    if vending.uncovered:
        raise UnsupportedError(
            "queries", f"The tables lie in {len(folders)} folders, more than keys of STS can name: ask for fewer tables"
        )
    store = _find_store(services)
    secrets = (secret for keys in vending.vended for secret in _build_secrets_of(store, keys))
    return {f"query_{number}": secret for number, secret in enumerate(secrets)}


def load_queried_table(services: Services, namespace: Namespace, name: str) -> TableVersion:
    """Load a table for a query that shows no more of it than the caller may see. Raises NoSuchTableError."""
    return load_current_table(replace(services, caller=SERVER_CALLER), namespace, name)


def _find_store(services: Services) -> S3Store:
    store = find_bucket_store(services.store, _list_locations(services), S3Store)
    assert store is not None
    return store


def _spell(folder: str) -> Sequence[str]:
    """Return a canonical folder in the spellings of its files: a path, or each of S3's schemes."""
    scheme, _, path = folder.partition("://")
    return [path] if scheme == "file" else [f"{spelling}://{path}" for spelling in SCHEMES]


def _list_locations(services: Services) -> tuple[str, ...]:
    return services.policy.places


def _find_folders(services: Services, namespace: Namespace, name: str) -> Sequence[StoreFolder]:
    table = load_queried_table(services, namespace, name)
    folders = find_table_folders(services, table)
    return find_reach(services, (namespace, name), folders, table.row.table_id).folders


def _build_secrets_of(store: S3Store, keys: FolderKeys) -> Iterator[str]:
    """Build a secret for each bucket: buckets may have addresses and regions of their own."""
    for bucket in sorted({folder.bucket for folder in keys.folders}):
        address, region = store.find_address(bucket)
        scopes = [
            f"{scheme}://{bucket}/{folder.key}"
            for folder in keys.folders
            if folder.bucket == bucket
            for scheme in SCHEMES
        ]
        assert isinstance(keys.keys, S3Keys)
        texts = {
            "KEY_ID": keys.keys.access_key_id,
            "SECRET": keys.keys.secret_access_key,
            "SESSION_TOKEN": keys.keys.session_token or "",
            "REGION": region,
            **_split_address(address, bucket),
        }
        members = [f"{name} {quote_literal(text)}" for name, text in texts.items()]
        scope = ", ".join(map(quote_literal, scopes))
        yield f"(TYPE s3, PROVIDER config, {', '.join(members)}, SCOPE [{scope}])"


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
