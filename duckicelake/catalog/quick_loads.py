"""Loads that memory answers once Postgres has said that it may: no thread, no transaction, nothing made anew."""

from dataclasses import dataclass

from duckicelake.catalog.answers import asking_of
from duckicelake.catalog.cache import LoadedTable
from duckicelake.catalog.delegation import Wish
from duckicelake.catalog.loading import asked_of, checked, is_current
from duckicelake.catalog.principal import Principal
from duckicelake.catalog.services import Services
from duckicelake.catalog.shared_checks import SharedChecks


@dataclass(frozen=True, slots=True)
class QuickLoads:
    """The quick way to what `tables.load_table` answers, for what it has answered before."""

    services: Services
    checks: SharedChecks

    async def load(
        self, principal: Principal, address: str, wish: Wish, named_as: tuple[str, str], representation: str
    ) -> LoadedTable | None:
        """The answer; None where it isn't in memory, or not right any more. named_as: the table's schema and name."""
        services = self.services
        known = services.cache.find(*named_as)
        if known is None:
            return None
        told = known.answers.told.get(asking_of(services, principal, address, wish, named_as, representation))
        if told is None or services.clock() >= told.until_ms:
            return None
        fresh = await self.checks.fresh(asked_of(*named_as, known))
        if fresh is None or not is_current(known, fresh) or (told.seen is not None and told.seen != fresh.seen):
            return None
        services.cache.count(hit=True)
        checked(services, known, fresh)
        return told.loaded
