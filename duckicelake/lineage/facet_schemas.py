"""The JSON schemas of the facets that are ours, as files of the package."""

import re
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,99}")


def facet_schema(name: str) -> bytes | None:
    """The schema of a facet, such as `duckicelake_inferred`; None where it isn't ours."""
    if not _NAME.fullmatch(name):
        return None
    found = files("duckicelake.lineage").joinpath("schemas", f"{name}.json")
    return found.read_bytes() if found.is_file() else None
