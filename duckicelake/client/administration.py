"""Administer a server over REST: principals, secrets, issuers, storage profiles, warehouses, grants, policies."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, Literal

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
    SecretInfo,
    TaggedColumnInfo,
    WarehouseContents,
    WarehouseInfo,
)
from duckicelake.client.models import Json, format_schema
from duckicelake.client.records import parse_record
from duckicelake.errors import BadInputError
from duckicelake.rest.client import CatalogClient, encode_segment

_ROOT: Final = "/management/v1"
_LEVELS: Final = {"warehouse": 0, "namespace": 1, "table": 2, "view": 2}  # that a name has at least
FIRST: Final = "duckicelake"  # the first warehouse


def split_object(text: str) -> tuple[str, tuple[str, ...]]:
    """Split an object as commands take it, `table:sales.orders`, into its kind and its levels.

    Raises BadInputError.
    """
    kind, _, name = text.partition(":")
    levels = tuple(level.replace("%2E", ".").replace("%25", "%") for level in name.split(".")) if name else ()
    if kind not in _LEVELS or not _LEVELS[kind] <= len(levels) or (kind == "warehouse" and ":" in text):
        raise BadInputError(
            f"Invalid object {text!r}: expected warehouse, namespace:NAME, table:NAMESPACE.NAME or view:NAMESPACE.NAME"
        )
    return kind, levels


class Administrator:
    """What an administrator may ask of a server. Methods raise the errors of `duckicelake.rest.client`."""

    def __init__(self, client: CatalogClient) -> None:
        self._client = client

    def list_principals(self, kinds: Sequence[PrincipalKind] = KINDS) -> Sequence[PrincipalInfo]:
        """List principals by name."""
        pages = self._client.pages(f"{_ROOT}/principals", {"kind": kinds[0]} if len(kinds) == 1 else None)
        return [parse_record(PrincipalInfo, one) for page in pages for one in page["principals"]]

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
        body: dict[str, Any] = {"name": name, "kind": kind, "issuer": issuer, "subject": subject}
        body |= {"scopes": list(scopes), "description": description}
        return parse_record(PrincipalInfo, self._client.change("POST", f"{_ROOT}/principals", _drop_none(body)))

    def load_principal(self, name: str) -> tuple[PrincipalInfo, Sequence[str]]:
        """Load a principal, with the groups and roles that it is in by itself."""
        answer = self._client.get(_path("principals", name))
        return parse_record(PrincipalInfo, answer), answer["containers"]

    def set_disabled(self, name: str, *, is_disabled: bool) -> None:
        """Disable or enable a principal."""
        self._client.change("POST", _path("principals", name), {"is-disabled": is_disabled})

    def drop_principal(self, name: str) -> None:
        """Drop a principal with its secrets, memberships and grants."""
        self._client.change("DELETE", _path("principals", name))

    def list_members(self, name: str) -> Sequence[str]:
        """List the names of the direct members of a group or role."""
        return [
            member for page in self._client.pages(_path("principals", name, "members")) for member in page["members"]
        ]

    def add_member(self, name: str, member: str) -> None:
        """Put a principal into a group or role."""
        self._client.change("POST", _path("principals", name, "members"), {"member": member})

    def remove_member(self, name: str, member: str) -> None:
        """Take a principal out of a group or role."""
        self._client.change("DELETE", _path("principals", name, "members", member))

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
        body: dict[str, Any] = {"kind": kind, "description": description, "scopes": scopes and list(scopes)}
        body |= {"expires-in": expires_in, "end-others-in": end_others_in}
        path = _path("principals", name, "secrets")
        return parse_record(SecretInfo, self._client.change("POST", path, _drop_none(body)))

    def list_secrets(self, name: str) -> Sequence[SecretInfo]:
        """List the secrets and tokens of a principal, without what they are."""
        pages = self._client.pages(_path("principals", name, "secrets"))
        return [parse_record(SecretInfo, one) for page in pages for one in page["secrets"]]

    def revoke_secret(self, name: str, secret_id: str) -> None:
        """Revoke a secret or token."""
        self._client.change("DELETE", _path("principals", name, "secrets", secret_id))

    def create_issuer(self, issuer: IssuerInfo, web_secret: str | None = None) -> IssuerInfo:
        """Trust an issuer. web_secret: of its client for the console; None: the client is public."""
        body = _describe_issuer(issuer, web_secret)
        return parse_record(IssuerInfo, self._client.change("POST", f"{_ROOT}/issuers", body))

    def change_issuer(self, issuer: IssuerInfo, web_secret: str | None = None) -> IssuerInfo:
        """Set all of an issuer but its URL. web_secret: empty: its client is public; None: as it is."""
        body = _describe_issuer(issuer, web_secret)
        return parse_record(IssuerInfo, self._client.change("POST", _path("issuers", issuer.name), body))

    def list_issuers(self) -> Sequence[IssuerInfo]:
        """List the issuers beside that of the settings."""
        pages = self._client.pages(f"{_ROOT}/issuers")
        return [parse_record(IssuerInfo, one) for page in pages for one in page["issuers"]]

    def load_issuer(self, name: str) -> IssuerInfo:
        """Load an issuer."""
        return parse_record(IssuerInfo, self._client.get(_path("issuers", name)))

    def drop_issuer(self, name: str) -> None:
        """Trust an issuer no more."""
        self._client.change("DELETE", _path("issuers", name))

    def create_profile(self, options: Mapping[str, Any], keys: tuple[str, str] | None) -> ProfileInfo:
        """Create a storage profile. options: by their names in `ProfileInfo`. keys: an id and its secret."""
        body = {name.replace("_", "-"): value for name, value in options.items()}
        body |= {} if keys is None else {"access-key-id": keys[0], "secret-access-key": keys[1]}
        return parse_record(ProfileInfo, self._client.change("POST", f"{_ROOT}/storage-profiles", _drop_none(body)))

    def list_profiles(self) -> Sequence[ProfileInfo]:
        """List the storage profiles, without their keys."""
        pages = self._client.pages(f"{_ROOT}/storage-profiles")
        return [parse_record(ProfileInfo, one) for page in pages for one in page["storage-profiles"]]

    def load_profile(self, name: str) -> ProfileInfo:
        """Load a storage profile, without its key."""
        return parse_record(ProfileInfo, self._client.get(_path("storage-profiles", name)))

    def drop_profile(self, name: str) -> None:
        """Drop a storage profile that no warehouse uses."""
        self._client.change("DELETE", _path("storage-profiles", name))

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
        body = {"name": name, "location": location, "database-url": database_url}
        body |= {"adopted-schema": adopted_schema, "storage-profile": storage_profile}
        return parse_record(WarehouseInfo, self._client.change("POST", f"{_ROOT}/warehouses", _drop_none(body)))

    def list_warehouses(self) -> Sequence[WarehouseInfo]:
        """List the warehouses beside the first."""
        pages = self._client.pages(f"{_ROOT}/warehouses")
        return [parse_record(WarehouseInfo, one) for page in pages for one in page["warehouses"]]

    def load_warehouse(self, name: str) -> WarehouseInfo:
        """Load a warehouse."""
        return parse_record(WarehouseInfo, self._client.get(_path("warehouses", name)))

    def rename_warehouse(self, name: str, new_name: str) -> WarehouseInfo:
        """Rename a warehouse."""
        answer = self._client.change("POST", _path("warehouses", name, "rename"), {"name": new_name})
        return parse_record(WarehouseInfo, answer)

    def move_warehouse(self, name: str, database_url: str) -> WarehouseInfo:
        """Reach the database of a warehouse by another login, password or host."""
        answer = self._client.change("POST", _path("warehouses", name, "database"), {"database-url": database_url})
        return parse_record(WarehouseInfo, answer)

    def drop_warehouse(self, name: str, *, forces: bool, keeps_lake: bool) -> WarehouseContents:
        """Drop a warehouse. forces: one that isn't empty, too. keeps_lake: only stop serving it."""
        query = {"force": str(forces).lower(), "keep-lake": str(keeps_lake).lower()}
        return parse_record(WarehouseContents, self._client.change("DELETE", _path("warehouses", name), None, query))

    def read_options(self, name: str) -> Mapping[str, str]:
        """Read the options of a warehouse."""
        options: dict[str, str] = self._client.get(_path("warehouses", name, "options"))["options"]
        return options

    def change_options(self, name: str, changes: Mapping[str, str | None]) -> Mapping[str, str]:
        """Change options of a warehouse, all or none; None: as it is by default."""
        path = _path("warehouses", name, "options")
        options: dict[str, str] = self._client.change("POST", path, {"options": dict(changes)})["options"]
        return options

    def set_grants(self, name: str, *, is_on: bool) -> None:
        """Let grants decide in a warehouse, or scopes alone."""
        self.apply({"warehouses": [{"name": name, "grants-on": is_on}]})

    def change_grants(
        self, warehouse: str, principal: str, privileges: Sequence[str], target: str, *, is_revoked: bool = False
    ) -> GrantCounts:
        """Give privileges on an object, or take them. target: as `table:sales.orders`."""
        change = {"principal": principal, "privileges": list(privileges), "object": _describe_object(target)}
        body = {"revoke" if is_revoked else "grant": [change]}
        answer = self._client.change("POST", _path("warehouses", warehouse, "grants"), body)
        return parse_record(GrantCounts, answer)

    def list_grants(self, warehouse: str, principal: str | None = None, on: str | None = None) -> Sequence[GrantInfo]:
        """List the grants of a warehouse, those of a principal, or those on an object."""
        query = _drop_none({"principal": principal, "on": on})
        pages = self._client.pages(_path("warehouses", warehouse, "grants"), query)
        found = (one for page in pages for one in page["grants"])
        return [parse_record(GrantInfo, one | {"object": _name_object(one)}) for one in found]

    def explain_decision(
        self, warehouse: str, principal: str, action: str, target: str, *, scopes: str | None = None, groups: str = ""
    ) -> DecisionInfo:
        """Say whether a principal may do something with an object, and what decides that."""
        query = {"principal": principal, "action": action, "on": target, "scopes": scopes, "groups": groups}
        answer = self._client.get(_path("warehouses", warehouse, "decision"), _drop_none(query))
        return parse_record(DecisionInfo, answer)

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
        body: dict[str, Any] = {"name": name, "table": None if target is None else _describe_table(target)}
        body |= {"column": column, "tag": tag, "mask": mask, "condition": condition}
        body |= {"to": list(to), "exempt": list(exempt)}
        answer = self._client.change("POST", _path("warehouses", warehouse, "policies"), _drop_none(body))
        return parse_record(PolicyInfo, answer | {"object": _name_table(answer)})

    def list_policies(self, warehouse: str, on: str | None = None) -> Sequence[PolicyInfo]:
        """List the policies of a warehouse, or of a table."""
        pages = self._client.pages(_path("warehouses", warehouse, "policies"), _drop_none({"on": on}))
        found = (one for page in pages for one in page["policies"])
        return [parse_record(PolicyInfo, one | {"object": _name_table(one)}) for one in found]

    def drop_policy(self, warehouse: str, policy_id: str) -> None:
        """Drop a policy."""
        self._client.change("DELETE", _path("warehouses", warehouse, "policies", policy_id))

    def change_tag(self, warehouse: str, tag: str, target: str, column: str, *, is_given: bool) -> None:
        """Give a column a tag, or take it. target: the table, as `table:sales.orders`."""
        body = {"give" if is_given else "take": [{"tag": tag, "table": _describe_table(target), "column": column}]}
        self._client.change("POST", _path("warehouses", warehouse, "column-tags"), body)

    def list_tags(self, warehouse: str, on: str | None = None) -> Sequence[TaggedColumnInfo]:
        """List the tagged columns of a warehouse, or of a table."""
        pages = self._client.pages(_path("warehouses", warehouse, "column-tags"), _drop_none({"on": on}))
        found = (one for page in pages for one in page["tags"])
        return [parse_record(TaggedColumnInfo, one | {"object": _name_table(one)}) for one in found]

    def export(self) -> Json:
        """Return all that governs the server as one document, without secrets."""
        return self._client.get(f"{_ROOT}/governance")

    def apply(self, document: Json, *, prunes: bool = False, is_dry: bool = False) -> Sequence[str]:
        """Make the server as a document says; return what changed, or would."""
        body = {"document": document, "prune": prunes, "dry-run": is_dry}
        changes: list[str] = self._client.change("POST", f"{_ROOT}/governance", body)["changes"]
        return changes


