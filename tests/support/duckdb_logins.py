"""A lake whose server makes logins for DuckDB, in a Postgres that lets them in by password."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duckicelake.catalog.context.caller import Caller, Principal, build_grants
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.duckdb_login.attachment import Attachment, LoginOptions, open_attachment
from duckicelake.duckdb_login.logins import end_login, find_place, list_roles
from duckicelake.iceberg.identifiers import Namespace
from tests.conftest import new_duckdb


@dataclass
class LoginSite:
    """A lake with logins. url: of Postgres, without a user."""

    services: Services
    url: str
    opened: list[Any] = field(default_factory=list)

    def as_caller(self, *scopes: str, name: str = "ann") -> Services:
        """Return the services of a request by a principal with these scopes, bound to its grants where those are on."""
        principal = Principal(name, build_grants(scopes))
        assert self.services.rights is not None
        return replace(self.services, caller=Caller(principal=self.services.rights.bind(principal)))

    def open(self, *scopes: str, within: tuple[Namespace, ...] = (), seconds: float = 600) -> Attachment:
        return open_attachment(self.as_caller(*scopes), LoginOptions(self.url, seconds), within)

    def attach(self, attachment: Attachment) -> duckdb.DuckDBPyConnection:
        """Open one more DuckDB with what the caller got."""
        connection = new_duckdb()
        self.opened.append(connection)
        for statement in attachment.statements:
            connection.execute(statement)
        return connection.execute("USE lake")

    def connect(self, attachment: Attachment, **parameters: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """Connect as psql would."""
        login = attachment.login
        url = make_conninfo(self.url, **({"user": login.name, "password": login.password} | parameters))
        connection = psycopg.connect(url, autocommit=True)
        self.opened.append(connection)
        return connection

    def close(self) -> None:
        for one in self.opened:
            one.close()
        for role in list_roles(self.services.database, find_place(self.services)):
            end_login(self.services.database, find_place(self.services), role.name)


def let_passwords_in(services: Services) -> str:
    """Let Postgres ask all roles but its superuser for a password; return its URL without a user."""
    with services.database.statement() as cursor:
        ((pid,),) = cursor.execute("SELECT pg_backend_pid()").fetchall()
        first = "local all postgres peer map=duckicelake\nlocal all all scram-sha-256\n"
        file = Path(f"/proc/{pid}/cwd/duckicelake_hba.conf")
        if not file.read_text().startswith(first):
            file.write_text(first + file.read_text())
            cursor.execute("SELECT pg_reload_conf()")
            time.sleep(0.2)
    given = conninfo_to_dict(services.database.url)
    return make_conninfo("", **{key: value for key, value in given.items() if key not in {"user", "password"}})


@contextmanager
def login_site(services: Services) -> Iterator[LoginSite]:
    services = replace(services, rights=RightsCache.of_first(services.database))
    site = LoginSite(services, let_passwords_in(services))
    try:
        yield site
    finally:
        site.close()
