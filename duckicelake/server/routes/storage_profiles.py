"""Routes of the management API: storage profiles. No answer has a key of a store."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field, SecretStr
from starlette.concurrency import run_in_threadpool

from duckicelake.catalog import storage_profiles
from duckicelake.catalog.context.page import slice_page
from duckicelake.catalog.storage_profiles import (
    ProfileKeys,
    ProfileRules,
    StorageEncryption,
    StorageProfile,
    StorageProfileSpec,
    StorageVending,
)
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import (
    AppContext,
    AppServices,
    Body,
    KeyedServices,
    PageQuery,
    ServerContext,
    describe_body,
)

router = APIRouter(prefix="/management/v1", tags=["management"], responses=RESPONSES, route_class=StrictRoute)
_Text = Annotated[str, Field(min_length=1, max_length=860)]


class CreateStorageProfileRequest(StrictRequest):
    """A storage profile to create.

    root: the folder below which the files of its warehouses are. endpoint: none is the cloud's own. public-endpoint:
    the same for clients. access-key-id and secret-access-key: the server's key, for Google the service account's name
    and its JSON, for Azure the account's name and key, or tenant/client and that application's secret; none takes the
    server's own credentials, where its settings allow that. vending: how clients get access; by default as the settings
    would choose. sse, kms-key and bucket-key: how S3 encrypts files; by default as the bucket says. requester-pays:
    requests accept their costs.
    """

    name: Annotated[str, Field(min_length=1, max_length=48)]
    root: _Text
    endpoint: _Text | None = None
    public_endpoint: _Text | None = None
    sts_endpoint: _Text | None = None
    region: _Text | None = None
    path_style: bool = False
    access_key_id: _Text | None = None
    secret_access_key: Annotated[SecretStr, Field(min_length=1, max_length=8000)] | None = None
    vending: StorageVending | None = None
    role_arn: _Text | None = None
    external_id: _Text | None = None
    sse: StorageEncryption | None = None
    kms_key: _Text | None = None
    bucket_key: bool | None = None
    requester_pays: bool = False


class StorageProfileAnswer(SpecModel):
    """A storage profile. credentials: `key`, or `ambient`: the server's own. encrypted-by: the name of the key."""

    model_config = ConfigDict(frozen=True)

    profile_id: UUID
    name: str
    root: str
    endpoint: str | None = None
    public_endpoint: str | None = None
    sts_endpoint: str | None = None
    region: str | None = None
    path_style: bool
    vending: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    sse: str | None = None
    kms_key: str | None = None
    bucket_key: bool | None = None
    requester_pays: bool
    credentials: str
    encrypted_by: str | None = None
    created: datetime


class StorageProfileList(SpecModel):
    """The storage profiles, by name."""

    model_config = ConfigDict(frozen=True)

    storage_profiles: tuple[StorageProfileAnswer, ...]
    next_page_token: str | None = None


@router.get("/storage-profiles")
def list_storage_profiles(services: AppServices, page: PageQuery) -> StorageProfileList:
    """List the storage profiles, without their keys."""
    found = slice_page(storage_profiles.list_profiles(services), page, lambda row: row.spec.name)
    described = tuple(map(describe_profile, found.items))
    return StorageProfileList(storage_profiles=described, next_page_token=found.next_token)


@router.post("/storage-profiles", openapi_extra=describe_body(CreateStorageProfileRequest))
async def create_storage_profile(context: AppContext, services: KeyedServices, body: Body) -> StorageProfileAnswer:
    """Create a storage profile, for warehouses to name. Its key is encrypted, and never shown again."""
    request = parse_body(CreateStorageProfileRequest, body)
    key, secret = request.access_key_id, request.secret_access_key
    if (key is None) != (secret is None):
        raise InvalidRequestError("access-key-id and secret-access-key belong together: give both or neither")
    keys = None if key is None or secret is None else ProfileKeys(key, secret.get_secret_value())
    given = request.model_dump(exclude={"access_key_id", "secret_access_key"})
    spec = StorageProfileSpec(**given)
    created = await run_in_threadpool(storage_profiles.create_profile, services, _get_rules(context), spec, keys)
    return describe_profile(created)


@router.get("/storage-profiles/{profile}")
def load_storage_profile(services: AppServices, profile: str) -> StorageProfileAnswer:
    """Load a storage profile, without its key."""
    return describe_profile(storage_profiles.find_profile(services, profile))


@router.delete("/storage-profiles/{profile}", status_code=204)
def drop_storage_profile(services: KeyedServices, profile: str) -> Response:
    """Drop a storage profile that no warehouse uses."""
    storage_profiles.drop_profile(services, profile)
    return Response(status_code=204)


def describe_profile(row: StorageProfile) -> StorageProfileAnswer:
    """Describe a profile as the API and the commands do."""
    spec = row.spec
    return StorageProfileAnswer(
        profile_id=row.profile_id,
        name=spec.name,
        root=spec.root,
        endpoint=spec.endpoint,
        public_endpoint=spec.public_endpoint,
        sts_endpoint=spec.sts_endpoint,
        region=spec.region,
        path_style=spec.path_style,
        vending=spec.vending,
        role_arn=spec.role_arn,
        external_id=spec.external_id,
        sse=spec.sse,
        kms_key=spec.kms_key,
        bucket_key=spec.bucket_key,
        requester_pays=spec.requester_pays,
        credentials="ambient" if row.secret is None else "key",
        encrypted_by=None if row.secret is None else row.secret.partition(":")[0],
        created=row.created,
    )


def _get_rules(context: ServerContext) -> ProfileRules:
    return ProfileRules() if context.others is None else context.others.wiring.profiles
