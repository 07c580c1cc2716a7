"""Which version of the package runs."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version


def own_version() -> str:
    """The installed version, or that there is none."""
    try:
        return installed_version("duckicelake")
    except PackageNotFoundError:
        return "(checkout)"
