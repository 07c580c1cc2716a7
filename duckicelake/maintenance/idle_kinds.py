"""PURE. Say why kinds of jobs have nothing to do: tables that don't ask for them, and what to set."""

from collections.abc import Collection, Mapping

from duckicelake.errors import BadInputError
from duckicelake.maintenance.policy import JOB_KINDS, ORPHANS_ENABLED, MaintenancePolicy, parse_policy
from duckicelake.properties import BLOOM_FILTER_PREFIX, FOLLOWS_DELTA, GC_ENABLED, MAX_SNAPSHOT_AGE_MS


class IdleKinds:
    """Finds the kinds, of some that are wanted, that no table asks for; of those that need a policy or can be off."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._reasons = {kind: set[str]() for kind in kinds if kind in JOB_KINDS}
        self._asked = set[str]()

    def look(self, policies: Mapping[str, str]) -> None:
        """Look at the policies of a table. Those that can't be say nothing: the plan names them."""
        try:
            policy = parse_policy(policies)
        except BadInputError:
            return
        for kind, reasons in self._reasons.items():
            reason = _explain(kind, policy, policies)
            if reason is None:
                self._asked.add(kind)
            else:
                reasons.add(reason)

    def explain(self) -> list[str]:
        """Say of each such kind why no table asks for it."""
        return [
            f"no table asks for {kind}: {'; '.join(sorted(reasons))}"
            for kind, reasons in sorted(self._reasons.items())
            if reasons and kind not in self._asked
        ]


def _explain(kind: str, policy: MaintenancePolicy, policies: Mapping[str, str]) -> str | None:
    """Say why a table doesn't ask for a kind; None: it does."""
    if not policy.enabled:
        return explain_disabled(policies)
    is_asked, reason = {
        "sort": (policy.order is not None, "set maintenance.sort.order (by a table's own order only --where sorts)"),
        "compact": (policy.compacts, "maintenance.compaction.enabled is false"),
        "bloom-filters": (bool(policy.filter_columns), f"set {BLOOM_FILTER_PREFIX}<name>=true on the table"),
        "statistics": (policy.statistics, "maintenance.statistics.enabled is false"),
        "expire": (policy.expires, _explain_expiry(policies)),
        "remove-orphans": (policy.orphans, _explain_orphans(policies)),
    }.get(kind, (True, ""))
    return None if is_asked else reason


def explain_disabled(policies: Mapping[str, str]) -> str:
    """Say why a table gets no maintenance: that it is followed is no policy that could be set."""
    return "it follows a Delta table" if FOLLOWS_DELTA in policies else "maintenance.enabled is false"


def _explain_expiry(policies: Mapping[str, str]) -> str:
    if _is_false(policies, GC_ENABLED):
        return f"{GC_ENABLED} is false"
    if _is_false(policies, "maintenance.expire.enabled"):
        return "maintenance.expire.enabled is false"
    return f"set {MAX_SNAPSHOT_AGE_MS}, or maintenance.expire.enabled=true"


def _explain_orphans(policies: Mapping[str, str]) -> str:
    return f"{ORPHANS_ENABLED} is false" if _is_false(policies, ORPHANS_ENABLED) else f"{GC_ENABLED} is false"


def _is_false(policies: Mapping[str, str], name: str) -> bool:
    return policies.get(name, "").strip().lower() == "false"