class OwnTokens:
    """A caller's own tokens and client secrets. Methods raise the errors of `duckicelake.rest.client`."""

    def __init__(self, client: CatalogClient) -> None:
        self._client = client

    def create(
        self,
        kind: Literal["client-secret", "token"],
        *,
        description: str = "",
        expires_in: int | None = None,
        scopes: Sequence[str] | None = None,
    ) -> SecretInfo:
        """Make one. expires_in: seconds. scopes: all that it gives; None: those of the caller."""
        body = {"kind": kind, "description": description, "expires-in": expires_in, "scopes": scopes and list(scopes)}
        return parse_record(SecretInfo, self._client.change("POST", _path("me", "tokens"), _drop_none(body)))

    def list(self) -> Sequence[SecretInfo]:
        """List those that may no more than the caller, without what they are."""
        pages = self._client.pages(_path("me", "tokens"))
        return [parse_record(SecretInfo, one) for page in pages for one in page["secrets"]]

    def rotate(self, secret_id: str, *, end_old_in: int = 0, expires_in: int | None = None) -> SecretInfo:
        """Replace one by a new one of the same scopes. end_old_in, expires_in: seconds."""
        body = _drop_none({"end-old-in": end_old_in, "expires-in": expires_in})
        path = _path("me", "tokens", secret_id, "rotate")
        return parse_record(SecretInfo, self._client.change("POST", path, body))

    def revoke(self, secret_id: str) -> None:
        """Revoke one, and all that were made with it."""
        self._client.change("DELETE", _path("me", "tokens", secret_id))


