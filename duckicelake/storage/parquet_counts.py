"""How many rows a Parquet file says that it has, in its footer's third field."""

from pathlib import Path
from typing import Final

from duckicelake.errors import InvalidRequest
from duckicelake.storage import parquet_footer as footers

_ROWS: Final = 3
_I64: Final = 6


def rows_in(file: Path, name: str) -> int:
    """The number of rows; InvalidRequest, calling the file by its name, if it isn't Parquet."""
    try:
        return _rows(footers.read_footer(file))
    except (IndexError, OSError) as error:
        raise InvalidRequest(f"{name} can't be read as Parquet: its footer is damaged") from error
    except InvalidRequest as error:
        raise InvalidRequest(f"{name} can't be read as Parquet: {error}") from error


def _rows(footer: bytes) -> int:
    at, field_id = 0, 0
    while True:
        kind, field_id, at = footers.field_at(footer, at, field_id)
        if kind == 0:
            raise InvalidRequest("its footer doesn't say how many rows it has")
        if field_id == _ROWS and kind == _I64:
            number, _ = footers.varint_at(footer, at)
            return (number >> 1) ^ -(number & 1)
        at = footers.skipped(footer, at, kind)
