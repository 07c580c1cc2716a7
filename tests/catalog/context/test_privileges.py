"""Rights of random grants on random objects, in roles in roles, beside an oracle that walks all of them each time."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from duckicelake.catalog.context.caller import EVERYTHING, GRANTED, Capability, Grant, Principal, parse_scope
from duckicelake.catalog.context.privileges import (
    ALL_PRIVILEGES,
    HeldGrant,
    ObjectRef,
    Privilege,
    Rights,
    expand_privilege,
    explain_grants,
    list_names,
    parse_privilege,
)
from duckicelake.iceberg.identifiers import Namespace

LEVELS = st.sampled_from(["a", "b", "a.b", "A"])
NAMESPACES = st.lists(LEVELS, min_size=1, max_size=3).map(tuple)
PRIVILEGES = st.sampled_from(list(Privilege))
OBJECTS = st.one_of(
    st.just(ObjectRef("warehouse")),
    NAMESPACES.map(lambda levels: ObjectRef("namespace", levels)),
    st.tuples(st.sampled_from(["table", "view"]), NAMESPACES, LEVELS).map(lambda parts: ObjectRef(*parts)),  # type: ignore[arg-type]
)


@dataclass(frozen=True)
class World:
    """Grants by principal number, and memberships (member, container), circles included."""

    grants: tuple[tuple[int, ObjectRef, Privilege], ...]
    memberships: tuple[tuple[int, int], ...]

    def containers(self, member: int) -> set[int]:
        """The principal and all that it is in, over any number of memberships."""
        found, waiting = {member}, [member]
        while waiting:
            here = waiting.pop()
            for inner, outer in self.memberships:
                if inner == here and outer not in found:
                    found.add(outer)
                    waiting.append(outer)
        return found

    def held(self, member: int) -> list[HeldGrant]:
        within = self.containers(member)
        return [
            HeldGrant(target.kind, hash(target) % 1000, target, privilege)
            for holder, target, privilege in self.grants
            if holder in within
        ]

    def may(self, member: int, privilege: Privilege, target: ObjectRef) -> bool:
        """The oracle: is there a grant of this, or of ownership, on the object or above it? Or of both halves?"""
        given = {held.privilege for held in self.held(member) if held.object and covers(held.object, target)}
        has_halves = privilege is Privilege.UPDATE and {Privilege.INSERT, Privilege.DELETE} <= given
        return privilege in given or Privilege.OWNERSHIP in given or has_halves


def covers(above: ObjectRef, below: ObjectRef) -> bool:
    if above.kind == "warehouse":
        return True
    if above.kind == "namespace":
        return below.kind != "warehouse" and below.namespace[: len(above.namespace)] == above.namespace
    return (above.namespace, above.name) == (below.namespace, below.name)


MEMBERS = st.integers(0, 5)
WORLDS = st.builds(
    World,
    st.lists(st.tuples(MEMBERS, OBJECTS, PRIVILEGES), max_size=12).map(tuple),
    st.lists(st.tuples(MEMBERS, MEMBERS), max_size=8).map(tuple),
)


@given(WORLDS, MEMBERS, PRIVILEGES, OBJECTS)
def test_rights_are_those_of_the_oracle(world: World, member: int, privilege: Privilege, target: ObjectRef) -> None:
    held = world.held(member)
    rights = Rights.build(held)
    expected = world.may(member, privilege, target)
    assert rights.may(privilege, target.namespace, target.name) == expected
    assert rights.may_any(privilege, target.namespace, target.name) == expected
    assert bool(explain_grants(held, privilege, target)) == expected


@given(WORLDS, MEMBERS, NAMESPACES, LEVELS)
def test_what_is_seen_is_what_something_is_granted_on_above_or_below(
    world: World, member: int, namespace: Namespace, name: str
) -> None:
    held = world.held(member)
    rights, here = Rights.build(held), ObjectRef("namespace", namespace)
    objects = [grant.object for grant in held if grant.object is not None]
    assert rights.sees(namespace) == any(
        covers(one, here) or one.namespace[: len(namespace)] == namespace for one in objects
    )
    table = ObjectRef("table", namespace, name)
    assert rights.sees_object(namespace, name) == any(covers(one, table) for one in objects)


@given(WORLDS, MEMBERS, PRIVILEGES, NAMESPACES, LEVELS)
def test_lists_for_queries_hold_what_may_be_done(
    world: World, member: int, privilege: Privilege, namespace: Namespace, name: str
) -> None:
    rights = Rights.build(world.held(member))
    listed = rights.list_namespaces(privilege)
    by_namespace = any(namespace[: len(one)] == one for one in listed)
    assert by_namespace == rights.may(privilege, namespace)
    by_name = (namespace, name) in rights.list_objects(privilege)
    assert (by_namespace or by_name) == rights.may(privilege, namespace, name)


SCOPES = st.sampled_from(["*", "grants", "ns:a:r", "ns:a:rw", "ns:a.b:w", "ns:b:*"])


@given(WORLDS, MEMBERS, st.lists(SCOPES, max_size=3), NAMESPACES, LEVELS)
def test_scopes_are_the_bound_of_grants(
    world: World, member: int, scopes: list[str], namespace: Namespace, name: str
) -> None:
    bare = Principal("p", tuple(map(parse_scope, scopes)))
    rights = Rights.build(world.held(member))
    bound = bare.with_rights(rights)
    allowed = bare.may(Capability.READ, namespace) or "grants" in scopes
    may_read = rights.may(Privilege.SELECT, namespace, name) and allowed
    assert bound.may(Capability.READ, namespace, name) == may_read
    schemas = bound.list_namespaces(Capability.READ)
    in_schemas = any(namespace[: len(one)] == one for one in schemas)
    assert in_schemas == (rights.may(Privilege.SELECT, namespace) and allowed)


def test_scope_grants_gives_nothing_by_itself_and_is_held_by_who_has_it_or_everything() -> None:
    only = Principal("p", (GRANTED,))
    assert not only.may(Capability.READ, ("a",))
    assert not only.sees(("a",))
    assert only.readable_schemas() == ()
    assert only.holds(GRANTED)
    assert not only.holds(parse_scope("ns:a:r"))
    assert not Principal("p", (parse_scope("ns:a:*"),)).holds(GRANTED)
    assert Principal("p", (Grant((), EVERYTHING),)).holds(GRANTED)


def test_names_are_those_of_documents() -> None:
    names = "select insert update delete create drop alter manage-grants ownership"
    assert " ".join(list_names(ALL_PRIVILEGES)) == names
    assert parse_privilege("ownership") == ALL_PRIVILEGES == expand_privilege(Privilege.OWNERSHIP)
