"""Pages of a listing by keyset: a token holds the last key sent. And full names, as users write them."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.identifiers import Namespace, parse_schema_name

DEFAULT_SIZE = 1000
_PREFIX = b"after:"
_NUMBER = re.compile("[0-9]{1,19}")
_MAX_BIGINT = 2**63 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What the client asked: no token at all means everything, an empty one the first page, else the page after it.

    Raises InvalidRequestError if the size is below 1 or the token is not one of ours.
    """

    token: str | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise InvalidRequestError(f"pageSize must be at least 1, not {self.size}")
        _decode(self.token)

    @property
    def after(self) -> str:
        """Keys of the page are greater than this in code point order (COLLATE "C"); "" for the first page."""
        return _decode(self.token)

    @property
    def after_number(self) -> int | None:
        """The same of a listing whose keys are numbers; None for the first page. InvalidRequestError."""
        after = self.after
        if not after:
            return None
        if not _NUMBER.fullmatch(after) or int(after) > _MAX_BIGINT:
            raise InvalidRequestError("pageToken is not one of this list; start again without it")
        return int(after)

    @property
    def limit(self) -> int | None:
        """Most items on the page; None for all."""
        return None if self.token is None else self.size or DEFAULT_SIZE

    @property
    def fetch(self) -> int | None:
        """How many items to fetch so that `cut` knows whether more follow: a LIMIT, None for all."""
        return None if self.limit is None else self.limit + 1


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    items: tuple[T, ...]
    next_token: str | None = None


def cut_page(items: Sequence[T], request: PageRequest, key: Callable[[T], str]) -> ListPage[T]:
    """Make the page from items with keys after `request.after`, ascending; `request.fetch` of them are enough."""
    limit = request.limit
    if limit is None or len(items) <= limit:
        return ListPage(tuple(items))
    page = tuple(items[:limit])
    return ListPage(page, _encode(key(page[-1])))


def slice_page(items: Iterable[T], request: PageRequest, key: Callable[[T], str]) -> ListPage[T]:
    """Make the page from all items there are, in whatever order they come."""
    later = sorted((item for item in items if key(item) > request.after), key=key)
    return cut_page(later, request, key)


def walk_pages(read: Callable[[PageRequest], ListPage[T]]) -> Iterator[T]:
    """Yield the items of all pages, with one page at a time in memory."""
    token: str | None = ""
    while token is not None:
        page = read(PageRequest(token))
        yield from page.items
        token = page.next_token


def _encode(key: str) -> str:
    return base64.urlsafe_b64encode(_PREFIX + key.encode()).decode().rstrip("=")


def _decode(token: str | None) -> str:
    if not token:
        return ""
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        if raw.startswith(_PREFIX) and b"\0" not in raw:  # which no name holds, and Postgres doesn't take
            return raw.removeprefix(_PREFIX).decode()
    except (binascii.Error, ValueError):
        pass
    raise InvalidRequestError(f"pageToken {token!r} is not one that this server gave out; start again without it")


def parse_full_name(text: str) -> tuple[Namespace, str]:
    """Parse a table's full name, joined by dots, into namespace and name; InvalidRequestError."""
    schema, _, table = text.rpartition(".")
    if not schema or not table:
        raise InvalidRequestError(f"{text!r} isn't the full name of a table: write it as sales.orders")
    return parse_schema_name(schema), parse_schema_name(table)[0]


def parse_namespace_name(text: str) -> Namespace:
    """Parse a namespace's full name, joined by dots; InvalidRequestError."""
    return parse_schema_name(text)


EVERY_ITEM: Final = PageRequest()
