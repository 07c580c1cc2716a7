"""Read what obstore says of a request that failed, and translate it; messages never contain keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from duckicelake.errors import (
    CatalogError,
    FileMissingError,
    InvalidRequestError,
    StoreDeniedError,
    UnavailableError,
)
from duckicelake.extras import DeferredModule

if TYPE_CHECKING:
    from obstore import exceptions as obstore_errors
else:
    obstore_errors = DeferredModule("obstore.exceptions")

MISPLACED_CODES: Final = frozenset(
    {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}
)
REDIRECT_STATUSES: Final = frozenset({301, 302, 307, 308})
_BUSY_CODES: Final = frozenset({"RequestTimeout", "RequestTimeoutException", "SlowDown", "Throttling"})
_BUSY_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})
_ANSWER_PATTERN: Final = re.compile(
    r"Error performing (?P<method>\S+) \S+ in \S+ +- (?:"
    r"Server returned non-2xx status code: (?P<status>\d{3})[^:\n]*:"
    r"(?: <(?:(?!\nDebug source:).)*?<Code>(?P<code>[A-Za-z0-9.:]+)</Code>)?"
    r"(?:(?:(?!\nDebug source:).)*?<Region>(?P<region>[a-z0-9-]+)</Region>)?"
    r"|(?P<redirect>Received redirect without LOCATION))",
    re.DOTALL,
)
"""What obstore writes about an answer. The path before it and the store's XML behind it may contain a client's text."""

_KIND_PATTERN: Final = re.compile(r"HttpError \{\s+kind: (\w+)")
CERTIFICATE_REASON: Final = "certificate"
_CAUSE_PATTERN: Final = re.compile(r'"([^"\n]+)"')


class RequestFailedError(Exception):
    """obstore's request failed.

    Attributes:
        method: of HTTP.
        status: None without an answer.
        code: the store's word for the reason, empty without one.
        region: the bucket's region, if the store names it.
        reason: why there is no answer.

    """

    def __init__(self, method: str, status: int | None, code: str, region: str | None, reason: str) -> None:
        super().__init__(f"{method} {status} {code}")
        self.method, self.status, self.code, self.region, self.reason = method, status, code, region, reason

    @classmethod
    def from_obstore(cls, error: Exception, key: str) -> Self:
        """Read what an error of obstore says of a request about a key."""
        text = str(error)
        start = (
            0 if isinstance(error, obstore_errors.GenericError) else text.find(key) + len(key)
        )  # others name the key first
        found = _ANSWER_PATTERN.search(text, start)
        if found is None:
            return cls("", None, "", None, _summarize_cause(text))
        status = 301 if found["redirect"] else int(found["status"])
        return cls(found["method"], status, found["code"] or "", found["region"], "")

    @property
    def is_misplaced(self) -> bool:
        """Whether the bucket may be in another region."""
        is_unexplained = (self.method, self.status) == ("HEAD", 400)
        return is_unexplained or self.code in MISPLACED_CODES or self.status in REDIRECT_STATUSES

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed soon."""
        return self.status is None or self.status in _BUSY_STATUSES or self.code in _BUSY_CODES


def _summarize_cause(text: str) -> str:
    """Return what a message of obstore's says about a missing answer: `timeout`, `connect: tcp connect error: …`."""
    kind = _KIND_PATTERN.search(text)
    if kind is not None and "InvalidCertificate" in text[kind.end() :]:
        return CERTIFICATE_REASON
    if kind is None:
        return text.partition("\n")[0].rpartition(" - ")[2]
    causes = _CAUSE_PATTERN.findall(text, kind.end())
    return ": ".join((kind[1].lower(), *causes))


@dataclass(frozen=True, slots=True)
class StoreAdvice:
    """What errors say of a kind of store.

    Attributes:
        store: its name.
        scheme: of its locations.
        rights: how to give the server what it needs.
        address: which settings lead to the store.

    """

    store: str
    scheme: str
    rights: str
    address: str


@contextmanager
def translate_failures(location: str, endpoint: str | None, advice: StoreAdvice) -> Iterator[None]:
    """Raise an error of the error tree for a failed request, or for a name that no request can have."""
    try:
        yield
    except RequestFailedError as error:
        raise _translate(location, endpoint, error, advice) from error
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{location!r} isn't a usable name of a file in {advice.store}") from error
    except ValueError as error:
        raise UnavailableError(f"{location}: the settings for {advice.store} can't be used: {error}") from error


def _translate(location: str, endpoint: str | None, failure: RequestFailedError, advice: StoreAdvice) -> CatalogError:
    where = f"the store at {endpoint}" if endpoint else advice.store
    status, shown = failure.status, failure.code or failure.status
    if status is None and failure.reason == CERTIFICATE_REASON:
        return UnavailableError(f"{location}: {where} has no TLS certificate that is trusted here")
    if status is None:
        return UnavailableError(f"{location}: {where} doesn't answer ({failure.reason})")
    if status == 404 and failure.method == "PUT":
        bucket = location.partition("://")[2].partition("/")[0]
        return UnavailableError(f"{location}: the bucket {bucket} doesn't exist: make it, or name another")
    if status == 404:
        return FileMissingError(f"{location} doesn't exist")
    if status in {401, 403}:
        return StoreDeniedError(f"{location}: access denied ({shown}): {advice.rights}")
    if status == 400:
        return InvalidRequestError(f"{location} isn't a usable name of a file in {advice.store} ({shown})")
    if status in REDIRECT_STATUSES:
        return UnavailableError(f"{location}: {where} only redirects: {advice.address}")
    return UnavailableError(f"{location}: the store answers {status} ({shown})")
