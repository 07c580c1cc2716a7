"""Decisions of a service outside, asked after scopes and grants have allowed: it can only take away.

`OutsideDecisions` is the seam; `server/auth/opa.py` speaks to OPA. What is asked is always the same: which of the
privileges that a principal's scopes and grants may give can be used on an object. So one question answers for a whole
request, and for those that follow while the answer is kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, TypeVar

from duckicelake.catalog.context.privileges import ALL_PRIVILEGES, Privilege, Rights
from duckicelake.iceberg.identifiers import Namespace

T = TypeVar("T")
Place = tuple[Namespace, str]
"""A table or view; with an empty name, a namespace; with neither, the warehouse."""
AT_ONCE: Final = 500
"""Objects of a list that are asked about in one request."""


@dataclass(frozen=True, slots=True)
class OutsideQuestion:
    """Privileges that are to be used on an object."""

    privileges: Privilege
    place: Place


class OutsideDecisions(Protocol):
    """Decides for all principals. Threads share it."""

    def decide(
        self, principal: str, groups: Sequence[str], warehouse: str, asked: Sequence[OutsideQuestion]
    ) -> list[Privilege]:
        """Return which privileges of each question may be used; UnavailableError if that can't be found out."""

    def statistics(self) -> Mapping[str, int]:
        """Return counts for metrics."""


@dataclass(frozen=True, slots=True)
class OutsideLimit:
    """What the outside lets one principal do in one warehouse."""

    decisions: OutsideDecisions
    principal: str
    groups: tuple[str, ...]
    warehouse: str

    def limit(self, held: Privilege, namespace: Namespace, name: str) -> Privilege:
        """Return those of the privileges that may be used on an object; UnavailableError."""
        return self._decide([OutsideQuestion(held, (namespace, name))])[0]

    def look_ahead(self, held: Iterable[tuple[Privilege, Place]]) -> None:
        """Ask about several objects at once; the answers are kept for `limit`. UnavailableError."""
        asked = [OutsideQuestion(privileges, place) for privileges, place in held if privileges]
        if asked:
            self._decide(asked)

    def _decide(self, asked: Sequence[OutsideQuestion]) -> list[Privilege]:
        return self.decisions.decide(self.principal, self.groups, self.warehouse, asked)


def build_limited_rights(limit: OutsideLimit | None) -> Rights:
    """Build the rights of a principal where grants are off: whatever its scopes and the outside allow."""
    return Rights(everywhere=ALL_PRIVILEGES, outside=limit, are_granted=False)


def filter_seen(
    rights: Rights | None, items: Iterable[T], place: Callable[[T], Place], sees: Callable[[T], bool]
) -> Iterator[T]:
    """Leave out items of a list that the caller doesn't see; the outside is asked about many at once."""
    if rights is None or rights.outside is None:
        yield from filter(sees, items)
        return
    for part in _split(items):
        rights.look_ahead(place(item) for item in part)
        yield from filter(sees, part)


def _split(items: Iterable[T]) -> Iterator[list[T]]:
    left = iter(items)
    while part := list(islice(left, AT_ONCE)):
        yield part
