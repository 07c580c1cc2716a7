"""Find the installed features, and import an entry point when the core first needs it.

The core imports no feature. A feature is a package `duckicelake.<name>` whose module `hooks` holds `FEATURE`, a
`Feature`. A feature whose package is missing is skipped.
"""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeVar

FEATURES: Final = (
    "constraints",
    "lineage",
    "delta",
    "file_lake",
    "query",
    "row_changes",
    "materialized_views",
    "rewrites",
    "duckdb_login",
    "mcp",
    "shell",
    "console",
    "other_catalogs",
    "upkeep",
    "file_import",
)
"""Names of the features. A server starts their background tasks in this order, and ends them in reverse."""

Hook = TypeVar("Hook")


@dataclass(frozen=True, slots=True)
class Feature:
    """The entry points of one feature, each `module:attribute`; None where the feature adds nothing.

    Attributes:
        needs: features without which it isn't there either.
        commands: a `typer.Typer`: a group of subcommands of `duckicelake` if it has a name, else single subcommands.
        commit_rule: a `catalog.context.hooks.CommitRule`.
        read_observer: a `catalog.context.hooks.ReadObserverFactory`.
        routes: a `server.hooks.FeatureRoutes`.
        service: a `cli.serve.hooks.FeatureService`.
        doctor_check: a `lake.doctor.findings.DoctorCheck`.
        upkeep_source: a `catalog.upkeep_tasks.UpkeepSource`.

    """

    name: str
    needs: tuple[str, ...] = ()
    commands: str | None = None
    commit_rule: str | None = None
    read_observer: str | None = None
    routes: str | None = None
    service: str | None = None
    doctor_check: str | None = None
    upkeep_source: str | None = None


@cache
def find_features() -> tuple[Feature, ...]:
    """Return the installed features, in the order of FEATURES."""
    found = [feature for feature in map(_find_feature, FEATURES) if feature is not None]
    names = {feature.name for feature in found}
    return tuple(feature for feature in found if names.issuperset(feature.needs))


def _find_feature(name: str) -> Feature | None:
    package = f"duckicelake.{name}"
    try:
        feature: Feature = import_module(f"{package}.hooks").FEATURE
    except ModuleNotFoundError as error:
        if error.name not in {package, f"{package}.hooks"}:
            raise
        return None
    return feature


@cache
def is_installed(name: str) -> bool:
    """Return whether a feature is installed."""
    return any(feature.name == name for feature in find_features())


def load_hooks(kind: type[Hook], hook: str) -> tuple[Hook, ...]:
    """Import one hook of all installed features that have it. `hook` is an attribute of `Feature`.

    Raises TypeError if an entry point names something that is no `kind`.
    """
    found = (getattr(feature, hook) for feature in find_features())
    return tuple(load_entry_point(kind, entry_point) for entry_point in found if entry_point is not None)


def load_entry_point(kind: type[Hook], entry_point: str) -> Hook:
    """Import what `module:attribute` names. TypeError if it is no `kind`."""
    module, _, attribute = entry_point.partition(":")
    hook: Any = getattr(import_module(module), attribute)
    if not isinstance(hook, kind):
        raise TypeError(f"{entry_point} is a {type(hook).__name__}: expected a {kind.__name__}")
    return hook
