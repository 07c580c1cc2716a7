"""Row-level security on DuckLake's tables, which narrows logins to what they may read, and no one else's rights.

Policies say `TO <group>`; the owner of the tables, its members and superusers aren't asked, other roles get `true`,
which Postgres drops while it plans. What a login may read is computed by a function when a statement runs, from the
same rows and by the same query as the server's decisions.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from psycopg import sql
from psycopg.errors import DeadlockDetected, InsufficientPrivilege, LockNotAvailable, UndefinedTable

from duckicelake.errors import ConflictError, UnavailableError, UnsupportedError
from duckicelake.lake.ducklake.roles import act_as_owner
from duckicelake.lake.ducklake.snapshots import read_lake_format
from duckicelake.lake.formats import FORMAT_1_0
from duckicelake.lake.side_tables.grants import GrantPlace
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("duckdb_login", "rules")
_GRANTS_SQL = load_queries("lake", "grants")
_POLICIES_SQL = load_queries("lake", "policies")
_LOCK_SECONDS: Final = 0.2
"""Seconds for which a table is waited for, and others wait behind that: well below `deadlock_timeout`, so that a writer
of DuckDB's never is the one whose transaction ends."""
_PAUSE_SECONDS: Final = 0.1
_COVER_SECONDS: Final = 20.0
"""Seconds in which all of DuckLake's tables must have been free once."""
_TABLES: Final = "SELECT {schema}.duckicelake_login_reads('table')"
_OF_TABLE: Final = f"table_id IN ({_TABLES})"
_OF_MACRO: Final = "macro_id IN (SELECT {schema}.duckicelake_login_reads('macro'))"
_WHILE_IT_LASTS: Final = "EXISTS (SELECT {schema}.duckicelake_login_reads('lake'))"
CONDITIONS: Final = {
    "ducklake_metadata": f"{_WHILE_IT_LASTS} AND (scope IS NULL OR scope_id IN ("
    "SELECT {schema}.duckicelake_login_reads(scope)))",
    "ducklake_snapshot": "EXISTS (SELECT {schema}.duckicelake_login_reads('ready'))",  # DuckDB begins by reading it
    "ducklake_snapshot_changes": "false",
    "ducklake_schema": "schema_id IN (SELECT {schema}.duckicelake_login_reads('schema'))"
    f" OR schema_name = 'main' AND {_WHILE_IT_LASTS}",  # without it, DuckDB can't USE the lake, or call its functions
    "ducklake_table": _OF_TABLE,
    "ducklake_view": "view_id IN (SELECT {schema}.duckicelake_login_reads('view'))",
    "ducklake_macro": _OF_MACRO,
    "ducklake_macro_impl": _OF_MACRO,
    "ducklake_macro_parameters": _OF_MACRO,
    "ducklake_tag": "object_id IN (SELECT {schema}.duckicelake_login_reads('object'))",
    "ducklake_name_mapping": "mapping_id IN (SELECT mapping_id FROM {schema}.ducklake_column_mapping)",
    **dict.fromkeys(
        (
            *("ducklake_column", "ducklake_column_tag", "ducklake_column_mapping", "ducklake_schema_versions"),
            *("ducklake_data_file", "ducklake_delete_file", "ducklake_inlined_data_tables"),
            *("ducklake_file_column_stats", "ducklake_file_variant_stats"),
            *("ducklake_table_stats", "ducklake_table_column_stats"),
            *("ducklake_partition_info", "ducklake_partition_column", "ducklake_file_partition_value"),
            *("ducklake_sort_info", "ducklake_sort_expression"),
        ),
        _OF_TABLE,
    ),
}
"""Which rows of DuckLake's tables a login sees. A table that isn't here is closed to logins, as those of a later format
are. `readable` in `sql/rules.sql` leaves out tables with policies."""


@dataclass(frozen=True, slots=True)
class LoginRules:
    """The rules of one lake. schema: of its tables; group: the role that all its logins are in."""

    schema: str
    group: str


def apply_rules(database: Database, place: GrantPlace) -> LoginRules:
    """Put the rules of a lake in force, if they aren't yet, and return them.

    Raises ConflictError where a DBA has to do something first, UnavailableError where a table wasn't free, and
    UnsupportedError for a lake of DuckLake 1.1.
    """
    with database.transaction() as cursor:
        ((schema,),) = cursor.execute(_SQL.schema).fetchall()
        _check_format(cursor)
        ((group, is_there),) = cursor.execute(_SQL.group, {"schema": schema}).fetchall()
        rules = LoginRules(schema, group)
        texts = _build_texts(rules, place)
        digest = sha256("".join((*texts, *CONDITIONS.values(), _SQL.cover)).encode()).hexdigest()
        name = f"{_quote(schema)}.duckicelake_login_reads(text)"
        in_force = cursor.execute(_SQL.digest, {"name": name}).fetchone()
        if is_there and in_force == (digest,):
            return rules
        _check_powers(cursor, schema)
        if not is_there:
            cursor.execute(f"CREATE ROLE {_quote(group)} NOLOGIN")
        for text in texts:
            cursor.execute(text)
        found = cursor.execute(_SQL.tables, {"schema": schema, "names": [*CONDITIONS]}).fetchall()
    for (table,) in found:
        condition = CONDITIONS[table].format(schema=_quote(schema))
        _retry(lambda table=table, condition=condition: _cover(database, rules, table, condition))  # type: ignore[misc]
    cover_inlined(database, rules, _retry)
    with database.transaction() as cursor:
        cursor.execute(_SQL.sign.format(schema=_quote(schema), digest=sql.Literal(digest).as_string()))
    return rules


