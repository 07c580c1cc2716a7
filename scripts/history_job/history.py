"""What is recorded: operations with what they would change, and observations of what was there."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Final

Token = tuple[str, str, int | str]
"""(kind, table, what): something that is there or isn't, made by one operation only and never made again.

Kinds are `row` (an id), `mark` (the operation of a snapshot's summary or of a property), `column`, `tag`, and `table`
(the operation that made what has this name).
"""
Domain = tuple[str, str]
"""(kind, table): what a reader looks at, seeing all tokens of it that are there."""

FOREVER: Final = 1 << 62
MOST_ROWS: Final = 100
"""That one operation writes."""
STALE: Final = "stale"
SMALL_INSERT: Final = "small insert"
"""Of DuckDB's: rows that it keeps in the catalog."""


class Outcome(StrEnum):
    """What a client knows of its operation in the end."""

    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Operation:
    """One change. `invoked` and `answered` are nanoseconds of one clock; `answered` is when the outcome was known."""

    number: int
    client: str
    kind: str
    adds: frozenset[Token]
    removes: frozenset[Token]
    invoked: int
    answered: int
    outcome: Outcome
    answers: tuple[str, ...] = ()
    """What each attempt came to, in words."""
    must_fail: bool = False
    """One of its requirements can't hold."""

    @property
    def acknowledged_at(self) -> int:
        return self.answered if self.outcome is Outcome.ACKNOWLEDGED else FOREVER

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(table for _, table, _ in (*self.adds, *self.removes))


def row_ids(number: int, rows: int) -> range:
    """The ids of the rows that an operation writes."""
    return range(number * MOST_ROWS, number * MOST_ROWS + rows)


def row_tokens(table: str, ids: range | list[int]) -> frozenset[Token]:
    return frozenset(("row", table, id_) for id_ in ids)


@dataclass(frozen=True, slots=True)
class Observation:
    """What one read found, all of it at one moment between `invoked` and `answered`; a token twice is there twice."""

    reader: str
    invoked: int
    answered: int
    domains: frozenset[Domain]
    tokens: tuple[Token, ...]
    table: str = ""
    version: int = 0
    """Of the table, as its metadata file is numbered; 0: the reader doesn't know."""
    answer_to: int = 0
    """The operation whose answer this is, which therefore shows it."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that must not be. `kind` is a word for counting."""

    kind: str
    text: str


@dataclass(slots=True)
class History:
    """All that happened; threads append to it."""

    operations: list[Operation] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    faults: list[tuple[int, str]] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    """What was seen to be wrong on the way."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def write(self, path: Path, more: Mapping[str, object]) -> None:
        """As lines of JSON in the order of events; of observations only what doesn't stand in the operations."""
        lines: list[tuple[int, dict[str, object]]] = [(0, dict(more))]
        for each in self.operations:
            facts = {"operation": each.number, "client": each.client, "kind": each.kind, "outcome": each.outcome}
            times = {"invoked": each.invoked, "answered": each.answered, "answers": each.answers}
            changes = {"adds": sorted(each.adds, key=repr), "removes": sorted(each.removes, key=repr)}
            lines.append((each.invoked, facts | times | changes))
        for read in self.observations:
            what = {"read": read.reader, "table": read.table, "version": read.version, "tokens": len(read.tokens)}
            lines.append((read.invoked, what | {"invoked": read.invoked, "answered": read.answered}))
        lines.extend((at, {"fault": name, "at": at}) for at, name in self.faults)
        lines.sort(key=lambda line: line[0])
        path.write_text("".join(json.dumps(line) + "\n" for _, line in lines))
