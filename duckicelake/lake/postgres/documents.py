"""Many rows as one parameter of a statement: Postgres takes JSON apart sooner than psycopg puts arrays together."""

from collections.abc import Sequence
from typing import Final, TypeVar

import orjson

BATCH: Final = 500
"""Rows that a statement takes without much memory."""

T = TypeVar("T")


def document(rows: Sequence[object]) -> str:
    """The rows in JSON; a text in them that is JSON already comes as `orjson.Fragment`."""
    return orjson.dumps(rows).decode()


def batches(rows: Sequence[T]) -> list[Sequence[T]]:
    """The rows in parts for a statement each; none of no rows."""
    return [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