def cover_inlined(database: Database, rules: LoginRules, run: Callable[[Callable[[], None]], None]) -> None:
    """Let logins read tables of inlined rows that DuckDB has made meanwhile, each if its table is theirs.

    Until then a login whose table it is gets an error for each transaction: rows are never left out, nor deleted ones
    shown. run: runs the change of one table, which raises LockNotAvailable while a transaction has the table.
    """
    with database.statement() as cursor:
        found = cursor.execute(_SQL.inlined, {"schema": rules.schema}).fetchall()
    for name, table_id in found:
        condition = f"{table_id} IN ({_TABLES.format(schema=_quote(rules.schema))})"
        # Dropped meanwhile, or made by a role that isn't the owner of the lake: doctor names those.
        with suppress(UndefinedTable, InsufficientPrivilege):
            run(lambda name=name, condition=condition: _cover(database, rules, name, condition))  # type: ignore[misc]


def find_rules(database: Database, schema: str) -> LoginRules:
    """Find the rules of a lake that has them."""
    with database.statement(only_reads=True) as cursor:
        ((group, _),) = cursor.execute(_SQL.group, {"schema": schema}).fetchall()
        return LoginRules(schema, group)


def _cover(database: Database, rules: LoginRules, table: str, condition: str) -> None:
    """Cover one table in a transaction of its own, which has the lock of no other."""
    whole = f"{_quote(rules.schema)}.{_quote(table)}"
    with database.transaction() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'; SET LOCAL client_min_messages = warning")
        cursor.execute(f"SET LOCAL search_path = {_quote(rules.schema)}, pg_temp")
        with act_as_owner(cursor):
            cursor.execute(_SQL.cover.format(table=whole, group=_quote(rules.group), condition=condition))


def _retry(change: Callable[[], None]) -> None:
    """Try again while another transaction has the table. Raises UnavailableError."""
    until = time.monotonic() + _COVER_SECONDS
    while True:
        try:
            return change()
        except (LockNotAvailable, DeadlockDetected) as error:
            if time.monotonic() > until:
                raise UnavailableError(
                    "A transaction keeps one of DuckLake's tables, so that it can't be closed to logins: try again"
                ) from error
        time.sleep(_PAUSE_SECONDS)


def _build_texts(rules: LoginRules, place: GrantPlace) -> tuple[str, ...]:
    """Build the statements that make the functions."""
    governance = _quote(place.schema or rules.schema) + "."
    warehouse_id = f"'{place.warehouse_id}'::uuid"
    held, guarded = (query.rstrip(";") for query in (_GRANTS_SQL.held, _POLICIES_SQL.guarded))
    for parameter, value in {
        "%(principal_id)s": "(SELECT principal_id FROM login)",
        "%(groups)s": "(SELECT token_groups FROM login)::text[]",
        "%(warehouse_id)s": warehouse_id,
        "{governance}": governance,
    }.items():
        held, guarded = held.replace(parameter, value), guarded.replace(parameter, value)
    values = {
        "schema": _quote(rules.schema),
        "schema_text": sql.Literal(_quote(rules.schema)).as_string(),
        "group": _quote(rules.group),
        "governance": governance,
        "warehouse_id": warehouse_id,
        "held": held,
        "guarded": guarded,
    }
    return tuple(text.format(**values) for text in (_SQL.refuse, _SQL.reads_of, _SQL.reads, _SQL.close_functions))


def _check_format(cursor: Transaction) -> None:
    found = read_lake_format(cursor)
    if found != FORMAT_1_0:
        raise UnsupportedError("duckdb-logins", f"The lake is of DuckLake {found.version}; logins are for those of 1.0")


def _check_powers(cursor: Transaction, schema: str) -> None:
    """Raise ConflictError that names the SQL which a DBA must run first."""
    ((role, may_make_roles, open_schemas, open_tables),) = cursor.execute(_SQL.powers).fetchall()
    needed = [] if may_make_roles else [f"ALTER ROLE {_quote(role)} CREATEROLE"]
    needed += [f"REVOKE CREATE ON SCHEMA {name} FROM PUBLIC" for name in open_schemas]
    needed += [f"REVOKE ALL ON {name} FROM PUBLIC" for name in open_tables]
    if needed:
        raise ConflictError(
            f"The server can't make logins for DuckDB on the lake in schema {schema} yet. A superuser of Postgres has "
            f"to run: {'; '.join(needed)};"
        )


def _quote(name: str) -> str:
    return sql.Identifier(name).as_string()
