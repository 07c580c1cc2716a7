"""Options of a warehouse: quotas, how long what was dropped stays, policies of maintenance. Read and change them.

Those that decide what a transaction may write are in the lake, where DuckDB's transactions meet them, too. The others
are in the registry; a server opens the warehouse anew when they change. Those of grants are beside the grants.
"""

import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouse_places import check_allowed_places
from duckicelake.catalog.warehouses import CheckPolicies
from duckicelake.errors import InvalidRequestError
from duckicelake.lake.setup import identity
from duckicelake.lake.side_tables import grants
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.grants import DEFINER_KEYS, FIRST_WAREHOUSE_ID
from duckicelake.lake.side_tables.warehouses import ALLOWED_LOCATIONS, split_locations
from duckicelake.properties import is_like_policy, is_policy, suggest_policy

MAX_REQUESTS: Final = "max-requests"
REQUESTS_PER_SECOND: Final = "requests-per-second"
FLUSH_ROWS: Final = "flush-rows"
FLUSH_BYTES: Final = "flush-bytes"
FLUSH_AGE: Final = "flush-age-seconds"
_COUNT: Final = re.compile("[0-9]{1,18}"), "a whole number"
_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?"), "a number, as 10 or 0.5"
_LAKE_FORMS: Final = {identity.MAX_TABLES: _COUNT, identity.MAX_NAMESPACES: _COUNT, identity.DROP_RETENTION: _NUMBER}
_SERVER_FORMS: Final = {
    MAX_REQUESTS: _COUNT,
    REQUESTS_PER_SECOND: _NUMBER,
    FLUSH_ROWS: _COUNT,
    FLUSH_BYTES: _COUNT,
    FLUSH_AGE: _NUMBER,
}
_PLACE_FORMS: Final = {ALLOWED_LOCATIONS: (re.compile(r"[^,\s]+(,[^,\s]+)*"), "locations, separated by commas")}
_GRANT_FORMS: Final = {DEFINER_KEYS: (re.compile("on|off"), "on or off")}
KEPT_OPTIONS: Final = frozenset({identity.DROP_RETENTION})
"""Options that each warehouse has."""
_FORMS: Final = _LAKE_FORMS | _SERVER_FORMS | _PLACE_FORMS | _GRANT_FORMS
_MAX_POLICY_CHARS: Final = 1000
OptionChanges = Mapping[str, str | None]
"""Values by option; None: as it is by default."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a warehouse takes of a server. at_once: of a worker; per_second: of all workers; None: no limit."""

    at_once: int | None = None
    per_second: float | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "RequestLimits":
        """Parse the options of a warehouse."""
        at_once, rate = options.get(MAX_REQUESTS), options.get(REQUESTS_PER_SECOND)
        return cls(None if at_once is None else int(at_once), None if rate is None else float(rate))

    @property
    def are_set(self) -> bool:
        """Whether there is one at all."""
        return self != RequestLimits()


def read_options(services: Services) -> dict[str, str]:
    """Read the options of the services' warehouse, by name."""
    rights = _get_rights(services)
    with services.database.reading() as cursor:
        found = identity.read_limits(cursor)
        found |= grants.read_options(cursor, rights.place)
    if rights.link is not None:
        with rights.link.registry.reading() as cursor:
            found |= grants.read_options(cursor, rights.place)
    return dict(sorted(found.items()))


def change_options(
    services: Services, changes: OptionChanges, check_policies: CheckPolicies, roots: tuple[str, ...] = ()
) -> dict[str, str]:
    """Change options of the services' warehouse, all or none; return all options.

    check_policies: raises InvalidRequestError for policies of maintenance that can't be. roots: folders below which the
    files of warehouses may be.

    Of a warehouse in another database, those of the registry change first: one who is killed between may repeat it.

    Raises InvalidRequestError for an option or a value that there isn't.
    """
    place, link = _get_rights(services).place, _get_rights(services).link
    check_options(changes, check_policies, is_first=place.warehouse_id == FIRST_WAREHOUSE_ID)
    own = {name: value for name, value in changes.items() if name in _LAKE_FORMS}
    others = {name: value for name, value in changes.items() if name not in _LAKE_FORMS}
    granted = {name: others.pop(name) for name in _GRANT_FORMS if link is not None and name in others}

    added = split_locations(others.get(ALLOWED_LOCATIONS))

    def change() -> None:
        with services.database.transaction() as cursor:
            identity.change_limits(cursor, own)
            grants.change_options(cursor, place, granted)
            registry = nullcontext(cursor) if link is None else link.registry.transaction()
            with registry as registry_cursor:
                if added:
                    grants.lock_warehouses(registry_cursor, place)
                    check_allowed_places(services, roots, place.warehouse_id, added)
                grants.change_options(registry_cursor, place, others)
            services.settle(cursor, [AuditedResource("warehouse", detail={"options": dict(changes)})])

    services.run_once(change, lambda _: None)
    return read_options(services)


def check_options(changes: OptionChanges, check_policies: CheckPolicies, *, is_first: bool) -> None:
    """Raise InvalidRequestError for an option or a value that there isn't."""
    policies = {}
    for name, value in changes.items():
        if is_like_policy(name) and not is_policy(name):
            raise InvalidRequestError(f"There is no option {name!r} of a warehouse: {suggest_policy(name)}")
        if name not in _FORMS and not is_policy(name):
            raise InvalidRequestError(
                f"There is no option {name!r} of a warehouse: expected one of {', '.join(_FORMS)}, or a policy such as "
                "maintenance.flush.min-rows"
            )
        if is_first and name not in _LAKE_FORMS | _GRANT_FORMS:
            raise InvalidRequestError(
                f"{name} is an option of warehouses beside the first: that takes it from the settings of the server"
            )
        if value is not None:
            _check_value(name, value)
            if is_policy(name):
                policies[name] = value
    check_policies(policies)


def _check_value(name: str, value: str) -> None:
    if name not in _FORMS:
        if not value or len(value) > _MAX_POLICY_CHARS:
            raise InvalidRequestError(f"Invalid {name}: expected 1 to {_MAX_POLICY_CHARS} characters")
        return
    pattern, expected = _FORMS[name]
    if not pattern.fullmatch(value):
        raise InvalidRequestError(f"Invalid {name} {value!r}: expected {expected}")
    if name in _SERVER_FORMS and not float(value):
        raise InvalidRequestError(f"Invalid {name} {value!r}: expected more than 0")


def _get_rights(services: Services) -> RightsCache:
    if services.rights is None:
        raise InvalidRequestError("This process has no options of warehouses")
    return services.rights
