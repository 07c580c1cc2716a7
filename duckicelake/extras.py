"""Import the libraries of extras when they are first used, and name the install of one that is missing.

The base installation serves a lake without them. `pyproject.toml` says which extra brings which library.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from duckicelake.errors import MissingExtraError

EXTRAS: Final = {
    "boto3": ("s3", "Lakes in S3"),
    "botocore": ("s3", "Lakes in S3"),
    "numpy": ("scans", "Scans that the server plans, and statistics of columns"),
    "obstore": ("s3", "Lakes in buckets"),
    "pyarrow": ("arrow", "Rows over HTTP, Delta tables and results of queries"),
    "zstandard": ("zstd", "Manifests of codec zstandard"),
}
"""The extra that installs a library, and what the library is needed for."""


class DeferredModule(ModuleType):
    """Stands for a module, and becomes it when one of its names is first used.

    It then costs nothing: its names are the module's, and its class is that of modules.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked for by those who look at modules, such as inspect
            raise AttributeError(name)
        self.__dict__.update(import_extra(self.__name__).__dict__)
        self.__class__ = ModuleType  # type: ignore[assignment]
        return getattr(self, name)


def import_extra(name: str) -> ModuleType:
    """Import a module of a library in EXTRAS. Raises MissingExtraError."""
    library = name.partition(".")[0]
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        extra, purpose = EXTRAS[library]
        raise MissingExtraError(f"{purpose} need {library}: pip install 'duckicelake[{extra}]'") from error


@cache
def is_installed(library: str) -> bool:
    """Return whether a library in EXTRAS is installed."""
    return find_spec(library) is not None


def import_installed() -> None:
    """Import the libraries that are installed, so that no request waits for an import.

    A store of S3 imports its own when it is opened. Lakes without one start 0.2 s earlier so.
    """
    for library, (extra, _) in EXTRAS.items():
        if extra != "s3" and is_installed(library):
            import_module(library)
