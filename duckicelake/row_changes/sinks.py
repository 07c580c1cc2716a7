"""Where row changes go: standard output, or what `webhook` and `kafka` deliver to; and how far they are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from duckicelake.errors import BadInputError, DeliveryError
from duckicelake.row_changes.position import RowChangePosition, find_position

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class FollowedTable:
    """How far a reader is in a table's changes. position: None before the first."""

    table_uuid: str | None = None
    position: str | None = None

    @property
    def change(self) -> RowChangePosition | None:
        """The position, parsed."""
        return find_position(self.position or "")


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file that keeps how far a reader is; after a crash it has the old place or the new one.

    since: where the reader is asked to begin, which only a file that isn't there yet leaves open.
    """

    path: Path
    since: str | None = None

    def read(self) -> FollowedTable:
        """Read it.

        Raises BadInputError for a file that is none of these, for one that no folder may have, and for another place
        than `since`.
        """
        try:
            found = json.loads(self.path.read_text())
            place = FollowedTable(str(found["table-uuid"]), str(found["position"]))
        except FileNotFoundError:
            self._check_folder()
            return FollowedTable()
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInputError(
                f"--state {self.path} can't be read ({error}): name a file of its own for it"
            ) from error
        if find_position(place.position or "") is None:
            raise BadInputError(f"--state {self.path} has no position: {place.position!r}")
        if self.since not in {None, place.position, _find_snapshot(place)}:
            raise BadInputError(
                f"--state {self.path} goes on behind {place.position}; --from {self.since} is another place: leave "
                f"out --from, or remove {self.path}"
            )
        return place

    def write(self, place: FollowedTable) -> None:
        """Write it, safe from a crash. Raises DeliveryError."""
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            with new.open("w") as file:
                json.dump({"table-uuid": place.table_uuid, "position": place.position}, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
        except OSError as error:
            raise DeliveryError(
                f"--state {self.path} can't be written ({error.strerror}): the next run repeats what came behind it"
            ) from error

    def _check_folder(self) -> None:
        """Check before the first row that the file can be made."""
        folder = self.path.parent
        if not os.access(folder, os.W_OK | os.X_OK):
            raise BadInputError(f"--state {self.path} can't be made: no folder {folder} that this user may write to")


def _find_snapshot(place: FollowedTable) -> str | None:
    """Find the snapshot whose end a place is; None for one within a snapshot."""
    return None if place.change is None or place.change.rows else str(place.change.snapshot_id)


class ChangeSink(Protocol):
    """Takes the rows of a table's changes."""

    def find_place(self) -> FollowedTable:
        """Find where the rows that it took before end."""

    def take(self, line: bytes, row: Mapping[str, Any], place: FollowedTable) -> None:
        """Take a row. line: its JSON. place: behind it."""

    def keep(self, place: FollowedTable) -> None:
        """Note where an answer ended, cut or not; all rows before it were taken."""


@dataclass(slots=True)
class FileSink:
    """Writes rows as lines to a file, and after them how far they are to a file of state."""

    file: BinaryIO
    state: StateFile | None

    def find_place(self) -> FollowedTable:
        """Read it from the file of state."""
        return FollowedTable() if self.state is None else self.state.read()

    def take(self, line: bytes, row: Mapping[str, Any], place: FollowedTable) -> None:  # noqa: ARG002 - of each sink
        """Write a row."""
        self.file.write(line)

    def keep(self, place: FollowedTable) -> None:
        """Write where the rows end."""
        self.file.flush()
        if self.state is not None:
            self.state.write(place)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a command says of a sink.

    Attributes:
        url: None for standard output.
        table: its name.
        secret: of a webhook's signatures, `whsec_` and base64.
        kafka: librdkafka's settings, `name=value,name2=value2`.
        allowed: addresses that webhooks may have besides public ones.
        key: columns that identify a row.
        retry_seconds: for which a receiver may be away.

    """

    url: str | None
    table: str
    state: StateFile | None
    secret: str | None = field(default=None, repr=False)
    kafka: str | None = field(default=None, repr=False)
    allowed: Sequence[str] = ()
    key: Sequence[str] = ()
    retry_seconds: float = 600.0
