"""Make PyIceberg write tables of format version 3: `install()` adds patches, `uninstall()` removes them."""

from duckicelake.pyiceberg_v3.installation import TESTED_VERSIONS, UntestedVersionError, install, uninstall

__all__ = ["TESTED_VERSIONS", "UntestedVersionError", "install", "uninstall"]
