"""PURE. What of a table's protocol this package reads (protocol, "Valid Feature Names in Table Features")."""

from typing import Final

from duckicelake.delta.actions import Protocol
from duckicelake.errors import Unsupported

READER_VERSION: Final = 3
"""The newest reader version; from it on, features say by name what a reader must know."""

READABLE: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
"""The reader features that this package reads the log of; what of their data is taken in, others decide."""


def check_readable(protocol: Protocol, root: str, version: int) -> None:
    """Raise Unsupported naming the reader version, or the features, that the table has and this package hasn't."""
    table = f"the Delta table {root} asks of its readers, from version {version} or before,"
    if protocol.min_reader_version > READER_VERSION:
        raise Unsupported(
            "delta-features",
            f"{table} protocol version {protocol.min_reader_version}, and {READER_VERSION} is the newest that is read",
        )
    unknown = sorted((protocol.reader_features or frozenset()) - READABLE)
    if unknown:
        raise Unsupported(
            "delta-features",
            f"{table} {' and '.join(unknown)}, which isn't read; what is: {', '.join(sorted(READABLE))}",
        )
