"""Storage profiles: stores, folders and keys that warehouses use instead of the settings' own.

Keys are encrypted in Postgres. No function here returns them but `reveal_keys`, for the stores of warehouses.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID, uuid4

from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.context.services import Services
from duckicelake.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidRequestError,
    RefusedAddressError,
    UnavailableError,
)
from duckicelake.lake.side_tables import storage_profiles
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.storage_profiles import (
    EncryptionMode,
    ProfileRow,
    ProfileSpec,
    VendingMode,
    pick_profile,
    pick_profile_of,
)
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.policy import BUCKET_SCHEMES, canonicalize

StorageProfile = ProfileRow
StorageProfileSpec = ProfileSpec
StorageVending = VendingMode
StorageEncryption = EncryptionMode
_NAME_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")
_NO_KEYS: Final = "set DUCKICELAKE_SECRET_KEYS, by which the keys of storage profiles are encrypted"


@dataclass(frozen=True, slots=True)
class ProfileKeys:
    """A key of a store.

    Of S3 a pair; of Google the service account's name, and its key in JSON; of Azure the account's name and its key, or
    `<tenant>/<client>` and the secret of that application.
    """

    access_key_id: str
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ProfileRules:
    """What storage profiles may say.

    Attributes:
        keys: encrypt the keys of stores; None: no such key can be stored.
        has_ambient: profiles may use the server's own credentials.
        check_url: raises an error for the URL of a server that requests may not go to.

    """

    keys: SecretKeys | None = None
    has_ambient: bool = False
    check_url: Callable[[str], object] = field(default=lambda _: None)


def list_profiles(services: Services) -> list[ProfileRow]:
    """List the storage profiles, by name."""
    with services.database.reading() as cursor:
        return storage_profiles.read_profiles(cursor)


def find_profile(services: Services, name: str) -> ProfileRow:
    """Find a storage profile; NotFoundError."""
    return pick_profile(list_profiles(services), name)


def find_profile_of(services: Services, profile_id: UUID) -> ProfileRow:
    """Find the storage profile of a warehouse; NotFoundError."""
    return pick_profile_of(list_profiles(services), profile_id)


def create_profile(services: Services, rules: ProfileRules, spec: ProfileSpec, keys: ProfileKeys | None) -> ProfileRow:
    """Create a storage profile. keys: None: the server's own credentials, where the settings allow that.

    Raises AlreadyExistsError, and InvalidRequestError, for an endpoint that may not be reached, too.
    """
    return services.run_once(
        lambda: _create(services, rules, spec, keys), lambda result: find_profile_of(services, UUID(result))
    )


def _create(services: Services, rules: ProfileRules, spec: ProfileSpec, keys: ProfileKeys | None) -> ProfileRow:
    _check_spec(spec)
    check_endpoints(rules, spec)
    profile_id = uuid4()
    secret = _seal(rules, profile_id, keys)
    with services.database.transaction() as cursor:
        created = storage_profiles.insert_profile(cursor, profile_id, spec, secret)
        if created is None:
            raise AlreadyExistsError(f"Storage profile {spec.name} exists")
        services.settle(cursor, [AuditedResource(f"storage-profile {spec.name}")], str(profile_id))
    return created


def drop_profile(services: Services, name: str) -> None:
    """Drop a storage profile; ConflictError while a warehouse uses it, NotFoundError."""

    def drop() -> None:
        with services.database.transaction() as cursor:
            row = pick_profile(storage_profiles.lock_profiles(cursor), name)
            users = storage_profiles.read_users(cursor, row.profile_id)
            if users:
                raise ConflictError(f"Storage profile {name} is used by {', '.join(users[:5])}: drop these first")
            storage_profiles.delete_profile(cursor, row.profile_id)
            services.settle(cursor, [AuditedResource(f"storage-profile {name}")])

    services.run_once(drop, lambda _: None)


def rotate_profiles(cursor: Transaction, keys: SecretKeys) -> int:
    """Write the keys of all profiles anew, encrypted with the first key; return how many there are.

    Raises UnavailableError.
    """
    rows = [row for row in storage_profiles.lock_profiles(cursor) if row.secret is not None]
    for row in rows:
        place = _describe_place(row.profile_id)
        sealed = keys.encrypt(keys.decrypt(row.secret or "", place), place)
        storage_profiles.set_secret(cursor, row.profile_id, sealed)
    return len(rows)


def reveal_keys(rules: ProfileRules, row: ProfileRow) -> ProfileKeys | None:
    """Return the decrypted key of a profile; None: the server's own credentials.

    Raises UnavailableError if the keys of the settings don't decrypt it, or the settings don't allow that.
    """
    if row.secret is None:
        if not rules.has_ambient:
            raise UnavailableError(f"Storage profile {row.name}: this server doesn't allow its own credentials")
        return None
    if rules.keys is None:
        raise UnavailableError(f"The key of storage profile {row.name} can't be decrypted: {_NO_KEYS}")
    try:
        return ProfileKeys(*json.loads(rules.keys.decrypt(row.secret, _describe_place(row.profile_id))))
    except UnavailableError as error:
        raise UnavailableError(f"Storage profile {row.name}: {error}") from error


def check_endpoints(rules: ProfileRules, spec: ProfileSpec) -> None:
    """Raise InvalidRequestError for an endpoint of a profile that this server may not send requests to."""
    for url in (spec.endpoint, spec.sts_endpoint):
        if url is not None:
            try:
                rules.check_url(url)
            except RefusedAddressError as error:
                raise InvalidRequestError(str(error)) from error


def _seal(rules: ProfileRules, profile_id: UUID, keys: ProfileKeys | None) -> str | None:
    if keys is None:
        if not rules.has_ambient:
            raise InvalidRequestError(
                "A storage profile needs access-key-id and secret-access-key: this server doesn't allow its own "
                "credentials (DUCKICELAKE_AMBIENT_PROFILES)"
            )
        return None
    if not (keys.access_key_id.strip() and keys.secret_access_key.strip()):  # for empty ones boto3 takes the server's
        raise InvalidRequestError("access-key-id and secret-access-key may not be empty")
    if rules.keys is None:
        raise InvalidRequestError(f"This server can't store keys: {_NO_KEYS}")
    return rules.keys.encrypt(json.dumps([keys.access_key_id, keys.secret_access_key]), _describe_place(profile_id))


def _describe_place(profile_id: UUID) -> str:
    return f"storage-profile {profile_id}"


def _check_spec(spec: ProfileSpec) -> None:
    if not _NAME_PATTERN.fullmatch(spec.name):
        raise InvalidRequestError(
            f"Invalid name {spec.name!r}: expected up to 48 lower-case letters, digits, _ and -, "
            "the first a letter or digit"
        )
    scheme = canonicalize(spec.root).partition("://")[0]
    if scheme not in BUCKET_SCHEMES:
        raise InvalidRequestError(
            f"Invalid root {spec.root!r}: expected s3://<bucket>/<prefix>, gs://<bucket>/<prefix> or "
            "abfss://<container>@<account>.dfs.core.windows.net/<prefix>"
        )
    if scheme != "s3":
        _check_elsewhere(spec, scheme)
    if spec.vending == "sts" and scheme == "s3" and not (spec.role_arn or spec.endpoint or spec.sts_endpoint):
        raise InvalidRequestError("vending is sts, and Amazon's STS needs a role: give role-arn")
    if spec.sse == "s3" and spec.kms_key is not None:
        raise InvalidRequestError("sse is s3, whose keys are the store's own: leave out kms-key, or give sse=kms")
    if spec.bucket_key is not None and spec.sse != "kms":
        raise InvalidRequestError("bucket-key is for sse=kms: give that, or leave out bucket-key")


def _check_elsewhere(spec: ProfileSpec, scheme: str) -> None:
    """Raise InvalidRequestError for what only a profile of S3 can say."""
    given = {
        "region": spec.region,
        "path-style": spec.path_style or None,
        "role-arn": spec.role_arn,
        "external-id": spec.external_id,
        "sse": spec.sse,
        "kms-key": spec.kms_key,
        "bucket-key": spec.bucket_key,
        "requester-pays": spec.requester_pays or None,
        "vending": None if spec.vending == "none" else spec.vending,
    }
    wrong = [f"{name}={value}" for name, value in given.items() if value is not None]
    if wrong:
        raise InvalidRequestError(
            f"Invalid {', '.join(wrong)}: a storage profile of {scheme}:// takes no other vending than none, "
            "and nothing that is S3's"
        )