def _path(*segments: str) -> str:
    return "/".join((_ROOT, *map(encode_segment, segments)))


def _describe_issuer(issuer: IssuerInfo, web_secret: str | None) -> dict[str, Any]:
    names = [one.name for one in fields(issuer) if one.name not in {"created", "has_web_secret"}]
    body = {name.replace("_", "-"): getattr(issuer, name) for name in names}
    return _drop_none(body | {"web-secret": web_secret})


def _drop_none(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def _describe_object(text: str) -> Json:
    kind, levels = split_object(text)
    if kind == "warehouse":
        return {"kind": kind}
    if kind == "namespace":
        return {"kind": kind, "namespace": list(levels)}
    return {"kind": kind, "namespace": list(levels[:-1]), "name": levels[-1]}


def _describe_table(text: str) -> Json:
    found = _describe_object(text)
    if found.pop("kind") != "table":
        raise BadInputError(f"Policies are on tables, not on {text}: write table:NAMESPACE.NAME")
    return found


def _name_table(answer: Json) -> str | None:
    table = answer.get("table")
    return None if table is None else f"table:{format_schema((*table['namespace'], table['name']))}"


def _name_object(grant: Json) -> str | None:
    if grant["kind"] == "warehouse":
        return "warehouse"
    name = format_schema((*(grant.get("namespace") or ()), *([grant["name"]] if grant.get("name") else ())))
    return f"{grant['kind']}:{name}" if name else None
