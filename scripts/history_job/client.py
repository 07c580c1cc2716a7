"""A small Iceberg client that keeps a record: what it asked for, when, and what it was answered."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import Any, Final
from uuid import UUID

import httpx

from duckicelake.storage.protocol import ObjectStore
from scripts.history_job.drafts import MARK
from scripts.history_job.history import Anomaly, Domain, History, Observation, Operation, Outcome, Token

Json = dict[str, Any]
NAMESPACE: Final = "ns"
TABLES: Final = f"/v1/namespaces/{NAMESPACE}/tables"
PATIENCE_SECONDS: Final = 90
READS: Final = 40
ATTEMPTS: Final = 30
FIRST_COLUMNS: Final = frozenset({"id", "k"})
"""That tables have from the beginning."""
GIVES_UP: Final = 0.1
"""How often a client doesn't ask again what came of its request."""


class NoAnswer(Exception):  # noqa: N818 - says what happened
    """The server couldn't be read from, however often the client tried."""


@dataclass(frozen=True, slots=True)
class Change:
    """A request that changes something, and what it adds and removes if it does."""

    kind: str
    number: int
    method: str
    path: str
    body: Json | list[Json] | None = None
    adds: frozenset[Token] = frozenset()
    removes: frozenset[Token] = frozenset()
    must_fail: bool = False
    may_be_missing: bool = False
    """404 is no wonder."""
    key: UUID | None = None
    """With a key, it may be sent again."""
    is_counted: bool = False
    """So it may with a number of the client's own, but not after later ones."""


class Reply(Enum):
    """What one attempt tells the client."""

    DONE = auto()
    REFUSED = auto()
    NOT_NOW = auto()
    """This attempt has written nothing."""
    NO_IDEA = auto()


@dataclass(slots=True)
class Session:
    """What all clients share."""

    uri: str
    history: History
    store: ObjectStore
    tables: list[str]
    keyed_tables: list[str]
    total: int
    """Operations that the clients will attempt."""
    attempted: int = 0
    seen: dict[str, tuple[Token, ...]] = field(default_factory=dict)
    """What is in a table, by the location of its metadata file."""
    open_ends: list[tuple[Operation, Change]] = field(default_factory=list)
    """Operations whose outcome nobody knows, but which have a key."""
    done: list[tuple[Operation, Change]] = field(default_factory=list)
    """Acknowledged operations that have a key."""
    expiring: frozenset[str] = frozenset()
    """Tables whose snapshots leave by age, and with them the marks of what was committed."""
    other_uri: str | None = None
    """Of a second server, which every other client uses."""
    unread: int = 0
    """Reads that got no answer."""
    progressed: Callable[[], None] = lambda: None

    def choose_uri(self, client: str) -> str:
        """Which server a client uses."""
        is_odd = client[-1:].isdigit() and int(client[-1]) % 2 == 1
        return self.other_uri if self.other_uri and is_odd else self.uri

    def lasting_tables(self) -> list[str]:
        return [*self.tables, *self.keyed_tables]

    def active_tables(self) -> list[str]:
        """Those that are worked on now: a window that moves over all, so that none gets a long history."""
        start = round((len(self.tables) - ACTIVE) * min(1.0, self.attempted / max(1, self.total)))
        return self.tables[start : start + ACTIVE]


ACTIVE: Final = 4


