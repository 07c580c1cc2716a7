"""The settings of a server, which each entry point reads once and passes on.

A value comes from the first of these that names it: the command line, `DUCKICELAKE_*` in the environment,
`duckicelake.toml` in the current folder, `duckicelake.toml` in the lake's folder, the default.
"""

from duckicelake.settings.forms import PREFIX
from duckicelake.settings.model import Settings
from duckicelake.settings.sources import read_settings

__all__ = ["PREFIX", "Settings", "read_settings"]
