"""Storage profiles, as rows of `duckicelake_storage_profile`: S3 servers, folders and keys of warehouses."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from duckicelake.errors import NotFoundError
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("lake", "storage_profiles")

VendingMode = Literal["sts", "remote-signing", "none"]
EncryptionMode = Literal["s3", "kms", "dsse-kms"]


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """What a storage profile is made with.

    Attributes:
        root: `s3://<bucket>/<prefix>`, below which the files of its warehouses are.
        endpoint: URL of the S3 server; None is Amazon's.
        public_endpoint: the same for clients; None: the endpoint.
        vending: how clients get access; None: by endpoint and role, as of the settings.
        sse: how the store encrypts files; None: as the bucket says.
        kms_key: the key of KMS for that, which clients' keys may use.
        bucket_key: whether a key of the bucket spares calls of KMS; None: as the bucket says.
        requester_pays: whether requests accept their costs.

    """

    name: str
    root: str
    endpoint: str | None = None
    public_endpoint: str | None = None
    sts_endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    vending: VendingMode | None = None
    role_arn: str | None = None
    external_id: str | None = None
    sse: EncryptionMode | None = None
    kms_key: str | None = None
    bucket_key: bool | None = None
    requester_pays: bool = False


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A storage profile. secret: the server's key for it, encrypted; None: the server's own credentials."""

    profile_id: UUID
    spec: ProfileSpec
    secret: str | None = field(repr=False)
    created: datetime

    @property
    def name(self) -> str:
        """The name of the profile."""
        return self.spec.name


def read_profiles(cursor: Transaction) -> list[ProfileRow]:
    """Read all profiles, by name."""
    return [_build_row(row) for row in cursor.execute(_SQL.profiles).fetchall()]


def lock_profiles(cursor: Transaction) -> list[ProfileRow]:
    """Read all profiles, and keep others from changing them until the transaction ends."""
    cursor.execute(_SQL.lock)
    return read_profiles(cursor)


def insert_profile(cursor: Transaction, profile_id: UUID, spec: ProfileSpec, secret: str | None) -> ProfileRow | None:
    """Add a profile; None if the name is taken."""
    parameters = {**asdict(spec), "profile_id": profile_id, "secret": secret}
    row = cursor.execute(_SQL.insert, parameters).fetchone()
    return None if row is None else _build_row(row)


def read_users(cursor: Transaction, profile_id: UUID) -> list[str]:
    """Read the names of the warehouses that use a profile."""
    return [name for (name,) in cursor.execute(_SQL.users, {"profile_id": profile_id}).fetchall()]


def set_secret(cursor: Transaction, profile_id: UUID, secret: str) -> None:
    """Set the encrypted key of a profile."""
    cursor.execute(_SQL.set_secret, {"profile_id": profile_id, "secret": secret})


def delete_profile(cursor: Transaction, profile_id: UUID) -> None:
    """Delete a profile that no warehouse uses."""
    cursor.execute(_SQL.delete, {"profile_id": profile_id})


def pick_profile(rows: Iterable[ProfileRow], name: str) -> ProfileRow:
    """Find the profile of a name; NotFoundError."""
    found = next((row for row in rows if row.name == name), None)
    if found is None:
        raise NotFoundError(f"No such storage profile: {name}")
    return found


def pick_profile_of(rows: Iterable[ProfileRow], profile_id: UUID) -> ProfileRow:
    """Find the profile of an id; NotFoundError."""
    found = next((row for row in rows if row.profile_id == profile_id), None)
    if found is None:
        raise NotFoundError(f"No such storage profile: {profile_id}")
    return found


def _build_row(row: tuple[object, ...]) -> ProfileRow:
    profile_id, *spec, secret, created = row
    return ProfileRow(profile_id, ProfileSpec(*spec), secret, created)  # type: ignore[arg-type]