@dataclass(slots=True)
class Client:
    """One client with connections of its own; a new one for each request, so that every worker gets some."""

    name: str
    session: Session
    random: Random
    http: httpx.Client = field(init=False)
    remembered: dict[str, tuple[str, Json]] = field(default_factory=dict)
    """Of tables loaded before: entity tag and answer."""

    def __post_init__(self) -> None:
        limits = httpx.Limits(max_keepalive_connections=0)
        self.http = httpx.Client(
            base_url=self.session.choose_uri(self.name), timeout=PATIENCE_SECONDS, limits=limits, trust_env=False
        )

    def next_number(self) -> int:
        return next(self.session.history.numbers)

    def load(self, table: str) -> Json | None:
        """The table's metadata, None if there is no such table; noted as seen. NoAnswer if all tries fail."""
        for attempt in range(READS):
            invoked = now()
            known = self.remembered.get(table) if self.random.random() < 0.5 else None
            try:
                answer = self.http.get(f"{TABLES}/{table}", headers={"If-None-Match": known[0]} if known else {})
                body = known[1] if known and answer.status_code == 304 else answer.json()
            except (httpx.TransportError, json.JSONDecodeError):
                pause(attempt)
                continue
            if answer.status_code in (200, 304):
                self._note(table, body, invoked, answer.headers.get("ETag"))
                metadata: Json = body["metadata"]
                return metadata
            if answer.status_code == 404 and body["error"]["type"] == "NoSuchTableException":
                self._observe(table, invoked, frozenset({("table", table)}), ())
                return None
            self._suspect("load", table, answer)
            pause(attempt)
        self.session.unread += 1
        raise NoAnswer(table)

    def glance(self, table: str) -> None:
        """Load the table with no other snapshots than refs name, and note what that shows; one try."""
        invoked, key = now(), f"{table}?snapshots=refs"
        known = self.remembered.get(key) if self.random.random() < 0.5 else None
        try:
            answer = self.http.get(f"{TABLES}/{key}", headers={"If-None-Match": known[0]} if known else {})
            body = known[1] if known and answer.status_code == 304 else answer.json()
        except (httpx.TransportError, json.JSONDecodeError):
            return
        if answer.status_code not in (200, 304):
            self._suspect("load", table, answer)
            return
        self.remembered[key] = (answer.headers["ETag"], body)
        domains = frozenset((kind, table) for kind in ("column", "tag", "table"))
        tokens = tuple(token for token in tokens_of(table, body["metadata"]) if token[:2] in domains)
        self._observe(table, invoked, domains, tokens, version_of(body["metadata-location"]))

    def perform(self, change: Change, *, attempts: int = ATTEMPTS, gives_up: float = GIVES_UP) -> Operation:
        """Send the request, again and again if it has a key and no answer comes; the operation is recorded."""
        began, answers, is_open = now(), [], change.key is not None
        outcome = Outcome.REFUSED
        for attempt in range(attempts):
            reply, said = self._send(change, attempt)
            answers.append(said)
            if reply in (Reply.DONE, Reply.REFUSED):
                outcome = Outcome.ACKNOWLEDGED if reply is Reply.DONE else Outcome.REFUSED
                is_open = False
                break
            if reply is Reply.NO_IDEA:
                outcome = Outcome.UNKNOWN
                if (change.key is None and not change.is_counted) or self.random.random() < gives_up:
                    break
            pause(attempt)
        operation = Operation(
            change.number,
            self.name,
            change.kind,
            change.adds,
            change.removes,
            began,
            now(),
            Outcome.UNKNOWN if is_open else outcome,  # a request with a key may have been doubled on its way
            tuple(answers),
            change.must_fail,
        )
        self._record(operation, change)
        return operation

    def ask_again(self, change: Change, attempts: int = ATTEMPTS) -> tuple[Reply, str]:
        """What has come of a request with a key: sent again until there is an answer."""
        reply, said = Reply.NO_IDEA, ""
        for attempt in range(attempts):
            reply, said = self._send(change, attempt)
            if reply in (Reply.DONE, Reply.REFUSED):
                break
            pause(attempt)
        return reply, said

    def close(self) -> None:
        self.http.close()

    def _record(self, operation: Operation, change: Change) -> None:
        if operation.outcome is Outcome.UNKNOWN and change.key is not None:
            self.session.open_ends.append((operation, change))
            return
        self.session.history.operations.append(operation)
        if operation.outcome is Outcome.ACKNOWLEDGED and change.key is not None:
            self.session.done.append((operation, change))

    def _send(self, change: Change, attempt: int) -> tuple[Reply, str]:
        headers = {"X-History": f"{change.number}/{attempt}"}
        if change.key is not None:
            headers["Idempotency-Key"] = str(change.key)
        invoked = now()
        try:
            answer = self.http.request(change.method, change.path, json=change.body, headers=headers)
            body = answer.json() if answer.content else None
        except (httpx.TransportError, json.JSONDecodeError) as error:
            return Reply.NO_IDEA, type(error).__name__
        if answer.is_success:
            if body and "metadata-location" in body and change.path.startswith(f"{TABLES}/"):
                table = change.path.removeprefix(f"{TABLES}/")
                self._note(table, body, invoked, None, change.number)
            return Reply.DONE, str(answer.status_code)
        return self._parse_request(change, answer), f"{answer.status_code} {body['error']['type'] if body else ''}"

    def _parse_request(self, change: Change, answer: httpx.Response) -> Reply:
        if answer.status_code in (503, 429):
            return Reply.NOT_NOW
        if change.is_counted and answer.status_code == 409 and "AlreadyAppliedException" in answer.text:
            return Reply.DONE
        if change.kind == "tag" and "unknown snapshot" in answer.text and self.session.expiring:
            return Reply.REFUSED
        if answer.status_code == 409 or (answer.status_code == 404 and change.may_be_missing):
            return Reply.REFUSED
        self._suspect(f"{change.kind} {change.number}", change.path, answer)
        return Reply.REFUSED if answer.status_code < 500 else Reply.NO_IDEA

    def _suspect(self, what: str, where: str, answer: httpx.Response) -> None:
        """An answer that no fault excuses: only 503, 429 and a change's unknown outcome are."""
        is_unknown = what != "load" and answer.status_code == 500 and "CommitStateUnknownException" in answer.text
        if answer.status_code not in (429, 503) and not is_unknown:
            text = f"{what} of {self.name} on {where} was answered {answer.status_code} {answer.text[:400]}"
            self.session.history.anomalies.append(Anomaly("wrong answer", text))

    def _note(self, table: str, body: Json, invoked: int, etag: str | None, answer_to: int = 0) -> None:
        if etag is not None:
            self.remembered[table] = (etag, body)
        location = body["metadata-location"]
        tokens = self.session.seen.get(f"{table} {location}")
        if tokens is None:
            tokens = self.session.seen.setdefault(f"{table} {location}", tokens_of(table, body["metadata"]))
        kinds = ("column", "tag", "table") if table in self.session.expiring else ("mark", "column", "tag", "table")
        domains = frozenset((kind, table) for kind in kinds)
        tokens = tuple(token for token in tokens if token[:2] in domains)
        # A request that was sent again may be answered with the table as it is under another name, or with a later one.
        self._observe(table, invoked, domains, tokens, version_of(location), answer_to)

    def _observe(
        self,
        table: str,
        invoked: int,
        domains: frozenset[Domain],
        tokens: tuple[Token, ...],
        version: int = 0,
        answer_to: int = 0,
    ) -> None:
        is_lasting = table in self.session.lasting_tables()
        observation = Observation(
            self.name, invoked, now(), domains, tokens, table, version if is_lasting else 0, answer_to
        )
        self.session.history.observations.append(observation)


