"""Issuers of OpenID Connect beside the one of the settings, as rows of `duckicelake_issuer`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from duckicelake.lake.side_tables.principals import GRANTS_SCOPE
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("lake", "issuers")
LEEWAY_SECONDS: Final = 30
WEB_SCOPES: Final = ("openid",)


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer whose tokens are trusted.

    Attributes:
        url: the claim `iss` of its tokens.
        jwks_url: the address of its keys; None: its discovery document says it.
        group_claim: the claim whose values are names of groups; None: no claim is.
        scope_claim: the claim whose values are scopes, beside `scopes`; None: no claim is.
        scopes: what each of its tokens has.
        leeway: seconds by which its clock may differ from this server's.
        label: what the page to sign in calls it; empty: its URL.
        web_client_id: what it calls the console; None: no one signs in to the console there.
        web_scopes: what the console asks it for.
        web_parameters: `name=value`, what else its page to sign in is sent.
        web_secret: of that client, encrypted; None: the client is public.

    """

    name: str
    url: str
    audience: str
    jwks_url: str | None = None
    subject_claim: str = "sub"
    group_claim: str | None = None
    scope_claim: str | None = None
    scopes: tuple[str, ...] = (GRANTS_SCOPE,)
    is_disabled: bool = False
    leeway: int = LEEWAY_SECONDS
    label: str = ""
    web_client_id: str | None = None
    web_scopes: tuple[str, ...] = WEB_SCOPES
    web_parameters: tuple[str, ...] = ()
    web_secret: str | None = field(default=None, repr=False)
    created: datetime | None = None

    @property
    def has_web_secret(self) -> bool:
        """Return whether its client for the console has a secret."""
        return self.web_secret is not None


def read_issuers(cursor: Transaction) -> list[Issuer]:
    """Read all issuers, by name."""
    return [_build_issuer(row) for row in cursor.execute(_SQL.issuers).fetchall()]


def lock_issuers(cursor: Transaction) -> list[Issuer]:
    """Read all issuers, by name, and let no other transaction change them until this one ends."""
    return [_build_issuer(row) for row in cursor.execute(_SQL.lock).fetchall()]


def insert_issuer(cursor: Transaction, issuer: Issuer) -> Issuer | None:
    """Add an issuer; None if its name or its URL is taken."""
    row = cursor.execute(_SQL.insert, _build_parameters(issuer)).fetchone()
    return None if row is None else _build_issuer(row)


def update_issuer(cursor: Transaction, issuer: Issuer) -> Issuer | None:
    """Set all of an issuer but its URL; None if there is no issuer of the name."""
    row = cursor.execute(_SQL.update, _build_parameters(issuer)).fetchone()
    return None if row is None else _build_issuer(row)


def delete_issuer(cursor: Transaction, name: str) -> bool:
    """Delete an issuer; whether there was one."""
    return cursor.execute(_SQL.delete, {"name": name}).fetchone() is not None


def _build_parameters(issuer: Issuer) -> dict[str, Any]:
    lists = {name: list(getattr(issuer, name)) for name in ("scopes", "web_scopes", "web_parameters")}
    return asdict(issuer) | lists


def _build_issuer(row: Sequence[Any]) -> Issuer:
    values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in row]
    return Issuer(*values)
