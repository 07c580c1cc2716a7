"""Issuers of OpenID Connect whose tokens are trusted beside those of the settings' one."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from duckicelake.catalog.context.caller import build_grants
from duckicelake.catalog.context.page import EVERY_ITEM, ListPage, PageRequest, slice_page
from duckicelake.catalog.context.secret_keys import SecretKeys
from duckicelake.catalog.context.services import Services
from duckicelake.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from duckicelake.lake.side_tables import issuers as store
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.issuers import Issuer
from duckicelake.postgres.queries import Transaction

ListedIssuer = Issuer
_NAME_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,47}")
URL_PATTERN: Final = re.compile(r"https?://[^\s?#@]{1,500}")
_WORD_PATTERN: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")
"""A scope, or the id of a client, as RFC 6749 writes them."""
_PARAMETER_PATTERN: Final = re.compile(r"([A-Za-z0-9_.-]{1,64})=([\x20-\x7e]{1,256})")
_MAX_LABEL_CHARS: Final = 60
MAX_LEEWAY_SECONDS: Final = 600
_LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_OPENID_SCOPE: Final = "openid"
_OWN_PARAMETERS: Final = (
    "client_id",
    "code_challenge",
    "code_challenge_method",
    "nonce",
    "redirect_uri",
    "request",
    "request_uri",
    "response_mode",
    "response_type",
    "scope",
    "state",
)
"""Parameters of a login that the console sets itself, or that would take their place."""
_NO_KEYS: Final = "set DUCKICELAKE_SECRET_KEYS, by which the secrets of clients are encrypted"


@dataclass(frozen=True, slots=True)
class IssuerRules:
    """What registered issuers may say.

    Attributes:
        settings_url: of the settings' issuer.
        check_url: raises RefusedAddressError for where requests may not go.
        keys: encrypt the secrets of the console's clients; None: no such secret can be stored.

    """

    settings_url: str | None = None
    check_url: Callable[[str], object] = str
    keys: SecretKeys | None = None


_NO_RULES: Final = IssuerRules()


def list_issuers(services: Services, page: PageRequest = EVERY_ITEM) -> ListPage[Issuer]:
    """List the issuers of the table, by name."""
    with services.database.reading() as cursor:
        return slice_page(store.read_issuers(cursor), page, lambda issuer: issuer.name)


def load_issuer(services: Services, name: str) -> Issuer:
    """Find an issuer; NotFoundError."""
    return _pick(list_issuers(services).items, name)


def create_issuer(
    services: Services, issuer: Issuer, rules: IssuerRules = _NO_RULES, web_secret: str | None = None
) -> Issuer:
    """Trust an issuer. web_secret: of its client for the console; None: the client is public.

    Raises AlreadyExistsError, InvalidRequestError, RefusedAddressError.
    """
    check_issuer(issuer)
    _check_asked(issuer, rules)
    if issuer.url == rules.settings_url:
        raise AlreadyExistsError(f"{issuer.url} is the issuer of the server's settings")
    sealed = replace(issuer, web_secret=_seal(rules, issuer, web_secret) if web_secret else None)
    return services.run_once(lambda: _create(services, sealed), lambda name: load_issuer(services, name))


def change_issuer(
    services: Services, issuer: Issuer, rules: IssuerRules = _NO_RULES, web_secret: str | None = None
) -> Issuer:
    """Set all of an issuer but its URL.

    web_secret: of its client for the console; empty: the client is public; None: as it is, for the same client.

    Raises NotFoundError, InvalidRequestError, RefusedAddressError.
    """
    check_issuer(issuer)
    _check_asked(issuer, rules)
    with services.database.transaction() as cursor:
        before = _pick(store.lock_issuers(cursor), issuer.name)
        if before.url != issuer.url:
            raise InvalidRequestError(f"Issuer {issuer.name} has URL {before.url}, which can't change: drop it first")
        kept = before.web_secret if before.web_client_id == issuer.web_client_id else None
        sealed = kept if web_secret is None else _seal(rules, issuer, web_secret) if web_secret else None
        changed = store.update_issuer(cursor, replace(issuer, web_secret=sealed))
        assert changed is not None, "it is locked"
        _settle(services, cursor, changed)
    return changed


def drop_issuer(services: Services, name: str) -> None:
    """Trust an issuer no more: its tokens, and what was got for them, end within a second. Raises NotFoundError."""
    with services.database.transaction() as cursor:
        if not store.delete_issuer(cursor, name):
            raise NotFoundError(f"No such issuer: {name}")
        services.settle(cursor, [AuditedResource(f"issuer {name}")])


def reveal_secret(keys: SecretKeys | None, issuer: Issuer) -> str | None:
    """Return the decrypted secret of an issuer's client for the console; None: it is public. UnavailableError."""
    if issuer.web_secret is None:
        return None
    if keys is None:
        raise UnavailableError(f"The secret of issuer {issuer.name} can't be decrypted: {_NO_KEYS}")
    return keys.decrypt(issuer.web_secret, _describe_place(issuer))


