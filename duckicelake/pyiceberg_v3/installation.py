"""Install and undo the patches, for tested versions of PyIceberg."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Patch:
    owner: Any
    name: str
    replace: Callable[[Any], Any]

    def apply(self) -> Undo:
        """Replace the attribute; return a function that restores it."""
        was = vars(self.owner)[self.name]
        setattr(self.owner, self.name, self.replace(was))
        return lambda: setattr(self.owner, self.name, was)


def patch(owner: Any, name: str) -> Callable[[Callable[[Any], Any]], Patch]:
    """Make a Patch of the decorated function. Its docstring says what PyIceberg lacks."""
    return lambda replace: Patch(owner, name, replace)


TESTED_VERSIONS: Final = ("0.11.1", "0.12.0")
_installed: list[Undo] = []


class UntestedVersionError(RuntimeError):
    """The patches weren't tested with the installed PyIceberg."""


def install() -> None:
    """Make PyIceberg write tables of format version 3 in this process. Versions 1 and 2 don't change.

    A second call has no effect.

    Raises:
        UntestedVersionError: PyIceberg isn't among TESTED_VERSIONS; nothing was changed.

    """
    check_version()
    if not _installed:
        _installed.extend(patch.apply() for patch in load_patches())


def uninstall() -> None:
    """Remove the patches of `install()`, if any."""
    while _installed:
        _installed.pop()()


def check_version() -> None:
    try:
        found = version("pyiceberg")
    except PackageNotFoundError:
        found = "none"
    if found not in TESTED_VERSIONS:
        raise UntestedVersionError(f"tested with PyIceberg {' and '.join(TESTED_VERSIONS)}, installed is {found}")


def load_patches() -> tuple[Patch, ...]:
    """Import and return all patches, which need a tested PyIceberg."""
    from duckicelake.pyiceberg_v3 import commit, manifest_io, rows  # noqa: PLC0415

    return (
        *manifest_io.READ_PATCHES,
        *manifest_io.WRITE_PATCHES,
        *commit.COMMIT_PATCHES,
        *commit.UPGRADE_PATCHES,
        *rows.COPY_PATCHES,
        *rows.STORE_PATCHES,
        *rows.UPSERT_PATCHES,
    )
