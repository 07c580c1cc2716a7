"""What one reader of the change feed is told: what it may see of what it asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from duckicelake.catalog.access.principal import Capability, Grant, Principal
from duckicelake.catalog.chronicle.events import Event, Happened, Name
from duckicelake.iceberg.names import Namespace


@dataclass(frozen=True, slots=True)
class Selection:
    """Which changes are asked for; of what is empty, any. names: `(namespace, None)` is all that is in it and below it.

    since_ms: that are not older, in milliseconds since the epoch.
    """

    names: frozenset[Name] = frozenset()
    kinds: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    uuids: frozenset[str] = frozenset()
    since_ms: int = 0

    def wants(self, event: Event) -> bool:
        return (
            event.at_ms >= self.since_ms
            and (not self.kinds or not self.kinds.isdisjoint(event.kinds))
            and (not self.types or event.type in self.types)
            and (not self.uuids or event.uuid in self.uuids)
            and (not self.names or any(map(self._covers, event.names)))
        )

    def _covers(self, name: Name) -> bool:
        namespace, _ = name
        if name in self.names:
            return True
        return any((namespace[:length], None) in self.names for length in range(1, len(namespace) + 1))


@dataclass(frozen=True)
class View:
    """Equal for all readers who are told the same. A change is told to those who may read its namespace."""

    grants: tuple[Grant, ...]
    selection: Selection = Selection()

    def __hash__(self) -> int:
        """Cheap: it is looked up for each reader whenever there is news."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.grants, self.selection))

    def events(self, changes: Iterable[Happened]) -> list[Event]:
        """What is told of these changes, in their order."""
        seen = (change.seen(self._may_read) for change in changes)
        return [event for event in seen if event is not None and self.selection.wants(event)]

    def _may_read(self, namespace: Namespace) -> bool:
        return Principal("", self.grants).may(Capability.READ, namespace)


_REMEMBERED: Final = 4096
view_of = lru_cache(_REMEMBERED)(View)
"""The same object for equal views."""
