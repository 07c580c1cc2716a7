"""What readers are known not to read, and how that shows: each is tested to be so still."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import pytest


@dataclass(frozen=True, slots=True)
class Limit:
    """From a version on, `says` is in the reader's error, or in the difference; none without `says`."""

    says: str = ""
    since: int = 0
    upto: int | None = None

    def covers(self, version: int) -> bool:
        return bool(self.says) and self.since <= version and (self.upto is None or version <= self.upto)

    def assert_still_there(self, act: Callable[[], object]) -> None:
        with pytest.raises(Exception, match=r".") as caught:  # of any reader's kind
            act()
        assert self.says in str(caught.value)


_PADDED: Final = Limit("'ab   '", since=1)
"""CHAR is filled with spaces by Spark when it reads; the files, and Delta itself, don't have them."""
_FAR: Final = Limit("9999, 1", since=1)
"""Spark writes timestamps with 96 bits; Arrow makes nanoseconds of them, which have no year 9999."""
_NO_WIDENING: Final = Limit("TypeWidening")
_LIST_OF_STRUCTS: Final = Limit("has 1 too many", since=1)
"""PyIceberg makes an empty list of a NULL one whose elements are structs."""

_NO_NESTED_IDS: Final = Limit("is not in the store")
"""Delta gives field ids to columns and fields of structs, not to elements of lists and maps, and Java's Iceberg takes
a file that has some ids to have all."""

LIMITS: Final[dict[tuple[str, str], Limit]] = {
    ("delta-rs", "char_varchar"): _PADDED,
    ("delta-rs", "primitives"): _FAR,
    ("delta-rs", "variant"): Limit("metadata: b", since=1),  # as it lies in the file
    ("delta-rs", "widened"): _NO_WIDENING,
    ("delta-rs", "widened_beyond_iceberg"): _NO_WIDENING,
    ("delta-rs", "folder_of_any_name"): Limit("File not found"),  # %20 in a path is decoded once too often
    ("DuckDB delta", "char_varchar"): _PADDED,
    ("DuckDB delta", "folder_of_any_name"): Limit("File not found"),
    ("DuckDB delta", "partitions_mapped"): Limit("misses", since=1),  # columns by mistaken partition values
    ("DuckDB delta", "shallow_clone"): Limit("Cannot open file"),  # absolute paths
    ("DuckDB delta", "vectors_mapped"): Limit("misses", since=1),
    ("read_delta", "char_varchar"): _PADDED,
    ("import", "widened_beyond_iceberg"): Limit("delta-type-changes"),
    ("PyIceberg", "char_varchar"): _PADDED,
    ("PyIceberg", "primitives"): _FAR,
    ("PyIceberg", "mapped_by_name"): _LIST_OF_STRUCTS,
    ("PyIceberg", "nested"): replace(_LIST_OF_STRUCTS, since=2),
    ("PyIceberg", "by_float"): Limit("'inf'", since=1),  # partition values of doubles become floats
    ("PyIceberg", "variant"): Limit("variant"),
    ("Spark", "char_varchar"): _PADDED,
    ("Spark", "mapped_by_id"): _NO_NESTED_IDS,
    ("Spark", "mapped_by_name"): _NO_NESTED_IDS,
    ("DuckLake", "char_varchar"): _PADDED,
    ("DuckLake", "columns_added"): Limit("has columns", since=2),  # DuckDB has columns in the order they came in
}
"""By reader and table; the reader "import" refuses the table as a whole."""
