"""Clients at work on a lake while something is done to its servers: what they were answered, and what must be there."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from random import Random
from typing import Any

import httpx
from pyiceberg.catalog.rest import RestCatalog

from scripts.history_job.client import new_key

TABLES = "/v1/namespaces/main/tables"
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
RETRY_SECONDS = 120.0
PAUSE_SECONDS = 0.02
"""Between two requests of a client: the servers of a busy machine are to start, too."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that wasn't answered well, when it was sent, and how long its client waited for that."""

    what: str
    said: str
    at: float
    seconds: float


@dataclass(slots=True)
class Traffic:
    """Clients that keep their connections. They send a failed request again, with the same key, if they may.

    retries: whether a failed request is sent again until it succeeds.
    """

    uri: str
    tables: list[str]
    retries: bool = False
    answers: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    rows: dict[str, list[int]] = field(default_factory=dict)
    """Ids whose rows were acknowledged, by table."""
    marks: dict[str, list[str]] = field(default_factory=dict)
    """Names of properties whose commit was acknowledged, by table."""
    seconds: list[float] = field(default_factory=list)
    """Of each request from its first sending to its good answer."""
    times: list[float] = field(default_factory=list)
    """When requests were answered well."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _ended: threading.Event = field(default_factory=threading.Event)

    def prepare(self) -> None:
        with httpx.Client(base_url=self.uri, timeout=120) as client:
            for table in self.tables:
                made = client.post(TABLES, json={"name": table, "schema": SCHEMA})
                assert made.is_success, made.text
                self.rows[table], self.marks[table] = [], []

    @contextmanager
    def running(self, clients: int = 6) -> Iterator[None]:
        """Let clients work while the block runs; raise what a client raised."""
        errors: list[Exception] = []

        def work(number: int) -> None:
            try:
                self._work(number)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()
            self._ended.clear()
        if errors:
            raise errors[0]

    def count(self) -> int:
        """Requests that were answered well."""
        return sum(self.answers.values())

    def longest_gap(self) -> float:
        """The longest time in which no request of any client was answered well, in seconds."""
        return max((after - before for before, after in pairwise(sorted(self.times))), default=0.0)

    def wait_for_more(self, requests: int = 60) -> None:
        """Return when so many more requests were answered well: by both servers, if both serve."""
        goal, until = self.count() + requests, time.monotonic() + RETRY_SECONDS
        while self.count() < goal:
            assert time.monotonic() < until, self.failures[-3:]
            time.sleep(0.02)

    def assert_all_is_there(self, uri: str) -> None:
        """Each acknowledged row and property is there, and no row twice; rows of unknown requests may be there."""
        with RestCatalog("lake", uri=uri) as catalog:
            for table in self.tables:
                loaded = catalog.load_table(("main", table))
                found = Counter(loaded.scan().to_arrow()["id"].to_pylist())
                assert max(found.values(), default=1) == 1, found.most_common(3)
                assert set(self.rows[table]) <= set(found), sorted(set(self.rows[table]) - set(found))[:5]
                assert set(self.marks[table]) <= set(loaded.properties), table

    def _work(self, number: int) -> None:
        random = Random(number)
        etags: dict[str, str] = {}
        with httpx.Client(base_url=self.uri, timeout=120) as client:
            while not self._ended.wait(PAUSE_SECONDS):
                table, mark = random.choice(self.tables), next(self._numbers)
                match random.randrange(8):
                    case 0 | 1:
                        self._post_rows(client, random, table, mark)
                    case 2:
                        self._commit(client, random, table, f"m{mark}")
                    case 3:
                        self._send(client, "list", "GET", TABLES)
                    case _:
                        headers = {"If-None-Match": etags[table]} if table in etags and random.random() < 0.3 else {}
                        loaded = self._send(client, "load", "GET", f"{TABLES}/{table}", headers=headers)
                        if loaded is not None:
                            etags[table] = loaded.headers["ETag"]

    def _post_rows(self, client: httpx.Client, random: Random, table: str, number: int) -> None:
        headers = {"Idempotency-Key": str(new_key(random))}
        if self._send(client, "rows", "POST", f"{TABLES}/{table}/rows", json=[{"id": number}], headers=headers):
            self.rows[table].append(number)

    def _commit(self, client: httpx.Client, random: Random, table: str, name: str) -> None:
        body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {name: "yes"}}]}
        headers = {"Idempotency-Key": str(new_key(random))}
        if self._send(client, "commit", "POST", f"{TABLES}/{table}", json=body, headers=headers):
            self.marks[table].append(name)

    def _send(self, client: httpx.Client, what: str, method: str, path: str, **request: Any) -> httpx.Response | None:
        began = time.monotonic()
        while True:
            at = time.monotonic()
            try:
                answer = client.request(method, path, **request)
            except httpx.TransportError as error:
                said = repr(error)
            else:
                if answer.is_success or answer.status_code == 304:
                    self.answers[what] += 1
                    self.times.append(time.monotonic())
                    self.seconds.append(self.times[-1] - began)
                    return answer
                said = f"{answer.status_code} {answer.text[:300]}"
            self.failures.append(Failure(what, said, at, time.monotonic() - at))
            if not self.retries or time.monotonic() - began > RETRY_SECONDS:
                return None
            time.sleep(0.05)
