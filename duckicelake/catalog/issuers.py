"""Issuers of OpenID Connect whose tokens are trusted beside those of the settings' one."""

import re
from collections.abc import Callable
from typing import Final

from duckicelake.catalog.context.caller import build_grants
from duckicelake.catalog.context.page import EVERY_ITEM, ListPage, PageRequest, slice_page
from duckicelake.catalog.context.services import Services
from duckicelake.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from duckicelake.lake.side_tables import issuers as store
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.issuers import Issuer
from duckicelake.postgres.queries import Transaction

ListedIssuer = Issuer
CheckUrl = Callable[[str], object]
_NAME_PATTERN: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,47}")
_URL_PATTERN: Final = re.compile(r"https?://[^\s?#@]{1,500}")


def list_issuers(services: Services, page: PageRequest = EVERY_ITEM) -> ListPage[Issuer]:
    """List the issuers of the table, by name."""
    with services.database.reading() as cursor:
        return slice_page(store.read_issuers(cursor), page, lambda issuer: issuer.name)


def load_issuer(services: Services, name: str) -> Issuer:
    """Find an issuer; NotFoundError."""
    found = next((issuer for issuer in list_issuers(services).items if issuer.name == name), None)
    if found is None:
        raise NotFoundError(f"No such issuer: {name}")
    return found


def create_issuer(
    services: Services, issuer: Issuer, settings_url: str | None = None, check_url: CheckUrl = str
) -> Issuer:
    """Trust an issuer.

    settings_url: of the settings' issuer. check_url: raises RefusedAddressError for where requests may not go.

    Raises AlreadyExistsError, InvalidRequestError.
    """
    check_issuer(issuer)
    _check_asked(issuer, check_url)
    if issuer.url == settings_url:
        raise AlreadyExistsError(f"{issuer.url} is the issuer of the server's settings")
    return services.run_once(lambda: _create(services, issuer), lambda name: load_issuer(services, name))


def change_issuer(services: Services, issuer: Issuer, check_url: CheckUrl = str) -> Issuer:
    """Set how the tokens of an issuer are read; its URL stays. Raises NotFoundError, InvalidRequestError."""
    check_issuer(issuer)
    _check_asked(issuer, check_url)
    with services.database.transaction() as cursor:
        changed = store.update_issuer(cursor, issuer)
        if changed is None:
            raise NotFoundError(f"No such issuer: {issuer.name}")
        if changed.url != issuer.url:
            raise InvalidRequestError(f"Issuer {issuer.name} has URL {changed.url}, which can't change: drop it first")
        _settle(services, cursor, changed)
    return changed


def drop_issuer(services: Services, name: str) -> None:
    """Trust an issuer no more: its tokens, and what was got for them, end within a second. Raises NotFoundError."""
    with services.database.transaction() as cursor:
        if not store.delete_issuer(cursor, name):
            raise NotFoundError(f"No such issuer: {name}")
        services.settle(cursor, [AuditedResource(f"issuer {name}")])


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
        if url is not None and not _URL_PATTERN.fullmatch(url):
            raise InvalidRequestError(f"Invalid {what} {url!r}: expected http:// or https:// without user and query")
    if not issuer.audience:
        raise InvalidRequestError("Invalid audience: the tokens of the issuer must name this server by one")
    build_grants(issuer.scopes)


def _check_asked(issuer: Issuer, check_url: CheckUrl) -> None:
    """Check the URL that the server asks for the issuer's keys: that of the keys, else that of the issuer."""
    check_url(issuer.url if issuer.jwks_url is None else issuer.jwks_url)


def _create(services: Services, issuer: Issuer) -> Issuer:
    with services.database.transaction() as cursor:
        created = store.insert_issuer(cursor, issuer)
        if created is None:
            raise AlreadyExistsError(f"An issuer is called {issuer.name}, or has URL {issuer.url}")
        _settle(services, cursor, created, created.name)
    return created


def _settle(services: Services, cursor: Transaction, issuer: Issuer, result: str | None = None) -> None:
    detail = {"url": issuer.url, "audience": issuer.audience, "scopes": list(issuer.scopes)}
    services.settle(cursor, [AuditedResource(f"issuer {issuer.name}", detail=detail)], result)