def tokens_of(table: str, metadata: Json) -> tuple[Token, ...]:
    """What the metadata says was done to the table."""
    properties = metadata.get("properties", {})
    marks = [each["summary"][MARK] for each in metadata.get("snapshots", ()) if MARK in each.get("summary", {})]
    marks += [name.removeprefix(f"{MARK}.") for name in properties if name.startswith(f"{MARK}.")]
    schema = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    columns = [each["name"] for each in schema["fields"] if each["name"] not in FIRST_COLUMNS]
    tokens: list[Token] = [("mark", table, int(mark)) for mark in marks]
    tokens += [("column", table, name) for name in columns]
    tokens += [("tag", table, name) for name in metadata.get("refs", {}) if name != "main"]
    tokens += [("table", table, int(properties[MARK]))] if MARK in properties else []
    return tuple(tokens)


def version_of(metadata_location: str) -> int:
    """The number before the first hyphen of the file's name."""
    return int(metadata_location.rsplit("/", 1)[1].split("-", 1)[0])


def new_key(random: Random) -> UUID:
    """A UUID of version 7."""
    value = (time.time_ns() // 1_000_000 << 80) | random.getrandbits(76)
    return UUID(int=value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62)


def now() -> int:
    """The one clock of a history."""
    return time.monotonic_ns()


def pause(attempt: int) -> None:
    time.sleep(min(0.5, 0.02 * 2**attempt))
