"""Check whether a principal may use a route: by its scopes, by what it was granted, and by what the outside decides."""

from dataclasses import replace
from typing import Final

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from duckicelake.catalog.authz.definers import borrow_rights as borrow
from duckicelake.catalog.context.caller import Principal
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.errors import ForbiddenError
from duckicelake.server.auth.permissions import (
    Administration,
    AnyToken,
    InBody,
    InPath,
    InQuery,
    Need,
    Public,
    WholeCatalog,
    check_administration,
    check_path,
    check_query,
    check_whole_catalog,
    grants_path,
    is_bound,
)
from duckicelake.server.http.scope import CALLER_KEY, PATH_NAMES_KEY, find_caller, parse_parent

_LENT_OPERATIONS: Final = frozenset({"load_table", "load_view", "load_credentials"})
"""Routes that take `referenced-by`, the chain of views through which something is loaded."""
_READ_METHODS: Final = frozenset({"GET", "HEAD"})


async def bind_rights(rights: RightsCache | None, need: Need, principal: Principal, request: Request) -> None:
    """Let what the principal was granted count, where grants are on, and check it.

    Requests that read one thing are answered by what memory knows, if it allows them. All others ask Postgres.
    """
    if rights is None or not is_bound(need):
        if principal.awaits_grants:
            check_need(need, principal, request)
        return
    if rights.outside is not None:  # it may be asked, which takes its time
        await run_in_threadpool(_bind_and_check, rights, need, principal, request)
        return
    known = rights.find_known(principal)
    if known is None or (known is not principal and not _is_lenient(need, known, request)):
        known = await run_in_threadpool(rights.bind, principal)
    if known is not principal:
        request.scope[CALLER_KEY] = replace(find_caller(request.scope), principal=known)
    if known is not principal or principal.awaits_grants:
        check_need(need, known, request)


async def borrow_rights(services: Services, operation: str, refusal: ForbiddenError, request: Request) -> None:
    """Let a load go on that was refused, if it comes through a definer view which lends the right; else raise."""
    caller = find_caller(request.scope)
    if operation not in _LENT_OPERATIONS or not caller.referenced_by:
        raise refusal
    asked, names = replace(services, caller=caller), request.scope[PATH_NAMES_KEY]
    takes_keys = operation == "load_credentials"
    lent = await run_in_threadpool(borrow, asked, tuple(names), takes_keys=takes_keys)
    if lent is None:
        raise refusal
    request.scope[CALLER_KEY] = replace(caller, principal=lent)


def _bind_and_check(rights: RightsCache, need: Need, principal: Principal, request: Request) -> None:
    known = rights.find_known(principal)
    if known is None or (known.has_grants and not _is_lenient(need, known, request)):
        known = rights.bind(principal)
    request.scope[CALLER_KEY] = replace(find_caller(request.scope), principal=known)
    check_need(need, known, request)


def _is_lenient(need: Need, principal: Principal, request: Request) -> bool:
    """Return whether a request only reads what its path names, and what memory knows allows it."""
    if request.method not in _READ_METHODS or not isinstance(need, InPath) or not need.privileges:
        return False
    return grants_path(need, principal, request.scope[PATH_NAMES_KEY])


def check_need(need: Need, principal: Principal, request: Request) -> None:
    """Check that a principal may use a route for what the path and the query name; ForbiddenError."""
    match need:
        case InPath():
            check_path(need, principal, request.scope[PATH_NAMES_KEY])
        case InQuery(parameter):
            check_query(principal, parse_parent(request.query_params.get(parameter)))
        case WholeCatalog():
            check_whole_catalog(need, principal)
        case Administration():
            check_administration(principal)
        case Public() | AnyToken() | InBody():
            pass
