"""Rows that the server found by itself and that are to go: the snapshot that deletes them lists no client's files."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Positions in the live data files of a snapshot, by file id; they hold while it lists these manifests."""

    manifest_ids: tuple[int, ...]
    positions: Mapping[int, frozenset[int]]
