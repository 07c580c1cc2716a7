"""What governs a server as its administrators read it: principals, secrets, issuers, warehouses, grants, policies."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

PrincipalKind = Literal["user", "service", "group", "role"]
KINDS: Final[tuple[PrincipalKind, ...]] = ("user", "service", "group", "role")


@dataclass(frozen=True, slots=True)
class PrincipalInfo:
    """A user, service account, group or role. scopes: all that its tokens can have."""

    principal_id: int
    name: str
    kind: PrincipalKind
    issuer: str | None
    subject: str | None
    scopes: tuple[str, ...]
    is_disabled: bool
    description: str
    created: datetime


@dataclass(frozen=True, slots=True)
class SecretInfo:
    """A secret or token of a principal. secret: what it is, in the answer to the request that made it alone.

    scopes: all that it gives of its principal's; None: all of them. made_by: the secrets that it was made with.
    """

    secret_id: str
    kind: Literal["client-secret", "token"]
    description: str
    created: datetime
    expires: datetime | None
    last_used: datetime | None
    scopes: tuple[str, ...] | None
    made_by: tuple[str, ...]
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class IssuerInfo:
    """An issuer of OpenID Connect whose tokens are trusted.

    web_client_id: what it calls the console; None: no one signs in to the console there.
    """

    name: str
    url: str
    audience: str
    jwks_url: str | None = None
    subject_claim: str = "sub"
    group_claim: str | None = None
    scope_claim: str | None = None
    scopes: tuple[str, ...] = ("grants",)
    is_disabled: bool = False
    leeway: int = 30
    label: str = ""
    web_client_id: str | None = None
    web_scopes: tuple[str, ...] = ("openid",)
    web_parameters: tuple[str, ...] = ()
    has_web_secret: bool = False
    created: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProfileInfo:
    """A storage profile, without its key. encrypted_by: the id of the key that encrypts its own."""

    profile_id: str
    name: str
    root: str
    endpoint: str | None
    public_endpoint: str | None
    sts_endpoint: str | None
    region: str | None
    path_style: bool
    vending: str | None
    role_arn: str | None
    external_id: str | None
    sse: str | None
    kms_key: str | None
    bucket_key: bool | None
    requester_pays: bool
    credentials: Literal["ambient", "key"]
    encrypted_by: str | None
    created: datetime


@dataclass(frozen=True, slots=True)
class WarehouseInfo:
    """A warehouse.

    prefix: behind `v1/` in paths of routes. metadata_schema: DuckDB's METADATA_SCHEMA. database_url: of its catalog,
    without the password; None: the server's own database.
    """

    warehouse_id: str
    name: str
    prefix: str
    metadata_schema: str
    location: str
    storage_profile: str | None
    database_url: str | None
    is_adopted: bool
    state: str
    created: datetime


@dataclass(frozen=True, slots=True)
class WarehouseContents:
    """What the catalog of a dropped warehouse had."""

    tables: int
    views: int
    namespaces: int


@dataclass(frozen=True, slots=True)
class GrantInfo:
    """A grant. object: as `table:sales.orders`; None if it was dropped. id: DuckLake's."""

    principal: str
    principal_kind: str
    privilege: str
    kind: str
    id: int
    object: str | None
    granted_by: str
    granted_at: datetime


@dataclass(frozen=True, slots=True)
class ReasonInfo:
    """A grant that allows something. path: from the principal to the group or role that was granted it."""

    privilege: str
    object: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DecisionInfo:
    """Whether a principal may do something with an object, and what decides that."""

    is_allowed: bool
    is_disabled: bool
    scopes: tuple[str, ...]
    is_in_scope: bool
    grants_on: bool
    by: tuple[ReasonInfo, ...]
    outside: bool | None
    definer: str | None
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrantCounts:
    """How many privileges were new, or taken. grants_on: False where scopes alone decide."""

    granted: int
    revoked: int
    grants_on: bool


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    """A row filter or column mask. object: the table as `table:sales.orders`; None: of a tag.

    is_live: False once the table was dropped.
    """

    id: str
    name: str
    object: str | None
    column: str | None
    tag: str | None
    mask: str | None
    condition: str | None
    to: tuple[str, ...]
    exempt: tuple[str, ...]
    is_live: bool
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TaggedColumnInfo:
    """A tag of a column. object: the table as `table:sales.orders`."""

    tag: str
    object: str
    column: str
    is_live: bool
