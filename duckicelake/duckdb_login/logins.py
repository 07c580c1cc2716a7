"""Make and end logins: roles of Postgres with a random password and an end, each with a row that says whose it is."""

import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from psycopg import Cursor, sql
from psycopg.errors import DependentObjectsStillExist, UndefinedObject

from duckicelake.catalog.context.caller import GRANTED, Capability, Principal
from duckicelake.catalog.context.rights import find_id
from duckicelake.catalog.context.services import Services
from duckicelake.duckdb_login.rules import LoginRules
from duckicelake.errors import TooManyRequestsError
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.grants import GrantPlace
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Row, Transaction, load_queries

_SQL = load_queries("duckdb_login", "logins")
MAX_LOGINS: Final = 20
"""Of one principal in one warehouse at a time."""
MAX_CONNECTIONS: Final = 16
"""Of one login. DuckDB opens one for each of its transactions."""
TRANSACTION_SECONDS: Final = 600
"""For which DuckDB may keep a transaction open, as it does while a query runs."""
_STATEMENT_SECONDS: Final = 120
_LOCK_SECONDS: Final = 10
_PREFIX: Final = "duckicelake_login_"
_INHERITING_VERSION: Final = 160000
"""Of Postgres, from which a membership says by itself whether it is inherited."""


@dataclass(frozen=True, slots=True)
class Login:
    """A login that was just made."""

    name: str
    password: str = field(repr=False)
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class LoginRole:
    """A role that is a login. is_over: its time has ended, or its principal is gone."""

    name: str
    schema: str
    is_over: bool


def find_place(services: Services) -> GrantPlace:
    """Find where the grants of the services' warehouse are, and the logins of all of them."""
    return GrantPlace() if services.rights is None else services.rights.place


def make_login(services: Services, rules: LoginRules, seconds: float, within: Sequence[Namespace]) -> Login:
    """Make a login for the caller. within: the namespaces that it is for; none: all. Raises TooManyRequestsError."""
    principal, place = services.caller.principal, find_place(services)
    name, password = f"{_PREFIX}{secrets.token_hex(8)}", secrets.token_urlsafe(32)
    with services.database.transaction() as cursor:
        row = _build_row(cursor, place, principal, within)
        ((count,),) = _run(cursor, _SQL.count, place, **row).fetchall()
        if count >= MAX_LOGINS:
            raise TooManyRequestsError(f"{principal.name} has {count} logins for DuckDB: wait until one has ended")
        found = _run(cursor, _SQL.insert, place, role_name=name, seconds=seconds, **row)
        ((expires_at,),) = found.fetchall()
        _make_role(cursor, name, password, expires_at, rules)
        services.settle(cursor, [build_resource(name, until=expires_at.isoformat())])
    return Login(name, password, expires_at)


def build_resource(name: str, **detail: str) -> AuditedResource:
    """Build what the audit trail calls a login."""
    return AuditedResource(f"duckdb login {name}", detail=detail)


def end_login(database: Database, place: GrantPlace, name: str) -> None:
    """End a login: it reads nothing any more, its sessions end, its role is dropped.

    A crash in between leaves a role without a row, which the next `list_roles` says is over.
    """
    role = sql.Identifier(name)
    with database.transaction() as cursor:
        _run(cursor, _SQL.delete, place, role_name=name)
        with suppress(UndefinedObject), cursor.connection.transaction():
            cursor.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(role))
    end_sessions(database, _SQL.connected, role_name=name)
    with suppress(UndefinedObject, DependentObjectsStillExist), database.transaction() as cursor:
        cursor.execute(sql.SQL("DROP OWNED BY {}").format(role))
        cursor.execute(sql.SQL("DROP ROLE {}").format(role))


def has_login(services: Services, name: str) -> bool:
    """Return whether a login is the caller's."""
    with services.database.statement(only_reads=True) as cursor:
        principal, place = services.caller.principal.name, find_place(services)
        return bool(_run(cursor, _SQL.find, place, role_name=name, principal=principal).fetchall())


def list_roles(database: Database, place: GrantPlace) -> list[LoginRole]:
    """List all roles of this database that are logins, also those that nothing is known of."""
    with database.statement(only_reads=True) as cursor:
        return [LoginRole(*row) for row in _run(cursor, _SQL.roles, place).fetchall()]


