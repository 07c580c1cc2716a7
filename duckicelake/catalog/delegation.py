"""Delegated access to a table's files: the keys that the answer to a load holds, or where to have requests signed.

Clients that know several credentials take `storage-credentials`, of which the longest prefix counts; older ones know
one, the `config`'s, which is that of the table's location.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Flag, auto
from hashlib import sha256
from math import inf
from typing import Any, Final
from urllib.parse import quote

import orjson

from duckicelake.catalog.authz.table_folders import (
    find_reach,
    find_staged_folders,
    find_table_folders,
    may_use_everything,
)
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.caller import Principal
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.context.storage_access import StorageReach, TableFolders
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import InvalidRequestError, NoSuchTableError
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.rest import RemoteSignRequest
from duckicelake.lake.side_tables.audit import OK_RESULT
from duckicelake.storage.s3_requests import SignatureRequest
from duckicelake.storage.signer import SignedRequest
from duckicelake.storage.vendor import FolderKeys, VendedKeys

UNCOVERED: Final = "duckicelake.uncovered-locations"
"""In the config of a table: a JSON list of the folders with files of its that the client gets no access to."""


MAX_GRANTED_SECONDS: Final = 900
"""Seconds for which keys live at most where grants are on: they can't be recalled. STS makes none for less."""


class AccessRequest(Flag):
    """What a client would like to be given."""

    KEYS = auto()
    SIGNATURES = auto()


NO_ACCESS_REQUEST: Final = AccessRequest(0)


@dataclass(frozen=True, slots=True)
class DelegationQuery:
    """A table that access is asked to. table_id: None for one that isn't there yet."""

    namespace: Namespace
    name: str
    folders: TableFolders
    table_id: int | None = None
    prefix: str = ""

    @property
    def path(self) -> str:
        """The table's route, relative to the catalog's own URI."""
        levels = "%1F".join(quote(level, safe="") for level in self.namespace)
        return f"v1/{self.prefix}namespaces/{levels}/tables/{quote(self.name, safe='')}"


@dataclass(frozen=True, slots=True)
class Delegated:
    """What a load's answer says besides the metadata. tag: changes with it, and reveals nothing of it.

    until_ms: when it must be made anew. may_change: whether it may before, when other tables do.
    """

    config: dict[str, str] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict, repr=False)
    tag: str = ""
    until_ms: float = inf
    may_change: bool = False


NO_DELEGATION: Final = Delegated()


def limit_request(principal: Principal, wish: AccessRequest) -> AccessRequest:
    """Limit what a client would like to what a definer view lends, if one does: keys, or nothing."""
    if principal.loan is None:
        return wish
    return wish & AccessRequest.KEYS if principal.loan.gives_keys else NO_ACCESS_REQUEST


def grant_delegation(services: Services, wish: AccessRequest, asking: DelegationQuery) -> Delegated:
    """Return what of the wish the caller gets; nothing where there is nothing to give. Raises UnavailableError."""
    access = services.access
    if AccessRequest.KEYS in wish and access.vendor is not None:
        return _keys(services, asking)
    if AccessRequest.SIGNATURES in wish and access.signer is not None:
        return _signatures(services, asking)
    return NO_DELEGATION


def load_credentials(services: Services, namespace: Namespace, name: str, prefix: str | None = None) -> bytes:
    """Return the answer to a client that renews its keys: all of the table's, or those for one prefix.

    Raises NoSuchTableError.
    """
    asking = _build_query(services, namespace, name, prefix)
    if services.access.vendor is None:
        return orjson.dumps({"storage-credentials": []})
    vending, _ = _vend(services, asking)
    credentials = [
        credential for credential in _credentials(services, asking, vending) if prefix in {None, credential["prefix"]}
    ]
    return orjson.dumps({"storage-credentials": credentials})


def parse_sign_request(request: RemoteSignRequest) -> SignatureRequest:
    """Return the request in the body of another; InvalidRequestError unless it is one to S3."""
    if (request.provider or "s3") != "s3":
        raise InvalidRequestError(f"requests to {request.provider!r} aren't signed here, only those to s3")
    return SignatureRequest(request.method, request.uri, request.headers, request.body)


def sign(services: Services, namespace: Namespace, name: str, asked: SignatureRequest) -> SignedRequest:
    """Sign a client's request to the store, if it touches nothing but files of the table that the caller may touch.

    Raises ForbiddenError, InvalidRequestError, NoSuchTableError, UnavailableError.
    """
    signer = services.access.signer
    if signer is None:
        raise InvalidRequestError(
            "This server signs no requests: its files aren't in S3, or its settings turn signing off"
        )
    touched_first = signer.check(asked).touches[0]
    asking = _build_query(services, namespace, name, f"s3://{touched_first.bucket}/{touched_first.key}")
    return signer.sign(asked, services.caller.principal.name, _reach(services, asking).folders)


