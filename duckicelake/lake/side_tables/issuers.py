"""Issuers of OpenID Connect beside the one of the settings, as rows of `duckicelake_issuer`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from duckicelake.lake.side_tables.principals import GRANTS_SCOPE
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("lake", "issuers")


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer whose tokens are trusted.

    Attributes:
        url: the claim `iss` of its tokens.
        jwks_url: the address of its keys; None: its discovery document says it.
        group_claim: the claim whose values are names of groups; None: no claim is.
        scope_claim: the claim whose values are scopes, beside `scopes`; None: no claim is.
        scopes: what each of its tokens has.

    """

    name: str
    url: str
    audience: str
    jwks_url: str | None = None
    subject_claim: str = "sub"
    group_claim: str | None = None
    scope_claim: str | None = None
    scopes: tuple[str, ...] = (GRANTS_SCOPE,)
    created: datetime | None = None


def read_issuers(cursor: Transaction) -> list[Issuer]:
    """Read all issuers, by name."""
    return [_build_issuer(row) for row in cursor.execute(_SQL.issuers).fetchall()]


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
    return asdict(issuer) | {"scopes": list(issuer.scopes)}


def _build_issuer(row: Sequence[Any]) -> Issuer:
    values = (*row[:7], tuple(row[7]), row[8])
    return Issuer(*values)
