"""What is known of tables that rows are posted to, so that posting more reads nothing of them."""

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final

from duckicelake.catalog.commits.turns import Lanes
from duckicelake.iceberg.names import Namespace

if TYPE_CHECKING:  # what reads rows takes long to import, and most commands post none
    from duckicelake.catalog.rows.target import RowTarget

MOST: Final = 1024


@dataclass(slots=True)
class RowTargets:
    """Those that were used last, by the table's name; safe to share between threads. readers: who makes them known."""

    readers: Lanes = field(default_factory=Lanes)
    _known: OrderedDict[tuple[Namespace, str], "RowTarget"] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def find(self, namespace: Namespace, name: str) -> "RowTarget | None":
        with self._lock:
            found = self._known.get((namespace, name))
            if found is not None:
                self._known.move_to_end((namespace, name))
            return found

    def put(self, namespace: Namespace, name: str, target: "RowTarget") -> None:
        with self._lock:
            self._known[namespace, name] = target
            self._known.move_to_end((namespace, name))
            if len(self._known) > MOST:
                self._known.popitem(last=False)
