"""Definer views: whoever may read one may read by it what its definer may read, as the view's SQL says.

The definer is whoever set the mode or changed the SQL last, being the view's owner. It is recorded with a digest of all
SQL that the view stands for: its own, and that of the views which it reads. A change of any of it, by whichever client,
ends the loan until an owner sets the mode again. The definer's rights are those of each load and query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from hashlib import sha256
from typing import Any, Final

import orjson

from duckicelake.bridge.views import Reference, find_view_references
from duckicelake.catalog.context.caller import Capability, Loan, Principal, build_grants, build_refusal
from duckicelake.catalog.context.outside import Place
from duckicelake.catalog.context.privileges import Privilege
from duckicelake.catalog.context.services import Services
from duckicelake.errors import ForbiddenError, InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, parse_readable_namespace, to_schema_name
from duckicelake.iceberg.view import ViewMetadata
from duckicelake.lake.ducklake import views
from duckicelake.lake.model import LakeView, ViewDefinition
from duckicelake.lake.side_tables import grants, reader
from duckicelake.lake.side_tables.grants import DEFINER_KEYS
from duckicelake.postgres.queries import Transaction
from duckicelake.properties import VIEW_SECURITY, is_definer_view

MAX_VIEWS: Final = 20
"""Views that a definer view may read, and that a chain may have."""


class LoanChange(Enum):
    """What a change of a view means for the rights that it lends."""

    NONE = auto()
    BEGINS = auto()
    ENDS = auto()


@dataclass(frozen=True, slots=True)
class StoredView:
    """A view as the lake has it, with the metadata of Iceberg clients if they have loaded it as it is."""

    lake: LakeView
    metadata: Mapping[str, Any] | None

    @property
    def is_definer(self) -> bool:
        """Whether its property says so."""
        properties = (self.metadata or {}).get("properties", {})
        return str(properties.get(VIEW_SECURITY, "")).lower() == "definer"

    @property
    def definition(self) -> tuple[Any, ...]:
        """All SQL that an engine may take the view for, and how names in it are read."""
        own = self.lake.definition
        current: Mapping[str, Any] = {}
        if self.metadata is not None:
            wanted = self.metadata["current-version-id"]
            current = next(one for one in self.metadata["versions"] if one["version-id"] == wanted)
        queries = tuple((str(one.get("dialect")), str(one.get("sql"))) for one in current.get("representations", ()))
        default = tuple(current.get("default-namespace") or ()), current.get("default-catalog")
        return self.lake.schema_name, own.dialect, own.sql, own.column_aliases, own.query, queries, *default

    def find_references(self) -> frozenset[Reference]:
        """Find what the view reads, by its names: of each all that it may mean."""
        return find_view_references(*self.definition)

    def find_sources(self) -> frozenset[Place]:
        """Find all tables and views that names in the view may mean."""
        return frozenset(place for reference in self.find_references() for place in reference)


def read_view(cursor: Transaction, namespace: Namespace, name: str) -> StoredView | None:
    """Read a view as it is now; None if there is none of this name."""
    view = views.find_view(cursor, to_schema_name(namespace), name)
    if view is None:
        return None
    row = views.read_view_row(cursor, view.view_id)
    is_known = row is not None and row.view_id == view.view_id and _has_same_sql(row.definition, view.definition)
    return StoredView(view, row.metadata if row is not None and is_known else None)


def _has_same_sql(one: ViewDefinition, other: ViewDefinition) -> bool:
    return replace(one, comment=None, column_comments=()) == replace(other, comment=None, column_comments=())


def compute_digest(cursor: Transaction, view: StoredView) -> bytes | None:
    """Compute the digest of all SQL that a view stands for; None if it reads more than MAX_VIEWS views.

    Tables count by name alone. A table in the place of a view, or a view in that of a table, is a change.
    """
    found: dict[str, Any] = {"": [view.lake.view_id, *view.definition]}
    waiting, nested = sorted(view.find_sources()), 0
    while waiting:
        place = waiting.pop()
        key = orjson.dumps(place).decode()
        if key in found:
            continue
        inner = read_view(cursor, *place)
        if inner is None:
            found[key] = reader.find_table_id(cursor, to_schema_name(place[0]), place[1]) is not None
            continue
        nested += 1
        if nested > MAX_VIEWS:
            return None
        found[key] = [inner.lake.view_id, *inner.definition]
        waiting.extend(sorted(inner.find_sources()))
    return sha256(orjson.dumps(found, option=orjson.OPT_SORT_KEYS)).digest()


def check_loan(
    services: Services, place: Place, base: ViewMetadata | None, metadata: ViewMetadata, *, sets_mode: bool
) -> LoanChange:
    """Check a change of a view's metadata by what it means for a loan; base: None for a new view.

    sets_mode: the change sets the mode, perhaps to what it was.

    Raises:
        InvalidRequestError: the mode has another form, or the view can't lend.
        ForbiddenError: the caller doesn't own the view, or may not read what it reads.

    """
    was = base is not None and base.properties.get(VIEW_SECURITY, "").lower() == "definer"
    if not is_definer_view(metadata.properties):
        return LoanChange.ENDS if was else LoanChange.NONE
    if base is not None and was and not sets_mode and metadata.current_version() == base.current_version():
        return LoanChange.NONE
    principal = services.caller.principal
    rights = principal.rights
    if services.rights is None or rights is None or not rights.are_granted:
        raise InvalidRequestError(f"{VIEW_SECURITY}=definer takes a warehouse with grants on: this one has none")
    if rights.owner_id is None:
        raise ForbiddenError("The caller is no registered principal, so a view can't lend its rights")
    if base is not None and Privilege.OWNERSHIP not in rights.find(*place):
        raise build_refusal(*place, principal)
    return LoanChange.BEGINS


def begin_loan(services: Services, cursor: Transaction, place: Place) -> None:
    """Record the caller as the definer of a view, within the transaction that makes the view what it is.

    Raises ForbiddenError if it may not read what the view reads; InvalidRequestError if that can't be found.
    """
    view, principal = read_view(cursor, *place), services.caller.principal
    assert view is not None
    assert services.rights is not None
    assert principal.rights is not None
    assert principal.rights.owner_id is not None
    references = view.find_references()
    for reference in sorted(references):
        if not any(principal.may(Capability.READ, *place) for place in reference):
            raise build_refusal(*(reference or (place,))[0], principal)
    digest = compute_digest(cursor, view)
    if not references or digest is None:
        raise InvalidRequestError(
            f"A definer view reads tables or views by SQL of DuckDB or Spark, and {MAX_VIEWS} views at most"
        )
    owner = principal.rights.owner_id
    grants.record_definer(cursor, services.rights.place, view.lake.view_id, owner, digest)


def end_loans(services: Services, cursor: Transaction, view_ids: Sequence[int]) -> None:
    """Let views lend nothing until an owner sets their mode again."""
    if services.rights is not None and view_ids:
        grants.forget_definers(cursor, services.rights.place, view_ids)


def find_lender(services: Services, cursor: Transaction, view: StoredView) -> Principal | None:
    """Find the principal with whose rights a view reads, as they are now; None: with its reader's own.

    That is the definer, if it still owns the view, and the view still reads what it did when the mode was set.
    """
    if services.rights is None or not view.is_definer:
        return None
    definer = grants.find_definer(cursor, services.rights.place, view.lake.view_id)
    namespace = parse_readable_namespace(view.lake.schema_name)
    if definer is None or namespace is None or definer.definition != compute_digest(cursor, view):
        return None
    named = Principal(definer.name, build_grants(definer.scopes), principal_id=definer.principal_id)
    lender = services.rights.read_in(cursor, named.in_warehouse(services.warehouse))
    is_owner = lender.rights is not None and Privilege.OWNERSHIP in lender.rights.find(namespace, view.lake.view_name)
    return lender if is_owner else None


def borrow_rights(services: Services, place: Place, *, takes_keys: bool = False) -> Principal | None:
    """Give the caller the right to read a table or view that it loads through definer views; None: nothing is lent.

    The chain is the client's claim. It counts as far as each view in it may be read, and really reads the next.

    takes_keys: the loan is worth nothing without keys.
    """
    caller = services.caller
    rights = caller.principal.rights
    chain = caller.referenced_by
    if services.rights is None or rights is None or not rights.are_granted or not 0 < len(chain) <= MAX_VIEWS:
        return None
    with services.database.reading() as cursor:
        lender = _follow_chain(services, cursor, chain, place)
        if lender is None:
            return None
        gives_keys = grants.has_option(cursor, services.rights.place, DEFINER_KEYS)
    if takes_keys and not gives_keys:
        return None
    lent = lend(caller.principal, lender, place)
    return None if lent is None else replace(lent, loan=Loan(lender.name, gives_keys))


def lend(principal: Principal, lender: Principal, place: Place, *, is_query: bool = False) -> Principal | None:
    """Return the principal with the right to read a table or view that the lender may read; None if that isn't lent.

    Its own scopes stay the upper bound, and the outside is asked about both. is_query: by a query of the server, which
    hides what policies hide from the principal; else nothing is lent of what they hide a part of.
    """
    if principal.rights is None or not lender.may(Capability.READ, *place):
        return None
    lent = principal.with_rights(principal.rights.add_loan(*place))
    may_read = lent.may_query(*place) if is_query else lent.may(Capability.READ, *place)
    return lent if may_read else None


def _follow_chain(services: Services, cursor: Transaction, chain: Sequence[Place], place: Place) -> Principal | None:
    """Return who lends the right to read at the chain's end, if the chain holds; None without a loan."""
    acting = services.caller.principal
    for here, following in zip(chain, [*chain[1:], place], strict=True):
        view = read_view(cursor, *here) if acting.may(Capability.READ, *here) else None
        if view is None or tuple(following) not in view.find_sources():
            return None
        acting = find_lender(services, cursor, view) or acting
    return None if acting is services.caller.principal else acting