def rotate_issuers(cursor: Transaction, keys: SecretKeys) -> int:
    """Write the secrets of all issuers anew, encrypted with the first key; return how many there are.

    Raises UnavailableError.
    """
    rows = [row for row in store.lock_issuers(cursor) if row.web_secret is not None]
    for row in rows:
        sealed = keys.encrypt(reveal_secret(keys, row) or "", _describe_place(row))
        store.update_issuer(cursor, replace(row, web_secret=sealed))
    return len(rows)


def check_same_name(name: str, expected: str) -> None:
    """Raise InvalidRequestError if a request names another issuer than its path."""
    if name != expected:
        raise InvalidRequestError(f"The body is about issuer {name}, the path about {expected}; names can't change")


def check_issuer(issuer: Issuer) -> None:
    """Raise InvalidRequestError for an issuer that can't be."""
    if not _NAME_PATTERN.fullmatch(issuer.name):
        raise InvalidRequestError(
            f"Invalid issuer name {issuer.name!r}: expected up to 48 lower-case letters, digits, '_', '.' and '-', "
            "the first a letter or digit"
        )
    for what, url in (("url", issuer.url), ("jwks-url", issuer.jwks_url)):
        if url is not None and not URL_PATTERN.fullmatch(url):
            raise InvalidRequestError(f"Invalid {what} {url!r}: expected http:// or https:// without user and query")
    if not issuer.audience:
        raise InvalidRequestError("Invalid audience: the tokens of the issuer must name this server by one")
    if not 0 <= issuer.leeway <= MAX_LEEWAY_SECONDS:
        raise InvalidRequestError(f"Invalid leeway {issuer.leeway}: expected 0 to {MAX_LEEWAY_SECONDS} seconds")
    build_grants(issuer.scopes)
    _check_web_client(issuer)


def _check_web_client(issuer: Issuer) -> None:
    """Raise InvalidRequestError for what the console can't sign in with."""
    if not issuer.label.isprintable() or len(issuer.label) > _MAX_LABEL_CHARS:
        raise InvalidRequestError(f"Invalid label: expected up to {_MAX_LABEL_CHARS} printable characters")
    for scope in issuer.web_scopes:
        if not _WORD_PATTERN.fullmatch(scope):
            raise InvalidRequestError(f"Invalid web-scopes {scope!r}: expected one scope of the issuer in each")
    if _OPENID_SCOPE not in issuer.web_scopes:
        raise InvalidRequestError(f"Invalid web-scopes: {_OPENID_SCOPE} must be one of them")
    for parameter in issuer.web_parameters:
        found = _PARAMETER_PATTERN.fullmatch(parameter)
        if found is None or found[1] in _OWN_PARAMETERS:
            raise InvalidRequestError(
                f"Invalid web-parameters {parameter!r}: expected name=value, and none of {', '.join(_OWN_PARAMETERS)}"
            )
    if issuer.web_client_id is None:
        return
    if not _WORD_PATTERN.fullmatch(issuer.web_client_id):
        raise InvalidRequestError("Invalid web-client-id: expected up to 256 ASCII characters without spaces")
    parts = urlsplit(issuer.url)
    if parts.scheme != "https" and parts.hostname not in _LOOPBACK_HOSTS:
        raise InvalidRequestError(f"No one can sign in at {issuer.url}: its URL must start with https://")


def _check_asked(issuer: Issuer, rules: IssuerRules) -> None:
    """Check the URLs that the server asks: that of the keys, else of the issuer, which logs people in, too."""
    if issuer.jwks_url is not None:
        rules.check_url(issuer.jwks_url)
    if issuer.jwks_url is None or issuer.web_client_id is not None:
        rules.check_url(issuer.url)


def _seal(rules: IssuerRules, issuer: Issuer, secret: str) -> str:
    if issuer.web_client_id is None:
        raise InvalidRequestError("A web-secret is of a client: give web-client-id, too")
    if rules.keys is None:
        raise InvalidRequestError(f"This server can't store secrets: {_NO_KEYS}")
    return rules.keys.encrypt(secret, _describe_place(issuer))


def _describe_place(issuer: Issuer) -> str:
    """Name what a secret belongs to: only this issuer gets it, and only as this client's."""
    return f"issuer {issuer.url} client {issuer.web_client_id}"


def _pick(issuers: Iterable[Issuer], name: str) -> Issuer:
    found = next((issuer for issuer in issuers if issuer.name == name), None)
    if found is None:
        raise NotFoundError(f"No such issuer: {name}")
    return found


def _create(services: Services, issuer: Issuer) -> Issuer:
    with services.database.transaction() as cursor:
        created = store.insert_issuer(cursor, issuer)
        if created is None:
            raise AlreadyExistsError(f"An issuer is called {issuer.name}, or has URL {issuer.url}")
        _settle(services, cursor, created, created.name)
    return created


def _settle(services: Services, cursor: Transaction, issuer: Issuer, result: str | None = None) -> None:
    detail = {
        "url": issuer.url,
        "audience": issuer.audience,
        "scopes": list(issuer.scopes),
        "is-disabled": issuer.is_disabled,
        "web-client-id": issuer.web_client_id,
    }
    services.settle(cursor, [AuditedResource(f"issuer {issuer.name}", detail=detail)], result)
