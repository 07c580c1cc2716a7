"""PyIceberg, taught to write tables of format version 3: `install()` patches what it lacks, `uninstall()` undoes it."""

from duckicelake.pyiceberg_v3.installation import TESTED_VERSIONS, UntestedVersionError, install, uninstall

__all__ = ["TESTED_VERSIONS", "UntestedVersionError", "install", "uninstall"]
