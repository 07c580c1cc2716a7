"""Give a caller all that DuckDB needs: a login to Postgres, keys for the folders of its tables, statements to paste."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from psycopg.conninfo import make_conninfo

from duckicelake.catalog.authz.table_folders import find_reach, find_table_folders
from duckicelake.catalog.context.caller import Capability, build_refusal
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.delegation import MAX_GRANTED_SECONDS
from duckicelake.catalog.table.load import load_current_table
from duckicelake.duckdb_login.logins import Login, build_resource, end_login, find_place, has_login, make_login
from duckicelake.duckdb_login.rules import LoginRules, apply_rules
from duckicelake.errors import CatalogError, InvalidRequestError, NotFoundError, UnavailableError, UnsupportedError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_readable_namespace
from duckicelake.lake.ducklake.database import build_attach_source, quote_literal
from duckicelake.lake.side_tables.audit import OK_RESULT
from duckicelake.postgres.queries import load_queries
from duckicelake.storage.policy import StoreFolder
from duckicelake.storage.vendor import FolderKeys, VendedKeys

_SQL = load_queries("duckdb_login", "logins")
_MAX_TABLES: Final = 1000
"""Tables in S3 whose folders are looked up for one login."""
_PUBLIC_SCHEMA: Final = "public"
"""Where DuckDB looks for a lake in Postgres by itself."""


@dataclass(frozen=True, slots=True)
class LoginOptions:
    """What the settings say of logins. url: of Postgres as DuckDB's users reach it; None: there are no logins."""

    url: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Attachment:
    """What the caller gets.

    Attributes:
        keys_expire_at: the end of the key for files that ends first; None without keys.
        uncovered: folders of S3 that no key reaches, and tables whose folders couldn't be found.

    """

    login: Login
    statements: tuple[str, ...] = field(repr=False)
    keys_expire_at: datetime | None = None
    uncovered: tuple[str, ...] = ()


def open_attachment(services: Services, options: LoginOptions, within: Sequence[Namespace]) -> Attachment:
    """Make a login, and keys, for what the caller may read in some namespaces; with none named, in all.

    Raises ConflictError, ForbiddenError, InvalidRequestError, TooManyRequestsError, UnavailableError,
    UnsupportedError.
    """
    if services.rights is not None and services.rights.link is not None:
        raise UnsupportedError(
            "duckdb-logins",
            f"Warehouse {services.warehouse} is in another Postgres than the server's, and logins are made in that "
            f"alone: use POST /sql/v1/{services.prefix}query, or a login of that Postgres",
        )
    if options.url is None:
        raise UnsupportedError("duckdb-logins", "There are no logins for DuckDB here: set DUCKICELAKE_DUCKDB_LOGIN_URL")
    principal = services.caller.principal
    if principal.is_limited_outside:
        raise UnsupportedError(
            "duckdb-logins", "A service outside decides here, which Postgres can't ask: use POST /sql/v1/query"
        )
    for namespace in within or ((),):
        if not principal.sees(namespace):
            raise build_refusal(namespace, principal=principal)
    keys, uncovered = _vend_keys(services, within)
    rules = apply_rules(services.database, find_place(services))
    seconds = min(options.seconds, MAX_GRANTED_SECONDS) if principal.rights is not None else options.seconds
    login = make_login(services, rules, seconds, within)
    statements = (*_build_secrets(services.access.client, keys), build_attach(options.url, login, rules))
    expires_at_ms = keys.expires_at_ms
    ends = None if expires_at_ms is None else datetime.fromtimestamp(expires_at_ms / 1000, UTC)
    return Attachment(login, statements, ends, uncovered)


def close_attachment(services: Services, name: str) -> None:
    """End a login of the caller before its time. Raises NotFoundError."""
    if not has_login(services, name):
        raise NotFoundError(f"You have no login {name}")
    end_login(services.database, find_place(services), name)
    services.note([build_resource(name)], OK_RESULT)


def build_attach(url: str, login: Login, rules: LoginRules) -> str:
    """Build DuckDB's ATTACH, with the password in it."""
    source = build_attach_source(make_conninfo(url, user=login.name, password=login.password))
    schema = "" if rules.schema == _PUBLIC_SCHEMA else f", METADATA_SCHEMA {quote_literal(rules.schema)}"
    return f"ATTACH {quote_literal(source)} AS lake (READ_ONLY{schema})"


def _vend_keys(services: Services, within: Sequence[Namespace]) -> tuple[VendedKeys, tuple[str, ...]]:
    """Return keys that read the folders of all tables that the caller may read, and what they don't reach."""
    vendor, principal = services.access.vendor, services.caller.principal
    if vendor is None:
        return VendedKeys(()), ()
    folders: dict[str, StoreFolder] = {}
    uncovered: list[str] = []
    for namespace, name in _list_readable(services, within):
        try:
            table = load_current_table(services, namespace, name)
            own = find_table_folders(services, table)
            reach = find_reach(services, (namespace, name), own, table.row.table_id)
        except UnavailableError:
            raise
        except CatalogError:
            uncovered.append(format_full_name(namespace, name))
            continue
        folders |= {folder.location: StoreFolder(folder.location) for folder in reach.folders}
        uncovered += reach.uncovered
    asked = principal.name, tuple(folders.values())
    keys = vendor.vend(*asked, MAX_GRANTED_SECONDS) if principal.rights is not None else vendor.vend(*asked)
    return keys, (*uncovered, *(folder.location for folder in keys.uncovered))


def _list_readable(services: Services, within: Sequence[Namespace]) -> list[tuple[Namespace, str]]:
    """List the tables that the caller may read. Raises InvalidRequestError if they are very many."""
    with services.database.statement(only_reads=True) as cursor:
        rows = cursor.execute(_SQL.tables).fetchall()
    named = [(namespace, name) for schema, name in rows if (namespace := parse_readable_namespace(schema)) is not None]
    found = [
        (namespace, name)
        for namespace, name in named
        if (not within or any(namespace[: len(one)] == one for one in within))
        and services.caller.principal.may(Capability.READ, namespace, name)
    ]
    if len(found) > _MAX_TABLES:
        raise InvalidRequestError(
            f"One login gets keys for {_MAX_TABLES} tables at most, not for {len(found)}: name the namespaces you need"
        )
    return found


def _build_secrets(client: Mapping[str, str], keys: VendedKeys) -> Iterator[str]:
    for number, vended in enumerate(keys.vended, 1):
        yield _build_secret(f"lake_files_{number}", client, vended)


def _build_secret(name: str, client: Mapping[str, str], vended: FolderKeys) -> str:
    """Build DuckDB's CREATE SECRET for some folders. client: how clients reach the store, as Iceberg's properties."""
    options = dict(vended.keys.list_secret_options(client))
    kind = options.pop("TYPE")
    parts = [f"{option} {quote_literal(value)}" for option, value in options.items()]
    scope = ", ".join(quote_literal(folder.location) for folder in vended.folders)
    return f"CREATE OR REPLACE SECRET {name} (TYPE {kind}, {', '.join(parts)}, SCOPE [{scope}])"
