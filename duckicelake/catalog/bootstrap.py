"""The first admin of a lake: made once, and only where no client could log in yet."""

from collections.abc import Callable
from typing import Final

from duckicelake.catalog.authz.directory import hash_secret, make_secret
from duckicelake.errors import AlreadyExistsError, StartupError
from duckicelake.lake.side_tables import principals
from duckicelake.lake.side_tables.issuers import read_issuers
from duckicelake.lake.side_tables.principals import ADMIN_ROLE, NewPrincipal, NewSecret, find_principal
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction

FIRST_ADMIN: Final = "root"


def has_registered_logins(database: Database) -> bool:
    """Return whether clients can log in whom the database knows: by a secret, a token or an issuer."""
    with database.reading() as cursor:
        return bool(read_issuers(cursor)) or principals.has_any_secret(cursor)


def make_first_admin(database: Database, write_secret: Callable[[str], None]) -> bool:
    """Make the service account `root`, which administers the server, and hand out its credential; return whether.

    It isn't made where there are issuers, users or service accounts. Of several callers at once, one makes it.

    write_secret: gets the credential `root:secret` before the transaction is committed.
    """
    with database.transaction() as cursor:
        principals.lock_governance(cursor)
        if read_issuers(cursor) or principals.read_principals(cursor, ("user", "service")):
            return False
        made = principals.insert_principal(
            cursor, NewPrincipal(FIRST_ADMIN, "service", scopes=("*",), description="the first admin")
        )
        if made is None:
            raise AlreadyExistsError(f"A group or role is called {FIRST_ADMIN}: drop it first")
        secret = make_secret("client-secret")
        principals.insert_secret(
            cursor, NewSecret(made.principal_id, "client-secret", hash_secret(secret), "bootstrap")
        )
        principals.add_member(cursor, _find_admin_role(cursor), made.principal_id)
        write_secret(f"{FIRST_ADMIN}:{secret}")
    return True


def _find_admin_role(cursor: Transaction) -> int:
    role = find_principal(cursor, ADMIN_ROLE)
    if role is None:
        raise StartupError(f"The lake has no role {ADMIN_ROLE}: its side tables are damaged; see duckicelake doctor")
    return role.principal_id
