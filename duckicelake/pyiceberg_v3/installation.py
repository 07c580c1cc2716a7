"""Install and undo the patches, for tested versions of PyIceberg."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from duckicelake.pyiceberg_v3.patch import Patch, Undo

TESTED_VERSIONS: Final = ("0.11.1", "0.12.0")
_installed: list[Undo] = []


class UntestedVersionError(RuntimeError):
    """The installed PyIceberg is none that the patches were tested with."""


def install() -> None:
    """Make PyIceberg write tables of format version 3 in this process; nothing changes for versions 1 and 2.

    Safe to call again. With a PyIceberg that is not among TESTED_VERSIONS it raises UntestedVersionError and
    changes nothing.
    """
    check_version()
    if not _installed:
        _installed.extend(patch.apply() for patch in load_patches())


def uninstall() -> None:
    """Make PyIceberg as it was before `install()`; safe without it."""
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
    """All patches; imported only now, because they need what a tested PyIceberg has."""
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
