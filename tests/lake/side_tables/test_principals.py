"""Principals hold each other in no circle; every change of governance makes a new version."""

import threading
from collections.abc import Callable
from itertools import pairwise

import psycopg
import pytest

from duckicelake.errors import InvalidRequestError
from duckicelake.lake.side_tables import issuers, principals
from duckicelake.lake.side_tables.issuers import Issuer
from duckicelake.lake.side_tables.principals import NewPrincipal, NewSecret, PrincipalKind, PrincipalRow
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction

NIL = "00000000-0000-0000-0000-000000000000"


def add(database: Database, name: str, kind: PrincipalKind) -> PrincipalRow:
    with database.transaction() as cursor:
        row = principals.insert_principal(cursor, NewPrincipal(name, kind))
    assert row is not None
    return row


def put(database: Database, container: PrincipalRow, member: PrincipalRow) -> None:
    with database.transaction() as cursor:
        principals.add_member(cursor, container.principal_id, member.principal_id)


@pytest.mark.parametrize(
    ("container", "member", "may"),
    [
        (container, member, container == "role" or (container == "group" and member in {"user", "service"}))
        for container in principals.KINDS
        for member in principals.KINDS
    ],
)
def test_groups_hold_users_and_services_and_roles_hold_all(
    database: Database, container: PrincipalKind, member: PrincipalKind, may: bool
) -> None:
    outer, inner = add(database, "outer", container), add(database, "inner", member)
    if may:
        put(database, outer, inner)
        return
    with pytest.raises(InvalidRequestError, match="can't be a member"):
        put(database, outer, inner)


def test_circles_of_every_length_are_refused(database: Database) -> None:
    roles = [add(database, f"r{number}", "role") for number in range(4)]
    for outer, inner in pairwise(roles):
        put(database, outer, inner)
    for inner in roles:
        with pytest.raises(InvalidRequestError, match="circle"):
            put(database, roles[-1], inner)
    put(database, roles[0], roles[2])
    with database.reading() as cursor:
        assert len(principals.read_memberships(cursor)) == 4


def test_two_halves_of_a_circle_are_not_added_at_once(database: Database) -> None:
    """Two transactions, each of which alone closes no circle."""
    first, second = add(database, "r1", "role"), add(database, "r2", "role")
    refused: list[Exception] = []

    def close() -> None:
        try:
            put(database, second, first)
        except InvalidRequestError as error:
            refused.append(error)

    with database.transaction() as cursor:
        principals.add_member(cursor, first.principal_id, second.principal_id)
        other = threading.Thread(target=close)
        other.start()
        other.join(0.3)
        assert other.is_alive()
    other.join(10)
    assert len(refused) == 1


def test_containers_are_all_above_but_those_that_are_disabled_or_above_such(database: Database) -> None:
    user, group = add(database, "ann", "user"), add(database, "analysts", "group")
    reader, staff, everyone = (add(database, name, "role") for name in ("reader", "staff", "everyone"))
    token_group = add(database, "from-token", "group")
    for outer, inner in ((group, user), (reader, group), (everyone, reader), (staff, token_group)):
        put(database, outer, inner)
    with database.transaction() as cursor:
        assert principals.read_containers(cursor, user.principal_id) == ("analysts", "everyone", "reader")
        both = principals.read_containers(cursor, user.principal_id, ["from-token", "staff", "nowhere"])
        assert both == ("analysts", "everyone", "from-token", "reader", "staff")
        assert principals.read_containers(cursor, None, ["from-token"]) == ("from-token", "staff")
        principals.update_principal(cursor, reader.principal_id, (), "", is_disabled=True)
        assert principals.read_containers(cursor, user.principal_id) == ("analysts",)


def _add_grant(cursor: Transaction, ann: int) -> None:
    columns = "grantee_id, warehouse_id, object_kind, object_id, privilege, granted_by"
    statement = f"""INSERT INTO duckicelake_grant ({columns})
                    VALUES (%s, %s, 'warehouse', 0, 'select', 'root')"""
    cursor.execute(statement, [ann, NIL])


CHANGES: dict[str, Callable[[Transaction, int], object]] = {
    "principal": lambda cursor, _: principals.insert_principal(cursor, NewPrincipal("bob", "user")),
    "update": lambda cursor, ann: principals.update_principal(cursor, ann, (), "", is_disabled=True),
    "member": lambda cursor, ann: principals.add_member(cursor, 1, ann),
    "secret": lambda cursor, ann: principals.insert_secret(cursor, NewSecret(ann, "token", b"x")),
    "issuer": lambda cursor, _: issuers.insert_issuer(cursor, Issuer("corp", "https://idp.example", "lake")),
    "grant": _add_grant,
    "option": lambda cursor, _: cursor.execute(
        "INSERT INTO duckicelake_warehouse_option VALUES (%s, 'grants', 'on')", [NIL]
    ),
    "deletion": principals.delete_principal,
    "truncation": lambda cursor, _: cursor.execute("TRUNCATE duckicelake_grant"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_makes_a_new_version(database: Database, change: str) -> None:
    ann = add(database, "ann", "user").principal_id
    with database.reading() as cursor:
        before = principals.read_version(cursor)
    with database.transaction() as cursor:
        CHANGES[change](cursor, ann)
    with database.reading() as cursor:
        assert principals.read_version(cursor) > before


def test_a_note_of_use_makes_no_new_version(database: Database) -> None:
    ann = add(database, "ann", "user").principal_id
    with database.transaction() as cursor:
        secret = principals.insert_secret(cursor, NewSecret(ann, "token", b"x"))
        before = principals.read_version(cursor)
        principals.note_use(cursor, secret.secret_id)
        assert principals.read_version(cursor) == before
        ((used, _),) = [principals.find_secret(cursor, "token", b"x") or (secret, None)]
        assert used.last_used is not None
        assert principals.find_secret(cursor, "client-secret", b"x") is None


def test_a_change_is_published(database: Database, database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as listener:
        listener.execute("LISTEN duckicelake_governance")
        add(database, "ann", "user")
        assert len(list(listener.notifies(timeout=5, stop_after=1))) == 1
