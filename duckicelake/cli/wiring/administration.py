"""Administer the server of a lake on the lake itself, as `duckicelake.client.administration` does over REST."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypeVar
from uuid import UUID

from duckicelake.catalog import (
    grants,
    issuers,
    policies,
    principals,
    storage_profiles,
    warehouse_options,
    warehouse_registry,
    warehouse_removal,
    warehouses,
)
from duckicelake.catalog.context.page import walk_pages
from duckicelake.catalog.context.privileges import list_names
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.governance import apply_state, read_state
from duckicelake.catalog.governance_document import build_state, describe_state, parse_document
from duckicelake.catalog.policy_definitions import PolicyDefinition, TaggedColumn, parse_table
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.cli.wiring.authentication import is_settings_client
from duckicelake.cli.wiring.location import find_warehouse_roots
from duckicelake.cli.wiring.profile_settings import build_profile_rules
from duckicelake.cli.wiring.records import (
    build_issuer,
    copy_grant,
    copy_policy,
    copy_profile,
    copy_record,
    copy_secret,
    copy_warehouse,
    name_table,
)
from duckicelake.cli.wiring.services import build_outside, build_warehouse_wiring, check_policies, open_lake
from duckicelake.client.administration import FIRST
from duckicelake.client.governance import (
    KINDS,
    DecisionInfo,
    GrantCounts,
    GrantInfo,
    IssuerInfo,
    PolicyInfo,
    PrincipalInfo,
    PrincipalKind,
    ProfileInfo,
    ReasonInfo,
    SecretInfo,
    TaggedColumnInfo,
    WarehouseContents,
    WarehouseInfo,
)
from duckicelake.errors import UnavailableError
from duckicelake.rest.outbound import OutboundGuard
from duckicelake.settings.model import Settings

Record = TypeVar("Record")


class LakeAdministration:
    """What an administrator may ask, done on the lake. Each method opens the lake, and is audited by its name.

    place: what errors call a document that is applied.
    """

    def __init__(self, settings: Settings, place: str = "document") -> None:
        self._settings = settings
        self._place = place

    def list_principals(self, kinds: Sequence[PrincipalKind] = KINDS) -> Sequence[PrincipalInfo]:
        """List principals by name."""
        with self._open("list_principals") as services:
            rows = walk_pages(lambda page: principals.list_principals(services, kinds, page))
            return [copy_record(PrincipalInfo, row) for row in rows]

    def create_principal(
        self,
        name: str,
        kind: PrincipalKind,
        *,
        issuer: str | None = None,
        subject: str | None = None,
        scopes: Sequence[str] = ("grants",),
        description: str = "",
    ) -> PrincipalInfo:
        """Register a user, service account, group or role."""
        new = principals.PrincipalRegistration(name, kind, issuer, subject, tuple(scopes), description=description)
        with self._open("create_principal") as services:
            return copy_record(PrincipalInfo, principals.create_principal(services, new, self._settings.oidc_issuer))

    def load_principal(self, name: str) -> tuple[PrincipalInfo, Sequence[str]]:
        """Load a principal, with the groups and roles that it is in by itself."""
        with self._open("load_principal") as services:
            row = principals.load_principal(services, name)
            pairs = principals.list_memberships(services)
        return copy_record(PrincipalInfo, row), [container for container, member in pairs if member == name]

    def set_disabled(self, name: str, *, is_disabled: bool) -> None:
        """Disable or enable a principal."""
        with self._open("change_principal") as services:
            principals.change_principal(services, name, principals.PrincipalChange(is_disabled=is_disabled))

    def drop_principal(self, name: str) -> None:
        """Drop a principal with its secrets, memberships and grants."""
        with self._open("drop_principal") as services:
            principals.drop_principal(services, name)

    def list_members(self, name: str) -> Sequence[str]:
        """List the names of the direct members of a group or role."""
        with self._open("list_members") as services:
            return [*walk_pages(lambda page: principals.list_members(services, name, page))]

    def add_member(self, name: str, member: str) -> None:
        """Put a principal into a group or role."""
        with self._open("add_member") as services:
            principals.add_member(services, name, member)

    def remove_member(self, name: str, member: str) -> None:
        """Take a principal out of a group or role."""
        with self._open("remove_member") as services:
            principals.remove_member(services, name, member)

    def create_secret(
        self,
        name: str,
        kind: Literal["client-secret", "token"],
        *,
        description: str = "",
        expires_in: int | None = None,
        end_others_in: int | None = None,
        scopes: Sequence[str] | None = None,
    ) -> SecretInfo:
        """Make a secret or token. expires_in, end_others_in: seconds. scopes: all that it gives; None: no bound."""

        def count(seconds: int | None) -> timedelta | None:
            return None if seconds is None else timedelta(seconds=seconds)

        wish = principals.SecretRequest(
            kind, description, count(expires_in), count(end_others_in), None if scopes is None else tuple(scopes)
        )
        with self._open("create_secret") as services:
            made = principals.create_secret(
                services, name, wish, lambda client: is_settings_client(self._settings, client)
            )
        return replace(copy_secret(made.row), secret=made.text)

    def list_secrets(self, name: str) -> Sequence[SecretInfo]:
        """List the secrets and tokens of a principal, without what they are."""
        with self._open("list_secrets") as services:
            return [copy_secret(row) for row in principals.list_secrets(services, name).items]

    def revoke_secret(self, name: str, secret_id: str) -> None:
        """Revoke a secret or token."""
        with self._open("revoke_secret") as services:
            principals.revoke_secret(services, name, UUID(secret_id))

    def create_issuer(self, issuer: IssuerInfo, web_secret: str | None = None) -> IssuerInfo:
        """Trust an issuer. web_secret: of its client for the console; None: the client is public."""
        with self._open("create_issuer") as services:
            given = build_issuer(issuer), self._build_issuer_rules(), web_secret
            return copy_record(IssuerInfo, issuers.create_issuer(services, *given))

    def change_issuer(self, issuer: IssuerInfo, web_secret: str | None = None) -> IssuerInfo:
        """Set all of an issuer but its URL. web_secret: empty: its client is public; None: as it is."""
        with self._open("change_issuer") as services:
            given = build_issuer(issuer), self._build_issuer_rules(), web_secret
            return copy_record(IssuerInfo, issuers.change_issuer(services, *given))

    def list_issuers(self) -> Sequence[IssuerInfo]:
        """List the issuers beside that of the settings."""
        with self._open("list_issuers") as services:
            return [copy_record(IssuerInfo, row) for row in issuers.list_issuers(services).items]

    def load_issuer(self, name: str) -> IssuerInfo:
        """Load an issuer."""
        with self._open("load_issuer") as services:
            return copy_record(IssuerInfo, issuers.load_issuer(services, name))

    def drop_issuer(self, name: str) -> None:
        """Trust an issuer no more."""
        with self._open("drop_issuer") as services:
            issuers.drop_issuer(services, name)

    def create_profile(self, options: Mapping[str, Any], keys: tuple[str, str] | None) -> ProfileInfo:
        """Create a storage profile. options: by their names in `ProfileInfo`. keys: an id and its secret."""
        own = None if keys is None else storage_profiles.ProfileKeys(*keys)
        spec, rules = storage_profiles.StorageProfileSpec(**options), build_profile_rules(self._settings)
        with self._open("create_storage_profile") as services:
            return copy_profile(storage_profiles.create_profile(services, rules, spec, own))

    def list_profiles(self) -> Sequence[ProfileInfo]:
        """List the storage profiles, without their keys."""
        with self._open("list_storage_profiles") as services:
            return [copy_profile(row) for row in storage_profiles.list_profiles(services)]

    def load_profile(self, name: str) -> ProfileInfo:
        """Load a storage profile, without its key."""
        with self._open("load_storage_profile") as services:
            return copy_profile(storage_profiles.find_profile(services, name))

    def drop_profile(self, name: str) -> None:
        """Drop a storage profile that no warehouse uses."""
        with self._open("drop_storage_profile") as services:
            storage_profiles.drop_profile(services, name)

    def create_warehouse(
        self,
        name: str,
        *,
        location: str | None = None,
        adopted_schema: str | None = None,
        storage_profile: str | None = None,
        database_url: str | None = None,
    ) -> WarehouseInfo:
        """Create a warehouse, or serve a catalog that is there."""
        new = NewWarehouse(name, location, adopted_schema, storage_profile, database_url)
        with self._open("create_warehouse") as services:
            wiring = build_warehouse_wiring(self._settings)
            return copy_warehouse(warehouse_registry.create_warehouse(services, wiring, new))

    def list_warehouses(self) -> Sequence[WarehouseInfo]:
        """List the warehouses beside the first."""
        with self._open("list_warehouses") as services:
            return [copy_warehouse(row) for row in warehouses.list_warehouses(services)]

    def load_warehouse(self, name: str) -> WarehouseInfo:
        """Load a warehouse."""
        with self._open("load_warehouse") as services:
            return copy_warehouse(warehouses.find_warehouse(services, name))

    def rename_warehouse(self, name: str, new_name: str) -> WarehouseInfo:
        """Rename a warehouse."""
        with self._open("rename_warehouse") as services:
            return copy_warehouse(warehouse_registry.rename_warehouse(services, name, new_name))

    def move_warehouse(self, name: str, database_url: str) -> WarehouseInfo:
        """Reach the database of a warehouse by another login, password or host."""
        with self._open("move_warehouse") as services:
            wiring = build_warehouse_wiring(self._settings)
            return copy_warehouse(warehouse_registry.move_warehouse(services, wiring, name, database_url))

    def drop_warehouse(self, name: str, *, forces: bool, keeps_lake: bool) -> WarehouseContents:
        """Drop a warehouse. forces: one that isn't empty, too. keeps_lake: only stop serving it."""
        with self._open("drop_warehouse") as services:
            wiring = build_warehouse_wiring(self._settings)
            had = warehouse_removal.drop_warehouse(services, wiring, name, forces=forces, keeps_lake=keeps_lake)
        return copy_record(WarehouseContents, had)

    def read_options(self, name: str) -> Mapping[str, str]:
        """Read the options of a warehouse."""
        with self._open("read_options", name) as services:
            return warehouse_options.read_options(services)

    def change_options(self, name: str, changes: Mapping[str, str | None]) -> Mapping[str, str]:
        """Change options of a warehouse, all or none; None: as it is by default."""
        with self._open("change_options", name) as services:
            roots = find_warehouse_roots(self._settings)
            return warehouse_options.change_options(services, changes, check_policies, roots)

    def set_grants(self, name: str, *, is_on: bool) -> None:
        """Let grants decide in a warehouse, or scopes alone."""
        with self._open("set_grants", name) as services:
            grants.set_grants(services, is_on=is_on)

    def change_grants(
        self, warehouse: str, principal: str, privileges: Sequence[str], target: str, *, is_revoked: bool = False
    ) -> GrantCounts:
        """Give privileges on an object, or take them. target: as `table:sales.orders`."""
        change = grants.GrantChange(principal, tuple(privileges), grants.parse_object(target))
        given, taken = ((), [change]) if is_revoked else ([change], ())
        with self._open("change_grants", warehouse) as services:
            granted, revoked = grants.change_grants(services, given, taken)
            return GrantCounts(granted, revoked, grants.has_grants_on(services))

    def list_grants(self, warehouse: str, principal: str | None = None, on: str | None = None) -> Sequence[GrantInfo]:
        """List the grants of a warehouse, those of a principal, or those on an object."""
        with self._open("list_grants", warehouse) as services:
            target = None if on is None else grants.parse_object(on)
            found = [*walk_pages(lambda page: grants.list_grants(services, principal, target, page))]
        return [*map(copy_grant, found)]

    def explain_decision(
        self, warehouse: str, principal: str, action: str, target: str, *, scopes: str | None = None, groups: str = ""
    ) -> DecisionInfo:
        """Say whether a principal may do something with an object, and what decides that."""
        asked, outside = grants.parse_principal(principal, scopes, groups), build_outside(self._settings)
        with self._open("explain_decision", warehouse) as services:
            found = grants.explain_decision(services, asked, action, grants.parse_object(target), outside)
        by = [ReasonInfo(list_names(held.privilege)[0], str(held.object), tuple(held.path)) for held in found.by]
        return replace(copy_record(DecisionInfo, found), by=tuple(by))

    def add_policy(
        self,
        warehouse: str,
        name: str,
        target: str | None = None,
        *,
        column: str | None = None,
        tag: str | None = None,
        mask: str | None = None,
        condition: str | None = None,
        to: Sequence[str] = (),
        exempt: Sequence[str] = (),
    ) -> PolicyInfo:
        """Add a row filter or a column mask. target: the table, as `table:sales.orders`; None: for a tag."""
        what = column, tag, mask, condition
        new = PolicyDefinition(name, None if target is None else parse_table(target), *what, tuple(to), tuple(exempt))
        with self._open("add_policy", warehouse) as services:
            return copy_policy(policies.add_policy(services, new))

    def list_policies(self, warehouse: str, on: str | None = None) -> Sequence[PolicyInfo]:
        """List the policies of a warehouse, or of a table."""
        with self._open("list_policies", warehouse) as services:
            return [
                copy_policy(one)
                for one in policies.list_policies(services, None if on is None else parse_table(on)).items
            ]

    def drop_policy(self, warehouse: str, policy_id: str) -> None:
        """Drop a policy."""
        with self._open("drop_policy", warehouse) as services:
            policies.drop_policy(services, UUID(policy_id))

    def change_tag(self, warehouse: str, tag: str, target: str, column: str, *, is_given: bool) -> None:
        """Give a column a tag, or take it. target: the table, as `table:sales.orders`."""
        table = parse_table(target)
        with self._open("change_column_tags", warehouse) as services:
            policies.change_tag(services, TaggedColumn(tag, table, column), is_given=is_given)

    def list_tags(self, warehouse: str, on: str | None = None) -> Sequence[TaggedColumnInfo]:
        """List the tagged columns of a warehouse, or of a table."""
        with self._open("list_column_tags", warehouse) as services:
            found = policies.list_tags(services, None if on is None else parse_table(on)).items
        return [TaggedColumnInfo(one.tag, name_table(one.table), one.column, one.is_live) for one in found]

    def export(self) -> dict[str, Any]:
        """Return all that governs the server as one document, without secrets."""
        with self._open("export_governance") as services:
            return describe_state(read_state(services, build_warehouse_wiring(self._settings)))

    def apply(self, document: Any, *, prunes: bool = False, is_dry: bool = False) -> Sequence[str]:
        """Make the server as a document says; return what changed, or would."""
        wanted = build_state(parse_document(document, self._place), self._place)
        wanted = replace(wanted, issuer_rules=self._build_issuer_rules())
        with self._open("apply_governance") as services:
            wiring = build_warehouse_wiring(self._settings)
            return apply_state(services, wiring, wanted, prunes=prunes, is_dry=is_dry)

    def _build_issuer_rules(self) -> issuers.IssuerRules:
        """Build what registered issuers may say; URLs to which servers may send no requests are refused."""
        check = partial(OutboundGuard.parse(self._settings.allowed_addresses).check_url, needs_address=False)
        return issuers.IssuerRules(self._settings.oidc_issuer, check, build_profile_rules(self._settings).keys)

    @contextmanager
    def _open(self, operation: str, name: str = FIRST) -> Iterator[Services]:
        """Open the services of a warehouse, without its files where these can't be reached.

        The first one's schema holds what all share.
        """
        with open_lake(self._settings, operation) as services:
            if name == FIRST:
                yield services
                return
            row, wiring = warehouses.find_warehouse(services, name), build_warehouse_wiring(self._settings)
            try:
                own = warehouses.open_warehouse(services, wiring, row)
            except UnavailableError:
                with warehouses.open_catalog(services, wiring, row) as catalog:
                    yield catalog
                return
            try:
                yield replace(own, caller=services.caller)
            finally:
                warehouses.close_warehouse(services, own)