def _build_query(services: Services, namespace: Namespace, name: str, place: str | None) -> DelegationQuery:
    """Return the table as it is; or as it was staged to be at this place, as long as none of its name is there."""
    try:
        table = load_current_table(services, namespace, name)
    except NoSuchTableError:
        staged = find_staged_folders(services, namespace, name, place or "", services.caller.principal)
        if staged is None:
            raise
        return DelegationQuery(namespace, name, staged, prefix=services.prefix)
    return DelegationQuery(namespace, name, find_table_folders(services, table), table.row.table_id, services.prefix)


def _keys(services: Services, asking: DelegationQuery) -> Delegated:
    vending, uncovered = _vend(services, asking)
    credentials = list(_credentials(services, asking, vending))
    if not credentials:
        return replace(_answer(services, asking, {}, {}, uncovered), until_ms=vending.renew_at_ms)
    location = asking.folders.own[0]
    config = dict(
        next((credential for credential in credentials if credential["prefix"] == location), credentials[0])["config"]
    )
    if len(vending.vended) > 1:
        config |= {name: _build_refresh_path(services, asking) for name in config if name.endswith(f".{_REFRESH}")}
    answer = _answer(services, asking, config, {"storage-credentials": credentials}, uncovered)
    return replace(answer, until_ms=vending.renew_at_ms)


def _signatures(services: Services, asking: DelegationQuery) -> Delegated:
    endpoint = f"{asking.path}/sign"
    config = {
        **services.access.client,
        "s3.remote-signing-enabled": "true",
        # What follows is for clients that don't know remote-signing-config: Java's until 1.11, PyIceberg.
        "signer.endpoint": endpoint,
        "s3.signer.endpoint": endpoint,
        "s3.signer": "S3V4RestSigner",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
    }
    members: dict[str, Any] = {"remote-signing-config": {"properties": {}, "headers": {}}}
    return _answer(services, asking, config, members, _reach(services, asking).uncovered)


def _answer(
    services: Services,
    asking: DelegationQuery,
    config: dict[str, str],
    members: dict[str, Any],
    uncovered: Sequence[str],
) -> Delegated:
    if uncovered:
        config = {**config, UNCOVERED: orjson.dumps(sorted(uncovered)).decode()}
    principal = services.caller.principal
    tag = sha256(orjson.dumps([principal.name, asking.path, config, members])).hexdigest()[:16]
    return Delegated(config, members, tag, may_change=not may_use_everything(principal))


def _reach(services: Services, asking: DelegationQuery) -> StorageReach:
    return find_reach(services, (asking.namespace, asking.name), asking.folders, asking.table_id)


def _vend(services: Services, asking: DelegationQuery) -> tuple[VendedKeys, tuple[str, ...]]:
    """Return (the keys, the folders that they don't reach)."""
    reach = _reach(services, asking)
    assert services.access.vendor is not None
    is_bound = services.caller.principal.rights is not None
    asked = services.caller.principal.name, reach.folders
    vend = services.access.vendor.vend
    vending = vend(*asked, MAX_GRANTED_SECONDS) if is_bound else vend(*asked)
    for vended in vending.vended:
        _note(services, asking, vended)
    return vending, (*reach.uncovered, *(folder.location for folder in vending.uncovered))


def _note(services: Services, asking: DelegationQuery, vended: FolderKeys) -> None:
    """Write to the audit trail, unless it has that these keys were given for this table to this address."""
    caller = services.caller
    table = f"{asking.table_id}" if asking.table_id is not None else asking.path
    if services.access.noted.put((vended.keys.name, table, caller.principal.name, caller.address), None):
        detail = {
            "vended": vended.keys.name,
            "until": _iso(vended.keys.expires_at_ms),
            "read": [folder.location for folder in vended.folders],
            "write": [folder.location for folder in vended.folders if folder.is_writable],
        }
        if caller.principal.loan is not None:
            detail["definer"] = caller.principal.loan.definer
        services.note([build_touched(asking.namespace, asking.name, detail)], OK_RESULT)


def _iso(time_ms: int | None) -> str | None:
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC).isoformat()


_REFRESH: Final = "refresh-credentials-endpoint"


def _credentials(services: Services, asking: DelegationQuery, vending: VendedKeys) -> Iterator[dict[str, Any]]:
    for vended in vending.vended:
        for folder in vended.folders:
            config = {**services.access.client, **vended.keys.list_properties()}
            if vended.keys.expires_at_ms is not None:
                # Java's clients renew each credential on its own, and refuse an answer that holds several.
                prefix = quote(folder.location, safe="")
                path = _build_refresh_path(services, asking, f"prefix={prefix}")
                config[f"{vended.keys.refresh_prefix}.{_REFRESH}"] = path
                config[f"{vended.keys.refresh_prefix}.refresh-credentials-enabled"] = "true"
            yield {"prefix": folder.location, "config": config}


def _build_refresh_path(services: Services, asking: DelegationQuery, *options: str) -> str:
    """Build the route by which a client renews its keys; lent ones by the views that it came through."""
    caller = services.caller
    if caller.principal.loan is not None:
        views = ("%1F".join(quote(level, safe="") for level in (*of, name)) for of, name in caller.referenced_by)
        options = (*options, f"referenced-by={quote(','.join(views), safe='')}")
    return f"{asking.path}/credentials{'?' if options else ''}{'&'.join(options)}"
