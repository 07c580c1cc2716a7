"""Loads that memory answers once Postgres has said that it may: no thread, no transaction, nothing made anew."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from duckicelake.catalog.access.delegation import Wish
from duckicelake.catalog.access.principal import Principal
from duckicelake.catalog.loads.answers import asking_of
from duckicelake.catalog.loads.cache import CachedTable, LoadedTable, Told
from duckicelake.catalog.loads.loading import asked_of, checked, is_current
from duckicelake.catalog.loads.shared_checks import SharedChecks
from duckicelake.catalog.services import Services
from duckicelake.lake.state import Asked, Freshness


@dataclass(frozen=True, slots=True)
class QuickLoads:
    """The quick way to what `tables.load_table` and `tables.table_exists` answer, for what they have answered before.

    Answers are told later, and None where the slow way must be taken.
    """

    services: Services
    checks: SharedChecks

    def load(
        self,
        principal: Principal,
        address: str,
        wish: Wish,
        named_as: tuple[str, str],
        representation: str,
        tell: Callable[[LoadedTable | None], object],
    ) -> bool:
        """Whether it will be told. named_as: the table's schema and name."""
        services = self.services
        known = services.cache.find(*named_as)
        if known is None:
            return False
        told = known.answers.told.get(asking_of(services, principal, address, wish, named_as, representation))
        if told is None or services.clock() >= told.until_ms:
            return False
        self.checks.ask(asked_of(*named_as, known), partial(self._tell, known, told, tell))
        return True

    def exists(self, named_as: tuple[str, str], tell: Callable[[bool], object]) -> None:
        """Tell whether the table is there for sure."""
        self.checks.ask(Asked(*named_as), lambda fresh: tell(fresh is not None))

    def _tell(
        self,
        known: CachedTable,
        told: Told,
        tell: Callable[[LoadedTable | None], object],
        fresh: Freshness | None,
    ) -> None:
        if fresh is None or not is_current(known, fresh) or (told.seen is not None and told.seen != fresh.seen):
            tell(None)
            return
        self.services.cache.count(hit=True)
        checked(self.services, known, fresh)
        tell(told.loaded)
