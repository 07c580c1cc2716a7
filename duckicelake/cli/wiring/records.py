"""What the catalog's use cases return, as the records that its client knows them by."""

from dataclasses import fields

from duckicelake.catalog import issuers, principals, storage_profiles, warehouses
from duckicelake.catalog.context.privileges import ObjectRef
from duckicelake.catalog.grants import GrantDetails
from duckicelake.catalog.policies import PolicyDetails
from duckicelake.catalog.policy_definitions import Table
from duckicelake.client.governance import GrantInfo, IssuerInfo, PolicyInfo, ProfileInfo, SecretInfo, WarehouseInfo
from duckicelake.client.records import Record


def copy_record(kind: type[Record], row: object) -> Record:
    """Copy the attributes that a class has from an object that has them, too."""
    return kind(**{one.name: getattr(row, one.name) for one in fields(kind)})  # type: ignore[arg-type]


def build_issuer(info: IssuerInfo) -> issuers.ListedIssuer:
    """Build the issuer that a record of the client describes."""
    names = {one.name for one in fields(IssuerInfo)} - {"has_web_secret"}
    return issuers.ListedIssuer(**{name: getattr(info, name) for name in names})


def copy_policy(row: PolicyDetails) -> PolicyInfo:
    """Copy a policy."""
    own = row.definition
    return PolicyInfo(
        str(row.policy_id),
        own.name,
        None if own.table is None else name_table(own.table),
        own.column,
        own.tag,
        own.mask,
        own.condition,
        own.to,
        own.exempt,
        row.is_live,
        row.created_by,
        row.created_at,
    )


def name_table(table: Table) -> str:
    """Name a table as commands take it."""
    return str(ObjectRef("table", *table))


def copy_grant(row: GrantDetails) -> GrantInfo:
    """Copy a grant."""
    return GrantInfo(
        row.principal,
        row.principal_kind,
        row.privilege,
        row.kind,
        row.object_id,
        None if row.object is None else str(row.object),
        row.granted_by,
        row.granted_at,
    )


def copy_secret(row: principals.RegisteredSecret) -> SecretInfo:
    """Copy a secret, without what it is."""
    return SecretInfo(
        str(row.secret_id),
        row.kind,
        row.description,
        row.created,
        row.expires,
        row.last_used,
        row.scopes,
        tuple(map(str, row.made_by)),
    )


def copy_profile(row: storage_profiles.StorageProfile) -> ProfileInfo:
    """Copy a storage profile, without its key."""
    spec = {one.name: getattr(row.spec, one.name) for one in fields(row.spec)}
    return ProfileInfo(
        profile_id=str(row.profile_id),
        credentials="ambient" if row.secret is None else "key",
        encrypted_by=None if row.secret is None else row.secret.partition(":")[0],
        created=row.created,
        **spec,
    )


def copy_warehouse(row: warehouses.Warehouse) -> WarehouseInfo:
    """Copy a warehouse."""
    return WarehouseInfo(
        str(row.warehouse_id),
        row.name,
        warehouses.build_prefix(row.name),
        row.schema_name,
        row.location,
        row.profile,
        row.database_url,
        row.is_adopted,
        row.state,
        row.created,
    )
