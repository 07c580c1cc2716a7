"""The state of a server's governance, as a document wants it or as it is."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.issuers import IssuerRules, ListedIssuer
from duckicelake.catalog.policy_definitions import PolicyDefinition, TaggedColumn
from duckicelake.catalog.principals import PrincipalRegistration
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.errors import InvalidRequestError


@dataclass(frozen=True, slots=True, order=True)
class GrantKey:
    """A privilege of a principal. object: as commands take it."""

    principal: str
    warehouse: str
    object: str
    privilege: str


@dataclass(frozen=True, slots=True, order=True)
class PolicyKey:
    """What names a policy. object: the table, as commands take it; empty: of a tag."""

    warehouse: str
    object: str
    name: str


@dataclass(frozen=True, slots=True, order=True)
class TagKey:
    """A tag of a column. object: the table, as commands take it. column: in lower case."""

    warehouse: str
    tag: str
    object: str
    column: str


@dataclass(frozen=True, slots=True)
class WarehouseState:
    """A warehouse. new: how to create it; grants_on, options: None: as they are."""

    new: NewWarehouse
    grants_on: bool | None = None
    options: Mapping[str, str] | None = None


@dataclass(slots=True)
class GovernanceState:
    """Principals, memberships, issuers, warehouses, grants, policies and tags of columns, by what names them.

    Attributes:
        whole: kinds of what is complete: a principal's kind, `issuer`, `grant`, `policy`, `tag`, or `members of NAME`.
        policy_ids: of policies that there are.
        kept: grants of ownership that their holders have because they created the object.
        given: which attributes of a principal are wanted; of others nothing is said.
        places: where in a file something is.
        issuer_rules: what issuers may say.

    """

    principals: dict[str, PrincipalRegistration] = field(default_factory=dict)
    members: set[tuple[str, str]] = field(default_factory=set)
    issuers: dict[str, ListedIssuer] = field(default_factory=dict)
    warehouses: dict[str, WarehouseState] = field(default_factory=dict)
    grants: set[GrantKey] = field(default_factory=set)
    policies: dict[PolicyKey, PolicyDefinition] = field(default_factory=dict)
    policy_ids: dict[PolicyKey, UUID] = field(default_factory=dict)
    tags: dict[TagKey, TaggedColumn] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    kept: set[GrantKey] = field(default_factory=set)
    given: dict[str, Collection[str]] = field(default_factory=dict)
    places: dict[object, str] = field(default_factory=dict)
    issuer_rules: IssuerRules = field(default_factory=IssuerRules)


@dataclass(frozen=True, slots=True)
class Step:
    """A change. key: of what it is about, in the places of the state."""

    text: str
    key: object
    act: Callable[[Services], object]


def refuse(wanted: GovernanceState, key: object, message: str) -> InvalidRequestError:
    """Build the error of something wanted that can't be, with its place."""
    return InvalidRequestError(f"{wanted.places.get(key, 'the state')}: {message}")
