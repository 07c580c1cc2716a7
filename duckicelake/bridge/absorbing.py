"""PURE. Which appends of Iceberg clients become inlined rows: those of few rows, to tables that want that.

The client's files then serve the rows, as the server's own do that it writes of inlined rows (design §6.16).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from duckicelake.bridge.realise import AnyFile
from duckicelake.errors import InvalidRequest
from duckicelake.lake.changes import InlinedInto
from duckicelake.lake.model import ColumnStats

ABSORB_ROWS: Final = "ducklake.absorb-rows"
_ROWS: Final = re.compile(r"\d{1,6}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AbsorbedFile:
    """A file whose rows are inlined: the values of each column, packed, and their exact statistics."""

    file: AnyFile
    values: tuple[str, ...]
    stats: tuple[ColumnStats, ...]


@dataclass(frozen=True, slots=True)
class Absorbed:
    """The files of one snapshot that are inlined, and where."""

    into: InlinedInto
    files: tuple[AbsorbedFile, ...]


def absorbed_rows(properties: Mapping[str, str]) -> int:
    """How many rows an append may have to be inlined; InvalidRequest if the table's property says no number."""
    text = properties.get(ABSORB_ROWS, "0")
    if not _ROWS.fullmatch(text):
        raise InvalidRequest(f"The table property {ABSORB_ROWS} is {text!r}: write a number of rows, up to 999999")
    return int(text)
