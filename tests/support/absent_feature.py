"""Run a module in a process that lacks a package, as if it weren't installed.

`python -m tests.support.absent_feature PACKAGE MODULE ARGUMENT...`
"""

import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class AbsentPackage(MetaPathFinder):
    """Raises ModuleNotFoundError for a package and all below it."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname == self._package or fullname.startswith(f"{self._package}."):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


if __name__ == "__main__":
    sys.meta_path.insert(0, AbsentPackage(sys.argv[1]))
    sys.argv[:] = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__")
