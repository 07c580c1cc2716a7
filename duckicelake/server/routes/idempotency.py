"""The Idempotency-Key header: services for a request that must not run twice."""

import re
from dataclasses import replace
from hashlib import sha256
from typing import Annotated, Final
from uuid import UUID

from fastapi import Depends, Header, Request

from duckicelake.catalog.context.idempotency import Once
from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.server.middleware.body_limit import Body
from duckicelake.server.routes.context import Admit, AppAdmission, AppServices, find_caller

_DESCRIPTION: Final = "a UUID of version 7; sent again with the same key, a request has no more effect"
_UUID_PATTERN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def parse_idempotency_key(text: str) -> UUID:
    """The key; InvalidRequest unless it is a UUID of version 7 in its usual spelling (RFC 9562)."""
    if not _UUID_PATTERN.fullmatch(text):
        raise InvalidRequest(f"Idempotency-Key must be a UUID of version 7, 36 characters long (got {text[:60]!r})")
    key = UUID(text)
    if key.version != 7:
        found = "of no version" if key.version is None else f"of version {key.version}"
        raise InvalidRequest(f"Idempotency-Key must be a UUID of version 7, not {found} (got {text})")
    return key


async def _parse_once(
    request: Request, body: Body, idempotency_key: Annotated[str | None, Header(description=_DESCRIPTION)] = None
) -> Once | None:
    return (
        None if idempotency_key is None else Once(parse_idempotency_key(idempotency_key), _hash_request(request, body))
    )


OptionalOnce = Annotated[Once | None, Depends(_parse_once)]


async def _get_keyed_services(services: AppServices, once: OptionalOnce) -> Services:
    return services if once is None else replace(services, once=once)


async def _get_keyed_admission(admit: AppAdmission, once: OptionalOnce) -> Admit:
    return admit if once is None else lambda parsed: replace(admit(parsed), once=once)


def _hash_request(request: Request, body: bytes) -> bytes:
    line = f"{request.method} {request.scope['path']}?".encode("latin-1") + request.scope["query_string"]
    who = sha256(find_caller(request).principal.name.encode()).digest()
    return sha256(who + line + b"\n" + body).digest()


KeyedServices = Annotated[Services, Depends(_get_keyed_services)]
KeyedAdmission = Annotated[Admit, Depends(_get_keyed_admission)]
"""For endpoints that change something; the second kind for those whose body decides what is needed."""