def read_version(database: Database, place: GrantPlace) -> int:
    """Read the version of principals and grants."""
    with database.statement(only_reads=True) as cursor:
        ((version,),) = _run(cursor, _SQL.version, place).fetchall()
        return int(version)


def read_reach(database: Database, role: LoginRole) -> frozenset[int]:
    """Read the ids of all tables and views that a login may read now."""
    with database.statement(only_reads=True) as cursor:
        rows = cursor.execute(_name_lake(_SQL.reach, role), {"role_name": role.name}).fetchall()
        return frozenset(id_ for (id_,) in rows)


def is_any_live(database: Database, role: LoginRole, ids: Collection[int]) -> bool:
    """Return whether one of some tables and views of the login's lake is still there."""
    with database.statement(only_reads=True) as cursor:
        ((is_live,),) = cursor.execute(_name_lake(_SQL.live, role), {"ids": list(ids)}).fetchall()
        return bool(is_live)


def end_overstaying(database: Database, names: Sequence[str]) -> None:
    """End sessions that could keep others waiting."""
    end_sessions(database, _SQL.overstaying, roles=list(names), seconds=TRANSACTION_SECONDS)


def end_sessions(database: Database, query: str, **parameters: Any) -> None:
    """End the sessions that a query names."""
    with database.statement() as cursor:
        for (pid,) in cursor.execute(query, parameters).fetchall():
            cursor.execute(_SQL.terminate, {"pid": pid})


def _build_row(
    cursor: Transaction, place: GrantPlace, principal: Principal, within: Sequence[Namespace]
) -> dict[str, Any]:
    """Build what is kept of whoever asks: scopes are those of its token, grants are asked for again and again."""
    scoped = principal.with_rights(None).list_namespaces(Capability.READ)
    return {
        "principal_id": find_id(cursor, place, principal),
        "principal": principal.name,
        "groups": list(principal.groups),
        "namespaces": None if () in scoped else [*map(to_schema_name, scoped)],
        "is_granted": GRANTED in principal.grants,
        "within": [*map(to_schema_name, within)] or None,
    }


def _make_role(cursor: Cursor[Row], name: str, password: str, expires_at: datetime, rules: LoginRules) -> None:
    """Make the role. Postgres gets a verifier of the password, so that no log of statements has it."""
    connection = cursor.connection
    verifier = connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
    role, group, has_options = (
        sql.Identifier(name),
        sql.Identifier(rules.group),
        connection.info.server_version >= _INHERITING_VERSION,
    )
    cursor.execute(
        sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} VALID UNTIL {} CONNECTION LIMIT {}").format(
            role, sql.Literal(verifier.decode()), sql.Literal(expires_at.isoformat()), sql.Literal(MAX_CONNECTIONS)
        )
    )
    inherited = sql.SQL("WITH INHERIT TRUE, SET FALSE" if has_options else "")
    cursor.execute(sql.SQL("GRANT {} TO {} {}").format(group, role, inherited))
    # To see the role's sessions, and to end them.
    owned = sql.SQL("WITH INHERIT TRUE" if has_options else "")
    cursor.execute(sql.SQL("GRANT {} TO CURRENT_USER {}").format(role, owned))
    settings = {
        "default_transaction_read_only": "on",
        "statement_timeout": f"{_STATEMENT_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{TRANSACTION_SECONDS}s",
        "lock_timeout": f"{_LOCK_SECONDS}s",
        "client_encoding": "UTF8",
        "standard_conforming_strings": "on",
    }
    database = sql.Identifier(connection.info.dbname)
    for setting, value in settings.items():
        statement = sql.SQL("ALTER ROLE {} IN DATABASE {} SET {} TO {}")
        cursor.execute(statement.format(role, database, sql.Identifier(setting), sql.Literal(value)))


def _name_lake(query: str, role: LoginRole) -> str:
    return query.replace("{lake}", f"{sql.Identifier(role.schema).as_string()}.".replace("%", "%%"))


def _run(cursor: Transaction, query: str, place: GrantPlace, **parameters: Any) -> Transaction:
    prefix = "" if place.schema is None else f"{sql.Identifier(place.schema).as_string()}.".replace("%", "%%")
    return cursor.execute(query.replace("{governance}", prefix), {"warehouse_id": place.warehouse_id, **parameters})
